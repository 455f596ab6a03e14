"""Reports without the questions whose right answers are wrong."""

import json
from pathlib import Path
from typing import Any

import pytest
from inferscale.bench import audit, report
from inferscale.bench.datasets import DataError
from inferscale.bench.runs import RunError
from run_files import run_file


def write(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value))
    return path


def error(question: str, answer: str, kind: str = "HALLUCINATION") -> dict[str, str]:
    return {"question": question, "golden_answer": answer, "error_type": kind}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Questions 0, 1 and 2, of which nothing answers the last one; the text arm knows 0 only."""
    return run_file(tmp_path / "run.jsonl", [("Oban", "Porto"), ("Bonn", "Bonn"), ("Bonn", "")])


def test_doubtful_questions_are_left_out(run: Path, tmp_path: Path) -> None:
    errors = [
        error("Where, 1?", "Oban"),
        error("Where, 0?", "Oban", "WRONG_CITATION"),  # the answer is right
        error("Where, 0?", "Lima"),  # another answer
        error("Where, 9?", "Oban"),
    ]
    made = report.make(run, audited=audit.read(write(tmp_path / "errors.json", errors)))
    assert made.questions == 2
    text = next(row for row in made.rows if row.arm.startswith("text"))
    assert text.measures["f1"].mean == 1.0
    assert report.make(run).rows[0].measures["f1"].mean == 0.5
    assert made.audit is not None
    assert made.audit["left_out"] == 1
    assert "- without 1 questions" in report.markdown(made, "x.svg")
    assert "- without" not in report.markdown(report.make(run), "x.svg")


def test_what_is_wrong_with_an_audit_is_said(run: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "e.json", [error("Where, 0?", "Oban"), {"question": "Where, 1?"}])
    with pytest.raises(DataError, match=r"e.json, error 2: 'error_type' is missing"):
        audit.read(path)
    with pytest.raises(DataError, match=r"e.json: must be a list"):
        audit.read(write(path, {"errors": []}))
    everything = [error(f"Where, {i}?", "Oban" if i < 2 else "") for i in range(3)]
    with pytest.raises(RunError, match="the audit leaves no question"):
        report.make(run, audited=audit.read(write(path, everything)))
