"""Moves KV between records and the cache of vLLM's CPU backend.

That cache is packed in a way of the processor's own, so it is written with the engine's operation
and read through a permutation that this operation has shown. Between it and a record stands a small
cache of plain layout.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from inferscale._core import (
    Cache,
    CacheSpec,
    CaptureSpan,
    InjectSpans,
    Lease,
    Shape,
    Strides,
)
from inferscale.vllm.layout import LayoutError
from inferscale.vllm.messages import Blocks, Load
from inferscale.vllm.paged import Piece, runs
from inferscale.vllm.rope import Ropes

STAGE_TOKENS = 512
DIGIT = 128  # small integers that every floating-point type holds exactly


class CpuLayer:
    """One attention layer and its cache."""

    def __init__(self, name: str, layer: Any, cache: torch.Tensor, heads: int, dim: int) -> None:
        self.layer, self.cache = layer, cache
        self.heads, self.dim = heads, dim
        if cache.dim() != 4 or cache.shape[1] != heads or cache.shape[3] != 2 * dim:
            raise LayoutError(
                f"layer {name}: unknown layout, shape {tuple(cache.shape)}; "
                f"expected {heads} heads of {dim} dims"
            )
        if not cache.is_contiguous():
            raise LayoutError(f"layer {name}: unknown layout, strides {tuple(cache.stride())}")
        self.block_tokens = int(cache.shape[2])

    def write(self, key: torch.Tensor, value: torch.Tensor, slots: torch.Tensor) -> None:
        self._write(self.cache, key, value, slots)

    def _write(
        self, cache: torch.Tensor, key: torch.Tensor, value: torch.Tensor, slots: torch.Tensor
    ) -> None:
        self.layer.impl.do_kv_cache_update(self.layer, key, value, cache, slots)

    def permutation(self) -> torch.Tensor:
        """[2][token][head][dim] of a block: where in the block's memory the element is."""
        tokens, heads, dim = self.block_tokens, self.heads, self.dim
        count = 2 * tokens * heads * dim
        codes = torch.arange(count, dtype=torch.int64).view(2, tokens, heads, dim)
        scratch = torch.zeros((1, *self.cache.shape[1:]), dtype=self.cache.dtype)
        found = torch.zeros(count, dtype=torch.int64)
        slots = torch.arange(tokens, dtype=torch.int64)
        unit = 1
        while unit < count:
            digits = (codes // unit % DIGIT).to(self.cache.dtype)
            self._write(scratch, digits[0].contiguous(), digits[1].contiguous(), slots)
            found += scratch.view(-1).to(torch.int64) * unit
            unit *= DIGIT
        place = torch.full((count,), -1, dtype=torch.int64)
        place[found.clamp(0, count - 1)] = torch.arange(count)
        if not torch.equal(found.sort().values, torch.arange(count)):
            raise LayoutError("the CPU backend's cache is no permutation of its elements")
        return place.view(2, tokens, heads, dim)


class CpuMover:
    def __init__(
        self,
        groups: Sequence[Sequence[CpuLayer]],
        numbers: Sequence[int],
        shape: Shape,
        ropes: Ropes,
    ) -> None:
        """The groups' layers, one group after the other, are layers `numbers` of a record."""
        self._groups = groups
        first = groups[0][0]
        # [layer][K, then V][token][head][dim]: one page for each layer
        self._stage = torch.zeros(
            (len(numbers), 2, STAGE_TOKENS, first.heads, first.dim), dtype=first.cache.dtype
        )
        self._places = [group[0].permutation() for group in groups]
        size = self._stage.element_size()
        row = first.heads * first.dim * size
        strides = Strides(row * STAGE_TOKENS, row, first.dim * size)
        self._cache = Cache(
            None,
            CacheSpec(
                k_base=[layer[0].data_ptr() for layer in self._stage],
                v_base=[layer[1].data_ptr() for layer in self._stage],
                k=strides,
                v=strides,
                heads=first.heads,
                dim=first.dim,
                page_tokens=STAGE_TOKENS,
                pages=1,
                dtype=shape.dtype,
                record_layer=numbers,
                record_layers=shape.layers,
                ropes=ropes.tables,
                layer_rope=[ropes.layer_table[i] for i in numbers],
                positions=ropes.positions,
                interleaved=ropes.interleaved,
            ),
        )

    def close(self) -> None:
        self._cache.close()

    def inject(self, loads: Sequence[tuple[Lease, Load]], stream: int) -> None:
        for batch in _batches(list(pieces_of(loads))):
            spans, at = [], 0
            for piece in batch:
                row = (piece.record, piece.record_token, piece.tokens, piece.first, at)
                spans.append(InjectSpans(piece.handle, *(np.array([n]) for n in row)))
                at += piece.tokens
            self._cache.inject(spans, [0], stream)
            for number, (group, base) in enumerate(self._numbered()):
                rows, slots = _slots(batch, number, group[0].block_tokens)
                for i, layer in enumerate(group):
                    stage = self._stage[base + i]
                    layer.write(
                        stage[0].index_select(0, rows), stage[1].index_select(0, rows), slots
                    )

    def capture(self, pieces: Sequence[Piece], stream: int) -> None:
        parts = [_Part(p.capture, 0, p.record_token, p.first, p.tokens, p.blocks) for p in pieces]
        for batch in _batches(parts):
            for number, (group, base) in enumerate(self._numbered()):
                rows, slots = _slots(batch, number, group[0].block_tokens)
                block = torch.div(slots, group[0].block_tokens, rounding_mode="floor")
                token = slots % group[0].block_tokens
                # [2][row][head][dim]: the element's place in its block
                place = self._places[number][:, token]
                for i, layer in enumerate(group):
                    memory = layer.cache.flatten(1)
                    index = block.view(1, -1, 1, 1)
                    self._stage[base + i].index_copy_(1, rows, memory[index, place])
            spans, at = [], 0
            for piece in batch:
                spans.append(
                    CaptureSpan(piece.handle, piece.record_token, piece.tokens, piece.first, at)
                )
                at += piece.tokens
            self._cache.capture(spans, [0], stream)

    def _numbered(self) -> list[tuple[Sequence[CpuLayer], int]]:
        """The groups, each with the index of its first layer in the stage."""
        numbered, base = [], 0
        for group in self._groups:
            numbered.append((group, base))
            base += len(group)
        return numbered


class _Part(NamedTuple):
    """Some tokens of a record, and the blocks of their request."""

    handle: Any  # a lease or a capture
    record: int  # of a lease
    record_token: int
    first: int
    tokens: int
    blocks: Blocks


def pieces_of(loads: Sequence[tuple[Lease, Load]]) -> Iterator[_Part]:
    for lease, load in loads:
        columns = (load.record, load.record_token, load.first, load.tokens)
        for record, token, first, tokens in zip(*(c.tolist() for c in columns), strict=True):
            yield _Part(lease, record, token, first, tokens, load.blocks)


def _batches(pieces: Sequence[_Part]) -> list[list[_Part]]:
    """The pieces, cut and put together so that each batch fills at most the stage."""
    batches: list[list[_Part]] = [[]]
    room = STAGE_TOKENS
    for piece in pieces:
        done = 0
        while done < piece.tokens:
            if not room:
                batches.append([])
                room = STAGE_TOKENS
            tokens = min(room, piece.tokens - done)
            batches[-1].append(
                _Part(
                    piece.handle,
                    piece.record,
                    piece.record_token + done,
                    piece.first + done,
                    tokens,
                    piece.blocks,
                )
            )
            done += tokens
            room -= tokens
    return [batch for batch in batches if batch]


def _slots(
    batch: Sequence[_Part], number: int, block_tokens: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of the stage and their slots in the group's cache, without those in the null block."""
    rows: list[int] = []
    slots: list[int] = []
    at = 0
    for piece in batch:
        blocks = piece.blocks[number]
        for first, tokens in runs(blocks, block_tokens, piece.first, piece.tokens):
            rows.extend(range(at + first - piece.first, at + first - piece.first + tokens))
            slots.extend(
                blocks[token // block_tokens] * block_tokens + token % block_tokens
                for token in range(first, first + tokens)
            )
        at += piece.tokens
    return torch.tensor(rows, dtype=torch.int64), torch.tensor(slots, dtype=torch.int64)
