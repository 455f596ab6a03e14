"""How the scheduler half asks the hands for records.

With one worker in the scheduler's own process it calls it, and a record at hand is claimed in the
same step. Else orders travel with the steps, and a lease is settled when all ranks have said so.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from inferscale._core import KEY_BYTES, Codes
from inferscale.vllm.messages import Greeting, LeaseOrder, Orders, Ready, Report, merge

if TYPE_CHECKING:
    from inferscale.vllm.worker import Worker


class Leases(Protocol):
    def open(self, tenant: str, keys: bytes) -> int:
        """`keys`: 16 bytes of each."""

    def poll(self, lease: int) -> Sequence[int] | Codes | None:
        """A code for each key, or None while it is pending."""

    def close(self, lease: int) -> None: ...

    def order(self, orders: Orders) -> None:
        """Adds what has to travel with the next step."""

    def greet(self, greetings: Iterable[Greeting]) -> None:
        """What the workers say of themselves."""

    def hear(self, report: Report) -> None: ...

    def ready(self) -> Ready:
        """What they all say."""


class DirectLeases:
    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._numbers = itertools.count()

    def open(self, tenant: str, keys: bytes) -> int:
        lease = next(self._numbers)
        self._worker.open_lease(lease, tenant, keys)
        return lease

    def poll(self, lease: int) -> Sequence[int] | Codes | None:
        return self._worker.poll_lease(lease)

    def close(self, lease: int) -> None:
        self._worker.close_lease(lease)

    def order(self, orders: Orders) -> None:
        pass

    def greet(self, greetings: Iterable[Greeting]) -> None:
        pass

    def hear(self, report: Report) -> None:
        pass

    def ready(self) -> Ready:
        return self._worker.ready


class RemoteLeases:
    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._numbers = itertools.count()
        self._opens: list[LeaseOrder] = []
        self._closes: list[int] = []
        self._heard: dict[int, tuple[int, tuple[int, ...]]] = {}  # of open leases
        self._workers: dict[int, Ready] = {}

    def open(self, tenant: str, keys: bytes) -> int:
        lease = next(self._numbers)
        self._heard[lease] = (0, (0,) * (len(keys) // KEY_BYTES))
        self._opens.append(LeaseOrder(lease, tenant, keys))
        return lease

    def poll(self, lease: int) -> Sequence[int] | None:
        ranks, codes = self._heard[lease]
        return codes if ranks == self._ranks else None

    def close(self, lease: int) -> None:
        if self._heard.pop(lease, None) is not None:
            self._closes.append(lease)

    def order(self, orders: Orders) -> None:
        orders.leases, self._opens = self._opens, []
        orders.closes, self._closes = self._closes, []

    def greet(self, greetings: Iterable[Greeting]) -> None:
        self._workers.update((greeting.rank, greeting.ready) for greeting in greetings)

    def hear(self, report: Report) -> None:
        for lease, settled in report.leases.items():
            if lease in self._heard:
                self._heard[lease] = merge(self._heard[lease], settled)

    def ready(self) -> Ready:
        if len(self._workers) < self._ranks:
            return Ready(f"only {len(self._workers)} of {self._ranks} workers have a connector")
        said = [self._workers[rank] for rank in sorted(self._workers)]
        for ready in said:
            if ready.reason:
                return ready
        if len({(ready.fingerprint, ready.shape) for ready in said}) > 1:
            return Ready("the workers have different models")
        return said[0]
