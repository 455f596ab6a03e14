#!/usr/bin/env python3
"""Checks examples/sample/ and prints a table of its counts; exits 1 with every fault found."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

DEFAULT_FOLDER = Path(__file__).resolve().parent.parent / "examples" / "sample"

MIN_TURNS = 220
MIN_RUNS = 14
MIN_SPAN = timedelta(days=7 * 30)
MIN_QUESTIONS = 48
MIN_BY_CATEGORY = {
    "single-hop": 10, "multi-hop": 9, "temporal": 9, "changed": 8, "unanswerable": 6,
}  # fmt: skip
DEMO_QUESTIONS = 5
MIN_LITERAL = 12
WRONG_ANSWERS = 9
MAX_ANSWER_WORDS = 8
RENDERED_MEAN = (100.0, 175.0)  # characters of "[14 January 2025] Ines: ..."
NOT_MENTIONED = "not mentioned"
MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip


@dataclass(frozen=True)
class Turn:
    id: str
    speaker: str
    when: datetime
    run: str
    text: str

    def rendered(self) -> str:
        date = f"{self.when.day} {MONTHS[self.when.month - 1]} {self.when.year}"
        return f"[{date}] {self.speaker}: {self.text}"


@dataclass(frozen=True)
class Question:
    id: str
    question: str
    answer: str
    category: str
    evidence: tuple[str, ...]
    wrong: tuple[str, ...]
    demo: bool


def read_lines(path: Path, keys: set[str], optional: frozenset[str]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        row = json.loads(line)
        if not keys <= row.keys() <= keys | optional:
            raise ValueError(f"{path.name}:{number}: keys {sorted(row)}, expected {sorted(keys)}")
        rows.append(row)
    return rows


def read_turns(path: Path) -> list[Turn]:
    rows = read_lines(path, {"id", "speaker", "when", "run", "text"}, frozenset())
    return [
        Turn(
            id=row["id"],
            speaker=row["speaker"],
            when=datetime.strptime(row["when"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC),
            run=row["run"],
            text=row["text"],
        )
        for row in rows
    ]


def read_questions(path: Path) -> list[Question]:
    keys = {"id", "question", "answer", "category", "evidence", "wrong"}
    return [
        Question(
            id=row["id"],
            question=row["question"],
            answer=row["answer"],
            category=row["category"],
            evidence=tuple(row["evidence"]),
            wrong=tuple(row["wrong"]),
            demo=row.get("demo", False),
        )
        for row in read_lines(path, keys, frozenset({"demo"}))
    ]


def folded(text: str) -> str:
    """What is left when case, punctuation and spacing do not count."""
    return " ".join(re.findall(r"\w+", text.casefold()))


def is_literal(question: Question, turns: dict[str, Turn]) -> bool:
    """Whether the one turn of evidence holds the answer word for word."""
    if len(question.evidence) != 1 or question.evidence[0] not in turns:
        return False
    return f" {folded(question.answer)} " in f" {folded(turns[question.evidence[0]].text)} "


def shares_words(question: Question, turns: dict[str, Turn]) -> bool:
    """Whether question and evidence share a word of four letters or more, the names aside."""
    names = {folded(turn.speaker) for turn in turns.values()}
    text = " ".join(turns[id_].text for id_ in question.evidence if id_ in turns)
    shared = set(folded(question.question).split()) & set(folded(text).split())
    return any(len(word) >= 4 for word in shared - names)


def are_numbered(ids: list[str], letter: str, digits: int) -> bool:
    return ids == [f"{letter}{number:0{digits}d}" for number in range(1, len(ids) + 1)]


def check_turns(turns: list[Turn]) -> list[str]:
    faults: list[str] = []
    if not are_numbered([turn.id for turn in turns], "t", 3):
        faults.append("turn ids are not t001, t002, ... in order")
    for before, after in pairwise(turns):
        if after.when <= before.when:
            faults.append(f"{after.id}: not later than {before.id}")
        if after.run < before.run:
            faults.append(f"{after.id}: run {after.run} after run {before.run}")
    seen: dict[str, str] = {}
    for turn in turns:
        first = seen.setdefault(folded(turn.text), turn.id)
        if first != turn.id:
            faults.append(f"{turn.id}: says the same as {first}")
        if not turn.text or turn.text != turn.text.strip():
            faults.append(f"{turn.id}: empty, or space at an end")
    if len(turns) < MIN_TURNS:
        faults.append(f"{len(turns)} turns, at least {MIN_TURNS} promised")
    if len({turn.run for turn in turns}) < MIN_RUNS:
        faults.append(f"fewer than {MIN_RUNS} runs")
    if len({turn.speaker for turn in turns}) != 2:
        faults.append("not two speakers")
    if turns and turns[-1].when - turns[0].when < MIN_SPAN:
        faults.append(f"first to last turn is less than {MIN_SPAN.days} days")
    mean = mean_rendered(turns)
    if not RENDERED_MEAN[0] <= mean <= RENDERED_MEAN[1]:
        faults.append(f"a rendered turn has {mean:.1f} characters on average")
    return faults


def check_question(question: Question, turns: dict[str, Turn]) -> list[str]:
    faults: list[str] = []
    if question.category not in MIN_BY_CATEGORY:
        faults.append(f"unknown category {question.category}")
    faults += [f"no turn {id_}" for id_ in question.evidence if id_ not in turns]
    if list(question.evidence) != sorted(set(question.evidence)):
        faults.append("evidence is not unique and in order")
    if not 1 <= len(question.answer.split()) <= MAX_ANSWER_WORDS:
        faults.append(f"the answer is not 1 to {MAX_ANSWER_WORDS} words")
    options = {folded(option) for option in (question.answer, *question.wrong)}
    if len(question.wrong) != WRONG_ANSWERS or len(options) != WRONG_ANSWERS + 1:
        faults.append(f"not {WRONG_ANSWERS} wrong answers, all distinct from the answer")
    unanswerable = question.category == "unanswerable"
    if unanswerable != (question.answer == NOT_MENTIONED) or unanswerable == bool(
        question.evidence
    ):
        faults.append("evidence, answer and category do not fit together")
    if question.category == "single-hop" and len(question.evidence) != 1:
        faults.append("single-hop needs one turn of evidence")
    if question.category == "multi-hop" and len(question.evidence) < 2:
        faults.append("multi-hop needs two turns of evidence")
    if question.demo and not (is_literal(question, turns) and shares_words(question, turns)):
        faults.append("a demo question needs a literal answer in a turn that shares words with it")
    return [f"{question.id}: {fault}" for fault in faults]


def check_questions(questions: list[Question], turns: dict[str, Turn]) -> list[str]:
    faults: list[str] = []
    if not are_numbered([question.id for question in questions], "q", 2):
        faults.append("question ids are not q01, q02, ... in order")
    if len({folded(question.question) for question in questions}) != len(questions):
        faults.append("two questions are equal")
    for question in questions:
        faults += check_question(question, turns)
    if len(questions) < MIN_QUESTIONS:
        faults.append(f"{len(questions)} questions, at least {MIN_QUESTIONS} promised")
    counts = Counter(question.category for question in questions)
    for category, least in MIN_BY_CATEGORY.items():
        if counts[category] < least:
            faults.append(f"{counts[category]} {category} questions, at least {least} promised")
    literal = count_literal(questions, turns)
    if literal < MIN_LITERAL:
        faults.append(f"{literal} literal single-hop questions, at least {MIN_LITERAL} promised")
    demo = sum(question.demo for question in questions)
    if demo != DEMO_QUESTIONS:
        faults.append(f"{demo} demo questions, {DEMO_QUESTIONS} promised")
    return faults


def count_literal(questions: list[Question], turns: dict[str, Turn]) -> int:
    return sum(
        question.category == "single-hop"
        and is_literal(question, turns)
        and shares_words(question, turns)
        for question in questions
    )


def mean_rendered(turns: list[Turn]) -> float:
    return sum(len(turn.rendered()) for turn in turns) / max(len(turns), 1)


def table(turns: list[Turn], questions: list[Question]) -> str:
    by_id = {turn.id: turn for turn in turns}
    rows: list[tuple[str, str]] = [
        ("turns", str(len(turns))),
        *((f"  by {name}", str(n)) for name, n in Counter(t.speaker for t in turns).items()),
        ("runs", str(len({turn.run for turn in turns}))),
        ("first turn", f"{turns[0].when:%Y-%m-%d}" if turns else "-"),
        ("last turn", f"{turns[-1].when:%Y-%m-%d}" if turns else "-"),
        ("characters, text, mean", f"{sum(len(t.text) for t in turns) / max(len(turns), 1):.1f}"),
        ("characters, rendered, mean", f"{mean_rendered(turns):.1f}"),
        ("questions", str(len(questions))),
    ]
    counts = Counter(question.category for question in questions)
    rows += [(f"  {category}", str(counts[category])) for category in MIN_BY_CATEGORY]
    rows += [
        ("literal single-hop", str(count_literal(questions, by_id))),
        ("demo", str(sum(question.demo for question in questions))),
        ("turns that are evidence", str(len({id_ for q in questions for id_ in q.evidence}))),
    ]
    return "\n".join(f"{name:<28}{value:>12}" for name, value in rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=DEFAULT_FOLDER)
    folder: Path = parser.parse_args().folder
    try:
        turns = read_turns(folder / "conversation.jsonl")
        questions = read_questions(folder / "questions.jsonl")
    except (OSError, ValueError) as error:
        print(f"check_sample: {error}", file=sys.stderr)
        return 1
    faults = check_turns(turns) + check_questions(questions, {turn.id: turn for turn in turns})
    print(table(turns, questions))
    for fault in faults:
        print(f"check_sample: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
