"""The worker half: the hands. It holds records, and moves KV on the current stream.

Everything happens in `load`, before a forward pass, and in `save`, after it; nothing there waits
for the device, but for the self-test.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from vllm.distributed import get_tensor_model_parallel_rank
from vllm.logger import init_logger

from inferscale import _core
from inferscale._core import KEY_BYTES, Capture, Code, Codes, CoreError, Dtype, Lease, Owner, Shape
from inferscale.vllm import rope
from inferscale.vllm.cpu import CpuLayer, CpuMover
from inferscale.vllm.fingerprint import FingerprintError, fingerprint
from inferscale.vllm.layout import Layout, LayoutError, describe
from inferscale.vllm.messages import Greeting, Load, Orders, Ready, Report, Verdict
from inferscale.vllm.paged import Group, Mover, PagedMover, Piece
from inferscale.vllm.settings import Settings
from inferscale.vllm.support import Model, Unsupported, examine

logger = init_logger(__name__)

DTYPES = {torch.float32: Dtype.F32, torch.float16: Dtype.F16, torch.bfloat16: Dtype.BF16}
TORCH_DTYPES = {ours: theirs for theirs, ours in DTYPES.items()}
# The self-test's largest relative error of a layer. A wrong rotation or layout gives about 1.
LIMITS = {Dtype.F32: 1e-3, Dtype.F16: 2e-2, Dtype.BF16: 8e-2}
NO_NUMBER = 1e9  # the error of what is no number, as JSON has it
STATS_SECONDS = 1.0

# The workers of this process, by engine: where a scheduler half looks for its only one.
workers: weakref.WeakValueDictionary[str, Worker] = weakref.WeakValueDictionary()


def rank_keys(keys: bytes, rank: int, ranks: int) -> bytes:
    """Under which keys a rank keeps its heads of records whose keys stand one after the other.

    As src/kv/rank_key.h has it: the exclusive or with a hash of rank and ranks.
    """
    if ranks == 1:
        return keys
    mask = _core.hash128(rank.to_bytes(4, "little"), ranks.to_bytes(4, "little"))
    rows = np.frombuffer(keys, np.uint8).reshape(-1, KEY_BYTES)
    return bytes((rows ^ np.frombuffer(mask, np.uint8)).tobytes())


class Worker:
    def __init__(self, vllm_config: Any, kv_cache_config: Any) -> None:
        _core.library()  # a missing one ends the start
        self._vllm_config = vllm_config
        self._kv_cache_config = kv_cache_config
        self._settings = Settings.of(vllm_config)
        self._ranks = vllm_config.parallel_config.tensor_parallel_size
        self._rank = get_tensor_model_parallel_rank() if self._ranks > 1 else 0
        self._ready: Ready | None = None
        self._records: _Records | None = None
        self._leases: dict[int, Lease | Sequence[int]] = {}  # or the codes that say why not
        self._pending: set[int] = set()  # ordered leases that are not yet reported
        self._captures: dict[int, Capture] = {}
        self._reference: torch.Tensor | None = None  # the self-test's
        self._report = Report()
        self._stats_at = 0.0
        workers[vllm_config.kv_transfer_config.engine_id] = self

    # ---- start ----

    def register(self, kv_caches: Mapping[str, torch.Tensor]) -> None:
        """Learns the engine's caches. What can't be served is said once, and not injected."""
        try:
            self._ready = self._open(kv_caches)
        except (Unsupported, LayoutError, rope.RopeError, FingerprintError) as error:
            self._ready = Ready(str(error))
        except CoreError as error:
            if error.code != Code.UNSUPPORTED:
                raise
            self._ready = Ready(str(error))
        if self._ready.reason:
            logger.warning("InferScale injects nothing: %s", self._ready.reason)

    @property
    def ready(self) -> Ready:
        assert self._ready is not None, "asked before vLLM had KV caches"
        return self._ready

    def greeting(self) -> Greeting:
        return Greeting(self._rank, self.ready)

    def _open(self, kv_caches: Mapping[str, torch.Tensor]) -> Ready:
        model = examine(self._vllm_config, self._kv_cache_config)
        dtype = DTYPES.get(model.dtype)
        if dtype is None:
            raise Unsupported(f"a model of {model.dtype}")
        shape = Shape(len(model.order), model.heads, model.dim, dtype)
        print_ = fingerprint(self._vllm_config, self._settings.model_id)
        modules = [model.modules[name] for name in model.order]
        ropes = rope.find(modules, model.positions, model.dtype)
        device = kv_caches[model.order[0]].device
        self._records = records = _Records(self._settings, device)
        records.owned = (print_, shape)
        if device.type == "cuda":
            blocks = self._kv_cache_config.num_blocks
            records.mover = _paged_mover(records.device, model, kv_caches, blocks, shape, ropes)
        elif device.type == "cpu":
            records.mover = _cpu_mover(model, kv_caches, shape, ropes)
        else:
            raise Unsupported(f"a KV cache on {device.type}")
        records.warm_up(len(model.groups))
        logger.info(
            "InferScale %s on %s: %d layers, %d heads of %d dims, fingerprint %s, directory %s",
            *(_core.version(), device, *shape[:3], print_.hex(), self._settings.dir),
        )
        return Ready("", print_, shape)

    # ---- steps ----

    def load(self, orders: Orders) -> None:
        records = self._records
        if records is None or records.mover is None:
            return
        for order in orders.leases:
            self.open_lease(order.lease, order.tenant, order.keys)
            self._pending.add(order.lease)
        if orders.loads:
            records.mover.inject(list(self._loads(orders)), records.stream())

    def _loads(self, orders: Orders) -> Iterator[tuple[Lease, Load]]:
        for load in orders.loads:
            lease = self._leases[load.lease]
            assert isinstance(lease, Lease), "a lease without records was claimed"
            yield lease, load

    def save(self, orders: Orders) -> None:
        records = self._records
        if records is None or records.mover is None:
            return
        for order in orders.captures:
            key = rank_keys(order.key, self._rank, self._ranks)
            try:
                self._captures[order.capture] = Capture(
                    records.tier, records.owner(order.tenant), key, order.tokens
                )
            except CoreError as error:
                self._count(f"refused_capture_{Code(error.code).name.lower()}")
        pieces = [
            Piece(capture, span.record_token, span.first, span.tokens, span.blocks)
            for span in orders.saves
            if (capture := self._captures.get(span.capture)) is not None
        ]
        stream = records.stream()
        if pieces:
            records.mover.capture(pieces, stream)
        if orders.reference in self._captures:
            self._reference = records.read(self._captures[orders.reference], 1)
        for number in orders.commits:
            if (capture := self._captures.pop(number, None)) is not None:
                try:
                    capture.commit(stream)
                    self._count("captured_records")
                except CoreError as error:
                    self._count(f"refused_capture_{Code(error.code).name.lower()}")
        if orders.flush:
            records.tier.flush()
        if orders.compare is not None:
            number, tokens = orders.compare
            capture = self._captures.pop(number, None)
            if capture is not None and self._reference is not None:
                kv = records.read(capture, tokens)
                self._report.verdicts.append(records.verdict(kv, self._reference))
                capture.close(stream)

    def report(self, orders: Orders | None) -> Report | None:
        """The last thing in every step."""
        if orders is not None and self._records is not None:
            for number in orders.drops:
                if (capture := self._captures.pop(number, None)) is not None:
                    capture.close(self._records.stream())
            for number in orders.closes:
                self.close_lease(number)
        for number in list(self._pending):
            codes = self.poll_lease(number)
            if codes is not None:
                self._pending.discard(number)
                self._report.leases[number] = (1, tuple(map(int, codes)))
        now = time.monotonic()
        if self._records is not None and now >= self._stats_at:
            self._stats_at = now + STATS_SECONDS
            self._report.stats = self._records.tier.stats()
        report, self._report = self._report, Report()
        return report if report else None

    def _count(self, name: str) -> None:
        self._report.counts[name] = self._report.counts.get(name, 0) + 1

    def shutdown(self) -> None:
        records, self._records = self._records, None
        if records is None:
            return
        records.wait()
        for lease in self._leases.values():
            if isinstance(lease, Lease):
                lease.close()
        self._leases.clear()
        for capture in self._captures.values():
            capture.close()
        self._captures.clear()
        records.close()

    # ---- leases ----

    def open_lease(self, lease: int, tenant: str, keys: bytes) -> None:
        assert self._records is not None
        mine = rank_keys(keys, self._rank, self._ranks)
        try:
            self._leases[lease] = Lease(self._records.tier, self._records.owner(tenant), mine)
        except CoreError as error:
            self._leases[lease] = [error.code] * (len(keys) // KEY_BYTES)

    def poll_lease(self, lease: int) -> Sequence[int] | Codes | None:
        held = self._leases[lease]
        return held.poll() if isinstance(held, Lease) else held

    def close_lease(self, lease: int) -> None:
        held = self._leases.pop(lease, None)
        self._pending.discard(lease)
        if isinstance(held, Lease):
            held.close()


class _Records:
    """The store, the tier above it, and what moves KV between it and the engine."""

    def __init__(self, settings: Settings, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self.device = _core.Device(device.index or 0, settings.plugin) if self._cuda else None
        self.store = _core.Store(
            settings.dir,
            host_bytes=settings.host_bytes,
            tenant_host_bytes=settings.tenant_host_bytes,
            disk_bytes=settings.disk_bytes,
            tenant_disk_bytes=settings.tenant_disk_bytes,
            device=self.device,
        )
        self.tier = _core.Tier(
            self.store,
            self.device,
            device_bytes=settings.device_bytes,
            tenant_device_bytes=settings.tenant_device_bytes,
            capture_bytes=settings.capture_bytes,
        )
        self.mover: Mover | None = None
        self.owned: tuple[bytes, Shape] = (bytes(16), Shape(0, 0, 0, Dtype.F32))

    def owner(self, tenant: str) -> Owner:
        return Owner(tenant, *self.owned)

    def stream(self) -> int:
        return int(torch.cuda.current_stream().cuda_stream) if self._cuda else 0

    def wait(self) -> None:
        if self._cuda:
            torch.cuda.synchronize()

    def warm_up(self, groups: int) -> None:
        """Moves one token of a block that nobody has yet: no request pays for a first launch."""
        assert self.mover is not None
        key, owner, stream = os.urandom(16), self.owner("inferscale-warm-up"), self.stream()
        blocks = ([1],) * groups  # 0 is the null block
        capture = Capture(self.tier, owner, key, [0])
        self.mover.capture([Piece(capture, 0, 0, 1, blocks)], stream)
        capture.commit(stream)
        self.tier.flush()
        lease = Lease(self.tier, owner, key)
        while (codes := lease.poll()) is None:
            time.sleep(0.001)
        if codes[0] == Code.OK:
            zero, one = np.zeros(1, np.int64), np.ones(1, np.int64)
            self.mover.inject([(lease, Load(0, zero, zero, zero, one, blocks))], stream)
        self.wait()
        lease.close()
        self.store.erase([key])

    def read(self, capture: Capture, tokens: int) -> torch.Tensor:
        """[layer][K, then V][token][head and dim] in fp32; waits for the device."""
        shape = self.owned[1]
        dtype = TORCH_DTYPES[shape.dtype]
        size = 2 * shape.layers * tokens * shape.kv_heads * shape.dim * dtype.itemsize
        data = capture.read(size, self.stream())
        return torch.frombuffer(data, dtype=dtype).float().view(shape.layers, 2, tokens, -1)

    def verdict(self, kv: torch.Tensor, reference: torch.Tensor) -> Verdict:
        """Each token must have the reference's KV, wherever they stand: keys are not rotated."""
        error = (kv - reference).norm(dim=3) / reference.norm(dim=3).clamp_min(1e-20)
        worst = error.nan_to_num(nan=NO_NUMBER, posinf=NO_NUMBER).amax(dim=(1, 2))
        return Verdict(tuple(worst.tolist()), LIMITS[self.owned[1].dtype])

    def close(self) -> None:
        for part in (self.mover, self.tier, self.store, self.device):
            if part is not None:
                part.close()


def _cpu_mover(
    model: Model, kv_caches: Mapping[str, torch.Tensor], shape: Shape, ropes: rope.Ropes
) -> Mover:
    if model.fp8:
        raise Unsupported("an fp8 KV cache on the CPU")
    layers = [
        [
            CpuLayer(name, model.modules[name], kv_caches[name], model.heads, model.dim)
            for name in group.layers
        ]
        for group in model.groups
    ]
    number = {name: i for i, name in enumerate(model.order)}
    numbers = [number[name] for group in model.groups for name in group.layers]
    return CpuMover(layers, numbers, shape, ropes)


def _paged_mover(
    device: _core.Device | None,
    model: Model,
    kv_caches: Mapping[str, torch.Tensor],
    blocks: int,
    shape: Shape,
    ropes: rope.Ropes,
) -> Mover:
    number = {name: i for i, name in enumerate(model.order)}
    groups: list[Group] = []
    for group in model.groups:
        layouts = [
            describe(name, kv_caches[name], model.heads, model.dim, blocks, group.block_tokens)
            for name in group.layers
        ]
        numbers = [number[name] for name in group.layers]
        spec = _spec(model, numbers, layouts, shape, ropes)
        cache = _core.Cache(device, spec)
        groups.append(Group(cache, group.block_tokens, layouts[0].split))
    return PagedMover(groups)


def _spec(
    model: Model,
    numbers: Sequence[int],
    layouts: Sequence[Layout],
    shape: Shape,
    ropes: rope.Ropes,
) -> _core.CacheSpec:
    first = layouts[0]
    for layout in layouts:
        if (layout.strides, layout.pages, layout.page_tokens) != (
            *(first.strides, first.pages, first.page_tokens),
        ):
            raise LayoutError(f"layers of one group lie differently: {first} and {layout}")
    modules = [model.modules[model.order[i]] for i in numbers]
    return _core.CacheSpec(
        k_base=[layout.k for layout in layouts],
        v_base=[layout.v for layout in layouts],
        k=first.strides,
        v=first.strides,
        heads=model.heads,
        dim=model.dim,
        page_tokens=first.page_tokens,
        pages=first.pages,
        dtype=Dtype.F8_E4M3 if model.fp8 else shape.dtype,
        record_layer=numbers,
        record_layers=shape.layers,
        ropes=ropes.tables,
        layer_rope=[ropes.layer_table[i] for i in numbers],
        positions=ropes.positions,
        interleaved=ropes.interleaved,
        k_scale=[float(module._k_scale) for module in modules] if model.fp8 else (),
        v_scale=[float(module._v_scale) for module in modules] if model.fp8 else (),
    )
