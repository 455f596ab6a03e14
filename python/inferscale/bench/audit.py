"""An audit of a data set's own answers: questions whose right answer is wrong.

Such questions are left out of a second report. The audit's corrections are explanations and not
answers, so nothing is scored against them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inferscale.bench.datasets import read_json

# Only the evidence that is named is wrong, not the answer.
_HARMLESS = "WRONG_CITATION"


@dataclass(frozen=True)
class Audit:
    name: str
    sha256: str
    wrong: frozenset[tuple[str, str]]  # question, and the answer that the data set gives

    def doubts(self, question: dict[str, Any]) -> bool:
        """A row of a run's file."""
        return (question["question"], question["answer"]) in self.wrong


def read(path: Path) -> Audit:
    """A list of objects with `question`, `golden_answer` and `error_type`."""
    root, digest = read_json(path)
    wrong = {
        (error.text("question"), error.text("golden_answer"))
        for error in root.items("error")
        if error.text("error_type") != _HARMLESS
    }
    return Audit(path.name, digest, frozenset(wrong))
