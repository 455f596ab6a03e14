"""Adds up the tests in JUnit reports and prints `N passed, N failed`.

    python3 scripts/tally.py REPORT.xml ...

Skipped tests count as neither. A test that ctest could not start counts as failed, and so does a
report that is missing, unreadable or empty: a run that tested nothing has proved nothing. Exits
with 1 if anything failed.
"""

import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

# ctest reports a test that it could not run as skipped too; only these are the test's own decision.
CTEST_SKIPS = ("SKIP_REGULAR_EXPRESSION_MATCHED", "SKIP_RETURN_CODE")


def is_failure(case: ElementTree.Element) -> bool:
    if case.find("failure") is not None or case.find("error") is not None:
        return True
    skipped = case.find("skipped")
    if skipped is None or case.get("status") != "notrun":
        return False
    return not skipped.get("message", "").startswith(CTEST_SKIPS)


def is_skip(case: ElementTree.Element) -> bool:
    return case.find("skipped") is not None or case.get("status") == "disabled"


def tally(report: Path) -> tuple[int, int]:
    """The numbers of tests that passed and failed in one report."""
    try:
        cases = list(ElementTree.parse(report).iter("testcase"))
    except (OSError, ElementTree.ParseError) as error:
        print(f"tally: {report}: {error}", file=sys.stderr)
        return 0, 1
    if not cases:
        print(f"tally: {report}: no test ran", file=sys.stderr)
        return 0, 1
    failed = sum(is_failure(case) for case in cases)
    skipped = sum(is_skip(case) and not is_failure(case) for case in cases)
    return len(cases) - failed - skipped, failed


def main() -> int:
    counts = [tally(Path(argument)) for argument in sys.argv[1:]]
    passed, failed = sum(c[0] for c in counts), sum(c[1] for c in counts)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
