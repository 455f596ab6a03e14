#!/usr/bin/env python3
"""A command that takes the harness's words and computes nothing: every number follows from the
question's text, so that two runs can be compared. After INFERSCALE_FAKE_ANSWERS
questions it hangs."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any


def _take(lines: list[str], folder: Path, encode: bool, infer: bool) -> None:
    if infer:
        (folder / "inferred").touch()
    with (folder / "turns.jsonl").open("a") as turns:
        turns.writelines(lines)
    facts = {"facts": len(lines), "stored_tokens": 10, "computed_tokens": 12, "ms": 1.0}
    print(json.dumps({"skipped": 0, "errors": [], "encoded": facts if encode else None}))


def _arm(request: dict[str, Any], arm: dict[str, Any]) -> dict[str, Any]:
    digest = hashlib.sha256(json.dumps([request["question"], arm["memory"]]).encode()).digest()
    said: dict[str, Any] = {
        "answer": request["gold"] if digest[0] % 2 else "not mentioned",
        "prompt_tokens": 100,
        "injected_tokens": 80 if arm["memory"] == "kv" else 0,
        "prefilled_tokens": 20 if arm["memory"] == "kv" else 100,
        "facts": ["t1"],
    }
    if request["show"]:
        said["lines"] = ["[8 May 2025] Ines: one\n", "two\n"]
    if not request["gold"]:
        return said
    return said | {
        "gold_nll": 2.0 + digest[1] / 255,
        "gold_tokens": 2,
        "kl": [0.0, 0.0] if arm["memory"] == "text" else [0.1, digest[2] / 255],
        "same_top": [True, digest[3] % 2 == 0],
        "options": [{"nll": 5.0, "tokens": 2} for _ in request["options"]],
    }


def main() -> int:
    words = sys.argv[1:]
    if "import" in words:
        lines = Path(words[words.index("import") + 1]).read_text().splitlines(keepends=True)
        _take(
            lines,
            Path(words[words.index("--data-dir") + 1]),
            "--no-encode" not in words,
            "--infer" in words,
        )
        return 0
    model = {
        "version": "0",
        "name": "fake",
        "description": "nothing",
        "engine": "none",
        "fingerprint": "0" * 32,
        "context_tokens": 10,
        "injection": True,
        "self_test": "passed",
        "system": "Memories:",
    }
    print(json.dumps({"model": model}), flush=True)
    answers = int(os.environ.get("INFERSCALE_FAKE_ANSWERS", "-1"))
    for number, line in enumerate(sys.stdin):
        request = json.loads(line)
        if number == answers:
            signal.pause()
        if request["question"] == "break":
            print(
                json.dumps({"error": {"code": "invalid", "message": "told to break"}}), flush=True
            )
        else:
            arms = [_arm(request, arm) for arm in request["arms"]]
            print(json.dumps({"arms": arms}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
