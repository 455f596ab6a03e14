"""The groups of rows for each op."""

import ctypes
import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import cuda_plugin as abi
import torch
from cases import Case, Search
from measure import Group, Row
from peers import FlashInfer, Lmcache, TorchPath
from reference import Transfer, WrongResult, check_capture, check_inject
from searches import OursTopK, SearchData, TorchTopK
from transfers import Ops, Ours, OursCapture, current_stream

from memory import POISON, Memory, Request


@dataclass
class Setup:
    ops: Ops
    memory: Memory
    cases: list[Case]
    searches: tuple[Search, ...]
    usual_facts: int  # of the ops that are timed with one number of facts
    host_fact: Case  # one of the facts that wait in the host's memory
    peers: dict[str, Path]  # the libraries that are there


def shape_of(case: Case) -> dict[str, Any]:
    return {"model": case.model.name, "tokens": case.tokens, "facts": case.facts}


def copy_row(memory: Memory, moved: int, variants: int) -> Row:
    """The ceiling: a copy on the device that reads and writes as many bytes together."""
    size = moved // 2
    stride = -(-size // 256) * 256
    variants = max(2, min(variants, memory.source.numel() // stride))

    def call(variant: int) -> None:
        here = slice(variant * stride, variant * stride + size)
        memory.cache[here].copy_(memory.source[here])

    def check() -> None:
        call(1)
        if not torch.equal(memory.cache[stride : stride + size], memory.source[stride:][:size]):
            raise WrongResult("the bytes differ")

    return Row("copy", call, check, variants)


def transfer_row(
    name: str, request: Request, make: Callable[[], Transfer], dtype: torch.dtype
) -> Row:
    """Into a cache of `dtype`. The transfer is made by the check, so that it may fail."""
    made: list[Transfer] = []

    def check() -> None:
        made.append(make())
        check_inject(request, made[0], request.variants - 1, dtype)

    return Row(name, lambda variant: made[0].call(variant), check, request.variants)


def capture_row(memory: Memory, request: Request, transfer: Transfer) -> Row:
    def check() -> None:
        check_capture(request, transfer, request.variants - 1)
        memory.fill_normal(memory.source)  # the copy goes on to read from there

    return Row("ours", transfer.call, check, request.variants)


def inject(setup: Setup) -> Iterator[Group]:
    memory, ops = setup.memory, setup.ops
    memory.fill_normal(memory.source)
    for case in setup.cases:
        request = Request(memory, case)
        makers: dict[str, Callable[[], Transfer]] = {
            "ours_off": partial(Ours, ops, request, rotation=False),
            "ours": partial(Ours, ops, request),
        }
        if "lmcache" in setup.peers:
            makers["lmcache"] = partial(Lmcache, setup.peers["lmcache"], request)
        if "flashinfer" in setup.peers:
            makers["flashinfer"] = partial(FlashInfer, setup.peers["flashinfer"], request)
        makers["torch"] = partial(TorchPath, request)
        rows = [transfer_row(name, request, make, torch.bfloat16) for name, make in makers.items()]
        copy = copy_row(memory, case.moved, request.variants)
        yield Group("inject", case.moved, [copy, *rows], shape_of(case))


def inject_i8(setup: Setup) -> Iterator[Group]:
    setup.memory.fill_quantised(setup.memory.source)
    yield from _inject_as("inject_i8", setup, torch.bfloat16, quantised=True)


def inject_f8(setup: Setup) -> Iterator[Group]:
    setup.memory.fill_normal(setup.memory.source)
    yield from _inject_as("inject_f8", setup, torch.float8_e4m3fn, cache_size=1)


def _inject_as(op: str, setup: Setup, dtype: torch.dtype, **changes: Any) -> Iterator[Group]:
    for plain in _usual_cases(setup):
        case = dataclasses.replace(plain, **changes)
        request = Request(setup.memory, case)
        ours = transfer_row("ours", request, partial(Ours, setup.ops, request), dtype)
        copy = copy_row(setup.memory, case.moved, request.variants)
        yield Group(op, case.moved, [copy, ours], shape_of(case))


def capture(setup: Setup) -> Iterator[Group]:
    memory = setup.memory
    memory.fill_normal(memory.cache)
    for case in _usual_cases(setup):
        memory.fill_normal(memory.source)
        request = Request(memory, case)
        rows = [
            copy_row(memory, case.moved, request.variants),
            capture_row(memory, request, OursCapture(setup.ops, request)),
        ]
        yield Group("capture", case.moved, rows, shape_of(case))
    memory.cache.fill_(POISON)


def _usual_cases(setup: Setup) -> Iterator[Case]:
    return (case for case in setup.cases if case.facts == setup.usual_facts)


def topk(setup: Setup) -> Iterator[Group]:
    for search in setup.searches:
        data = SearchData(setup.memory, search)
        ours, peer = OursTopK(setup.ops, data), TorchTopK(data)
        rows = [
            copy_row(setup.memory, search.moved, data.variants),
            Row("ours", ours.call, ours.check, data.variants),
            Row("torch", peer.call, peer.check, data.variants),
        ]
        yield Group("topk", search.moved, rows, dataclasses.asdict(search))


def host_to_device(setup: Setup) -> Iterator[Group]:
    """One request's facts from pinned memory, each by its own copy; the ceiling is one copy."""
    case, target = setup.host_fact, setup.memory.source
    size = case.source_bytes
    stride = size + 4096
    facts = min(50, target.numel() // stride)
    pinned = setup.ops.alloc_pinned(facts * stride)
    raw = (ctypes.c_uint8 * (facts * stride)).from_address(pinned)
    host = torch.frombuffer(raw, dtype=torch.uint8)
    host.random_(0, 256)
    device = target.data_ptr()

    def at_once(variant: int) -> None:
        setup.ops.copy(device, pinned, facts * size, abi.HOST_TO_DEVICE, current_stream())

    def one_by_one(variant: int) -> None:
        for fact in range(facts):
            at = fact * stride
            setup.ops.copy(device + at, pinned + at, size, abi.HOST_TO_DEVICE, current_stream())

    def check_at_once() -> None:
        at_once(0)
        if not torch.equal(target[: facts * size], host[: facts * size].to(target.device)):
            raise WrongResult("the bytes differ")

    def check_one_by_one() -> None:
        target[: facts * stride].fill_(POISON)
        one_by_one(0)
        got, sent = (t[: facts * stride].view(facts, stride) for t in (target, host))
        if not torch.equal(got[:, :size], sent[:, :size].to(target.device)):
            raise WrongResult("the bytes differ")
        if not bool((got[:, size:] == POISON).all()):
            raise WrongResult("bytes between the facts were written")

    rows = [Row("copy", at_once, check_at_once, 1), Row("ours", one_by_one, check_one_by_one, 1)]
    shape = {"model": case.model.name, "tokens": case.tokens * facts, "facts": facts}
    try:
        yield Group("host_to_device", 2 * facts * size, rows, shape)
    finally:
        setup.ops.free_pinned(pinned)


GROUPS: dict[str, Callable[[Setup], Iterator[Group]]] = {
    "inject": inject,
    "inject_i8": inject_i8,
    "inject_f8": inject_f8,
    "capture": capture,
    "topk": topk,
    "host_to_device": host_to_device,
}
