"""What must have been written, computed in float64, and how far a result may be from it."""

from dataclasses import dataclass
from typing import Protocol

import torch

from memory import POISON, Request


class WrongResult(Exception):
    """A row wrote something else than it should have. Its time means nothing."""


@dataclass(frozen=True)
class Tolerance:
    """|result - expected| <= ulp |expected| + share * max(|a|, |b|) + floor, for a pair (a, b).

    The share is the error of the arithmetic before the last rounding: where a pair cancels, it may
    be many units of the result. `equal` of the results must be the very rounding of the expected.
    """

    ulp: float
    share: float
    floor: float
    equal: float


FLOAT_BF16 = Tolerance(ulp=2**-7, share=2**-20, floor=0.0, equal=0.999)
# Two rotations in float, with the angles' own roundings.
TWICE_BF16 = Tolerance(ulp=2**-7, share=2**-18, floor=0.0, equal=0.99)
ALL_IN_BF16 = Tolerance(ulp=2**-6, share=2**-6, floor=0.0, equal=0.3)
FLOAT_F8 = Tolerance(ulp=2**-3, share=2**-20, floor=2**-9, equal=0.999)
EXACT = Tolerance(ulp=0.0, share=0.0, floor=0.0, equal=1.0)

F8_MAX = 448.0
RAW = {1: torch.int8, 2: torch.int16}  # for moving elements without reading them as numbers


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """[token][head][dim], halves are pairs."""
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)


def compare(
    what: str, result: torch.Tensor, expected: torch.Tensor, pairs: torch.Tensor, allow: Tolerance
) -> None:
    """`result` in its own type, `expected` in float64; `pairs`: what was rotated, or `expected`."""
    a, b = pairs.abs().chunk(2, -1)
    largest = torch.maximum(a, b).repeat(1, 1, 2)
    numbers = result.double()
    far = (numbers - expected).abs() > allow.ulp * expected.abs() + allow.share * largest + (
        allow.floor
    )
    wrong = far | numbers.isnan()
    equal = (numbers == expected.to(torch.float32).to(result.dtype).double()).double().mean()
    if bool(wrong.any()):
        at = [int(i) for i in wrong.nonzero()[0]]
        raise WrongResult(
            f"{what}: {int(wrong.sum())} of {wrong.numel()} elements are wrong, the first at "
            f"[token, head, dim] {at}: {float(numbers[tuple(at)]):.8g} for "
            f"{float(expected[tuple(at)]):.8g}"
        )
    if float(equal) < allow.equal:
        raise WrongResult(f"{what}: only {float(equal):.5f} of the elements are rounded right")


def check_untouched(what: str, memory: torch.Tensor) -> None:
    for piece in memory.split(1 << 30):
        touched = int((piece != POISON).sum())
        if touched:
            raise WrongResult(f"{what}: {touched} bytes were written that should not have been")


@dataclass(frozen=True)
class Layer:
    """What one layer's tokens should hold: float64 [token][head][dim]."""

    keys: torch.Tensor
    pairs: torch.Tensor  # the keys before the rotation
    values: torch.Tensor


class Transfer(Protocol):
    """A row of the benchmark: one way of moving a request."""

    keys: Tolerance
    values: Tolerance

    def call(self, variant: int) -> None: ...
    def source(self, variant: int) -> torch.Tensor:
        """The memory that a call reads, and may spoil."""

    def expected(self, source: torch.Tensor, layer: int) -> Layer: ...


def check_inject(request: Request, transfer: Transfer, variant: int, dtype: torch.dtype) -> None:
    """Calls once and compares every byte of the cache."""
    request.cache_used.fill_(POISON)
    source = transfer.source(variant).clone()
    transfer.call(variant)
    slots, dim = request.slots[variant], request.case.model.dim
    for layer in range(request.case.model.layers):
        cells = request.cache_layer(layer, RAW[request.case.cache_size])
        result, want = cells[slots].view(dtype), transfer.expected(source, layer)
        compare(f"K of layer {layer}", result[..., :dim], want.keys, want.pairs, transfer.keys)
        compare(f"V of layer {layer}", result[..., dim:], want.values, want.values, transfer.values)
        cells[slots] = -1  # POISON again
    check_untouched("cache", request.cache_used)


def check_capture(request: Request, transfer: Transfer, variant: int) -> None:
    """Likewise of the records; request.memory.cache holds numbers."""
    case = request.case
    records = request.memory.source[: request.variants * case.source_bytes]
    records.fill_(POISON)
    transfer.call(variant)
    planes = request.records(variant).view(torch.int16).view(-1, case.model.heads, case.model.dim)
    for layer in range(case.model.layers):
        want = transfer.expected(transfer.source(variant), layer)
        for values in (False, True):
            rows = request.plane_rows(layer, values)
            result = planes[rows].view(torch.bfloat16)
            if values:
                compare(f"V of layer {layer}", result, want.values, want.values, transfer.values)
            else:
                compare(f"K of layer {layer}", result, want.keys, want.pairs, transfer.keys)
            planes[rows] = -1
    check_untouched("records", records)


def check_topk(
    rows: torch.Tensor, query: torch.Tensor, ids: torch.Tensor, scores: torch.Tensor, error: float
) -> None:
    """One search: `ids` and `scores` against every score in float64."""
    truth = rows.double() @ query.double()
    best = truth.topk(len(ids)).values
    if len(set(ids.tolist())) != len(ids) or int(ids.min()) < 0 or int(ids.max()) >= len(rows):
        raise WrongResult("topk: an id is out of range or comes twice")
    if float((truth[ids] - best).abs().max()) > error:
        raise WrongResult("topk: these are not the best rows")
    if float((scores.double() - truth[ids]).abs().max()) > error:
        raise WrongResult("topk: the scores are not those of the rows")
