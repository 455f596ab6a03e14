"""Moves KV between records and the cache of an engine whose layout is known: one C cache for each
group of layers, and one call for each group and step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from inferscale._core import Cache, Capture, CaptureSpan, InjectSpans, Lease
from inferscale.vllm.layout import pages_of
from inferscale.vllm.messages import Load

NULL_BLOCK = 0  # what the scheduler puts where a sliding window has passed


@dataclass(frozen=True, slots=True)
class Piece:
    """Prompt tokens [first, first + tokens) of a request with these blocks (of each group) are a
    record's from `record_token` on."""

    capture: Capture
    record_token: int
    first: int
    tokens: int
    blocks: tuple[list[int], ...]


class Mover(Protocol):
    def inject(self, loads: Sequence[tuple[Lease, Load]], stream: int) -> None: ...
    def capture(self, pieces: Sequence[Piece], stream: int) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class Group:
    """Layers that share a table of blocks."""

    cache: Cache
    block_tokens: int
    split: int


class PagedMover:
    def __init__(self, groups: Sequence[Group]) -> None:
        self._groups = groups

    def inject(self, loads: Sequence[tuple[Lease, Load]], stream: int) -> None:
        for number, group in enumerate(self._groups):
            spans: list[InjectSpans] = []
            pages: list[int] = []
            for lease, load in loads:
                blocks = load.blocks[number]
                load = without_null(load, blocks, group.block_tokens)
                if not len(load.first):
                    continue
                # The blocks of the whole request's run, in which the spans follow each other.
                low = int(load.first[0]) // group.block_tokens
                high = int(load.first[-1] + load.tokens[-1] - 1) // group.block_tokens + 1
                base = len(pages) * (group.block_tokens // group.split) - low * group.block_tokens
                pages.extend(pages_of(blocks[low:high], group.split))
                spans.append(
                    InjectSpans(
                        *(lease, load.record, load.record_token, load.tokens),
                        *(load.first, base + load.first),
                    )
                )
            if spans:
                group.cache.inject(spans, pages, stream)

    def capture(self, pieces: Sequence[Piece], stream: int) -> None:
        for number, group in enumerate(self._groups):
            spans: list[CaptureSpan] = []
            pages: list[int] = []
            for piece, first, tokens in _cut(pieces, number, group.block_tokens):
                at = _place(pages, piece, number, group, first, tokens)
                token = piece.record_token + first - piece.first
                spans.append(CaptureSpan(piece.capture, token, tokens, first, at))
            if spans:
                group.cache.capture(spans, pages, stream)

    def close(self) -> None:
        for group in self._groups:
            group.cache.close()


def _cut(
    pieces: Sequence[Piece], number: int, block_tokens: int
) -> Iterator[tuple[Piece, int, int]]:
    """The runs (first, tokens) of the pieces' tokens whose blocks are there."""
    for piece in pieces:
        yield from (
            (piece, first, tokens)
            for first, tokens in runs(piece.blocks[number], block_tokens, piece.first, piece.tokens)
        )


def without_null(load: Load, blocks: Sequence[int], block_tokens: int) -> Load:
    """The load without the tokens in the null block, which are there only under sliding windows."""
    low = int(load.first[0]) // block_tokens
    high = int(load.first[-1] + load.tokens[-1] - 1) // block_tokens + 1
    if NULL_BLOCK not in blocks[low:high]:
        return load
    rows = [
        (record, token + at - first, at, count)
        for record, token, first, tokens in zip(
            *(load.record.tolist(), load.record_token.tolist()),
            *(load.first.tolist(), load.tokens.tolist()),
            strict=True,
        )
        for at, count in runs(blocks, block_tokens, first, tokens)
    ]
    record, token, at, count = np.array(rows, np.int64).reshape(-1, 4).T
    return Load(load.lease, record, token, at, count, load.blocks)


def runs(
    blocks: Sequence[int], block_tokens: int, first: int, tokens: int
) -> Iterator[tuple[int, int]]:
    """Runs (first, tokens) of [first, first + tokens) that are not in the null block."""
    start, end = first, first + tokens
    if NULL_BLOCK not in blocks[first // block_tokens : (end - 1) // block_tokens + 1]:
        yield first, tokens
        return
    while start < end:
        block = start // block_tokens
        stop = start
        while stop < end and (blocks[block] == NULL_BLOCK) == (
            blocks[stop // block_tokens] == NULL_BLOCK
        ):
            stop = min(end, (stop // block_tokens + 1) * block_tokens)
        if blocks[block] != NULL_BLOCK:
            yield start, stop - start
        start = stop


def _place(
    pages: list[int], piece: Piece, number: int, group: Group, first: int, tokens: int
) -> int:
    """Appends the pages of [first, first + tokens) and says at which of their tokens it begins."""
    size = group.block_tokens
    low, high = first // size, (first + tokens - 1) // size + 1
    at = len(pages) * (size // group.split) + first % size
    pages.extend(pages_of(piece.blocks[number][low:high], group.split))
    return at
