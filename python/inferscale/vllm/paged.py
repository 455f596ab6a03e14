"""Moves KV between records and the cache of an engine whose layout is known: one C cache for each
group of layers, and one call for each group and step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from inferscale._core import Cache, Capture, CaptureSpan, InjectSpan, Lease
from inferscale.vllm.layout import pages_of

NULL_BLOCK = 0  # what the scheduler puts where a sliding window has passed


@dataclass(frozen=True, slots=True)
class Piece:
    """Prompt tokens [first, first + tokens) of a request with these blocks (of each group) are a
    record's from `record_token` on."""

    handle: Lease | Capture
    record: int  # of a lease
    record_token: int
    first: int
    tokens: int
    blocks: tuple[list[int], ...]


class Mover(Protocol):
    def inject(self, pieces: Sequence[Piece], stream: int) -> None: ...
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

    def inject(self, pieces: Sequence[Piece], stream: int) -> None:
        for number, group in enumerate(self._groups):
            spans: list[InjectSpan] = []
            pages: list[int] = []
            for piece, first, tokens in _cut(pieces, number, group.block_tokens):
                assert isinstance(piece.handle, Lease)
                at = _place(pages, piece, number, group, first, tokens)
                token = piece.record_token + first - piece.first
                spans.append(InjectSpan(piece.handle, piece.record, token, tokens, first, at))
            if spans:
                group.cache.inject(spans, pages, stream)

    def capture(self, pieces: Sequence[Piece], stream: int) -> None:
        for number, group in enumerate(self._groups):
            spans: list[CaptureSpan] = []
            pages: list[int] = []
            for piece, first, tokens in _cut(pieces, number, group.block_tokens):
                assert isinstance(piece.handle, Capture)
                at = _place(pages, piece, number, group, first, tokens)
                token = piece.record_token + first - piece.first
                spans.append(CaptureSpan(piece.handle, token, tokens, first, at))
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
