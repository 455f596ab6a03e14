"""Moving KV between paged caches of every layout, in host memory, with the real library."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("vllm.v1")

from inferscale import _core  # noqa: E402
from inferscale._core import Capture, Code, Dtype, Lease, Owner, Shape  # noqa: E402
from inferscale.vllm.messages import Blocks, Load  # noqa: E402
from inferscale.vllm.paged import Piece  # noqa: E402
from inferscale.vllm.rope import Ropes  # noqa: E402
from inferscale.vllm.support import LayerGroup, Model  # noqa: E402
from inferscale.vllm.worker import _paged_mover  # noqa: E402

HEADS, DIM, ROTARY, POSITIONS = 2, 16, 8, 200
BLOCKS, TOKENS = 9, 8


def load(record_token: int, first: int, tokens: int, blocks: Blocks) -> Load:
    """Of the lease's one record."""
    one = np.array([0]), np.array([record_token]), np.array([first]), np.array([tokens])
    return Load(0, one[0], one[1], one[2], one[3], blocks)


class Tensors:
    """Layers of one layout, and how each is seen as [K or V][block][token][head][dim]."""

    def __init__(self, kind: str, layers: int, tokens: int) -> None:
        shapes = {
            "KV first": ((2, BLOCKS, tokens, HEADS, DIM), (0, 1, 2, 3, 4)),
            "KV second": ((BLOCKS, 2, tokens, HEADS, DIM), (0, 1, 2, 3, 4)),
            "KV second, heads before tokens": ((BLOCKS, 2, tokens, HEADS, DIM), (0, 1, 3, 2, 4)),
            "packed, tokens before heads": ((BLOCKS, HEADS, tokens, 2 * DIM), (0, 2, 1, 3)),
            "packed": ((BLOCKS, HEADS, tokens, 2 * DIM), (0, 1, 2, 3)),
            "packed in one allocation": ((BLOCKS, HEADS, tokens, 2 * DIM), (0, 1, 2, 3)),
        }
        shape, order = shapes[kind]
        if kind == "packed in one allocation":
            whole = torch.randn(BLOCKS, layers, *shape[1:]).bfloat16()
            self.layers = [whole[:, i] for i in range(layers)]
        else:
            inverse = [order.index(axis) for axis in range(len(shape))]
            self.layers = [
                torch.randn([shape[axis] for axis in order]).bfloat16().permute(inverse)
                for _ in range(layers)
            ]

    def kv(self, layer: int) -> Any:
        tensor = self.layers[layer]
        if tensor.dim() == 5:
            return tensor if tensor.shape[0] == 2 else tensor.transpose(0, 1)
        return torch.stack(tensor.transpose(1, 2).split(DIM, dim=-1))


KINDS = [
    "KV first",
    "KV second",
    "KV second, heads before tokens",
    "packed, tokens before heads",
    "packed",
    "packed in one allocation",
]


def ropes(layers: int) -> tuple[Ropes, Any]:
    """All layers rotated but the last; and the table, [position][cos, then sin], fp64."""
    half = ROTARY // 2
    angle = torch.arange(POSITIONS)[:, None] * 10000.0 ** (-torch.arange(half) / half)
    table = torch.cat([angle.cos(), angle.sin()], 1).bfloat16().float()
    tables = [
        _core.Rope(rotary_dim=ROTARY, table=table.numpy().tobytes()),
        _core.Rope(rotary_dim=0, table=b""),
    ]
    return Ropes(tables, [0] * (layers - 1) + [1], POSITIONS, False), table.double()


def turned(keys: Any, table: Any, source: Any, target: Any) -> Any:
    """[token][head][dim] from positions `source` to `target`, by the table's own numbers."""
    half = ROTARY // 2
    cos, sin = (table[source][:, None, part] for part in (slice(half), slice(half, None)))
    one, other = keys[..., :half], keys[..., half:ROTARY]
    scale = 1 / (cos * cos + sin * sin)
    plain = scale * (one * cos + other * sin), scale * (other * cos - one * sin)
    plain = tuple(x.bfloat16().double() for x in plain)  # as a record has them
    cos, sin = (table[target][:, None, part] for part in (slice(half), slice(half, None)))
    return torch.cat(
        [
            plain[0] * cos - plain[1] * sin,
            plain[1] * cos + plain[0] * sin,
            keys[..., ROTARY:],
        ],
        -1,
    )


@pytest.fixture
def tier(tmp_path: Path) -> Iterator[_core.Tier]:
    store = _core.Store(str(tmp_path / "kv"), host_bytes=8 << 20)
    tier = _core.Tier(store, None, device_bytes=0, capture_bytes=8 << 20)
    yield tier
    tier.close()
    store.close()


def model_of(groups: list[LayerGroup], layers: int) -> Model:
    return Model(
        groups=groups,
        order=[f"layer {i}" for i in range(layers)],
        modules=dict.fromkeys(f"layer {i}" for i in range(layers)),
        heads=HEADS,
        dim=DIM,
        dtype=torch.bfloat16,
        fp8=False,
        positions=POSITIONS,
    )


def owner_of(layers: int) -> Owner:
    return Owner("acme", b"f" * 16, Shape(layers, HEADS, DIM, Dtype.BF16))


def kept(tier: _core.Tier, mover: Any, owner: Owner, tokens: int, first: int, blocks: Any) -> Lease:
    """A lease on a new record of tokens that stand at `first` and on."""
    key = os.urandom(16)
    capture = Capture(tier, owner, key, list(range(tokens)))
    half = tokens // 2  # in two pieces
    mover.capture([Piece(capture, 0, first, half, blocks)], 0)
    mover.capture([Piece(capture, half, first + half, tokens - half, blocks)], 0)
    capture.commit()
    tier.flush()
    lease = Lease(tier, owner, key)
    while (codes := lease.poll()) is None:
        pass
    assert codes == [Code.OK]
    return lease


def rows(kv: Any, blocks: list[int], size: int, first: int, tokens: int) -> Any:
    """[K or V][token][head][dim]."""
    where = range(first, first + tokens)
    return torch.stack([kv[:, blocks[t // size], t % size] for t in where], 1).double()


@pytest.mark.parametrize("source_kind", KINDS)
@pytest.mark.parametrize("target_kind", KINDS)
def test_kv_moves_between_caches_of_all_layouts(
    tier: _core.Tier, rng: random.Random, source_kind: str, target_kind: str
) -> None:
    layers = 3
    torch.manual_seed(rng.randrange(2**31))
    source, target = (Tensors(kind, layers, TOKENS) for kind in (source_kind, target_kind))
    rotations, table = ropes(layers)
    model = model_of([LayerGroup([f"layer {i}" for i in range(layers)], TOKENS)], layers)
    owner = owner_of(layers)

    def mover(tensors: Tensors) -> Any:
        caches = dict(zip(model.order, tensors.layers, strict=True))
        return _paged_mover(None, model, caches, BLOCKS, owner.shape, rotations)

    tokens, first, to = rng.randrange(2, 30), rng.randrange(30), rng.randrange(20)
    skip = rng.randrange(tokens)
    blocks, new_blocks = (rng.sample(range(1, BLOCKS), 8) for _ in range(2))
    one, other = mover(source), mover(target)
    lease = kept(tier, one, owner, tokens, first, (blocks,))
    before = [target.kv(layer).clone() for layer in range(layers)]
    other.inject([(lease, load(skip, to, tokens - skip, (new_blocks,)))], 0)
    count = tokens - skip
    for layer in range(layers):
        was = rows(source.kv(layer), blocks, TOKENS, first + skip, count)
        now = rows(target.kv(layer), new_blocks, TOKENS, to, count)
        assert torch.equal(was[1], now[1])
        if layer == layers - 1:
            assert torch.equal(was[0], now[0])
        else:
            expected = turned(
                was[0],
                table,
                torch.arange(first + skip, first + tokens),
                torch.arange(to, to + count),
            )
            assert (now[0] - expected).norm() <= 0.005 * expected.norm()
        after = target.kv(layer).clone()
        for token in range(to, to + count):
            at = (slice(None), new_blocks[token // TOKENS], token % TOKENS)
            after[at] = before[layer][at]
        assert torch.equal(after, before[layer]), "something else was written"
    lease.close()
    one.close()
    other.close()


def test_groups_have_tables_of_their_own_and_null_blocks_are_skipped(
    tier: _core.Tier, rng: random.Random
) -> None:
    """Layers 0 and 2 in blocks of 16 (two of the tensor's), layers 1 and 3 behind a window."""
    layers = 4
    torch.manual_seed(rng.randrange(2**31))
    tensors = Tensors("packed", layers, TOKENS)
    rotations, _ = ropes(layers)
    groups = [LayerGroup(["layer 0", "layer 2"], 16), LayerGroup(["layer 1", "layer 3"], TOKENS)]
    model, owner = model_of(groups, layers), owner_of(layers)
    caches = dict(zip(model.order, tensors.layers, strict=True))
    mover = _paged_mover(None, model, caches, 4, owner.shape, rotations)
    wide, narrow = [1, 3], [5, 2, 7, 4]
    lease = kept(tier, mover, owner, 32, 0, (wide, narrow))
    kv = [tensors.kv(layer).clone() for layer in range(layers)]
    new_narrow = [0, 0, 3, 1]  # the window has passed over 16 tokens
    for layer in tensors.layers:
        layer.zero_()
    mover.inject([(lease, load(0, 0, 32, ([3, 2], new_narrow)))], 0)
    pages = {0: ([2, 3, 6, 7], [6, 7, 4, 5]), 1: (narrow[2:], new_narrow[2:])}
    for layer in range(layers):
        was, now = pages[layer % 2]
        found = tensors.kv(layer)
        error = (found[:, now].double() - kv[layer][:, was].double()).norm()
        assert error <= 0.005 * kv[layer][:, was].double().norm()
        rest = [page for page in range(BLOCKS) if page not in now]
        assert not found[:, rest].any(), "something else was written"
    lease.close()
    mover.close()
