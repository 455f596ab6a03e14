"""Tiny data sets of the test's own; what is wrong with a file is said with its place."""

import json
from pathlib import Path
from typing import Any

import pytest
from inferscale.bench.datasets import (
    DataError,
    locomo,
    longmemeval,
    multihop_rag,
    own,
    part_of,
    select,
)


def turn(number: int, text: str, **more: str) -> dict[str, str]:
    return {"speaker": "Ines", "dia_id": f"D1:{number}", "text": text, **more}


def sample() -> dict[str, Any]:
    return {
        "sample_id": "conv-1",
        "conversation": {
            "speaker_a": "Ines",
            "speaker_b": "Callum",
            "session_2": [turn(1, "Later.") | {"dia_id": "D2:1"}],
            "session_2_date_time": "1:00 pm on 9 May, 2025",
            "session_1": [
                turn(1, "I have a cat.", blip_caption="a cat"),
                turn(2, ""),
                turn(3, "", blip_caption="a boat"),
            ],
            "session_1_date_time": "1:56 pm on 8 May, 2025",
            "session_10_date_time": "of a session that is not there",
        },
        "qa": [
            {"question": "What?", "answer": "a cat", "evidence": ["D1:1"], "category": 4},
            {"question": "When?", "answer": 2025, "evidence": ["D2:1; D1:3", "D"], "category": 4},
            {"question": "Why?", "adversarial_answer": "x", "evidence": [], "category": 5},
        ],
    }


def write(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value))
    return path


def test_locomo(tmp_path: Path) -> None:
    data = locomo(write(tmp_path / "l.json", [sample()]), seed=0)
    (conversation,) = data.conversations
    assert [(t.id, t.text, t.run) for t in conversation.turns] == [
        ("D1:1", "I have a cat. [image: a cat]", "session_1"),
        ("D1:3", "[image: a boat]", "session_1"),
        ("D2:1", "Later.", "session_2"),
    ]
    assert conversation.turns[0].when == "1:56 pm on 8 May, 2025"
    first, second, third = conversation.questions
    assert (first.answer, first.evidence, first.category) == ("a cat", ("D1:1",), "single-hop")
    assert first.wrong == ("2025",)
    assert (second.answer, second.evidence) == ("2025", ("D2:1", "D1:3"))
    assert not third.answerable
    assert third.category == "adversarial"
    assert conversation.turns[0].line("conv-1") == {
        "user": "conv-1",
        "text": "I have a cat. [image: a cat]",
        "speaker": "Ines",
        "when": "1:56 pm on 8 May, 2025",
        "run": "session_1",
        "metadata": {"id": "D1:1"},
    }


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda s: s.pop("sample_id"), r"l.json, sample 1: 'sample_id' is missing"),
        (lambda s: s["qa"][1].pop("question"), r"sample 1, qa, question 2: 'question' is missing"),
        (lambda s: s["qa"][1].pop("answer"), r"qa, question 2: 'answer' is missing"),
        (lambda s: s["qa"][0].update(category=9), r"question 1: 'category' must be"),
        (lambda s: s["qa"][0].update(answer=["x"]), r"question 1: 'answer' must be text"),
        (lambda s: s.update(qa={}), r"sample 1, qa: must be a list"),
        (
            lambda s: s["conversation"]["session_1"][2].pop("dia_id"),
            r"session_1, turn 3: 'dia_id' is missing",
        ),
    ],
)
def test_locomo_says_what_is_wrong_where(tmp_path: Path, spoil: Any, message: str) -> None:
    spoiled = sample()
    spoil(spoiled)
    with pytest.raises(DataError, match=message):
        locomo(write(tmp_path / "l.json", [spoiled]), seed=0)


def test_files_that_are_not_there_or_no_json(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.json: No such file"):
        locomo(tmp_path / "none.json", seed=0)
    (tmp_path / "bad.json").write_text("[{]")
    with pytest.raises(DataError, match=r"bad\.json: not JSON"):
        locomo(tmp_path / "bad.json", seed=0)


def test_longmemeval(tmp_path: Path) -> None:
    item = {
        "question_id": "q1",
        "question_type": "temporal",
        "question": "When?",
        "answer": "in May",
        "haystack_dates": ["2023/05/20 (Sat) 02:21", "2023/05/21 (Sun) 10:00"],
        "haystack_session_ids": ["s1", "s2"],
        "haystack_sessions": [
            [{"role": "user", "content": "In May.", "has_answer": True}],
            [{"role": "assistant", "content": ""}, {"role": "assistant", "content": "Fine."}],
        ],
    }
    path = write(tmp_path / "m.json", [item, {**item, "question_id": "q2_abs"}])
    data = longmemeval(path, seed=0)
    first, second = data.conversations
    assert [(t.id, t.when, t.speaker) for t in first.turns] == [
        ("s1:0", "2023-05-20T02:21:00", "user"),
        ("s2:1", "2023-05-21T10:00:00", "assistant"),
    ]
    assert first.questions[0].evidence == ("s1:0",)
    assert not second.questions[0].answerable
    bad = {**item, "haystack_dates": ["20 May"]}
    with pytest.raises(DataError, match=r"question 1, haystack_sessions, session 1: its date"):
        longmemeval(write(tmp_path / "m.json", [bad]), seed=0)


def test_multihop_rag(tmp_path: Path) -> None:
    sentences = [
        f"Sentence number {i} is about {'boats' if i == 30 else 'maps'}." for i in range(60)
    ]
    article = {"title": "Maps", "body": "\n\n".join(sentences), "published_at": "2023-09-28"}
    write(tmp_path / "corpus.json", [article])
    answerable = {
        "query": "?",
        "answer": "Yes",
        "question_type": "inference_query",
        "evidence_list": [{"title": "Maps", "fact": sentences[30]}],
    }
    asked = [answerable, {**answerable, "question_type": "null_query", "evidence_list": []}]
    write(tmp_path / "MultiHopRAG.json", asked)
    (conversation,) = multihop_rag(tmp_path, seed=0).conversations
    assert " ".join(t.text for t in conversation.turns) == " ".join(sentences)
    assert all(len(t.text) <= 800 for t in conversation.turns)
    (found,) = conversation.questions[0].evidence
    assert sentences[30] in next(t.text for t in conversation.turns if t.id == found)
    assert not conversation.questions[1].answerable


def test_own_sample(root: Path, tmp_path: Path) -> None:
    data = own(root / "examples" / "sample", seed=0)
    questions = data.questions()
    known = {t.id for t in data.conversations[0].turns}
    assert all(q.answerable != (q.category == "unanswerable") for q in questions)
    assert all(set(q.evidence) <= known for q in questions)
    assert all(len(q.wrong) == 9 for q in questions)
    (tmp_path / "conversation.jsonl").write_text('{"id": "t1", "text": "x"}\n\n{"id": "t2"}\n')
    with pytest.raises(DataError, match=r"conversation\.jsonl, line 3: 'text' is missing"):
        own(tmp_path, seed=0)
    (tmp_path / "conversation.jsonl").write_text('{"id": "t1", "text": "x"}\n{"id"\n')
    with pytest.raises(DataError, match=r"conversation\.jsonl, line 2: not JSON"):
        own(tmp_path, seed=0)


def test_choosing_questions(root: Path) -> None:
    data = own(root / "examples" / "sample", seed=0)
    every = {q.id for q in data.questions()}
    halves = [{q.id for q in select(data, part=p).questions()} for p in ("choose", "final")]
    assert halves[0] | halves[1] == every
    assert not halves[0] & halves[1]
    assert min(map(len, halves)) > len(every) / 4
    assert all(part_of(id) == "final" for id in halves[1])
    few = select(data, per_conversation=5, seed=3)
    assert len(few.questions()) == 5
    assert few == select(data, per_conversation=5, seed=3)
    assert few != select(data, per_conversation=5, seed=4)
    assert {q.category for q in select(data, categories=["changed"]).questions()} == {"changed"}
    assert select(data, categories=["none such"]).conversations == []
