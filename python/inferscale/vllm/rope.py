"""Which rotation each layer applies to its keys: its rotary module's own table of cos and sin.

vLLM gives a connector no model, only the attention layers. The rotary module is found beside the
layer: in the module that holds it, or in that one's holder. Whether a layer applies it is told by
the self-test, not here.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from inferscale._core import Rope

if TYPE_CHECKING:
    import torch

MAX_TABLES = 4


class RopeError(Exception):
    pass


@dataclass(frozen=True)
class Ropes:
    tables: list[Rope]
    layer_table: list[int]  # of each layer
    positions: int
    interleaved: bool


def find(layers: Sequence[Any], positions: int, dtype: torch.dtype) -> Ropes:
    """The rotations of the attention layers `layers`, up to `positions`."""
    holders = _holders()
    tables: list[Rope] = []
    index_of: dict[int, int] = {}
    layer_table: list[int] = []
    interleaved: set[bool] = set()
    for layer in layers:
        module = _rotary_of(layer, holders)
        identity = id(module)
        if identity not in index_of:
            index_of[identity] = len(tables)
            tables.append(_rope(module, positions, dtype))
            if module is not None:
                interleaved.add(not module.is_neox_style)
        layer_table.append(index_of[identity])
    if len(tables) > MAX_TABLES:
        raise RopeError(
            f"{len(tables)} different rotations, and at most {MAX_TABLES} are supported"
        )
    if len(interleaved) > 1:
        raise RopeError("some layers rotate halves and others pairs")
    return Ropes(tables, layer_table, positions, interleaved == {True})


def _holders() -> Mapping[int, Any]:
    """For each module (by id) the module that holds it."""
    from torch import nn

    holders: dict[int, Any] = {}
    for thing in gc.get_objects():
        if issubclass(type(thing), nn.Module):  # isinstance would wake lazy proxies
            for child in thing.__dict__.get("_modules", {}).values():
                if child is not None:
                    holders.setdefault(id(child), thing)
    return holders


def _rotary_of(layer: Any, holders: Mapping[int, Any]) -> Any:
    module = layer
    for _ in range(2):
        module = holders.get(id(module))
        if module is None:
            return None
        for child in module._modules.values():
            if hasattr(child, "is_neox_style") and hasattr(child, "rotary_dim"):
                return child
    return None


def _rope(module: Any, positions: int, dtype: torch.dtype) -> Rope:
    import torch

    if module is None:
        return Rope(rotary_dim=0, table=b"")
    first = 0
    table = getattr(module, "cos_sin_cache", None)
    if table is None:  # LongRoPE: the table of short prompts, then that of long ones
        table = getattr(module, "long_short_cos_sin_cache", None)
        if getattr(module, "use_long_rope", False):
            first = module.original_max_position_embeddings
    if not isinstance(table, torch.Tensor) or table.shape != (len(table), module.rotary_dim):
        raise RopeError(f"rotary module {type(module).__name__} is not supported")
    if len(table) < first + positions:
        raise RopeError(
            f"rotary module {type(module).__name__} has {len(table) - first} positions, "
            f"and the context has {positions}"
        )
    rows = table[first : first + positions].detach().cpu()
    if not getattr(module, "use_flashinfer", False):
        rows = rows.to(dtype)  # as it is before it is used
    rows = rows.to(torch.float32).contiguous()
    return Rope(rotary_dim=module.rotary_dim, table=rows.numpy().tobytes())
