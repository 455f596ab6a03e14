"""A model that says whether an answer is right, for answers that say it in other words.

Verdicts stand in `judged-NAME.jsonl` beside a run's file; `report` takes them in. A judge is itself
judged: the wrong answers that it takes for right ones are counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inferscale.bench import runs
from inferscale.bench.server import Server, ServerError

# What a judge is asked; it answers yes or no.
PROMPTS = {
    "strict": """\
You grade answers to questions about a conversation. You get the question, the right answer and a \
given answer. Say yes if the given answer states what the right answer states: the same people, \
things, numbers and times, in any words and any format of dates. More detail is fine as long as \
nothing contradicts the right answer. Say no if a part of the right answer is missing or \
different, if the given answer stays vague, or if it says that it does not know. Answer with one \
word, yes or no.""",
    "lenient": """\
You grade answers to questions about a conversation. You get the question, the right answer and a \
given answer. Say yes if the given answer is about the same thing as the right answer, even if it \
is longer, shorter or less exact. Say no if it is about something else or says that it does not \
know. Answer with one word, yes or no.""",
}

_VERDICT = re.compile(r"\W*(yes|no)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Case:
    """One answer to be judged. `wrong` is a control: not an arm's, and known to be wrong."""

    question: str  # its id
    answer: str
    wrong: bool

    def asked(self, row: dict[str, Any]) -> str:
        return (
            f"Question: {row['question']}\nRight answer: {row['answer']}\n"
            f"Given answer: {self.answer}"
        )


def cases(rows: list[dict[str, Any]]) -> Iterator[Case]:
    """Every different answer to a question that has one, and its first wrong option."""
    for row in rows:
        if not row["answer"]:
            continue
        for answer in sorted({arm["answer"].strip() for arm in row["arms"].values()}):
            yield Case(row["id"], answer, False)
        if row["wrong"]:
            yield Case(row["id"], row["wrong"][0], True)


def verdict(reply: str) -> bool:
    said = _VERDICT.match(reply)
    if said is None:
        raise ServerError(f"a judge must say yes or no, not {reply[:40]!r}")
    return said[1].lower() == "yes"


def file_of(run: Path, prompt: str) -> Path:
    return run.with_name(f"judged-{prompt}.jsonl")


def judge(run: Path, server: Server, prompt: str, say: Callable[[str], None]) -> Path:
    """Judges what is not judged yet; returns the file."""
    _, rows, _ = runs.read(run)
    by_id = {row["id"]: row for row in rows}
    to = file_of(run, prompt)
    header, done, size = runs.read(to) if to.exists() else ({}, [], 0)
    wanted = {"judge": server.model, "prompt": prompt, "text": PROMPTS[prompt]}
    if header and header != wanted:
        raise runs.RunError(f"{to} is another judge's: move it away first")
    judged = {Case(row["id"], row["answer"], row["wrong"]) for row in done}
    waiting = [case for case in cases(rows) if case not in judged]
    with to.open("ab") as out:
        out.truncate(size)
        if not header:
            runs.append(out, {"run": wanted})
        for number, case in enumerate(waiting, 1):
            asked = case.asked(by_id[case.question])
            # An empty answer is no answer; nobody needs to be asked.
            right = bool(case.answer) and verdict(server.say(PROMPTS[prompt], asked, 8))
            row = {"id": case.question, "answer": case.answer, "wrong": case.wrong, "right": right}
            runs.append(out, row)
            if number % 50 == 0 or number == len(waiting):
                say(f"{number} of {len(waiting)} answers judged")
    return to


@dataclass(frozen=True)
class Verdicts:
    """Of one judge over one run."""

    judge: str
    prompt: str
    right: dict[str, dict[str, bool]]  # [question id][answer]
    wrong_accepted: float  # share of the controls; not a number without any

    def about(self) -> dict[str, Any]:
        return {
            "judge": self.judge,
            "prompt": self.prompt,
            "wrong_accepted": self.wrong_accepted,
        }


def read(run: Path) -> Verdicts | None:
    """The strict judge's, or the lenient one's if there is only that."""
    for prompt in PROMPTS:
        path = file_of(run, prompt)
        if not path.exists():
            continue
        header, rows, _ = runs.read(path)
        right: dict[str, dict[str, bool]] = {}
        for row in rows:
            if not row["wrong"]:
                right.setdefault(row["id"], {})[row["answer"]] = row["right"]
        controls = [row["right"] for row in rows if row["wrong"]]
        accepted = sum(controls) / len(controls) if controls else float("nan")
        return Verdicts(header["judge"], header["prompt"], right, accepted)
    return None
