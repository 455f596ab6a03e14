"""topk as rows of the benchmark: the plug-in's, and torch's matmul with topk."""

import cuda_plugin as abi
import torch
from cases import Search
from reference import check_topk
from transfers import Ops, current_stream

from memory import Memory


class SearchData:
    """Unit vectors, for every variant others, and one query for each search."""

    def __init__(self, memory: Memory, search: Search) -> None:
        self.search = search
        self.variants = max(2, 1 + -(-int(4.5 * memory.l2_bytes) // search.moved))
        shape = (self.variants, search.searches, search.count, search.dims)
        self.rows = torch.empty(shape, dtype=torch.float16, device=memory.device)
        for piece in self.rows.view(-1, search.dims).split(1 << 18):
            piece.copy_(memory.unit_vectors(len(piece), search.dims))
        self.queries = memory.unit_vectors(search.searches, search.dims)

    def check(self, ids: torch.Tensor, scores: torch.Tensor, variant: int, error: float) -> None:
        for n, query in enumerate(self.queries):
            check_topk(self.rows[variant, n], query, ids[n].long(), scores[n], error)


class OursTopK:
    def __init__(self, ops: Ops, data: SearchData) -> None:
        self._ops, self._data, search, device = ops, data, data.search, data.rows.device
        self._ids = torch.empty((search.searches, search.k), dtype=torch.int32, device=device)
        self._scores = torch.empty((search.searches, search.k), device=device)
        self._calls = [self._make_call(variant) for variant in range(data.variants)]
        size = max(16, ops.topk_workspace(self._calls[0]))
        self._workspace = torch.zeros(size, dtype=torch.uint8, device=device)
        for call in self._calls:
            call.workspace = self._workspace.data_ptr()

    def _make_call(self, variant: int) -> abi.PluginTopK:
        data, search = self._data, self._data.search
        searches = (abi.PluginSearch * search.searches)()
        for n, one in enumerate(searches):
            one.rows, one.count = data.rows[variant, n].data_ptr(), search.count
            one.query = data.queries[n].data_ptr()
        return abi.PluginTopK(
            searches=searches,
            search_count=search.searches,
            dims=search.dims,
            k=search.k,
            row_dtype=abi.F16,
            out_rows=self._ids.data_ptr(),
            out_scores=self._scores.data_ptr(),
        )

    def call(self, variant: int) -> None:
        self._ops.topk(self._calls[variant], current_stream())

    def check(self) -> None:
        self._ids.fill_(-1)
        self._scores.fill_(torch.nan)
        self.call(1)
        self._data.check(self._ids, self._scores, 1, error=2e-6)


class TorchTopK:
    def __init__(self, data: SearchData) -> None:
        self._data = data
        self._queries = data.queries.half().unsqueeze(-1)
        self._found = torch.return_types.topk

    def call(self, variant: int) -> None:
        scores = torch.matmul(self._data.rows[variant], self._queries).squeeze(-1)
        self._found = scores.topk(self._data.search.k)

    def check(self) -> None:
        self.call(1)
        self._data.check(self._found.indices, self._found.values, 1, error=1e-3)
