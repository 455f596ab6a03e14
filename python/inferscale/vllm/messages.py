"""What the scheduler half and the worker half tell each other, in plain types."""

from __future__ import annotations

from dataclasses import dataclass, field

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorHandshakeMetadata,
    KVConnectorMetadata,
    KVConnectorWorkerMetadata,
)

from inferscale._core import Code, Ints, Shape

Blocks = tuple[list[int], ...]  # of each KV cache group


@dataclass(frozen=True, slots=True)
class LeaseOrder:
    lease: int
    tenant: str
    keys: bytes  # 16 of each, without a rank


@dataclass(frozen=True, eq=False, slots=True)
class Load:
    """Spans of a request, one behind the other without a gap; a number of each in each column."""

    lease: int
    record: Ints  # of the lease
    record_token: Ints
    first: Ints
    tokens: Ints
    blocks: Blocks


@dataclass(frozen=True, slots=True)
class CaptureOrder:
    capture: int
    tenant: str
    key: bytes  # without a rank
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SaveSpan:
    capture: int
    record_token: int
    first: int
    tokens: int
    blocks: Blocks


@dataclass
class Orders(KVConnectorMetadata):
    """One step's work, in the order in which it is done."""

    leases: list[LeaseOrder] = field(default_factory=list)
    loads: list[Load] = field(default_factory=list)
    captures: list[CaptureOrder] = field(default_factory=list)
    saves: list[SaveSpan] = field(default_factory=list)
    commits: list[int] = field(default_factory=list)  # captures
    reference: int | None = None  # the self-test's first capture, of one token
    flush: bool = False
    compare: tuple[int, int] | None = None  # its second one, and that one's tokens
    drops: list[int] = field(default_factory=list)  # captures
    closes: list[int] = field(default_factory=list)  # leases


@dataclass(frozen=True)
class Ready:
    """What a worker says of itself. With a reason, it moves no KV."""

    reason: str
    fingerprint: bytes = b""
    shape: Shape | None = None


@dataclass(frozen=True)
class Greeting(KVConnectorHandshakeMetadata):
    """What each worker sends once, before the first step."""

    rank: int
    ready: Ready


@dataclass(frozen=True)
class Verdict:
    """The self-test's: the worst relative error of each layer."""

    layers: tuple[float, ...]
    limit: float

    @property
    def worst(self) -> float:
        return max(self.layers, default=float("inf"))

    @property
    def passed(self) -> bool:
        return self.worst <= self.limit


@dataclass
class Report(KVConnectorWorkerMetadata):
    """What the workers tell the scheduler after a step, of all ranks together."""

    leases: dict[int, tuple[int, tuple[int, ...]]] = field(default_factory=dict)  # ranks, codes
    verdicts: list[Verdict] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    stats: dict[str, int] = field(default_factory=dict)  # the tiers', added up

    def aggregate(self, other: KVConnectorWorkerMetadata) -> Report:
        assert isinstance(other, Report)
        for lease, settled in other.leases.items():
            mine = self.leases.get(lease)
            self.leases[lease] = settled if mine is None else merge(mine, settled)
        self.verdicts.extend(other.verdicts)
        for name, value in other.counts.items():
            self.counts[name] = self.counts.get(name, 0) + value
        for name, value in other.stats.items():
            self.stats[name] = self.stats.get(name, 0) + value
        return self

    def __bool__(self) -> bool:
        return bool(self.leases or self.verdicts or self.counts or self.stats)


def merge(
    one: tuple[int, tuple[int, ...]], other: tuple[int, tuple[int, ...]]
) -> tuple[int, tuple[int, ...]]:
    """A record is at hand where all ranks have it."""
    codes = tuple(a if a != Code.OK else b for a, b in zip(one[1], other[1], strict=True))
    return one[0] + other[0], codes
