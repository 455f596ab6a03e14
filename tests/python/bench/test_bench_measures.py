"""Scores by hand."""

import math

import pytest
from inferscale.bench.measures import (
    evidence_recall,
    exact_match,
    gold_rank,
    is_refusal,
    measure,
    normalise,
    token_f1,
)


def test_normalising_drops_case_punctuation_and_articles() -> None:
    assert normalise("The Cat, a dog -- and AN owl!") == ["cat", "dog", "and", "owl"]


@pytest.mark.parametrize(
    ("answer", "gold", "f1"),
    [
        ("Oban", "Oban", 1.0),
        ("the Oban.", "oban", 1.0),
        ("a ferry to Oban", "Oban", 0.5),  # precision 1/3, recall 1
        ("red red boat", "red boat", 0.8),  # 2 of 3 and 2 of 2
        ("red boat", "red red boat", 0.8),
        ("Porto", "Oban", 0.0),
        ("", "Oban", 0.0),
        ("the", "a", 1.0),  # nothing is left of either
    ],
)
def test_token_f1(answer: str, gold: str, f1: float) -> None:
    assert token_f1(answer, gold) == pytest.approx(f1)


def test_exact_match() -> None:
    assert exact_match("The Farelo!", "farelo") == 1
    assert exact_match("Farelo the cat", "farelo") == 0


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "Not mentioned.",
        "It is not mentioned in the memories.",
        "There is no information about that.",
        "I don't know.",
        "I don\u2019t know.",
        "The memories do not say.",
        "I cannot answer that.",
        "I can't find it.",
        "Unknown",
        "Insufficient information.",
    ],
)
def test_refusals(answer: str) -> None:
    assert is_refusal(answer)


@pytest.mark.parametrize(
    "answer", ["Oban", "She knows Callum.", "A note about an unknown-looking map", "7 May 2023"]
)
def test_answers_are_no_refusals(answer: str) -> None:
    assert is_refusal(answer) == ("unknown" in answer)  # the word alone is taken for one


def test_the_gold_answers_rank_is_by_the_mean_of_its_tokens() -> None:
    options = [{"nll": 3.0, "tokens": 1}, {"nll": 4.0, "tokens": 4}]
    assert gold_rank(2.0, 4, options) == 1  # 0.5 against 3 and 1
    assert gold_rank(8.0, 4, options) == 2
    assert gold_rank(4.0, 4, options) == 2  # a tie counts against it


def test_evidence_recall() -> None:
    assert evidence_recall(["a", "b", "c"], ["b", "z"]) == 0.5
    assert math.isnan(evidence_recall(["a"], []))


def test_all_measures_of_an_answer() -> None:
    question = {"answer": "red boat", "evidence": ["t1", "t2"]}
    text = {"answer": "red boat"}
    arm = {
        "answer": "a boat",
        "facts": ["t1"],
        "kl": [0.0, 0.3],
        "same_top": [True, False],
        "gold_nll": 3.0,
        "gold_tokens": 2,
        "options": [{"nll": 2.0, "tokens": 1}, {"nll": 1.0, "tokens": 1}],
    }
    assert measure(question, arm, text) == pytest.approx(
        {
            "refused": 0,
            "same_answer": 0,
            "f1": 2 / 3,
            "exact": 0,
            "recall": 0.5,
            "kl": 0.15,
            "same_top": 0.5,
            "nll": 1.5,
            "rank1": 0,
        }
    )


def test_where_nothing_answers_only_refusing_counts() -> None:
    nothing = {"answer": "", "evidence": []}
    assert measure(nothing, {"answer": "Not mentioned"}, {"answer": "Oban"}) == {
        "refused": 1,
        "same_answer": 0,
    }
