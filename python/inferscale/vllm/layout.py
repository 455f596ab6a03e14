"""How a layer's KV cache lies in memory, read off its tensor's shape and strides.

vLLM has changed the shape several times; what decides here is what is there, never a version. With
B blocks, N tokens of a block, H heads and D dims the known shapes are
    (2, B, N, H, D)  (B, 2, N, H, D)  (B, H, N, 2 D)  (B, N, H, 2 D)
each in any memory order with contiguous dims.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from inferscale._core import Strides

if TYPE_CHECKING:
    import torch


class LayoutError(Exception):
    pass


@dataclass(frozen=True)
class Layout:
    """Addresses and strides in bytes. A page is a block of the tensor, and `split` of them are one
    block of the scheduler's."""

    k: int
    v: int
    strides: Strides
    pages: int
    page_tokens: int
    split: int


def describe(
    name: str, cache: torch.Tensor, heads: int, dim: int, blocks: int, block_tokens: int
) -> Layout:
    """The layout of a cache that has room for `blocks` blocks of `block_tokens` tokens."""
    shape, strides = tuple(cache.shape), tuple(cache.stride())
    axes = _axes(shape, heads, dim)
    pages = tokens = 0
    if axes is not None:
        pages, tokens = shape[axes.page], shape[axes.token]
        if (
            not tokens
            or block_tokens % tokens
            or pages < blocks * (block_tokens // tokens)
            or strides[-1] != 1
        ):
            axes = None
    if axes is None:
        raise LayoutError(
            f"layer {name}: unknown layout, shape {shape}, strides {strides}; expected {heads} "
            f"heads of {dim} dims and {blocks} blocks of {block_tokens} tokens"
        )
    size = cache.element_size()
    second = dim if axes.kv is None else strides[axes.kv]
    return Layout(
        k=cache.data_ptr(),
        v=cache.data_ptr() + second * size,
        strides=Strides(
            strides[axes.page] * size, strides[axes.token] * size, strides[axes.head] * size
        ),
        pages=pages,
        page_tokens=tokens,
        split=block_tokens // tokens,
    )


@dataclass(frozen=True)
class _Axes:
    page: int
    token: int
    head: int
    kv: int | None  # None: K and V of a token are one row


def _axes(shape: Sequence[int], heads: int, dim: int) -> _Axes | None:
    if len(shape) == 5 and shape[3] == heads and shape[4] == dim:
        if shape[1] == 2:
            return _Axes(page=0, token=2, head=3, kv=1)
        if shape[0] == 2:
            return _Axes(page=1, token=2, head=3, kv=0)
    if len(shape) == 4 and shape[3] == 2 * dim:
        if shape[1] == heads:
            return _Axes(page=0, token=2, head=1, kv=None)
        if shape[2] == heads:
            return _Axes(page=0, token=1, head=2, kv=None)
    return None


def pages_of(blocks: Sequence[int], split: int) -> Sequence[int]:
    """The tensor's pages of the scheduler's blocks."""
    if split == 1:
        return blocks
    return [block * split + part for block in blocks for part in range(split)]
