"""scripts/tally.py decides whether a run passed, so its own rules are tested."""

import subprocess
import sys
from pathlib import Path

import pytest

CTEST = """<testsuite name="x" tests="5">
  <testcase name="good" status="run"/>
  <testcase name="bad" status="fail"><failure message=""/></testcase>
  <testcase name="absent" status="notrun"><skipped message="Unable to find executable"/></testcase>
  <testcase name="waits" status="notrun">
    <skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>
  </testcase>
  <testcase name="off" status="disabled"><skipped message="Disabled"/></testcase>
</testsuite>"""

PYTEST = """<testsuites><testsuite name="pytest" errors="1" failures="1" skipped="1" tests="4">
  <testcase name="good"/>
  <testcase name="bad"><failure message="no"/></testcase>
  <testcase name="broken"><error message="no"/></testcase>
  <testcase name="waits"><skipped message="later"/></testcase>
</testsuite></testsuites>"""

GOOD = '<testsuite name="x"><testcase name="a" status="run"/><testcase name="b"/></testsuite>'


@pytest.mark.parametrize(
    ("reports", "line", "status"),
    [
        ([GOOD], "2 passed, 0 failed", 0),
        ([CTEST], "1 passed, 2 failed", 1),
        ([CTEST, PYTEST], "2 passed, 4 failed", 1),
        ([GOOD, "<testsuite/>"], "2 passed, 1 failed", 1),
        ([GOOD, "<testsuite><testca"], "2 passed, 1 failed", 1),
        ([GOOD, None], "2 passed, 1 failed", 1),
        ([], "0 passed, 0 failed", 1),
    ],
)
def test_tally(
    root: Path, tmp_path: Path, reports: list[str | None], line: str, status: int
) -> None:
    paths = [tmp_path / f"{index}.xml" for index in range(len(reports))]
    for path, text in zip(paths, reports, strict=True):
        if text is not None:
            path.write_text(text)
    run = subprocess.run(
        [sys.executable, root / "scripts/tally.py", *paths], capture_output=True, text=True
    )
    assert run.stdout == line + "\n"
    assert run.returncode == status
