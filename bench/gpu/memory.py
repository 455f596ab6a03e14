"""The memory that the benchmark moves: a pool of records, a paged cache, and a request's places."""

from collections.abc import Sequence

import torch
from cases import HEADER, PAGE, Case, Model

POISON = 0xFF  # not a number in bf16 and in fp8 e4m3


class Memory:
    """Two pools, made once, which every case cuts anew. The cache pool starts out poisoned."""

    def __init__(self, cases: Sequence[Case], device: str, l2_bytes: int, seed: int) -> None:
        self.device = torch.device(device)
        self.l2_bytes = l2_bytes
        self.generator = torch.Generator(device).manual_seed(seed)
        source = max(max(c.source_bytes, c.chunk_bytes) * c.variants(l2_bytes) for c in cases)
        cache = max(c.cache_bytes * c.variants(l2_bytes) for c in cases)
        # A copy of the same bytes as any case's fits too.
        size = max(source, cache)
        self.source = torch.empty(size, dtype=torch.uint8, device=device)
        self.cache = torch.full((size,), POISON, dtype=torch.uint8, device=device)
        self._tables: dict[Model, torch.Tensor] = {}
        self._positions = HEADER + max(c.slots + c.tokens for c in cases)

    def fill_normal(self, pool: torch.Tensor) -> None:
        """bf16 numbers from a normal distribution, by pieces to save memory."""
        for piece in pool.view(torch.bfloat16).split(1 << 28):
            piece.normal_(generator=self.generator)

    def fill_quantised(self, pool: torch.Tensor) -> None:
        for piece in pool.view(torch.int8).split(1 << 28):
            piece.random_(-127, 128, generator=self.generator)

    def uniform(self, shape: Sequence[int], low: float, high: float) -> torch.Tensor:
        return torch.empty(tuple(shape), device=self.device).uniform_(
            low, high, generator=self.generator
        )

    def unit_vectors(self, count: int, dims: int) -> torch.Tensor:
        shape = (count, dims)
        numbers = torch.randn(shape, generator=self.generator, device=self.device)
        return torch.nn.functional.normalize(numbers, dim=1)

    def table(self, model: Model) -> torch.Tensor:
        """float [position][dim / 2 of cos, then of sin]."""
        if model not in self._tables:
            pairs = torch.arange(model.dim // 2, dtype=torch.float64)
            frequencies = model.rope_base ** (-2 * pairs / model.dim)
            angles = torch.arange(self._positions, dtype=torch.float64)[:, None] * frequencies
            table = torch.cat((angles.cos(), angles.sin()), 1).float()
            self._tables[model] = table.contiguous().to(self.device)
        return self._tables[model]


class Request:
    """One case laid out in memory, in all of its variants."""

    def __init__(self, memory: Memory, case: Case) -> None:
        self.memory, self.case = memory, case
        self.variants = case.variants(memory.l2_bytes)
        model, device = case.model, memory.device
        order = torch.randperm(
            self.variants * case.pages, generator=memory.generator, device=device
        )
        self.pages = order.int().view(self.variants, case.pages)
        self.places = HEADER + torch.arange(case.tokens, device=device)
        page = self.pages[:, self.places // PAGE].long()
        self.slots = page * PAGE + self.places % PAGE  # [variant][token]
        self.layer_bytes = self.variants * case.cache_bytes // model.layers
        fact, token, tokens, at = torch.tensor(case.place_of_token(), device=device).unbind(1)
        self.fact, self.token, self._tokens, self._at = fact, token, tokens, at

    def cache_bases(self) -> list[int]:
        base = self.memory.cache.data_ptr()
        return [base + layer * self.layer_bytes for layer in range(self.case.model.layers)]

    def cache_layer(self, layer: int, dtype: torch.dtype) -> torch.Tensor:
        """[slot][head][K, then V] of all pages."""
        model = self.case.model
        piece = self.memory.cache[layer * self.layer_bytes : (layer + 1) * self.layer_bytes]
        return piece.view(dtype).view(-1, model.heads, 2 * model.dim)

    @property
    def cache_used(self) -> torch.Tensor:
        return self.memory.cache[: self.case.model.layers * self.layer_bytes]

    def records(self, variant: int) -> torch.Tensor:
        size = self.case.source_bytes
        return self.memory.source[variant * size : (variant + 1) * size]

    def plane_rows(self, layer: int, values: bool) -> torch.Tensor:
        """Where each token's row is in records(variant), counted in rows of a plane."""
        case = self.case
        first = self._at // (case.model.row * case.record_size)
        return first + (2 * layer + values) * self._tokens + self.token

    def scale_rows(self, layer: int) -> torch.Tensor:
        """Likewise the rows of float scales, [head], of quantised records."""
        case = self.case
        planes = case.model.layers * 2 * self._tokens * case.model.row
        first = (self._at + planes) // (4 * case.model.heads)
        return first + layer * self._tokens + self.token

    def cos_sin(self) -> tuple[torch.Tensor, torch.Tensor]:
        """float64 [token][1][dim / 2]."""
        return rope_values(self.memory.table(self.case.model), self.places)


def rope_values(table: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    cos, sin = table[positions].double().unsqueeze(1).chunk(2, -1)
    return cos, sin
