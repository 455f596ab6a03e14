"""What a request asks of the connector: the object `inferscale` of docs/vllm_protocol.md, checked.

Whatever stands on the wire, `parse` returns or raises BadPlan with a short reason; it never trusts
a number. Unknown members are ignored, so that a gateway may be newer than its engine.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

VERSION = 1
NAME = "inferscale"  # of the object
MAX_TENANT_BYTES = 255
KEY_BYTES = 16
PACKED = np.dtype([("first", "<u4"), ("tokens", "<u4"), ("record_token", "<u4"), ("key", "V16")])


class BadPlan(Exception):
    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Span(NamedTuple):
    """Prompt tokens [first, first + tokens) are the record's from `record_token` on."""

    first: int
    tokens: int
    record_token: int
    key: bytes


@dataclass(frozen=True, eq=False, slots=True)
class Inject:
    """Columns and not rows: a plan of hundreds of spans costs as little as one of a few."""

    tenant: str  # records of the empty one are everybody's
    # Of each span; spans are sorted, disjoint and inside the prompt.
    first: Ints
    tokens: Ints
    record_token: Ints
    keys: bytes  # 16 of each
    exact: int  # stored KV of the prompt's first `exact` tokens equals what vLLM computes for them

    @staticmethod
    def of(tenant: str, spans: Sequence[Span], exact: int = 0) -> Inject:
        first, tokens, record_token = (np.array([s[i] for s in spans], np.int64) for i in range(3))
        return Inject(tenant, first, tokens, record_token, b"".join(s.key for s in spans), exact)

    @property
    def end(self) -> Ints:
        return self.first + self.tokens

    @property
    def spans(self) -> list[Span]:
        columns = (self.first.tolist(), self.tokens.tolist(), self.record_token.tolist())
        keys = (self.keys[i : i + KEY_BYTES] for i in range(0, len(self.keys), KEY_BYTES))
        return [Span(*row) for row in zip(*columns, keys, strict=True)]

    def groups(self) -> list[range]:
        """Indices of the spans, in runs without a gap."""
        gaps = np.flatnonzero(self.first[1:] != self.end[:-1]) + 1
        bounds = [0, *gaps.tolist(), len(self.first)]
        return [range(a, b) for a, b in itertools.pairwise(bounds) if a < b]


@dataclass(frozen=True, slots=True)
class Record:
    """Prompt tokens [first, first + tokens) become record `key`."""

    key: bytes
    first: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Encode:
    tenant: str
    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class Info:
    pass


@dataclass(frozen=True, slots=True)
class SelfTest:
    step: int  # 0 keeps the KV of the prompt's one token; 1 compares


Plan = Inject | Encode | Info | SelfTest


def parse(params: object, prompt_tokens: int) -> Plan | None:
    """The plan in a request's kv_transfer_params; None if there is none of ours."""
    if not isinstance(params, dict) or NAME not in params:
        return None
    plan = params[NAME]
    if not isinstance(plan, dict):
        raise BadPlan("malformed")
    if _int(plan.get("v")) != VERSION:
        raise BadPlan("version")
    match plan.get("op"):
        case "inject":
            return _inject(plan, prompt_tokens)
        case "encode":
            return _encode(plan, prompt_tokens)
        case "info":
            return Info()
        case "self_test":
            return _self_test(plan, prompt_tokens)
    raise BadPlan("op")


def _inject(plan: dict[Any, Any], prompt_tokens: int) -> Inject:
    exact = _int(plan.get("exact", 0))
    if exact < 0:
        raise BadPlan("range")
    spans = plan.get("spans")
    columns = (
        _packed(spans, prompt_tokens) if isinstance(spans, str) else _rows(spans, prompt_tokens)
    )
    first, tokens, record_token, keys = columns
    good = (first >= 0) & (tokens > 0) & (tokens <= prompt_tokens - first)
    if not (good & (record_token >= 0) & (record_token < 2**31)).all():
        raise BadPlan("range")
    if (first[1:] < (first + tokens)[:-1]).any():
        raise BadPlan("overlap")
    return Inject(_tenant(plan), first, tokens, record_token, keys, exact)


def _rows(spans: object, prompt_tokens: int) -> tuple[Ints, Ints, Ints, bytes]:
    rows = _list(spans, prompt_tokens)
    if set(map(type, rows)) - {list, tuple} or set(map(len, rows)) - {4}:
        raise BadPlan("malformed")
    columns = list(zip(*rows, strict=True)) or [()] * 4
    first, tokens, record_token = (_ints(column) for column in columns[:3])
    return first, tokens, record_token, _keys(columns[3])


def _packed(spans: str, prompt_tokens: int) -> tuple[Ints, Ints, Ints, bytes]:
    """The same in one string, which vLLM copies faster than hundreds of lists."""
    try:
        packed = bytes.fromhex(spans)
    except ValueError:
        raise BadPlan("malformed") from None
    count, rest = divmod(len(packed), PACKED.itemsize)
    if rest or 2 * len(packed) != len(spans):
        raise BadPlan("malformed")
    if count > prompt_tokens:
        raise BadPlan("range")
    table = np.frombuffer(packed, PACKED)
    numbers = [table[name].astype(np.int64) for name in ("first", "tokens", "record_token")]
    return numbers[0], numbers[1], numbers[2], table["key"].tobytes()


def _encode(plan: dict[Any, Any], prompt_tokens: int) -> Encode:
    records: list[Record] = []
    for item in _list(plan.get("records"), prompt_tokens):
        key, first, tokens = _row(item, 3)
        record = Record(_key(key), _int(first), _int(tokens))
        if record.tokens <= 0 or record.first < 0 or record.first + record.tokens > prompt_tokens:
            raise BadPlan("range")
        records.append(record)
    return Encode(_tenant(plan), tuple(records))


def _self_test(plan: dict[Any, Any], prompt_tokens: int) -> SelfTest:
    step = _int(plan.get("step"))
    if step not in (0, 1) or (prompt_tokens == 1) != (step == 0):
        raise BadPlan("range")
    return SelfTest(step)


def _int(value: object) -> int:
    if type(value) is not int:  # True is no number here
        raise BadPlan("malformed")
    return value


def _ints(values: Sequence[Any]) -> Ints:
    if set(map(type, values)) - {int}:
        raise BadPlan("malformed")
    try:
        return np.frombuffer(array("q", values), np.int64)
    except OverflowError:
        raise BadPlan("range") from None


def _list(value: object, limit: int) -> list[Any]:
    """Disjoint pieces of a prompt are no more than its tokens."""
    if not isinstance(value, list):
        raise BadPlan("malformed")
    if len(value) > limit:
        raise BadPlan("range")
    return value


def _row(value: object, length: int) -> Sequence[Any]:
    if not isinstance(value, list | tuple) or len(value) != length:
        raise BadPlan("malformed")
    return value


def _key(value: object) -> bytes:
    return _keys([value])


def _keys(values: Sequence[Any]) -> bytes:
    if set(map(type, values)) - {str} or set(map(len, values)) - {2 * KEY_BYTES}:
        raise BadPlan("malformed")
    try:
        keys = bytes.fromhex("".join(values))
    except ValueError:
        raise BadPlan("malformed") from None
    if len(keys) != KEY_BYTES * len(values):  # fromhex skips blanks
        raise BadPlan("malformed")
    return keys


def _tenant(plan: dict[Any, Any]) -> str:
    tenant = plan.get("tenant")
    if not isinstance(tenant, str) or "\0" in tenant:
        raise BadPlan("malformed")
    try:
        size = len(tenant.encode())
    except UnicodeEncodeError:
        raise BadPlan("malformed") from None
    if size > MAX_TENANT_BYTES:
        raise BadPlan("malformed")
    return tenant
