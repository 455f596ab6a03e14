"""Runs over a command that computes nothing: files, resumption, reports."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from cli import TIMEOUT_S

FAKE = Path(__file__).with_name("fake_inferscale.py")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "python")}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data set of 2 turns, 12 questions that they answer and 2 that nothing does."""
    folder = tmp_path / "data"
    folder.mkdir()
    turns = [{"id": f"t{i}", "text": f"Turn {i}."} for i in (1, 2)]
    questions = [
        {
            "id": f"q{i}",
            "question": f"Question {i}?",
            "answer": f"answer {i}",
            "category": "single-hop" if i < 12 else "unanswerable",
            "evidence": ["t1"],
            "wrong": ["x", "y"],
        }
        for i in range(14)
    ]
    for name, rows in (("conversation", turns), ("questions", questions)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def command(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "inferscale.bench", *map(str, words)]


def bench(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*words),
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "run.jsonl").read_text().splitlines()]


def test_a_run_and_its_report(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = bench("own", data, "--out", out, "--bin", FAKE, "--arms", "kv", "none", "--facts", "5,9")
    assert done.returncode == 0, done.stderr
    header, *rows = lines(out)
    assert [arm["name"] for arm in header["run"]["arms"]] == [
        "text e3",
        "kv e3 anchor(20) m3",
        "none",
    ]
    assert header["run"]["model"]["name"] == "fake"
    assert header["run"]["encoding"]["anchor-20-3-none"]["stored_tokens"] == 10
    rows.sort(key=lambda row: int(row["id"][1:]))
    assert [row["id"] for row in rows] == [f"q{i}" for i in range(14)]
    assert len(rows[0]["arms"]) == 6
    assert "14 of 14" in done.stderr
    stored = (out / "stores" / "anchor-20-3-none" / "turns.jsonl").read_text().splitlines()
    assert json.loads(stored[0]) == {"user": "data", "text": "Turn 1.", "metadata": {"id": "t1"}}

    assert bench("report", out).returncode == 0
    told = json.loads((out / "report.json").read_text())
    assert told["questions"] == 14
    kv = next(row for row in told["rows"] if row["arm"].startswith("kv") and row["facts"] == 9)
    results = [row["arms"]["kv e3 anchor(20) m3 @9"] for row in rows[:12]]
    assert kv["measures"]["kl"]["mean"] == pytest.approx(
        sum(sum(r["kl"]) / 2 for r in results) / 12
    )
    assert kv["measures"]["kl"]["count"] == 12
    assert kv["measures"]["recall"]["mean"] == 1
    assert kv["refused_unanswerable"]["count"] == 2
    assert kv["tokens"] == {"prompt_tokens": 100, "injected_tokens": 80, "prefilled_tokens": 20}
    text = [row["arms"]["text e3 @9"] for row in rows[:12]]
    loss = [(r["gold_nll"] - t["gold_nll"]) / 2 for r, t in zip(results, text, strict=True)]
    assert kv["against_text"]["nll"]["gain"]["mean"] == pytest.approx(-sum(loss) / 12)
    markdown = (out / "report.md").read_text()
    assert "| kv e3 anchor(20) m3 |" in markdown
    assert "Question" not in markdown
    assert "answer 1" not in markdown + (out / "report.json").read_text()
    assert (out / "report.svg").read_text().startswith("<?xml")


def test_what_is_drawn_from_turns_is_drawn_once(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ("own", data, "--out", out, "--bin", FAKE, "--arms", "kv:infer=1", "--facts", "5")
    assert bench(*words).returncode == 0
    store = out / "stores" / "anchor-20-3-none-infer"
    assert (store / "inferred").exists()
    assert not (out / "stores" / "anchor-20-3-none" / "inferred").exists()
    assert len((store / "turns.jsonl").read_text().splitlines()) == 2
    # A run that goes on does not draw again; one whose drawing was stopped begins that anew.
    for drawn, turns in ((True, 2), (False, 2)):
        (out / "run.jsonl").write_text("\n".join(json.dumps(row) for row in lines(out)[:4]) + "\n")
        if not drawn:
            (store / "drawn").unlink()
        done = bench(*words)
        assert done.returncode == 0, done.stderr
        assert len(lines(out)) == 15
        assert len((store / "turns.jsonl").read_text().splitlines()) == turns
    assert bench("report", out).returncode == 0
    rows = {row["arm"]: row for row in json.loads((out / "report.json").read_text())["rows"]}
    assert set(rows) == {"text e3", "text e3 infer", "kv e3 anchor(20) m3 infer"}
    assert "recall" in rows["text e3"]["measures"]
    assert "recall" not in rows["text e3 infer"]["measures"]
    assert set(rows["text e3 infer"]["against_text"]) == {"f1", "rank1", "nll"}
    assert rows["text e3"]["against_text"] == {}


def test_several_processes_give_the_same(data: Path, tmp_path: Path) -> None:
    told = []
    for jobs in ("1", "3"):
        out = tmp_path / jobs
        done = bench("own", data, "--out", out, "--bin", FAKE, "--facts", "5", "--jobs", jobs)
        assert done.returncode == 0, done.stderr
        assert bench("report", out).returncode == 0
        told.append(json.loads((out / "report.json").read_text())["rows"])
    assert told[0] == told[1]


def test_a_killed_run_goes_on(data: Path, tmp_path: Path) -> None:
    words = ("own", data, "--bin", FAKE, "--facts", "5")
    assert bench(*words, "--out", tmp_path / "whole").returncode == 0
    whole = lines(tmp_path / "whole")

    out = tmp_path / "killed"
    path = out / "run.jsonl"
    process = subprocess.Popen(
        command(*words, "--out", out),
        env={**ENVIRONMENT, "INFERSCALE_FAKE_ANSWERS": "5"},
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    while not path.exists() or path.read_bytes().count(b"\n") < 6:
        assert process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    with path.open("ab") as file:
        file.write(b'{"id": "q9", "half of a li')

    done = bench(*words, "--out", out)
    assert done.returncode == 0, done.stderr
    assert "1 of 9 " in done.stderr
    assert lines(out)[1:] == whole[1:]
    again = bench(*words, "--out", out)
    assert again.returncode == 0
    assert "answered already" in again.stderr
    assert lines(out)[1:] == whole[1:]


class Server(BaseHTTPRequestHandler):
    asked: ClassVar[list[dict[str, Any]]] = []

    def do_POST(self) -> None:
        assert self.path == "/v1/chat/completions"
        self.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        message = {"message": {"content": "answer 1"}, "finish_reason": "stop"}
        body = json.dumps({"choices": [message], "usage": {"prompt_tokens": 9}}).encode()
        self.send_response(500 if len(self.asked) > 14 else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


def test_a_server_answers_what_text_arms_read(data: Path, tmp_path: Path) -> None:
    with HTTPServer(("127.0.0.1", 0), Server) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        words = ("own", data, "--bin", FAKE, "--arms", "kv", "--facts", "5", "--server")
        url = f"http://127.0.0.1:{http.server_port}/v1"
        done = bench(*words, url, "--server-model", "m", "--out", tmp_path / "out")
        assert done.returncode == 0, done.stderr
        assert min(Server.asked, key=lambda request: request["messages"][1]["content"]) == {
            "model": "m",
            "messages": [
                {"role": "system", "content": "Memories:\n[8 May 2025] Ines: one\ntwo\n"},
                {"role": "user", "content": "Question 0?"},
            ],
            "temperature": 0,
            "max_tokens": 32,
        }
        failing = bench(*words, url, "--out", tmp_path / "other")
        assert failing.returncode == 1
        assert re.search("question q[0-9]+: ", failing.stderr)
        assert "500" in failing.stderr
        http.shutdown()
    rows = lines(tmp_path / "out")[1:]
    assert all(row["arms"]["server e3 @5"]["answer"] == "answer 1" for row in rows)
    assert not any("lines" in arm for row in rows for arm in row["arms"].values())
    assert bench("report", tmp_path / "out").returncode == 0
    told = json.loads((tmp_path / "out" / "report.json").read_text())
    server = next(row for row in told["rows"] if row["arm"] == "server e3")
    # "answer 1" is right once, and shares one of two words with the other eleven.
    assert server["measures"]["f1"]["mean"] == pytest.approx((1 + 11 * 0.5) / 12)
    assert "kl" not in server["measures"]
    assert "| server e3 | - |" in (tmp_path / "out" / "report.md").read_text()


def test_another_run_is_refused(data: Path, tmp_path: Path) -> None:
    words = ("own", data, "--bin", FAKE, "--out", tmp_path / "out")
    assert bench(*words, "--facts", "5").returncode == 0
    before = (tmp_path / "out" / "run.jsonl").read_bytes()
    other = bench(*words, "--facts", "6")
    assert other.returncode == 1
    assert "its facts differs" in other.stderr
    with (data / "questions.jsonl").open("a") as file:
        file.write("\n")
    other = bench(*words, "--facts", "5")
    assert "its data differs" in other.stderr
    assert (tmp_path / "out" / "run.jsonl").read_bytes() == before


def test_what_goes_wrong_is_said(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    missing = bench("own", data, "--out", out, "--bin", tmp_path / "no such command")
    assert missing.returncode == 1
    assert "no inferscale command" in missing.stderr
    unknown = bench("own", data, "--out", out, "--bin", FAKE, "--arms", "magic")
    assert unknown.returncode == 1
    assert "arm 'magic'" in unknown.stderr
    nothing = bench("own", data, "--out", out, "--bin", FAKE, "--categories", "none such")
    assert "no question is left" in nothing.stderr
    failing = bench("own", data, "--out", out, "--bin", "false")
    assert failing.returncode == 1
    assert "inferscale import" in failing.stderr
    questions = (data / "questions.jsonl").read_text()
    (data / "questions.jsonl").write_text(questions.replace("Question 3?", "break"))
    broken = bench("own", data, "--out", out, "--bin", FAKE)
    assert broken.returncode == 1
    assert "question q3: told to break" in broken.stderr
    assert "q3" not in [row["id"] for row in lines(out)[1:]]
    (data / "questions.jsonl").write_text(questions + '{"id": "q99"}\n')
    malformed = bench("own", data, "--out", out, "--bin", FAKE)
    assert malformed.returncode == 1
    assert "questions.jsonl, line 15: 'category' is missing" in malformed.stderr


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "run.jsonl").write_text('{"run": {}}\nnonsense\n')
    done = bench("report", tmp_path)
    assert done.returncode == 1
    assert "run.jsonl, line 2: not JSON" in done.stderr
    (tmp_path / "run.jsonl").write_text('{"id": 1}\n')
    assert "not a run's" in bench("report", tmp_path).stderr
