"""Which models and set-ups the connector serves, read off vLLM's configuration."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import torch

# By name, so that an engine without one of them is served too.
SPECS = ("FullAttentionSpec", "SlidingWindowSpec", "ChunkedLocalAttentionSpec")


class Unsupported(Exception):
    pass


@dataclass(frozen=True)
class LayerGroup:
    layers: list[str]
    block_tokens: int


@dataclass(frozen=True)
class Model:
    groups: list[LayerGroup]
    order: list[str]  # the layers as a record has them
    modules: dict[str, Any]  # vLLM's attention layers
    heads: int
    dim: int
    dtype: torch.dtype
    fp8: bool  # the cache
    positions: int


def examine(vllm_config: Any, kv_cache_config: Any) -> Model:
    _parallel(vllm_config)
    groups: list[LayerGroup] = []
    specs: dict[str, Any] = {}
    for group in kv_cache_config.kv_cache_groups:
        groups.append(LayerGroup(list(group.layer_names), group.kv_cache_spec.block_size))
        each = getattr(group.kv_cache_spec, "kv_cache_specs", None)  # of one type, not one size
        for name in group.layer_names:
            specs[name] = each[name] if each else group.kv_cache_spec
    for name, spec in specs.items():
        kind = type(spec).__name__
        if kind not in SPECS:
            raise Unsupported(f"layer {name} has a KV cache of kind {kind}")
        if getattr(spec, "head_size_v", spec.head_size) != spec.head_size:
            raise Unsupported(f"layer {name} has values of another size than its keys")
    shapes = {(spec.num_kv_heads, spec.head_size) for spec in specs.values()}
    if len(shapes) != 1:
        raise Unsupported(f"layers of several shapes (heads, dims): {sorted(shapes)}")
    ((heads, dim),) = shapes
    modules = vllm_config.compilation_config.static_forward_context
    if missing := sorted(set(specs) - set(modules)):
        raise Unsupported(f"no attention layer is called {missing[0]}")
    model = vllm_config.model_config
    return Model(
        groups=groups,
        order=sorted(specs, key=_number),
        modules={name: modules[name] for name in specs},
        heads=heads,
        dim=dim,
        dtype=model.dtype,
        fp8=_fp8(specs, modules, model.dtype),
        positions=model.max_model_len,
    )


def _parallel(vllm_config: Any) -> None:
    parallel = vllm_config.parallel_config
    for name in (
        "pipeline_parallel_size",
        "decode_context_parallel_size",
        "prefill_context_parallel_size",
    ):
        if getattr(parallel, name, 1) > 1:
            raise Unsupported(f"{name} {getattr(parallel, name)}")
    speculative = vllm_config.speculative_config
    if speculative is not None and speculative.method not in ("ngram", "ngram_gpu", "suffix"):
        raise Unsupported(f"speculative decoding by {speculative.method}, whose draft has own KV")


def _fp8(specs: dict[str, Any], modules: Any, dtype: torch.dtype) -> bool:
    kinds = {str(getattr(modules[name], "kv_cache_dtype", "auto")) for name in specs}
    names = {"auto", str(dtype).removeprefix("torch.")}
    if kinds <= names:
        return False
    if kinds <= {"fp8", "fp8_e4m3"}:
        return True
    raise Unsupported(f"a KV cache of {', '.join(sorted(kinds))}")


def _number(name: str) -> tuple[list[int], str]:
    return [int(digits) for digits in re.findall(r"\d+", name)], name
