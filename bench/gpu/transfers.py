"""The plug-in's inject and capture as rows of the benchmark (reference.Transfer)."""

import ctypes
from ctypes import c_int32
from typing import Protocol

import cuda_plugin as abi
import torch
from cases import HEADER, PAGE
from reference import EXACT, F8_MAX, FLOAT_BF16, FLOAT_F8, Layer, rotate

from memory import Request


class Ops(Protocol):
    """What cuda_plugin.Ops does, and the stand-in of a dry run."""

    build: str

    def inject(self, transfer: abi.PluginTransfer, stream: int) -> None: ...
    def capture(self, transfer: abi.PluginTransfer, stream: int) -> None: ...
    def topk_workspace(self, search: abi.PluginTopK) -> int: ...
    def topk(self, search: abi.PluginTopK, stream: int) -> None: ...
    def copy(self, to: int, source: int, size: int, kind: int, stream: int) -> None: ...
    def alloc_pinned(self, size: int) -> int: ...
    def free_pinned(self, memory: int) -> None: ...


def current_stream() -> int:
    return int(torch.cuda.current_stream().cuda_stream) if torch.cuda.is_available() else 0


class Ours:
    """The plug-in's inject. Records are int8 where the case says so, the cache is fp8 likewise."""

    def __init__(self, ops: Ops, request: Request, rotation: bool = True) -> None:
        self._ops, self._request, self._rotation = ops, request, rotation
        case, model, memory = request.case, request.case.model, request.memory
        self.keys, self.values = FLOAT_BF16 if rotation else EXACT, EXACT
        self._key_scales = self._cache_scales = None
        if case.quantised:
            self.values = FLOAT_BF16
            shape = (model.layers, model.heads, model.dim)
            self._key_scales = memory.uniform(shape, 0.005, 0.03)
            for variant in range(request.variants):
                scales = request.records(variant).view(torch.float32).view(-1, model.heads)
                for layer in range(model.layers):
                    rows = request.scale_rows(layer)
                    scales[rows] = memory.uniform((case.tokens, model.heads), 0.005, 0.02)
        if case.cache_size == 1:
            self.keys = self.values = FLOAT_F8
            self._cache_scales = memory.uniform((2, model.layers), 0.01, 0.03)
        self._cache, self._ropes = self._make_cache(), self._make_ropes()
        self._transfers = [self._make_transfer(v) for v in range(request.variants)]

    def _make_cache(self) -> abi.PluginCache:
        request, model, size = (
            self._request,
            self._request.case.model,
            self._request.case.cache_size,
        )
        bases = request.cache_bases()
        head = 2 * model.dim * size
        token, page = model.heads * head, PAGE * model.heads * head
        device = request.records(0).device
        self._k_base = torch.tensor(bases, dtype=torch.int64, device=device)
        self._v_base = self._k_base + head // 2
        cache = abi.PluginCache(
            k_base=self._k_base.data_ptr(),
            v_base=self._v_base.data_ptr(),
            k_page=page,
            k_token=token,
            k_head=head,
            v_page=page,
            v_token=token,
            v_head=head,
            page_tokens=PAGE,
            layers=model.layers,
            heads=model.heads,
            dim=model.dim,
            dtype=abi.BF16 if size == 2 else abi.F8E4M3,
            record_layers=model.layers,
        )
        if self._cache_scales is not None:
            cache.k_scale, cache.v_scale = (row.data_ptr() for row in self._cache_scales)
            cache.scale_heads = 1
        return cache

    def _make_ropes(self) -> abi.PluginRopes:
        model = self._request.case.model
        ropes = abi.PluginRopes(tables=1, kind=abi.NEOX)
        ropes.table[0] = self._request.memory.table(model).data_ptr()
        ropes.rotary_dims[0] = model.dim if self._rotation else 0
        return ropes

    def _make_transfer(self, variant: int) -> abi.PluginTransfer:
        request, case = self._request, self._request.case
        base = request.records(variant).data_ptr()
        spans = (abi.PluginSpan * case.facts)()
        for span, (at, place, tokens) in zip(spans, case.records(), strict=True):
            span.record, span.record_tokens, span.tokens = base + at, tokens, tokens
            span.position = span.page_token = HEADER + place
        return abi.PluginTransfer(
            cache=ctypes.pointer(self._cache),
            ropes=ctypes.pointer(self._ropes),
            key_scales=None if self._key_scales is None else self._key_scales.data_ptr(),
            spans=spans,
            span_count=case.facts,
            pages=(c_int32 * case.pages)(*request.pages[variant].tolist()),
            page_count=case.pages,
            record_dtype=abi.I8 if case.quantised else abi.BF16,
        )

    def call(self, variant: int) -> None:
        self._ops.inject(self._transfers[variant], current_stream())

    def source(self, variant: int) -> torch.Tensor:
        return self._request.records(variant)

    def expected(self, source: torch.Tensor, layer: int) -> Layer:
        request, case, model = self._request, self._request.case, self._request.case.model
        dtype = torch.int8 if case.quantised else torch.bfloat16
        planes = source.view(dtype).view(-1, model.heads, model.dim)
        keys, values = (planes[request.plane_rows(layer, v)].double() for v in (False, True))
        if self._key_scales is not None:
            scales = source.view(torch.float32).view(-1, model.heads)[request.scale_rows(layer)]
            keys, values = keys * self._key_scales[layer], values * scales.unsqueeze(-1)
        pairs = keys
        if self._rotation:
            keys = rotate(keys, *request.cos_sin())
        if self._cache_scales is not None:
            scale_k, scale_v = self._cache_scales[:, layer].double()
            keys, values = (
                (x / s).clamp(-F8_MAX, F8_MAX) for x, s in ((keys, scale_k), (values, scale_v))
            )
            pairs = pairs / scale_k
        return Layer(keys, pairs, values)


class OursCapture(Ours):
    """The plug-in's capture: from the same cache into the same records."""

    def call(self, variant: int) -> None:
        self._ops.capture(self._transfers[variant], current_stream())

    def source(self, variant: int) -> torch.Tensor:
        return self._request.slots[variant]

    def expected(self, source: torch.Tensor, layer: int) -> Layer:
        model = self._request.case.model
        cells = self._request.cache_layer(layer, torch.bfloat16)[source].double()
        cos, sin = self._request.cos_sin()
        pairs = cells[..., : model.dim]
        return Layer(rotate(pairs, cos, -sin), pairs, cells[..., model.dim :])
