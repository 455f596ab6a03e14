"""Rows of the result, and how a group of them is checked, timed and compared."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from clock import Call
from reference import WrongResult
from results import Result, compare

REPEATS = 50
# Launched from Python by the hundred: half the repeats.
SLOW_ROWS = ("torch",)


class Clock(Protocol):
    def synchronize(self) -> None: ...
    def queued(self, call: Call, variants: int, repeats: int) -> float: ...
    def called(self, call: Call, variants: int, repeats: int) -> float: ...


@dataclass
class Row:
    """One line of the result. `check` runs once, before the first timed call."""

    name: str
    call: Call
    check: Callable[[], None]
    variants: int


@dataclass
class Group:
    """Rows that do the same work."""

    op: str
    bytes: int  # read plus written
    rows: list[Row]
    shape: dict[str, Any] = field(default_factory=dict)


def measure(group: Group, clock: Clock) -> list[Result]:
    """A row that is wrong, or fails, gets no time. Raises if the device itself is lost."""
    results: dict[str, Result] = {
        row.name: {"op": group.op, "row": row.name, **group.shape, "bytes": group.bytes}
        for row in group.rows
    }
    right = []
    for row in group.rows:
        try:
            row.check()
            clock.synchronize()
            right.append(row)
        except (WrongResult, RuntimeError, OSError) as error:
            results[row.name].update(ok=False, error=str(error).splitlines()[0])
            try:
                clock.synchronize()
            except RuntimeError as lost:
                raise RuntimeError(f"{row.name}: {error}") from lost
    passes: dict[str, list[float]] = {row.name: [] for row in right}
    for order in (right, right[::-1]):
        for row in order:
            repeats = REPEATS // 2 if row.name in SLOW_ROWS else REPEATS
            passes[row.name].append(clock.queued(row.call, row.variants, repeats))
    for row in right:
        us = statistics.median(passes[row.name])
        results[row.name].update(
            ok=True,
            us=round(us, 2),
            spread=round((max(passes[row.name]) - min(passes[row.name])) / us, 4),
            called_us=round(clock.called(row.call, row.variants, 10), 2),
        )
    compare(results)
    return list(results.values())
