"""The others' ways of moving a request's facts, as rows of the benchmark (reference.Transfer)."""

import ctypes
from ctypes import POINTER, Structure, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from pathlib import Path

import torch
from cases import HEADER, PAGE
from reference import ALL_IN_BF16, EXACT, FLOAT_BF16, TWICE_BF16, Layer, Tolerance, rotate
from transfers import current_stream

from memory import Request, rope_values


class LmcacheRequest(Structure):
    _fields_ = (
        ("chunks", POINTER(c_uint64)),
        ("slot_mappings", POINTER(c_uint64)),
        ("positions", POINTER(c_int64)),
        ("tokens", POINTER(c_int32)),
        ("layer_pointers", c_uint64),
        ("table", c_uint64),
        ("count", c_uint32),
        ("layers", c_uint32),
        ("slots", c_uint32),
        ("heads", c_uint32),
        ("dim", c_uint32),
        ("page_tokens", c_uint32),
        ("pages", c_uint32),
    )


class Lmcache:
    """Rotate in place, then scatter; facts in slots of equal length, as its staging buffers are."""

    keys: Tolerance = TWICE_BF16
    values: Tolerance = EXACT

    def __init__(self, library: Path, request: Request) -> None:
        self._inject = ctypes.CDLL(str(library)).LmcacheInject
        self._inject.argtypes = [POINTER(LmcacheRequest)]
        self._request = request
        memory = request.memory
        self._layers = torch.tensor(request.cache_bases(), device=memory.device)
        self._slots = request.slots.contiguous()
        self._calls = [self._make_call(v) for v in range(request.variants)]

    def _make_call(self, variant: int) -> LmcacheRequest:
        request, case, model = self._request, self._request.case, self._request.case.model
        chunk = case.chunk_bytes // case.facts
        base, slots = self.source(variant).data_ptr(), self._slots[variant].data_ptr()
        places = [place for _, place, _ in case.records()]
        return LmcacheRequest(
            chunks=(c_uint64 * case.facts)(*(base + fact * chunk for fact in range(case.facts))),
            slot_mappings=(c_uint64 * case.facts)(*(slots + 8 * place for place in places)),
            positions=(c_int64 * case.facts)(*(HEADER + place for place in places)),
            tokens=(c_int32 * case.facts)(*case.lengths),
            layer_pointers=self._layers.data_ptr(),
            table=request.memory.table(model).data_ptr(),
            count=case.facts,
            layers=model.layers,
            slots=case.slots,
            heads=model.heads,
            dim=model.dim,
            page_tokens=PAGE,
            pages=request.variants * case.pages,
        )

    def call(self, variant: int) -> None:
        if self._inject(self._calls[variant]) != 0:
            raise RuntimeError("LMCache refused the request")

    def source(self, variant: int) -> torch.Tensor:
        size = self._request.case.chunk_bytes
        return self._request.memory.source[variant * size : (variant + 1) * size]

    def expected(self, source: torch.Tensor, layer: int) -> Layer:
        request, case, model = self._request, self._request.case, self._request.case.model
        planes = source.view(torch.bfloat16).view(
            case.facts, model.layers, case.slots, model.heads, 2 * model.dim
        )
        rows = planes[request.fact, layer, request.token].double()
        stored, values = rows.chunk(2, -1)
        cos, sin = rope_values(request.memory.table(model), request.token)
        return Layer(rotate(rotate(stored, cos, -sin), *request.cos_sin()), stored, values)


class FlashInferRequest(Structure):
    _fields_ = (
        ("k", c_void_p),
        ("v", c_void_p),
        ("rotated", c_void_p),
        ("table", c_void_p),
        ("positions", c_void_p),
        ("places", c_void_p),
        ("zeros", c_void_p),
        ("pages", c_void_p),
        ("page_range", c_void_p),
        ("last_page_tokens", c_void_p),
        ("layer_bases", POINTER(c_uint64)),
        ("layers", c_uint32),
        ("tokens", c_uint32),
        ("heads", c_uint32),
        ("dim", c_uint32),
        ("page_tokens", c_uint32),
    )


class FlashInfer:
    """One graph of 2 x layers launches over facts that somebody has gathered already."""

    keys: Tolerance = FLOAT_BF16
    values: Tolerance = EXACT

    def __init__(self, library: Path, request: Request) -> None:
        self._library = ctypes.CDLL(str(library))
        self._library.FlashInferRecord.argtypes = [POINTER(FlashInferRequest), POINTER(c_void_p)]
        self._library.FlashInferReplay.argtypes = [c_void_p, c_void_p]
        self._library.FlashInferForget.argtypes = [c_void_p]
        self._request = request
        case, memory = request.case, request.memory
        tokens, row = case.tokens, case.model.row
        self._places = request.places.int().contiguous()
        self._zeros = torch.zeros_like(self._places)
        self._rotated = torch.empty(tokens * row, dtype=torch.bfloat16, device=memory.device)
        self._range = torch.tensor([0, case.pages], dtype=torch.int32, device=memory.device)
        last = (HEADER + tokens - 1) % PAGE + 1
        self._last = torch.tensor([last], dtype=torch.int32, device=memory.device)
        self._graphs = [self._record(v) for v in range(request.variants)]

    def _record(self, variant: int) -> c_void_p:
        request, case, model = self._request, self._request.case, self._request.case.model
        source = self.source(variant)
        what = FlashInferRequest(
            k=source.data_ptr(),
            v=source.data_ptr() + source.numel() // 2,
            rotated=self._rotated.data_ptr(),
            table=request.memory.table(model).data_ptr(),
            positions=self._places.data_ptr(),
            places=self._places.data_ptr(),
            zeros=self._zeros.data_ptr(),
            pages=request.pages[variant].data_ptr(),
            page_range=self._range.data_ptr(),
            last_page_tokens=self._last.data_ptr(),
            layer_bases=(c_uint64 * model.layers)(*request.cache_bases()),
            layers=model.layers,
            tokens=case.tokens,
            heads=model.heads,
            dim=model.dim,
            page_tokens=PAGE,
        )
        graph = c_void_p()
        code = self._library.FlashInferRecord(what, graph)
        if code != 0:
            raise RuntimeError(f"FlashInfer: CUDA error {code} while its graph was recorded")
        return graph

    def __del__(self) -> None:
        for graph in getattr(self, "_graphs", []):
            self._library.FlashInferForget(graph)

    def call(self, variant: int) -> None:
        code = self._library.FlashInferReplay(self._graphs[variant], current_stream())
        if code != 0:
            raise RuntimeError(f"FlashInfer: CUDA error {code}")

    def source(self, variant: int) -> torch.Tensor:
        case = self._request.case
        size = case.model.layers * 2 * case.tokens * case.model.row * 2
        return self._request.memory.source[variant * size : (variant + 1) * size]

    def expected(self, source: torch.Tensor, layer: int) -> Layer:
        case, model = self._request.case, self._request.case.model
        planes = source.view(torch.bfloat16).view(
            2, model.layers, case.tokens, model.heads, model.dim
        )
        keys, values = planes[:, layer].double()
        return Layer(rotate(keys, *self._request.cos_sin()), keys, values)


class TorchPath:
    """What a Python implementation does, layer by layer: cat, rotate in bf16, index_put."""

    keys: Tolerance = ALL_IN_BF16
    values: Tolerance = EXACT

    def __init__(self, request: Request) -> None:
        self._request = request
        model = request.case.model
        table = request.memory.table(model)[request.places].unsqueeze(1)
        cos, sin = table.bfloat16().chunk(2, -1)
        self._cos, self._sin = torch.cat((cos, cos), -1), torch.cat((sin, sin), -1)
        self._page = [slots // PAGE for slots in request.slots]
        self._in_page = [slots % PAGE for slots in request.slots]
        self._cache = [
            request.cache_layer(layer, torch.bfloat16)
            .view(-1, PAGE, model.heads, 2 * model.dim)
            .split(model.dim, -1)
            for layer in range(model.layers)
        ]
        self._planes = [self._planes_of(v) for v in range(request.variants)]

    def _planes_of(self, variant: int) -> list[tuple[torch.Tensor, ...]]:
        """[2 x layer]: the planes of all facts."""
        case, model = self._request.case, self._request.case.model
        records = self.source(variant)
        facts = []
        for at, _, tokens in case.records():
            record = records[at : at + case.record_bytes(tokens)].view(torch.bfloat16)
            facts.append(record.view(-1, tokens, model.heads, model.dim).unbind(0))
        return list(zip(*facts, strict=True))

    def call(self, variant: int) -> None:
        where = (self._page[variant], self._in_page[variant])
        planes = self._planes[variant]
        for layer, (k_cache, v_cache) in enumerate(self._cache):
            k = torch.cat(planes[2 * layer])
            a, b = k.chunk(2, -1)
            k_cache.index_put_(where, k * self._cos + torch.cat((-b, a), -1) * self._sin)
            v_cache.index_put_(where, torch.cat(planes[2 * layer + 1]))

    def source(self, variant: int) -> torch.Tensor:
        return self._request.records(variant)

    def expected(self, source: torch.Tensor, layer: int) -> Layer:
        request, model = self._request, self._request.case.model
        planes = source.view(torch.bfloat16).view(-1, model.heads, model.dim)
        keys, values = (planes[request.plane_rows(layer, v)].double() for v in (False, True))
        return Layer(rotate(keys, *request.cos_sin()), keys, values)
