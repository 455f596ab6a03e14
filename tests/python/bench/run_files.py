"""A run's file with two arms, one of text and one without memory."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

RUN = {
    "run": {
        "format": 1,
        "data": {"name": "own", "sha256": "0" * 64},
        "selection": "part all",
        "questions": 3,
        "conversations": 1,
        "arms": [
            {"name": "text e1", "memory": "text", "window": "isolated", "episode": 1},
            {"name": "none", "memory": "none", "window": "isolated", "episode": 1},
        ],
        "facts": [5],
        "max_tokens": 8,
        "seed": 0,
        "model": {
            "name": "m",
            "description": "d",
            "fingerprint": "0" * 32,
            "context_tokens": 9,
            "engine": "e",
            "version": "0",
            "self_test": "fine",
        },
        "encoding": {},
        "machine": {"system": "s", "processors": 1},
        "started": "2026-01-01T00:00:00Z",
    }
}


def arm(answer: str) -> dict[str, Any]:
    counts = {"prompt_tokens": 1, "injected_tokens": 0, "prefilled_tokens": 1}
    return {"answer": answer, "facts": [], **counts}


def run_file(path: Path, answers: Sequence[tuple[str, str]]) -> Path:
    """Of both arms, question by question. Each is answered by "Oban", but the last by nothing."""
    last = len(answers) - 1
    rows = [
        {
            "id": f"q{i}",
            "conversation": "c",
            "category": "one" if i < last else "nothing",
            "question": f"Where, {i}?",
            "answer": "Oban" if i < last else "",
            "wrong": ["Lima", "Bonn"],
            "evidence": [],
            "arms": {"text e1 @5": arm(text), "none @5": arm(none)},
        }
        for i, (text, none) in enumerate(answers)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in [RUN, *rows]))
    return path
