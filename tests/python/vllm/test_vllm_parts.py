"""The connector's parts by themselves: layouts, rotations, salts, leases, counters, settings."""

from __future__ import annotations

import random
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("vllm.v1")

from inferscale._core import Code  # noqa: E402
from inferscale.vllm import rope, salt  # noqa: E402
from inferscale.vllm.layout import LayoutError, describe, pages_of  # noqa: E402
from inferscale.vllm.leases import RemoteLeases  # noqa: E402
from inferscale.vllm.messages import Greeting, Load, Orders, Ready, Report, Verdict  # noqa: E402
from inferscale.vllm.paged import runs, without_null  # noqa: E402
from inferscale.vllm.plan import Inject, Span  # noqa: E402
from inferscale.vllm.scheduler import covered  # noqa: E402
from inferscale.vllm.settings import Settings  # noqa: E402
from inferscale.vllm.stats import InferScaleMetrics, InferScaleStats  # noqa: E402
from inferscale.vllm.worker import rank_keys  # noqa: E402
from vllm.sampling_params import SamplingParams  # noqa: E402
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash  # noqa: E402
from vllm.v1.request import Request  # noqa: E402

BLOCKS, TOKENS, HEADS, DIM = 7, 16, 3, 8


# ---- layouts


def of_memory_order(shape: tuple[int, ...], order: tuple[int, ...]) -> Any:
    """A tensor of `shape` whose axes lie in memory in `order`, outermost first."""
    strides = [0] * len(shape)
    step = 1
    for axis in reversed(order):
        strides[axis] = step
        step *= shape[axis]
    return torch.empty_strided(shape, strides, dtype=torch.bfloat16)


LAYOUTS = {
    "(2, B, N, H, D)": ((2, BLOCKS, TOKENS, HEADS, DIM), (0, 1, 2, 3, 4)),
    "(B, 2, N, H, D)": ((BLOCKS, 2, TOKENS, HEADS, DIM), (0, 1, 2, 3, 4)),
    "(B, 2, N, H, D), heads first": ((BLOCKS, 2, TOKENS, HEADS, DIM), (0, 1, 3, 2, 4)),
    "(B, H, N, 2D), tokens first": ((BLOCKS, HEADS, TOKENS, 2 * DIM), (0, 2, 1, 3)),
    "(B, H, N, 2D)": ((BLOCKS, HEADS, TOKENS, 2 * DIM), (0, 1, 2, 3)),
    "(B, N, H, 2D)": ((BLOCKS, TOKENS, HEADS, 2 * DIM), (0, 1, 2, 3)),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_is_read_off_its_strides(name: str) -> None:
    cache = of_memory_order(*LAYOUTS[name])
    layout = describe("layer", cache, HEADS, DIM, BLOCKS, TOKENS)
    memory = torch.arange(cache.numel(), dtype=torch.int64).as_strided(cache.shape, cache.stride())
    if cache.dim() == 5:
        both = memory.unbind(0 if name.startswith("(2") else 1)  # [B][N][H][D]
    else:
        tokens = memory if name == "(B, N, H, 2D)" else memory.transpose(1, 2)
        both = tokens.split(DIM, dim=-1)
    for base, expected in zip((layout.k, layout.v), both, strict=True):
        for block in (0, BLOCKS - 1):
            for token in (0, 5, TOKENS - 1):
                for head in range(HEADS):
                    strides = layout.strides
                    at = base + block * strides.page + token * strides.token + head * strides.head
                    assert (at - cache.data_ptr()) // 2 == expected[block, token, head, 0]


def test_layers_in_one_allocation_are_read_off_their_strides() -> None:
    """vLLM since 0.29: a block of all layers is one piece of memory."""
    layers = 5
    every = torch.empty(BLOCKS, layers, HEADS, TOKENS, 2 * DIM, dtype=torch.float16)
    layout = describe("layer", every[:, 2], HEADS, DIM, BLOCKS, TOKENS)
    assert layout.strides.page == layers * HEADS * TOKENS * 2 * DIM * 2
    assert layout.v - layout.k == DIM * 2


def test_pages_smaller_than_blocks_are_counted() -> None:
    cache = torch.empty(BLOCKS * 2, HEADS, TOKENS, 2 * DIM)
    layout = describe("layer", cache, HEADS, DIM, BLOCKS, 2 * TOKENS)
    assert (layout.split, layout.page_tokens) == (2, TOKENS)
    assert pages_of([3, 1], layout.split) == [6, 7, 2, 3]


@pytest.mark.parametrize(
    "cache",
    [
        torch.empty(BLOCKS, TOKENS, 576),
        torch.empty(BLOCKS, HEADS, TOKENS, 2 * DIM + 8),
        torch.empty(BLOCKS, HEADS + 1, TOKENS, 2 * DIM),
        torch.empty(BLOCKS - 1, HEADS, TOKENS, 2 * DIM),
        torch.empty(BLOCKS, HEADS, TOKENS + 1, 2 * DIM),
        torch.empty(BLOCKS, HEADS, 2 * DIM, TOKENS).transpose(2, 3),
    ],
)
def test_an_unknown_layout_is_refused_with_its_shape(cache: Any) -> None:
    with pytest.raises(LayoutError, match="unknown layout") as caught:
        describe("model.layers.0", cache, HEADS, DIM, BLOCKS, TOKENS)
    assert str(tuple(cache.shape)) in str(caught.value)


def test_what_is_covered_has_no_gap(rng: random.Random) -> None:
    for _ in range(500):
        spans, at = [], rng.randrange(3)
        for _ in range(rng.randrange(0, 7)):
            at += rng.choice([0, 0, 0, 2])
            spans.append(span(at, rng.randrange(1, 6)))
            at = spans[-1].first + spans[-1].tokens
        plan = Inject.of("acme", spans)
        good = [rng.random() < 0.8 for _ in spans]
        start = rng.randrange(at + 3)
        held = {t for s, ok in zip(spans, good, strict=True) if ok for t in tokens_of(s)}
        expected = start
        while expected in held:
            expected += 1
        assert covered(plan, np.array(good, bool), start) == expected


def tokens_of(of: Span) -> range:
    return range(of.first, of.first + of.tokens)


def test_loads_leave_out_the_null_block(rng: random.Random) -> None:
    for _ in range(200):
        size = rng.choice([1, 4, 16])
        blocks = [rng.choice([0, 5, 9]) for _ in range(8)]
        bounds = sorted(rng.sample(range(8 * size + 1), rng.randrange(2, min(6, 8 * size))))
        count = len(bounds) - 1
        first = np.array(bounds[:-1])
        load = Load(7, np.arange(count), np.arange(count) * 100, first, np.diff(bounds), (blocks,))
        kept = without_null(load, blocks, size)
        moved = [
            (int(record), int(token) + i, int(at) + i)
            for record, token, at, n in zip(
                *(kept.record, kept.record_token, kept.first, kept.tokens), strict=True
            )
            for i in range(n)
        ]
        expected = [
            (i, i * 100 + t - bounds[i], t)
            for i in range(count)
            for t in range(bounds[i], bounds[i + 1])
            if blocks[t // size] != 0
        ]
        assert moved == expected


def test_runs_leave_out_the_null_block(rng: random.Random) -> None:
    for _ in range(300):
        size = rng.choice([1, 4, 16])
        blocks = [rng.choice([0, 0, 5, 9]) for _ in range(rng.randrange(1, 9))]
        first = rng.randrange(len(blocks) * size)
        tokens = rng.randrange(1, len(blocks) * size - first + 1)
        expected = [t for t in range(first, first + tokens) if blocks[t // size] != 0]
        found = list(runs(blocks, size, first, tokens))
        assert [t for a, n in found for t in range(a, a + n)] == expected
        assert all(a + n < b for (a, n), (b, _) in pairwise(found))


# ---- rotations


class Rotary(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, rotary_dim: int = 4, positions: int = 64, neox: bool = True) -> None:
        super().__init__()
        self.rotary_dim, self.is_neox_style = rotary_dim, neox
        self.register_buffer("cos_sin_cache", torch.rand(positions, rotary_dim))


class Attention(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, rotary: Any) -> None:
        super().__init__()
        self.attn = torch.nn.Identity()
        if rotary is not None:
            self.rotary_emb = rotary


def test_each_layer_has_its_own_rotary_module() -> None:
    one, other = Rotary(), Rotary()
    parents = [Attention(one), Attention(None), Attention(other), Attention(one)]
    found = rope.find([parent.attn for parent in parents], 32, torch.bfloat16)
    assert found.layer_table == [0, 1, 2, 0]
    assert [table.rotary_dim for table in found.tables] == [4, 0, 4]
    rounded = one.cos_sin_cache[:32].bfloat16().float().numpy().tobytes()
    assert bytes(found.tables[0].table) == rounded
    assert not found.interleaved


def test_rotations_that_cannot_be_are_refused() -> None:
    mixed = [Attention(Rotary(neox=True)), Attention(Rotary(neox=False))]
    with pytest.raises(rope.RopeError, match="halves"):
        rope.find([parent.attn for parent in mixed], 32, torch.float32)
    short = Attention(Rotary(positions=16))
    with pytest.raises(rope.RopeError, match="positions"):
        rope.find([short.attn], 32, torch.float32)
    many = [Attention(Rotary()) for _ in range(5)]
    with pytest.raises(rope.RopeError, match="different rotations"):
        rope.find([parent.attn for parent in many], 32, torch.float32)


# ---- salts, with vLLM's own hasher

HASH_BLOCK = 16
FINGERPRINT = b"f" * 16


def sha256(value: Any) -> bytes:
    from vllm.utils.hashing import sha256 as hash_

    return bytes(hash_(value))


init_none_hash(sha256)


def request(tokens: list[int], cache_salt: str | None = None) -> Any:
    return Request(
        request_id="r",
        prompt_token_ids=tokens,
        sampling_params=SamplingParams(max_tokens=8),
        pooling_params=None,
        cache_salt=cache_salt,
        block_hasher=get_request_block_hasher(HASH_BLOCK, sha256),
    )


def salted(
    tokens: list[int], spans: list[Span], exact: int = 0, tenant: str = "acme", good: Any = None
) -> list[bytes]:
    plan = Inject.of(tenant, spans, exact)
    made = request(tokens)
    marks = salt.marks(plan, np.array(good or [True] * len(spans)), FINGERPRINT)
    if marks:
        assert salt.mix(made, marks, HASH_BLOCK)
    return list(made.block_hashes)


def span(first: int, tokens: int, key: int = 1) -> Span:
    return Span(first, tokens, 0, bytes([key]) * 16)


def common(one: list[bytes], other: list[bytes]) -> int:
    """How many blocks at the beginning two requests share."""
    for i, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return i
    return min(len(one), len(other))


def test_blocks_are_shared_up_to_the_first_inexact_token(rng: random.Random) -> None:
    for _ in range(50):
        tokens = [rng.randrange(1000) for _ in range(rng.randrange(40, 300))]
        exact = rng.randrange(len(tokens) // 2)
        spans = [span(0, exact, 1), span(exact, 20, 2)] if exact else [span(0, 20, 2)]
        plain, ours = list(request(tokens).block_hashes), salted(tokens, spans, exact)
        assert len(plain) == len(ours) == len(tokens) // HASH_BLOCK
        assert common(plain, ours) == min(exact // HASH_BLOCK, len(ours) - 1)
        assert not set(plain[exact // HASH_BLOCK :]) & set(ours[exact // HASH_BLOCK :])
        assert ours == salted(tokens, spans, exact)


def test_salts_depend_on_tenant_key_and_what_is_good() -> None:
    tokens = list(range(100))
    one = salted(tokens, [span(0, 32)])
    assert common(one, salted(tokens, [span(0, 32)], tenant="other")) == 0
    assert common(one, salted(tokens, [span(0, 32, 2)])) == 0
    assert common(one, salted(tokens, [Span(0, 32, 5, b"\1" * 16)])) == 0
    # What is not good is computed, so it is as exact as without a plan.
    assert salted(tokens, [span(0, 32)], good=[False]) == list(request(tokens).block_hashes)
    # The exact header alone needs no salt.
    assert salted(tokens, [span(0, 32)], exact=32) == list(request(tokens).block_hashes)


def test_a_later_turn_hits_the_blocks_of_the_earlier_one() -> None:
    first = list(range(200))
    second = first + list(range(500, 700))
    early = [span(0, 10, 1), span(10, 40, 2)]
    before = salted(first, early, 10)
    after = salted(second, [*early, span(260, 30, 3)], 10)
    assert common(before, after) == len(before)
    other = salted(second, [*early, span(260, 30, 4)], 10)
    assert common(after, other) == 260 // HASH_BLOCK


def test_the_first_mark_may_be_the_gateways_salt() -> None:
    tokens = list(range(200))
    plan = Inject.of("acme", [span(0, 20), span(100, 20, 2)])
    marks = salt.marks(plan, np.array([True, True]), FINGERPRINT)
    hashes = []
    for key in (2, 3):
        made = request(tokens, salt.of_mark(marks[0]))
        other = Inject.of("acme", [span(0, 20), span(100, 20, key)])
        rest = salt.marks(other, np.array([True, True]), FINGERPRINT)[1:]
        assert salt.mix(made, rest, HASH_BLOCK)
        hashes.append(list(made.block_hashes))
    assert common(*hashes) == 100 // HASH_BLOCK
    assert not set(hashes[0]) & set(request(tokens).block_hashes)


def test_the_gateway_computes_the_same_salt() -> None:
    """What tests/engine/vllm/vllm_engine_test.cc has for the same plan."""
    spans = [Span(0, 41, 0, bytes(range(16))), Span(41, 96, 7, b"\xff" * 16)]
    plan = Inject.of("acme", [*spans, Span(140, 5, 0, b"\1" * 16)])
    marks = salt.marks(plan, np.array([True] * 3), bytes(range(100, 116)))
    assert salt.of_mark(marks[0]) == "inferscale:8acb6a55b4c57c72ddcb1841be5dbd29"


def test_nobody_has_a_salt_of_ours() -> None:
    made = request(list(range(100)), f"{salt.PREFIX}0123")
    salt.keep_out(made)
    stolen = request(list(range(100)), f"{salt.PREFIX}0123")
    assert common(list(made.block_hashes), list(stolen.block_hashes)) == 0
    salt.keep_out(own := request(list(range(100)), "own"))
    assert own.cache_salt == "own"


def test_a_fact_behind_the_last_full_block_still_salts() -> None:
    tokens = list(range(37))
    plain, ours = list(request(tokens).block_hashes), salted(tokens, [span(33, 3)])
    assert len(ours) == 2
    assert common(plain, ours) == 1


def test_a_prompt_without_a_full_block_is_salted_whole() -> None:
    made = request(list(range(10)))
    marks = salt.marks(Inject.of("acme", [span(0, 5)]), np.array([True]), FINGERPRINT)
    assert not salt.mix(made, marks, HASH_BLOCK)
    assert made.cache_salt.startswith(salt.PREFIX)
    made.append_output_token_ids(list(range(20)))
    other = request(list(range(10)))
    other.append_output_token_ids(list(range(20)))
    assert len(made.block_hashes) == 1
    assert made.block_hashes != other.block_hashes


def test_hashes_of_another_granularity_are_salted_whole() -> None:
    made = request(list(range(100)))
    marks = salt.marks(Inject.of("acme", [span(0, 50)]), np.array([True]), FINGERPRINT)
    assert not salt.mix(made, marks, HASH_BLOCK * 2)
    assert common(list(made.block_hashes), list(request(list(range(100))).block_hashes)) == 0


# ---- leases, messages, counters, settings


def test_a_remote_lease_is_settled_when_all_ranks_have_said_so() -> None:
    leases = RemoteLeases(2)
    lease = leases.open("acme", b"a" * 16 + b"b" * 16)
    orders = Orders()
    leases.order(orders)
    assert [order.lease for order in orders.leases] == [lease]
    leases.order(again := Orders())
    assert not again.leases
    assert leases.poll(lease) is None
    leases.hear(Report(leases={lease: (1, (Code.OK, Code.OK))}))
    assert leases.poll(lease) is None
    leases.hear(Report(leases={lease: (1, (Code.OK, Code.NOT_FOUND))}))
    assert leases.poll(lease) == (Code.OK, Code.NOT_FOUND)
    leases.close(lease)
    leases.close(lease)
    leases.order(orders)
    assert orders.closes == [lease]
    leases.hear(Report(leases={lease: (1, (Code.OK, Code.OK))}))  # too late, and no matter


def test_workers_are_ready_together_or_not() -> None:
    leases = RemoteLeases(2)
    leases.greet([Greeting(0, Ready("", b"1"))])
    assert "1 of 2" in leases.ready().reason
    leases.greet([Greeting(1, Ready("", b"1"))])
    assert leases.ready() == Ready("", b"1")
    leases.greet([Greeting(1, Ready("", b"2"))])
    assert "different" in leases.ready().reason
    leases.greet([Greeting(1, Ready("no"))])
    assert leases.ready() == Ready("no")


def test_reports_of_ranks_add_up() -> None:
    one = Report(leases={1: (1, (0, 2))}, counts={"a": 1}, stats={"x": 1})
    two = Report(leases={1: (1, (4, 0)), 2: (1, (0,))}, counts={"a": 2}, stats={"x": 5})
    both = one.aggregate(two)
    assert both.leases == {1: (2, (4, 2)), 2: (1, (0,))}
    assert (both.counts, both.stats) == ({"a": 3}, {"x": 6})
    assert not Report()


def test_a_verdict_passes_by_its_worst_layer() -> None:
    assert Verdict((0.1, 0.2), 0.2).passed
    assert not Verdict((0.1, 0.3), 0.2).passed
    assert not Verdict((), 0.2).passed


def test_counters_reach_prometheus_and_the_log_line() -> None:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

    registry = CollectorRegistry()

    def counter(**arguments: Any) -> Any:
        return Counter(registry=registry, **arguments)

    config: Any = SimpleNamespace(kv_transfer_config=None)
    types = {Counter: counter, Gauge: Gauge, Histogram: Histogram}
    metrics = InferScaleMetrics(config, types, ["engine"], {0: ["0"]})
    stats = InferScaleStats()
    assert stats.is_empty()
    stats.add("injected_tokens", 5)
    stats.add("refused_not_found", 2)
    both = InferScaleStats().aggregate(stats).aggregate(stats)
    assert both.reduce() == {"inferscale injected_tokens": 10, "inferscale refused_not_found": 4}
    metrics.observe(both.data)
    text = generate_latest(registry).decode()
    assert 'vllm:inferscale_injected_tokens_total{engine="0"} 10.0' in text
    assert 'vllm:inferscale_refused_total{engine="0",reason="not_found"} 4.0' in text


def settings(**extra: Any) -> Settings:
    transfer = SimpleNamespace(kv_connector_extra_config=extra)
    return Settings.of(SimpleNamespace(kv_transfer_config=transfer))


def test_settings_are_checked() -> None:
    assert settings(dir="/d", host_bytes=5).host_bytes == 5
    with pytest.raises(ValueError, match="dir"):
        settings(host_bytes=5)
    with pytest.raises(ValueError, match="unknown hots_bytes"):
        settings(dir="/d", hots_bytes=5)
    for bad in (-1, "1", 1.5, True):
        with pytest.raises(ValueError, match="host_bytes"):
            settings(dir="/d", host_bytes=bad)


def test_ranks_have_keys_of_their_own() -> None:
    """The gateway's are the same (tests/kv/rank_key_test.cc)."""
    key = bytes.fromhex("00000000000000010000000000000002")
    assert rank_keys(key + key, 1, 2).hex() == 2 * "b4d8367cf34910ab555b0a3f19412c4b"
    assert rank_keys(rank_keys(key, 2, 4), 2, 4) == key
    assert rank_keys(key, 0, 1) == key
