"""What is moved in the benchmark: models, requests, and where every token lies.

A request's facts stand one after the other behind a header of HEADER tokens, so they begin in the
middle of a page. `Variants` are copies of the request in other memory: timed calls walk through
them, so that no call finds its data in the L2 cache.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

PAGE = 16
HEADER = 40
# Enough for the alignment that a record needs, and a whole number of every model's rows.
ALIGN = 1024


@dataclass(frozen=True)
class Model:
    name: str
    layers: int
    heads: int
    dim: int
    rope_base: float

    @property
    def row(self) -> int:
        """Elements of one token's keys, or values, in one layer."""
        return self.heads * self.dim


LLAMA_1B = Model("Llama-3.2-1B", 16, 8, 64, 500000.0)
LLAMA_8B = Model("Llama-3.1-8B", 32, 8, 128, 500000.0)
QWEN_8B = Model("Qwen3-8B", 36, 8, 128, 1000000.0)
MODELS = (LLAMA_1B, LLAMA_8B, QWEN_8B)
TOKENS = (64, 128, 512, 1024, 1536, 4096, 16384)
FACTS = (1, 8, 50, 128)


@dataclass(frozen=True)
class Case:
    model: Model
    tokens: int
    facts: int
    quantised: bool = False  # int8 records, with the values' scales behind the planes
    cache_size: int = 2  # bytes of an element in the cache

    @property
    def lengths(self) -> list[int]:
        """Tokens of each fact; they differ by one at most."""
        short, longer = divmod(self.tokens, self.facts)
        return [short + (fact < longer) for fact in range(self.facts)]

    @property
    def slots(self) -> int:
        """Tokens of the longest fact."""
        return math.ceil(self.tokens / self.facts)

    @property
    def record_size(self) -> int:
        """Bytes of an element in a record."""
        return 1 if self.quantised else 2

    @property
    def pages(self) -> int:
        return math.ceil((HEADER + self.tokens) / PAGE)

    def record_bytes(self, tokens: int) -> int:
        model = self.model
        scales = model.layers * tokens * model.heads * 4 if self.quantised else 0
        return model.layers * 2 * tokens * model.row * self.record_size + scales

    def records(self) -> Iterator[tuple[int, int, int]]:
        """For each fact: where its record begins, its first token's place, its tokens."""
        at, place = 0, 0
        for tokens in self.lengths:
            yield at, place, tokens
            at += math.ceil(self.record_bytes(tokens) / ALIGN) * ALIGN
            place += tokens

    @property
    def source_bytes(self) -> int:
        """Between the records of one variant and the next."""
        at, _, tokens = list(self.records())[-1]
        return at + math.ceil(self.record_bytes(tokens) / ALIGN) * ALIGN

    @property
    def chunk_bytes(self) -> int:
        """A variant as LMCache wants it: facts in slots of equal length."""
        return self.facts * self.slots * self.model.layers * 2 * self.model.row * 2

    @property
    def cache_bytes(self) -> int:
        return self.model.layers * self.pages * PAGE * 2 * self.model.row * self.cache_size

    @property
    def moved(self) -> int:
        """Bytes that must be read and written. Tables are left out, scales are not."""
        written = self.model.layers * 2 * self.tokens * self.model.row * self.cache_size
        return sum(self.record_bytes(tokens) for tokens in self.lengths) + written

    def variants(self, l2_bytes: int) -> int:
        return max(2, 1 + math.ceil(4.5 * l2_bytes / self.moved))

    def place_of_token(self) -> list[tuple[int, int, int, int]]:
        """For each token: its fact, its number in it, the fact's tokens, the record's offset."""
        return [
            (fact, token, tokens, at)
            for fact, (at, _, tokens) in enumerate(self.records())
            for token in range(tokens)
        ]


@dataclass(frozen=True)
class Search:
    searches: int
    count: int
    dims: int
    k: int

    @property
    def moved(self) -> int:
        return self.searches * self.count * self.dims * 2


SEARCHES = (Search(64, 2500, 384, 50), Search(1, 1_000_000, 384, 50))


def transfer_cases(quick: bool) -> list[Case]:
    if quick:
        return [Case(LLAMA_8B, tokens, facts) for tokens in (128, 1536, 16384) for facts in (1, 50)]
    return [
        Case(model, tokens, facts)
        for model in MODELS
        for tokens in TOKENS
        for facts in FACTS
        if facts <= tokens
    ]
