"""Answers: ask, chat, bench, demo."""

import json
from pathlib import Path
from typing import Any

import pytest

from cli import Cli

FACTS = [
    ("Ana", "I moved to Lisbon in May, into a flat above a bakery."),
    ("Bo", "My dog is called Biscuit and he turned six in January."),
    ("Ana", "On Tuesdays I teach the violin at the school by the river."),
    ("Bo", "I paid 150 pounds for the wooden rowing boat."),
    ("Ana", "My brother Rui is allergic to walnuts, so I bake without them."),
    ("Bo", "We took the ferry to Craignure and it was late by two hours."),
    ("Ana", "The old maps in the archive come from a ship's captain."),
    ("Bo", "In winter I repair bicycles in the shed behind the house."),
]


@pytest.fixture
def filled(cli: Cli) -> Cli:
    lines = [
        json.dumps({"speaker": speaker, "when": f"2024-05-{8 + i:02}", "text": text})
        for i, (speaker, text) in enumerate(FACTS * 1)
    ]
    cli.ok("import", "-", "--format", "jsonl", "--user", "ana", stdin="\n".join(lines))
    return cli


def ask(cli: Cli, *words: str) -> Any:
    return cli.json(
        "ask", "What is the name of Bo's dog?", "--user", "ana", "--max-tokens", "12", *words
    )


def check_numbers(answer: Any) -> None:
    tokens, times = answer["tokens"], answer["times"]
    assert tokens["prompt"] == tokens["cached"] + tokens["injected"] + tokens["prefilled"]
    assert 0 < tokens["generated"] <= 12
    steps = sum(
        times[f"{step}_ms"]
        for step in ("embed", "search", "compose", "load", "inject", "prefill", "other")
    )
    assert steps == pytest.approx(times["first_token_ms"], rel=0.02, abs=0.5)
    assert times["first_token_ms"] <= times["total_ms"]


def test_ask_with_kv_injects_and_its_numbers_add_up(filled: Cli) -> None:
    answer = ask(filled, "--plain", "2")
    check_numbers(answer)
    facts = answer["facts"]
    assert len(facts) == len(FACTS)
    injected = [fact for fact in facts if fact["injected"]]
    assert len(injected) == len(FACTS) - 2
    assert not facts[-1]["injected"]
    assert not facts[-2]["injected"]
    assert all(fact["tier"] in ("memory", "disk") for fact in injected)
    assert all(fact["tier"] is None for fact in facts if not fact["injected"])
    of_facts = sum(fact["tokens"] for fact in injected)
    assert 0 < of_facts <= answer["tokens"]["injected"]
    plain = sum(fact["tokens"] for fact in facts if not fact["injected"])
    assert answer["tokens"]["prefilled"] >= plain
    assert answer["finish"] in ("stop", "length")
    assert answer["mode"] == "kv"


def test_text_mode_has_the_same_prompt_and_injects_no_fact(filled: Cli) -> None:
    kv, text = ask(filled, "--plain", "0"), ask(filled, "--mode", "text", "--plain", "0")
    check_numbers(text)
    assert text["tokens"]["prompt"] == kv["tokens"]["prompt"]
    assert [f["id"] for f in text["facts"]] == [f["id"] for f in kv["facts"]]
    assert not any(fact["injected"] for fact in text["facts"])
    assert text["tokens"]["prefilled"] > kv["tokens"]["prefilled"]


def test_no_memory_uses_no_fact(filled: Cli) -> None:
    answer = ask(filled, "--mode", "none")
    check_numbers(answer)
    assert answer["facts"] == []
    assert answer["times"]["embed_ms"] == 0


def test_ask_limits_facts(filled: Cli) -> None:
    assert len(ask(filled, "--facts", "3")["facts"]) == 3
    assert ask(filled, "--facts", "0")["facts"] == []
    few = ask(filled, "--fact-tokens", "60")
    assert 0 < sum(fact["tokens"] for fact in few["facts"]) <= 60


def test_answers_stream_to_stdout_and_explain_shows_all(filled: Cli) -> None:
    words = ("ask", "What is the name of Bo's dog?", "--user", "ana", "--max-tokens", "8")
    plain = filled.ok(*words)
    assert plain.out.strip()
    assert plain.err == ""
    explained = filled.ok(*words, "--explain").out
    assert explained.startswith(plain.out.rstrip("\n"))
    for word in ("SCORE", "prefilled", "Tokens", "Time", "first token", "[9 May 2024] Bo:"):
        assert word in explained


def test_ask_is_repeatable(filled: Cli) -> None:
    assert ask(filled)["answer"] == ask(filled)["answer"]


def test_ask_without_any_fact_still_answers(cli: Cli) -> None:
    answer = ask(cli)
    assert answer["facts"] == []
    assert answer["answer"]


def test_deleted_facts_are_in_no_prompt(filled: Cli) -> None:
    dog = next(fact for fact in ask(filled)["facts"] if "Biscuit" in fact["text"])
    filled.ok("delete", dog["id"])
    answer = ask(filled)
    assert dog["id"] not in [fact["id"] for fact in answer["facts"]]
    check_numbers(answer)
    filled.ok("encode")
    assert any(fact["injected"] for fact in ask(filled, "--plain", "0")["facts"])


def test_chat_appends_and_takes_commands(filled: Cli) -> None:
    talk = "What is Bo's dog called?\n\n/stats\n/facts\n/nonsense\nHow old is he?\n/quit\nnever\n"
    result = filled.ok("chat", "--user", "ana", "--max-tokens", "8", "--explain", stdin=talk)
    assert result.out.count("Tokens  ") == 3  # two answers and /stats
    assert "held" in result.out.split("Tokens  ")[3]  # the second turn reads only what is new
    assert "/nonsense is no command" in result.err


def test_chat_remembers_turns(filled: Cli) -> None:
    question = "My sister Dalia plays the cello. Is that hard?"
    filled.ok("chat", "--user", "ana", "--remember", "--max-tokens", "8", stdin=question + "\n")
    hits = filled.json("search", "cello", "--user", "ana", "--limit", "1")["results"]
    assert hits[0]["text"] == question
    assert hits[0]["speaker"] == "User"
    assert hits[0]["run"].startswith("chat-")


def test_bench_prints_rows(cli: Cli) -> None:
    rows = cli.json("bench", "ttft", "--facts", "0,6,12", "--plain", "0,2", "--repeat", "2")["rows"]
    assert [(row["facts"], row["plain"]) for row in rows] == [
        (0, 0),
        (6, 0),
        (6, 2),
        (12, 0),
        (12, 2),
    ]
    for row in rows:
        assert row["text_ms"] > 0
        assert row["kv_ms"] > 0
        assert row["tokens"] >= row["injected"] + row["prefilled"] - 1
    assert rows[3]["injected"] > rows[1]["injected"] > 0
    assert rows[2]["prefilled"] > rows[1]["prefilled"]
    assert not cli.data_dir.exists()


def test_bench_makes_facts_when_there_is_no_sample(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "conversation.jsonl").write_text('{"text": "the only fact"}\n')
    (tmp_path / "questions.jsonl").write_text("")
    row = cli.json("bench", "ttft", "--facts", "20", "--repeat", "1", "--sample", str(tmp_path))
    assert row["rows"][0]["facts"] == 20
    assert 25 * 20 <= row["rows"][0]["tokens"] <= 35 * 20 + 120


def test_demo_tells_and_plots(cli: Cli, tmp_path: Path) -> None:
    plot = tmp_path / "ttft.svg"
    turns = [{"speaker": speaker, "text": text} for speaker, text in FACTS]
    (tmp_path / "conversation.jsonl").write_text("\n".join(map(json.dumps, turns)))
    question = {"question": "What is Bo's dog called?", "answer": "Biscuit", "demo": True}
    (tmp_path / "questions.jsonl").write_text(json.dumps(question))
    report = cli.json(
        "demo", "--sample", str(tmp_path), "--plot", str(plot), "--sweep", "0,4,12",
        "--repeat", "1", "--max-tokens", "4", "--plain", "0",
    )  # fmt: skip
    assert [row["facts"] for row in report["rows"]] == [0, 4, 12]
    asked = report["questions"][0]
    assert asked["kv"]["tokens"]["injected"] > asked["text"]["tokens"]["injected"]
    assert asked["kv"]["tokens"]["prompt"] == asked["text"]["tokens"]["prompt"]
    assert asked["none"]["tokens"]["prompt"] < asked["text"]["tokens"]["prompt"]
    assert report["summary"]["speed_up"] > 0
    assert plot.read_text().startswith("<svg ")
    assert not cli.data_dir.exists()
