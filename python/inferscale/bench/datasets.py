"""Data sets as conversations with questions. Files are given by path; none comes with the project.

A turn becomes one line of a file for `inferscale import`, so its text and date go through the same
code as everybody's. What is wrong with a file is a DataError that says where.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

WRONG_OPTIONS = 9


class DataError(Exception):
    """A file is not what it should be; says where and why."""


@dataclass(frozen=True)
class Turn:
    id: str
    text: str
    speaker: str = ""
    when: str = ""  # whatever `inferscale import` understands
    run: str = ""

    def line(self, user: str) -> dict[str, Any]:
        """The object that `inferscale import` reads."""
        said = {"speaker": self.speaker, "when": self.when, "run": self.run}
        return {
            "user": user,
            "text": self.text,
            **{name: value for name, value in said.items() if value},
            "metadata": {"id": self.id},
        }


@dataclass(frozen=True)
class Question:
    id: str
    conversation: str
    text: str
    answer: str  # empty: nothing in memory answers it, and to say so is right
    category: str
    evidence: tuple[str, ...] = ()  # ids of turns
    wrong: tuple[str, ...] = ()

    @property
    def answerable(self) -> bool:
        return bool(self.answer)


@dataclass
class Conversation:
    id: str
    turns: list[Turn]
    questions: list[Question] = field(default_factory=list)


@dataclass
class DataSet:
    name: str
    sha256: str
    conversations: list[Conversation]

    def questions(self) -> list[Question]:
        return [q for conversation in self.conversations for q in conversation.questions]


class Place:
    """A value of a file and where it stands, for messages."""

    def __init__(self, value: Any, where: str) -> None:
        self.value = value
        self.where = where

    def fail(self, what: str) -> DataError:
        return DataError(f"{self.where}: {what}")

    def items(self, name: str) -> Iterator[Place]:
        """Of a list; `name` is what one of it is called."""
        if not isinstance(self.value, list):
            raise self.fail("must be a list")
        for number, value in enumerate(self.value, 1):
            yield Place(value, f"{self.where}, {name} {number}")

    def at(self, key: str) -> Place:
        if not isinstance(self.value, dict):
            raise self.fail("must be an object")
        if key not in self.value:
            raise self.fail(f"'{key}' is missing")
        return Place(self.value[key], f"{self.where}, {key}")

    def text(self, key: str, default: str | None = None) -> str:
        if default is not None and isinstance(self.value, dict) and self.value.get(key) is None:
            return default
        value = self.at(key).value
        if isinstance(value, int | float) and not isinstance(value, bool):
            return str(value)  # years and counts are answers too
        if not isinstance(value, str):
            raise self.fail(f"'{key}' must be text")
        return value.strip()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from error


def read_json(path: Path) -> tuple[Place, str]:
    """The file's value, and the SHA-256 of its bytes."""
    content = _read(path)
    try:
        value = json.loads(content)
    except ValueError as error:
        raise DataError(f"{path}: not JSON ({error})") from error
    return Place(value, path.name), hashlib.sha256(content).hexdigest()


def _json_lines(path: Path) -> tuple[list[Place], str]:
    content = _read(path)
    places = []
    for number, line in enumerate(content.splitlines(), 1):
        if not line.strip():
            continue
        where = f"{path.name}, line {number}"
        try:
            places.append(Place(json.loads(line), where))
        except ValueError as error:
            raise DataError(f"{where}: not JSON ({error})") from error
    return places, hashlib.sha256(content).hexdigest()


def _with_wrong_options(data: DataSet, seed: int) -> DataSet:
    """Wrong answers for ranking: right ones of other questions of the category."""
    pools: dict[str, set[str]] = {}
    for question in data.questions():
        if question.answerable:
            pools.setdefault(question.category, set()).add(question.answer)
    for conversation in data.conversations:
        conversation.questions = [
            question
            if question.wrong or not question.answerable
            else _replace_wrong(question, sorted(pools[question.category]), seed)
            for question in conversation.questions
        ]
    return data


def _replace_wrong(question: Question, pool: list[str], seed: int) -> Question:
    others = [answer for answer in pool if answer.lower() != question.answer.lower()]
    chosen = random.Random(f"{seed} {question.id}").sample(others, min(WRONG_OPTIONS, len(others)))
    return Question(**{**vars(question), "wrong": tuple(chosen)})


# ---- LoCoMo ------------------------------------------------------------------------------------

LOCOMO_CATEGORIES = {
    1: "multi-hop",
    2: "temporal",
    3: "open-domain",
    4: "single-hop",
    5: "adversarial",
}
_DIALOGUE_ID = re.compile(r"D\d+:\d+")


def _locomo_turns(conversation: Place) -> list[Turn]:
    if not isinstance(conversation.value, dict):
        raise conversation.fail("must be an object")
    numbers = [re.fullmatch(r"session_(\d+)", key) for key in conversation.value]
    turns = []
    for number in sorted(int(match.group(1)) for match in numbers if match):
        session = f"session_{number}"
        when = conversation.text(f"{session}_date_time", "")
        for turn in conversation.at(session).items("turn"):
            text = turn.text("text")
            if caption := turn.text("blip_caption", ""):
                text = f"{text} [image: {caption}]".strip()
            if not text:
                continue
            turns.append(Turn(turn.text("dia_id"), text, turn.text("speaker"), when, session))
    return turns


def locomo(path: Path, seed: int) -> DataSet:
    """LoCoMo's JSON: dated turns of sessions, questions of five categories."""
    root, digest = read_json(path)
    conversations = []
    for sample in root.items("sample"):
        conversation = Conversation(
            sample.text("sample_id"), _locomo_turns(sample.at("conversation"))
        )
        known = {turn.id for turn in conversation.turns}
        for number, qa in enumerate(sample.at("qa").items("question")):
            category = qa.at("category").value
            if category not in LOCOMO_CATEGORIES:
                raise qa.fail("'category' must be a number from 1 to 5")
            # Some evidence strings name several turns, or none that exists.
            named = _DIALOGUE_ID.findall(json.dumps(qa.at("evidence").value))
            conversation.questions.append(
                Question(
                    id=f"{conversation.id}/{number}",
                    conversation=conversation.id,
                    text=qa.text("question"),
                    answer="" if category == 5 else qa.text("answer"),
                    category=LOCOMO_CATEGORIES[category],
                    evidence=tuple(dict.fromkeys(id for id in named if id in known)),
                )
            )
        conversations.append(conversation)
    return _with_wrong_options(DataSet("LoCoMo", digest, conversations), seed)


# ---- LongMemEval -------------------------------------------------------------------------------


def _longmemeval_date(place: Place, value: Any) -> str:
    """'2023/05/20 (Sat) 02:21' as ISO 8601."""
    try:
        return datetime.strptime(
            re.sub(r"\s*\(\w+\)", "", str(value)), "%Y/%m/%d %H:%M"
        ).isoformat()
    except ValueError as error:
        raise place.fail("its date is not like '2023/05/20 (Sat) 02:21'") from error


def longmemeval(path: Path, seed: int) -> DataSet:
    """LongMemEval's JSON: every question has a history of its own."""
    root, digest = read_json(path)
    conversations = []
    for item in root.items("question"):
        name = item.text("question_id")
        dates = item.at("haystack_dates").value
        ids = item.at("haystack_session_ids").value
        turns, evidence = [], []
        for number, session in enumerate(item.at("haystack_sessions").items("session")):
            if number >= len(dates) or number >= len(ids):
                raise session.fail("it has no date or no id")
            when = _longmemeval_date(session, dates[number])
            for turn_number, turn in enumerate(session.items("turn")):
                if not (text := turn.text("content", "")):
                    continue
                turn_id = f"{ids[number]}:{turn_number}"
                turns.append(Turn(turn_id, text, turn.text("role"), when, str(ids[number])))
                if turn.value.get("has_answer"):
                    evidence.append(turn_id)
        answer = "" if name.endswith("_abs") else item.text("answer")
        question = Question(
            name, name, item.text("question"), answer, item.text("question_type"), tuple(evidence)
        )
        conversations.append(Conversation(name, turns, [question]))
    return _with_wrong_options(DataSet("LongMemEval", digest, conversations), seed)


# ---- MultiHop-RAG ------------------------------------------------------------------------------

_PASSAGE_CHARACTERS = 800


def _passages(body: str) -> Iterator[str]:
    """Whole sentences, as many as make a passage."""
    passage = ""
    for sentence in re.split(r"(?<=[.!?])\s+", " ".join(body.split())):
        if passage and len(passage) + len(sentence) > _PASSAGE_CHARACTERS:
            yield passage
            passage = ""
        passage = f"{passage} {sentence}".strip()
    if passage:
        yield passage


def multihop_rag(path: Path, seed: int) -> DataSet:
    """MultiHop-RAG: a folder with corpus.json and MultiHopRAG.json; one corpus serves all."""
    corpus, corpus_digest = read_json(path / "corpus.json")
    asked, digest = read_json(path / "MultiHopRAG.json")
    turns: list[Turn] = []
    of_article: dict[str, list[str]] = {}
    for number, article in enumerate(corpus.items("article")):
        title = article.text("title")
        for part, passage in enumerate(_passages(article.text("body"))):
            turn = Turn(f"{number}:{part}", passage, title, article.text("published_at", ""), title)
            turns.append(turn)
            of_article.setdefault(title, []).append(turn.id)
    conversation = Conversation("corpus", turns)
    texts = {turn.id: turn.text for turn in turns}
    for number, item in enumerate(asked.items("question")):
        category = item.text("question_type")
        evidence = []
        for piece in item.at("evidence_list").items("evidence"):
            fact = " ".join(piece.text("fact").split())
            near = of_article.get(piece.text("title"), [])
            evidence += [id for id in near if fact in texts[id]]
        answer = "" if category == "null_query" else item.text("answer")
        conversation.questions.append(
            Question(str(number), "corpus", item.text("query"), answer, category, tuple(evidence))
        )
    digest = hashlib.sha256((corpus_digest + digest).encode()).hexdigest()
    return _with_wrong_options(DataSet("MultiHop-RAG", digest, [conversation]), seed)


# ---- the project's own sample ------------------------------------------------------------------


def own(path: Path, seed: int) -> DataSet:
    """A folder like examples/sample: conversation.jsonl and questions.jsonl."""
    lines, turns_digest = _json_lines(path / "conversation.jsonl")
    turns = [
        Turn(
            turn.text("id"),
            turn.text("text"),
            turn.text("speaker", ""),
            turn.text("when", ""),
            turn.text("run", ""),
        )
        for turn in lines
    ]
    conversation = Conversation(path.resolve().name, turns)
    lines, digest = _json_lines(path / "questions.jsonl")
    for item in lines:
        category = item.text("category")
        conversation.questions.append(
            Question(
                id=item.text("id"),
                conversation=conversation.id,
                text=item.text("question"),
                answer="" if category == "unanswerable" else item.text("answer"),
                category=category,
                evidence=tuple(str(place.value) for place in item.at("evidence").items("id")),
                wrong=tuple(str(place.value) for place in item.at("wrong").items("answer")),
            )
        )
    digest = hashlib.sha256((turns_digest + digest).encode()).hexdigest()
    return _with_wrong_options(DataSet("own sample", digest, [conversation]), seed)


LOADERS: dict[str, Callable[[Path, int], DataSet]] = {
    "locomo": locomo,
    "longmemeval": longmemeval,
    "multihop-rag": multihop_rag,
    "own": own,
}


# ---- choosing ----------------------------------------------------------------------------------


def part_of(question_id: str) -> str:
    """Half of the questions are for choosing a strategy, the other half for the final table."""
    return ("choose", "final")[hashlib.sha256(question_id.encode()).digest()[0] & 1]


def select(
    data: DataSet,
    *,
    part: str = "all",
    conversations: int = 0,
    per_conversation: int = 0,
    categories: Sequence[str] = (),
    seed: int = 0,
) -> DataSet:
    """Fewer conversations and questions; the same arguments give the same ones. 0: all."""
    kept = []
    for conversation in data.conversations[: conversations or None]:
        questions = [
            question
            for question in conversation.questions
            if (part == "all" or part_of(question.id) == part)
            and (not categories or question.category in categories)
        ]
        if per_conversation and per_conversation < len(questions):
            chosen = random.Random(f"{seed} {conversation.id}").sample(
                range(len(questions)), per_conversation
            )
            questions = [questions[i] for i in sorted(chosen)]
        kept.append(Conversation(conversation.id, conversation.turns, questions))
    return DataSet(data.name, data.sha256, [c for c in kept if c.questions])
