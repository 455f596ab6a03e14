"""Which models, set-ups and requests are taken, and what a model's fingerprint follows."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("vllm.v1")

from inferscale.vllm.fingerprint import FingerprintError, fingerprint  # noqa: E402
from inferscale.vllm.plan import BadPlan  # noqa: E402
from inferscale.vllm.scheduler import Scheduler  # noqa: E402
from inferscale.vllm.support import Unsupported, examine  # noqa: E402

# ---- models and set-ups


class FullAttentionSpec(SimpleNamespace):
    pass


class SlidingWindowSpec(SimpleNamespace):
    pass


class MambaSpec(SimpleNamespace):
    pass


class MLAAttentionSpec(SimpleNamespace):
    pass


def spec(kind: Any = FullAttentionSpec, **more: Any) -> Any:
    return kind(**{"block_size": 16, "num_kv_heads": 2, "head_size": 64, **more})


def of_groups(*groups: tuple[Any, list[int]], **more: Any) -> tuple[Any, Any]:
    """vLLM's configurations of a model whose layers, by number, are in these groups."""
    names = {i: f"model.layers.{i}.self_attn.attn" for _, layers in groups for i in layers}
    kind = more.pop("kv_cache_dtype", "auto")
    parallel = {f"{name}_parallel_size": 1 for name in ("pipeline", "decode_context")}
    parallel |= more.pop("parallel", {})
    config = SimpleNamespace(
        parallel_config=SimpleNamespace(**parallel),
        speculative_config=more.pop("speculative", None),
        compilation_config=SimpleNamespace(
            static_forward_context={
                name: SimpleNamespace(kv_cache_dtype=kind) for name in names.values()
            }
        ),
        model_config=SimpleNamespace(dtype=torch.bfloat16, max_model_len=1000),
    )
    caches = SimpleNamespace(
        kv_cache_groups=[
            SimpleNamespace(layer_names=[names[i] for i in layers], kv_cache_spec=of)
            for of, layers in groups
        ]
    )
    return config, caches


def test_layers_have_their_order_whatever_their_groups() -> None:
    model = examine(
        *of_groups((spec(SlidingWindowSpec, block_size=32), [10, 2]), (spec(), [11, 3]))
    )
    assert [name.split(".")[2] for name in model.order] == ["2", "3", "10", "11"]
    assert [group.block_tokens for group in model.groups] == [32, 16]
    assert (model.heads, model.dim, model.positions, model.fp8) == (2, 64, 1000, False)


def test_fp8_caches_are_taken() -> None:
    assert examine(*of_groups((spec(), [0]), kv_cache_dtype="fp8")).fp8


@pytest.mark.parametrize(
    ("configs", "why"),
    [
        (of_groups((spec(), [0]), (MambaSpec(block_size=16), [1])), "MambaSpec"),
        (of_groups((spec(MLAAttentionSpec), [0])), "MLAAttentionSpec"),
        (of_groups((spec(head_size_v=32), [0])), "another size"),
        (of_groups((spec(), [0]), (spec(head_size=128), [1])), "several shapes"),
        (of_groups((spec(), [0]), kv_cache_dtype="nvfp4"), "nvfp4"),
        (of_groups((spec(), [0]), parallel={"pipeline_parallel_size": 2}), "pipeline"),
        (of_groups((spec(), [0]), parallel={"decode_context_parallel_size": 2}), "decode_context"),
        (of_groups((spec(), [0]), speculative=SimpleNamespace(method="eagle")), "eagle"),
    ],
)
def test_what_is_not_supported_says_so(configs: tuple[Any, Any], why: str) -> None:
    with pytest.raises(Unsupported, match=why):
        examine(*configs)


# ---- requests


@pytest.mark.parametrize(
    ("reason", "of_it"),
    [
        ("lora", {"lora_request": object()}),
        ("multimodal", {"mm_features": [object()]}),
        ("pooling", {"pooling_params": object(), "sampling_params": None}),
        ("prompt_embeds", {"prompt_token_ids": None, "prompt_embeds": object()}),
        ("prompt_logprobs", {"sampling_params": SimpleNamespace(prompt_logprobs=0)}),
        ("resumable", {"resumable": True}),
    ],
)
def test_requests_that_need_more_than_tokens_are_refused(reason: str, of_it: Any) -> None:
    plain = {
        "lora_request": None,
        "mm_features": [],
        "pooling_params": None,
        "sampling_params": SimpleNamespace(prompt_logprobs=None),
        "prompt_token_ids": [1],
        "prompt_embeds": None,
        "resumable": False,
        "cache_salt": None,
    }
    brain: Any = None
    Scheduler._check(brain, SimpleNamespace(**plain))
    with pytest.raises(BadPlan) as caught:
        Scheduler._check(brain, SimpleNamespace(**{**plain, **of_it}))
    assert caught.value.reason == reason


# ---- fingerprints


def model_at(folder: Path, **more: Any) -> Any:
    config = {"layers": 2, "_name_or_path": str(folder), **more.pop("config", {})}
    model = {
        "model": str(folder),
        "revision": None,
        "hf_config": SimpleNamespace(to_dict=lambda: config),
        "dtype": torch.bfloat16,
        "quantization": None,
        "max_model_len": 100,
        "seed": 0,
    }
    return SimpleNamespace(
        model_config=SimpleNamespace(**{**model, **more}),
        load_config=SimpleNamespace(load_format="auto"),
    )


def test_a_fingerprint_follows_weights_configuration_and_types(
    tmp_path: Path, rng: random.Random
) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    data = bytearray(rng.randbytes(3_000_000))
    for folder in (one, other):
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(data)
        (folder / "README.md").write_text(str(folder))
    same = fingerprint(model_at(one), None)
    assert len(same) == 16
    assert fingerprint(model_at(other), None) == same
    assert fingerprint(model_at(one, config={"rope_theta": 5}), None) != same
    assert fingerprint(model_at(one, dtype=torch.float16), None) != same
    assert fingerprint(model_at(one, quantization="fp8"), None) != same
    assert fingerprint(model_at(one), "llama@1") != same
    assert fingerprint(model_at(one), "llama@1") == fingerprint(model_at(other), "llama@1")
    data[(2 << 20) + 17] ^= 1
    (other / "model.safetensors").write_bytes(data)
    assert fingerprint(model_at(other), None) != same


def test_weights_that_are_not_there_must_be_named(tmp_path: Path) -> None:
    with pytest.raises(FingerprintError, match="model_id"):
        fingerprint(model_at(tmp_path), None)
    assert fingerprint(model_at(tmp_path), "llama@1")
