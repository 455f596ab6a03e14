"""The wire object: what is right is understood, and what is wrong raises BadPlan."""

from __future__ import annotations

import copy
import random
import struct
from typing import Any

import pytest
from inferscale.vllm.plan import BadPlan, Encode, Info, Inject, SelfTest, Span, parse

KEY = "0123456789abcdef0123456789abcdef"
OTHER = "f" * 32


def inject(spans: Any, **more: Any) -> dict[str, Any]:
    return {"inferscale": {"v": 1, "op": "inject", "tenant": "acme", "spans": spans, **more}}


def reason(params: Any, tokens: int = 100) -> str:
    with pytest.raises(BadPlan) as caught:
        parse(params, tokens)
    return caught.value.reason


@pytest.mark.parametrize("params", [None, {}, {"other": 1}, "inferscale", 7, ["inferscale"]])
def test_what_is_not_ours_is_no_plan(params: Any) -> None:
    assert parse(params, 10) is None


def test_inject_is_understood() -> None:
    plan = parse(inject([[0, 40, 0, KEY], [40, 60, 3, OTHER]], exact=40, later="ignored"), 100)
    assert isinstance(plan, Inject)
    assert (plan.tenant, plan.exact) == ("acme", 40)
    assert plan.spans == [Span(0, 40, 0, bytes.fromhex(KEY)), Span(40, 60, 3, b"\xff" * 16)]
    assert Inject.of("acme", plan.spans, 40).spans == plan.spans


def packed(*spans: tuple[int, int, int, str]) -> str:
    return "".join(struct.pack("<3I", *span[:3]).hex() + span[3] for span in spans)


def test_packed_spans_are_the_same_as_rows() -> None:
    spans = [(0, 40, 0, KEY), (40, 60, 3, OTHER)]
    one, other = parse(inject(packed(*spans)), 100), parse(inject([list(s) for s in spans]), 100)
    assert isinstance(one, Inject)
    assert isinstance(other, Inject)
    assert one.spans == other.spans
    empty = parse(inject(""), 100)
    assert isinstance(empty, Inject)
    assert empty.spans == []


@pytest.mark.parametrize(
    ("spans", "why"),
    [
        (packed((0, 40, 0, KEY), (39, 10, 0, KEY)), "overlap"),
        (packed((0, 101, 0, KEY)), "range"),
        (packed((2**32 - 1, 1, 0, KEY)), "range"),
        (packed((0, 2**32 - 1, 0, KEY)), "range"),
        (packed((0, 0, 0, KEY)), "range"),
        (packed((0, 5, 2**31, KEY)), "range"),
        (packed(*((i, 1, 0, KEY) for i in range(101))), "range"),
        (packed((0, 5, 0, KEY))[:-2], "malformed"),
        (packed((0, 5, 0, KEY))[:-1] + " ", "malformed"),
        (" " * 8 + packed((0, 5, 0, KEY)), "malformed"),
        ("spans", "malformed"),
    ],
)
def test_bad_packed_spans_say_why(spans: str, why: str) -> None:
    assert reason(inject(spans)) == why


def test_groups_are_runs_without_a_gap() -> None:
    plan = parse(inject([[0, 4, 0, KEY], [4, 4, 0, OTHER], [9, 1, 0, KEY]]), 100)
    assert isinstance(plan, Inject)
    assert plan.groups() == [range(2), range(2, 3)]
    assert Inject.of("acme", []).groups() == []


def test_the_other_operations_are_understood() -> None:
    def ours(**plan: Any) -> dict[str, Any]:
        return {"inferscale": {"v": 1, **plan}}

    encode = parse(ours(op="encode", tenant="", records=[[KEY, 90, 10]]), 100)
    assert isinstance(encode, Encode)
    assert (encode.records[0].first, encode.records[0].tokens) == (90, 10)
    assert parse(ours(op="info"), 1) == Info()
    assert parse(ours(op="self_test", step=0), 1) == SelfTest(0)
    assert parse(ours(op="self_test", step=1), 9) == SelfTest(1)
    assert reason(ours(op="self_test", step=1), 1) == "range"
    assert reason(ours(op="encode", tenant="a", records=[[KEY, 90, 11]])) == "range"
    assert reason(ours(op="fly")) == "op"
    assert reason({"inferscale": {"v": 2, "op": "info"}}) == "version"


@pytest.mark.parametrize(
    ("spans", "why"),
    [
        ([[0, 40, 0, KEY], [39, 10, 0, KEY]], "overlap"),
        ([[40, 10, 0, KEY], [0, 10, 0, KEY]], "overlap"),
        ([[0, 101, 0, KEY]], "range"),
        ([[-1, 5, 0, KEY]], "range"),
        ([[0, -5, 0, KEY]], "range"),
        ([[0, 0, 0, KEY]], "range"),
        ([[0, 5, -1, KEY]], "range"),
        ([[0, 5, 2**31, KEY]], "range"),
        ([[2**70, 5, 0, KEY]], "range"),
        ([[i, 1, 0, KEY] for i in range(10_000)], "range"),
        ([[0, 5, 0, KEY[:-1]]], "malformed"),
        ([[0, 5, 0, KEY[:-2] + " f"]], "malformed"),
        ([[0, 5, 0, "x" * 32]], "malformed"),
        ([[0, 5, 0, None]], "malformed"),
        ([[0, 5, 0]], "malformed"),
        ([[0, 5.0, 0, KEY]], "malformed"),
        ([[True, 5, 0, KEY]], "malformed"),
        (["0510"], "malformed"),
        ("spans", "malformed"),
        (None, "malformed"),
    ],
)
def test_bad_spans_say_why(spans: Any, why: str) -> None:
    assert reason(inject(spans)) == why


@pytest.mark.parametrize("tenant", [None, 7, "a\0b", "x" * 256, "\ud800"])
def test_bad_tenants_are_refused(tenant: Any) -> None:
    assert reason(inject([], tenant=tenant)) == "malformed"


def test_anything_on_the_wire_is_a_plan_or_a_bad_plan(rng: random.Random) -> None:
    """Good plans with something of them replaced by something else."""
    junk: list[Any] = [None, True, -1, 2**64, 0.5, float("nan"), "", "a\0", [], {}, [[]], KEY]
    good = inject([[0, 40, 0, KEY], [40, 50, 0, OTHER]], exact=40)
    refused = 0
    for _ in range(3000):
        params = copy.deepcopy(good)
        place: Any = params["inferscale"]
        while True:
            where = rng.choice(list(place) if isinstance(place, dict) else range(len(place)))
            if isinstance(place[where], dict | list) and place[where] and rng.random() < 0.7:
                place = place[where]
                continue
            place[where] = rng.choice(junk)
            break
        try:
            plan = parse(params, 90)
        except BadPlan:
            refused += 1
        else:
            assert isinstance(plan, Inject | Info)
    assert refused > 1000
