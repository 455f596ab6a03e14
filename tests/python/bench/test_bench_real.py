"""The harness over the real command and model, on a data set of the test's own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cli import TIMEOUT_S, Cli

ANIMALS = (
    "cat",
    "dog",
    "hen",
    "goat",
    "mule",
    "duck",
    "crow",
    "seal",
    "toad",
    "hare",
    "mole",
    "wren",
)


@pytest.fixture(scope="module")
def ran(
    tmp_path_factory: pytest.TempPathFactory,
    inferscale_bin: Path,
    chat_model: Path,
    embed_model: Path,
    root: Path,
) -> list[dict[str, Any]]:
    """The answered questions of a run over twelve dated turns."""
    folder = tmp_path_factory.mktemp("bench")
    turns = [
        {
            "id": f"t{i}",
            "text": f"My {animal} is called {name}.",
            "speaker": "Ana",
            "when": f"2025-05-{i + 1:02}",
            "run": f"r{i // 4}",
        }
        for i, (animal, name) in enumerate(zip(ANIMALS, "ABCDEFGHIJKL", strict=True))
    ]
    questions = [
        {
            "question": "What is Ana's dog called?",
            "answer": "B",
            "category": "single-hop",
            "evidence": ["t1"],
            "wrong": ["B", "Q"],
        },
        {
            "question": "What is Ana's cow called?",
            "answer": "not mentioned",
            "category": "unanswerable",
            "evidence": [],
            "wrong": [],
        },
    ]
    (folder / "conversation.jsonl").write_text("".join(json.dumps(t) + "\n" for t in turns))
    (folder / "questions.jsonl").write_text(
        "".join(json.dumps({"id": f"q{i}", **q}) + "\n" for i, q in enumerate(questions))
    )
    words = ["own", str(folder), "--out", str(folder / "out"), "--bin", str(inferscale_bin)]
    words += ["--model", str(chat_model), "--embed-model", str(embed_model), "--facts", "8"]
    words += ["--max-tokens", "8", "--context", "1024", "--threads", "1", "--arms", "kv:plain=1"]
    words += ["kv:window=window(2),episode=1,plain=0", "shuffled", "none", "all", "mem0"]
    subprocess.run(
        [sys.executable, "-m", "inferscale.bench", *words],
        env={**os.environ, "PYTHONPATH": str(root / "python"), "HOME": str(folder)},
        timeout=TIMEOUT_S,
        check=True,
    )
    lines = (folder / "out" / "run.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines[1:]]


def test_text_is_its_own_reference(ran: list[dict[str, Any]]) -> None:
    for name in ("text e3", "text e1"):
        arm = ran[0]["arms"][f"{name} @8"]
        assert set(arm["kl"]) == {0}
        assert all(arm["same_top"])
        assert arm["injected_tokens"] == 0
        assert arm["prefilled_tokens"] == arm["prompt_tokens"]


@pytest.mark.parametrize("name", ["kv e3 anchor(20) m1", "kv e1 window(2) m0"])
def test_kv_reads_the_same_tokens_and_computes_fewer(ran: list[dict[str, Any]], name: str) -> None:
    arms = ran[0]["arms"]
    text, kv = arms[f"text {name.split()[1]} @8"], arms[f"{name} @8"]
    assert kv["facts"] == text["facts"]
    assert kv["prompt_tokens"] == text["prompt_tokens"]
    assert kv["injected_tokens"] + kv["prefilled_tokens"] == kv["prompt_tokens"]
    assert kv["injected_tokens"] > kv["prefilled_tokens"]
    assert 0 < sum(kv["kl"]) < 5
    assert len(kv["kl"]) == len(kv["same_top"]) == kv["gold_tokens"] == text["gold_tokens"]


def test_other_arms(ran: list[dict[str, Any]]) -> None:
    arms = ran[0]["arms"]
    text, shuffled = arms["text e3 @8"], arms["shuffled e3 @8"]
    assert set(shuffled["facts"]) == set(text["facts"])
    assert shuffled["prompt_tokens"] == text["prompt_tokens"]
    assert shuffled["injected_tokens"] == 0
    none = arms["none @8"]
    assert none["facts"] == []
    assert none["prompt_tokens"] < text["prompt_tokens"]
    assert sum(none["kl"]) > 0
    everything = arms["all @8"]
    assert everything["facts"] == [f"t{i}" for i in range(12)]
    assert everything["prompt_tokens"] > text["prompt_tokens"]
    assert len(text["facts"]) == 8
    assert "t1" in text["facts"]


def test_mem0_finds_turns_by_itself(ran: list[dict[str, Any]]) -> None:
    found = ran[0]["arms"]["mem0 @8"]
    assert len(set(found["facts"])) == 8
    assert found["facts"][-1] == "t1"  # the nearest, last
    assert found["injected_tokens"] == 0
    assert found["prompt_tokens"] > ran[0]["arms"]["none @8"]["prompt_tokens"]


def test_an_answer_is_as_likely_as_itself_among_the_options(ran: list[dict[str, Any]]) -> None:
    for arm in ran[0]["arms"].values():
        same, other = arm["options"]
        assert same["tokens"] == arm["gold_tokens"]
        assert same["nll"] == pytest.approx(arm["gold_nll"], abs=1e-3)
        assert other["nll"] != pytest.approx(arm["gold_nll"], abs=1e-3)
        assert arm["gold_nll"] > 0


def test_what_nothing_answers_is_only_asked(ran: list[dict[str, Any]]) -> None:
    for arm in ran[1]["arms"].values():
        assert "kl" not in arm
        assert "gold_nll" not in arm
        assert isinstance(arm["answer"], str)


def test_bad_lines_are_answered_by_an_error(cli: Cli) -> None:
    asked = '{"user": "u", "question": "Who?", "arms": [{"memory": "none"}], "max_tokens": 2}\n'
    lines = cli.ok("bench", "score", stdin=f"nonsense\n\n{{}}\n{asked}").out.splitlines()
    model, nonsense, empty, answer = map(json.loads, lines)
    assert model["model"]["injection"] is True
    assert len(model["model"]["fingerprint"]) == 32
    assert nonsense["error"]["code"] == "invalid"
    assert "JSON" in nonsense["error"]["message"]
    assert "'user'" in empty["error"]["message"]
    assert answer["arms"][0]["facts"] == []
