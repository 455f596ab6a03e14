"""Fixtures of the vLLM tests; scripts/test_vllm.sh names this module to pytest."""

from __future__ import annotations

import os
import random
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Engine, inject, shorten


@pytest.fixture(scope="session")
def vllm_model() -> Path:
    return Path(os.environ["INFERSCALE_VLLM_MODEL"])


@pytest.fixture(scope="session")
def short_model(vllm_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shorten(vllm_model, tmp_path_factory.mktemp("model") / "short")


@pytest.fixture(scope="session")
def engine(short_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """The short model in fp32, in this process, with its self-test passed."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    try:
        engine = Engine(
            short_model, tmp_path_factory.mktemp("engine"), dtype="float32", block_size=32
        )
    finally:
        del os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"]
    engine.untested = engine.ask([7] * 40, inject("acme", []))
    engine.tested = engine.self_test()
    yield engine
    engine.llm.llm_engine.engine_core.shutdown()


@pytest.fixture
def rng() -> random.Random:
    """Another one in each run; INFERSCALE_SEED repeats one."""
    seed = int(os.environ.get("INFERSCALE_SEED", secrets.randbits(32)))
    print(f"seed {seed}")
    return random.Random(seed)
