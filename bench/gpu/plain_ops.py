"""The plug-in's ops in plain Python on host memory: a stand-in to try the benchmark without a GPU.

It reads the same structs through the same pointers, so a wrong offset or stride shows.
"""

import ctypes

import cuda_plugin as abi
import torch

DTYPES = {
    abi.F32: torch.float32,
    abi.F16: torch.float16,
    abi.BF16: torch.bfloat16,
    abi.I8: torch.int8,
    abi.F8E4M3: torch.float8_e4m3fn,
}


def at(address: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    raw = (ctypes.c_uint8 * (count * dtype.itemsize)).from_address(address)
    return torch.frombuffer(raw, dtype=dtype)


def turned(x: torch.Tensor, ropes: abi.PluginRopes, position: int, sign: int) -> torch.Tensor:
    """[head][dim], rotated as pairs of halves; table 0 is for all layers."""
    dims = ropes.rotary_dims[0]
    if dims == 0:
        return x
    row = at(ropes.table[0] + 4 * dims * position, dims, torch.float32)
    cos, sin = row[: dims // 2], sign * row[dims // 2 :]
    a, b = x[:, : dims // 2], x[:, dims // 2 : dims]
    return torch.cat((a * cos - b * sin, a * sin + b * cos, x[:, dims:]), 1)


class PlainOps:
    build = "plain Python"

    def inject(self, transfer: abi.PluginTransfer, stream: int) -> None:
        cache, ropes = transfer.cache.contents, transfer.ropes.contents
        for span, token, layer in self._tokens(transfer):
            keys, values = self._read_record(transfer, span, span.first + token, layer)
            keys = turned(keys, ropes, span.position + token, 1)
            cells = self._cells(transfer, span, token, layer)
            for numbers, (cell, scales) in zip((keys, values), cells, strict=True):
                if scales:
                    first = scales + 4 * layer * cache.scale_heads
                    scale = at(first, cache.scale_heads, torch.float32)
                    numbers = (numbers / scale[:, None]).clamp(-448, 448)
                cell.copy_(numbers)

    def capture(self, transfer: abi.PluginTransfer, stream: int) -> None:
        cache, ropes = transfer.cache.contents, transfer.ropes.contents
        dtype = DTYPES[transfer.record_dtype]
        for span, token, layer in self._tokens(transfer):
            cells = [rows.float() for rows, _ in self._cells(transfer, span, token, layer)]
            cells[0] = turned(cells[0], ropes, span.position + token, -1)
            row = cache.heads * cache.dim
            for number, cell in enumerate(cells):
                plane = (2 * layer + number) * span.record_tokens + span.first + token
                at(span.record + plane * row * dtype.itemsize, row, dtype).copy_(cell.flatten())

    def _tokens(self, transfer: abi.PluginTransfer) -> list[tuple[abi.PluginSpan, int, int]]:
        return [
            (span, token, layer)
            for span in transfer.spans[: transfer.span_count]
            for token in range(span.tokens)
            for layer in range(transfer.cache.contents.layers)
        ]

    def _read_record(
        self, transfer: abi.PluginTransfer, span: abi.PluginSpan, token: int, layer: int
    ) -> list[torch.Tensor]:
        cache, dtype = transfer.cache.contents, DTYPES[transfer.record_dtype]
        row = cache.heads * cache.dim
        planes = [
            at(
                span.record + ((2 * layer + n) * span.record_tokens + token) * row * dtype.itemsize,
                row,
                dtype,
            )
            .float()
            .view(cache.heads, cache.dim)
            for n in (0, 1)
        ]
        if transfer.key_scales:
            keys = at(transfer.key_scales + 4 * layer * row, row, torch.float32)
            behind = span.record + cache.layers * 2 * span.record_tokens * row
            place = (layer * span.record_tokens + token) * cache.heads
            scales = at(behind + 4 * place, cache.heads, torch.float32)
            planes = [planes[0] * keys.view(cache.heads, -1), planes[1] * scales[:, None]]
        return planes

    def _cells(
        self, transfer: abi.PluginTransfer, span: abi.PluginSpan, token: int, layer: int
    ) -> list[tuple[torch.Tensor, int]]:
        """K's and V's [head][dim] of one token in the cache, with the addresses of their scales."""
        cache = transfer.cache.contents
        dtype = DTYPES[cache.dtype]
        page, inside = divmod(span.page_token + token, cache.page_tokens)
        assert page < transfer.page_count
        cells = []
        for base, by_page, by_token, by_head, scale in (
            (cache.k_base, cache.k_page, cache.k_token, cache.k_head, cache.k_scale),
            (cache.v_base, cache.v_page, cache.v_token, cache.v_head, cache.v_scale),
        ):
            bases = at(base, cache.layers, torch.int64)
            address = int(bases[layer]) + transfer.pages[page] * by_page + inside * by_token
            head = by_head // dtype.itemsize
            memory = at(address, (cache.heads - 1) * head + cache.dim, dtype)
            cells.append((memory.as_strided((cache.heads, cache.dim), (head, 1)), scale or 0))
        return cells

    def topk_workspace(self, search: abi.PluginTopK) -> int:
        return 16

    def topk(self, search: abi.PluginTopK, stream: int) -> None:
        ids = at(search.out_rows, search.search_count * search.k, torch.int32)
        scores = at(search.out_scores, search.search_count * search.k, torch.float32)
        for n, one in enumerate(search.searches[: search.search_count]):
            rows = at(one.rows, one.count * search.dims, DTYPES[search.row_dtype])
            query = at(one.query, search.dims, torch.float32)
            best = (rows.view(-1, search.dims).float() @ query).topk(search.k)
            ids[n * search.k :][: search.k] = best.indices.int()
            scores[n * search.k :][: search.k] = best.values

    def copy(self, to: int, source: int, size: int, kind: int, stream: int) -> None:
        ctypes.memmove(to, source, size)

    def alloc_pinned(self, size: int) -> int:
        self._pinned = ctypes.create_string_buffer(size)
        return ctypes.addressof(self._pinned)

    def free_pinned(self, memory: int) -> None:
        del self._pinned
