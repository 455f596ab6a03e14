"""The model's fingerprint: KV is used only under the one that it was made for."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FORMAT = "inferscale-vllm-1"  # changes when what a record holds changes
WEIGHTS = (".safetensors", ".bin", ".pt", ".gguf")
HEAD_BYTES, STEP_BYTES, PIECE_BYTES = 1 << 20, 1 << 20, 4096
# Members of a model's configuration that don't change its numbers.
IGNORED = ("transformers_version", "_name_or_path", "_commit_hash", "name_or_path")


class FingerprintError(Exception):
    pass


def fingerprint(vllm_config: Any, model_id: str | None) -> bytes:
    """16 bytes. `model_id` stands in the place of the weights' files."""
    model = vllm_config.model_config
    parts = {
        "format": FORMAT,
        "weights": model_id or weights(vllm_config),
        "config": _plain(model.hf_config.to_dict()),
        "dtype": str(model.dtype),
        "quantization": str(model.quantization),
        # LongRoPE takes another table for longer contexts.
        "context": model.max_model_len if "long_factor" in str(model.hf_config) else 0,
    }
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).digest()[:16]


def weights(vllm_config: Any) -> str:
    """A hash of the weights' files: their sizes, their heads, and 4 KiB of every MiB, so that a
    model of any size takes a second or two."""
    if str(getattr(vllm_config.load_config.load_format, "value", "")) == "dummy" or (
        vllm_config.load_config.load_format == "dummy"
    ):
        return f"dummy:{vllm_config.model_config.seed}"
    folder = _folder(vllm_config.model_config)
    files = [folder] if folder.is_file() else sorted(folder.iterdir())
    files = [file for file in files if file.suffix in WEIGHTS]
    if not files:
        raise FingerprintError(f"{folder} has no weights; name the model with model_id")
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.name if len(files) > 1 else ''}:{file.stat().st_size}\0".encode())
        _sample(file, digest)
    return digest.hexdigest()


def _sample(file: Path, digest: Any) -> None:
    with file.open("rb", buffering=0) as stream:
        digest.update(stream.read(HEAD_BYTES))
        size = os.fstat(stream.fileno()).st_size
        for offset in range(HEAD_BYTES, size, STEP_BYTES):
            digest.update(os.pread(stream.fileno(), PIECE_BYTES, offset))


def _folder(model_config: Any) -> Path:
    path = Path(model_config.model)
    if path.exists():
        return path
    from huggingface_hub import snapshot_download

    try:
        return Path(
            snapshot_download(
                model_config.model, revision=model_config.revision, local_files_only=True
            )
        )
    except Exception as error:
        raise FingerprintError(
            f"the weights of {model_config.model} were not found ({error}); "
            "name the model with model_id"
        ) from error


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _plain(value) if isinstance(value, Mapping) else value
        for key, value in config.items()
        if key not in IGNORED
    }
