"""What one answer of one arm is worth. All of it comes from a run's file, so that a report can be
made again without a model."""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from typing import Any

ARTICLES = {"a", "an", "the"}

# How models say that they can't answer; looked for in the normalised answer.
_REFUSALS = re.compile(
    r"\b(not (mentioned|specified|provided|stated|known|given|available|clear)"
    r"|no (information|mention|answer|record|memory|memories)"
    r"|insufficient information"
    r"|do(es)? ?n[o']?t (know|say|mention|have|contain|specify|provide)"
    r"|(can ?not|can ?n?'?t|unable to) (be )?(answer|determine|determined|find|tell|say)"
    r"|unknown|unanswerable)\b"
)


def normalise(text: str) -> list[str]:
    """Words as SQuAD's score takes them: lower case, without punctuation and articles."""
    plain = text.lower().translate(str.maketrans("", "", string.punctuation))
    return [word for word in plain.split() if word not in ARTICLES]


def token_f1(answer: str, gold: str) -> float:
    """Harmonic mean of precision and recall over the words of both."""
    said, wanted = normalise(answer), normalise(gold)
    if not said or not wanted:
        return float(said == wanted)
    common = sum((Counter(said) & Counter(wanted)).values())
    return 2 * common / (len(said) + len(wanted))


def exact_match(answer: str, gold: str) -> float:
    return float(normalise(answer) == normalise(gold))


def is_refusal(answer: str) -> bool:
    """Does the answer say that there is none? An empty one does."""
    plain = " ".join(answer.lower().replace("\u2019", "'").split())
    return not plain or _REFUSALS.search(plain) is not None


def gold_rank(gold_nll: float, gold_tokens: int, options: list[dict[str, Any]]) -> int:
    """1: the right answer has the highest mean log-likelihood of a token. Ties count against it."""
    gold = gold_nll / gold_tokens
    return 1 + sum(bool(option["nll"] / option["tokens"] <= gold) for option in options)


def evidence_recall(facts: list[str], evidence: list[str]) -> float:
    return sum(id in facts for id in evidence) / len(evidence) if evidence else math.nan


# Name, title, larger is better (None: neither), unit.
MEASURES: dict[str, tuple[str, bool | None, str]] = {
    "kl": ("KL to full prefill", False, "nats"),
    "same_top": ("same top token", True, "%"),
    "same_answer": ("same greedy answer", True, "%"),
    "nll": ("gold NLL a token", False, "nats"),
    "rank1": ("gold ranked first", True, "%"),
    "f1": ("token F1", True, "%"),
    "exact": ("exact match", True, "%"),
    "judged": ("judged right", True, "%"),
    "refused": ("refused", None, "%"),
    "recall": ("evidence in the prompt", True, "%"),
}


def measure(
    question: dict[str, Any], arm: dict[str, Any], text: dict[str, Any]
) -> dict[str, float]:
    """All measures of an arm's result; `text` is that of full prefill of the same composition.
    What does not apply is left out."""
    answer = arm["answer"].strip()
    out = {
        "refused": float(is_refusal(answer)),
        "same_answer": float(arm["answer"] == text["answer"]),
    }
    if not question["answer"]:
        return out
    out["f1"] = token_f1(answer, question["answer"])
    out["exact"] = exact_match(answer, question["answer"])
    if (right := question.get("verdicts", {}).get(answer)) is not None:
        out["judged"] = float(right)
    if question["evidence"]:
        out["recall"] = evidence_recall(arm["facts"], question["evidence"])
    if "kl" not in arm:  # a server's answer
        return out
    out["kl"] = sum(arm["kl"]) / len(arm["kl"])
    out["same_top"] = sum(arm["same_top"]) / len(arm["same_top"])
    out["nll"] = arm["gold_nll"] / arm["gold_tokens"]
    if arm["options"]:
        rank = gold_rank(arm["gold_nll"], arm["gold_tokens"], arm["options"])
        out["rank1"] = float(rank == 1)
    return out
