"""What a request asks of the connector: the object `inferscale` of docs/vllm_protocol.md, checked.

Whatever stands on the wire, `parse` returns or raises BadPlan with a short reason; it never trusts
a number. Unknown members are ignored, so that a gateway may be newer than its engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

VERSION = 1
NAME = "inferscale"  # of the object
MAX_TENANT_BYTES = 255


class BadPlan(Exception):
    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Span:
    """Prompt tokens [first, first + tokens) are the record's from `record_token` on."""

    first: int
    tokens: int
    record_token: int
    key: bytes

    @property
    def end(self) -> int:
        return self.first + self.tokens


@dataclass(frozen=True, slots=True)
class Inject:
    tenant: str  # records of the empty one are everybody's
    spans: tuple[Span, ...]  # sorted, disjoint, inside the prompt
    exact: int  # stored KV of the prompt's first `exact` tokens equals what vLLM computes for them

    def groups(self) -> list[list[int]]:
        """Indices of the spans, in runs without a gap."""
        runs: list[list[int]] = []
        for i, span in enumerate(self.spans):
            if runs and self.spans[i - 1].end == span.first:
                runs[-1].append(i)
            else:
                runs.append([i])
        return runs


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
    spans: list[Span] = []
    end = 0
    for item in _list(plan.get("spans"), prompt_tokens):
        first, tokens, record_token, key = _row(item, 4)
        span = Span(_int(first), _int(tokens), _int(record_token), _key(key))
        if span.tokens <= 0 or not 0 <= span.record_token < 2**31 or span.end > prompt_tokens:
            raise BadPlan("range")
        if span.first < end:
            raise BadPlan("overlap" if span.first >= 0 else "range")
        end = span.end
        spans.append(span)
    return Inject(_tenant(plan), tuple(spans), exact)


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
    if not isinstance(value, str) or len(value) != 32:
        raise BadPlan("malformed")
    try:
        key = bytes.fromhex(value)
    except ValueError:
        raise BadPlan("malformed") from None
    if len(key) != 16:  # fromhex skips blanks
        raise BadPlan("malformed")
    return key


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
