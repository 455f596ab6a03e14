"""Verdicts of a judge that is a small server of ours."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from inferscale.bench import judge, report, runs
from inferscale.bench.server import Server, ServerError
from run_files import run_file


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The text arm is right in other words, the other one wrong once and silent once."""
    answers = [("in Oban, now", "Porto"), ("It's Oban.", ""), ("Oban", "I don't know")]
    return run_file(tmp_path / "run.jsonl", answers)


class Judge(BaseHTTPRequestHandler):
    asked: ClassVar[list[str]] = []
    reply: ClassVar[str] = ""  # instead of a verdict

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = body["messages"][1]["content"]
        Judge.asked.append(text)
        given = text.split("Given answer: ")[1]
        # Lima is the mistake that it makes.
        said = Judge.reply or ("Yes." if "Oban" in given or given == "Lima" else " no")
        message = {"message": {"content": said}, "finish_reason": "stop"}
        reply = json.dumps({"choices": [message], "usage": {"prompt_tokens": 1}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    Judge.asked.clear()
    Judge.reply = ""
    with HTTPServer(("127.0.0.1", 0), Judge) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield Server(f"http://127.0.0.1:{http.server_port}/v1", "a judge")
        http.shutdown()


def quiet(_: str) -> None:
    pass


def test_verdicts_go_into_the_report(run: Path, server: Server) -> None:
    judge.judge(run, server, "strict", quiet)
    # Two answers and a control of the first question; of the second one answer is empty. What
    # nothing answers is not judged.
    assert len(Judge.asked) == 3 + 2
    assert Judge.asked[0] == "Question: Where, 0?\nRight answer: Oban\nGiven answer: Porto"
    made = report.make(run)
    rows = {row.arm: row for row in made.rows}
    assert rows["text e1"].measures["judged"].mean == 1
    assert rows["none"].measures["judged"].mean == 0
    assert rows["none"].against_text["judged"].gain.mean == -1
    assert made.judge == {"judge": "a judge", "prompt": "strict", "wrong_accepted": 1.0}
    markdown = report.markdown(made, "x.svg")
    assert "judged right, %" in markdown
    assert "wrong it takes 100.0 %" in markdown
    assert "KL to full prefill, nats" not in markdown  # no arm has it


def test_nothing_is_judged_twice(run: Path, server: Server) -> None:
    path = judge.judge(run, server, "strict", quiet)
    whole = path.read_bytes()
    asked = len(Judge.asked)
    judge.judge(run, server, "strict", quiet)
    assert len(Judge.asked) == asked
    path.write_bytes(whole[: len(whole) - 9])  # as if it was killed
    judge.judge(run, server, "strict", quiet)
    assert len(Judge.asked) == asked + 1
    assert path.read_bytes() == whole


def test_another_judge_needs_another_file(run: Path, server: Server) -> None:
    judge.judge(run, server, "strict", quiet)
    with pytest.raises(runs.RunError, match="another judge"):
        judge.judge(run, Server(server.url, "another"), "strict", quiet)
    assert judge.judge(run, server, "lenient", quiet).name == "judged-lenient.jsonl"
    verdicts = judge.read(run)
    assert verdicts is not None
    assert verdicts.prompt == "strict"


def test_a_judge_that_says_something_else_is_an_error(run: Path, server: Server) -> None:
    Judge.reply = "Perhaps"
    with pytest.raises(ServerError, match="yes or no"):
        judge.judge(run, server, "strict", quiet)
    assert judge.verdict("**No**, it is not") is False
    with pytest.raises(ServerError):
        judge.verdict("nobody knows")


def test_a_report_without_a_judge_has_no_such_column(run: Path) -> None:
    made = report.make(run)
    assert made.judge is None
    assert "judged" not in report.markdown(made, "x.svg")
