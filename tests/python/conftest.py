"""What the Python tests share: the built command, the models, a fresh data directory."""

import os
from pathlib import Path

import pytest

from cli import Cli

ROOT = Path(__file__).resolve().parents[2]


def _required(path: str | Path, made_by: str) -> Path:
    path = Path(path)
    assert path.is_file(), f"{path} is missing: run {made_by}"
    return path


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def inferscale_bin() -> Path:
    """The command under test: build/inferscale, or what INFERSCALE_BIN names."""
    return _required(
        os.environ.get("INFERSCALE_BIN", ROOT / "build" / "inferscale"), "`make build`"
    )


@pytest.fixture(scope="session")
def chat_model() -> Path:
    """The chat model that scripts/setup.sh prepares (INFERSCALE_MODEL)."""
    return _required(os.environ["INFERSCALE_MODEL"], "scripts/setup.sh")


@pytest.fixture(scope="session")
def embed_model() -> Path:
    """The embedding model that scripts/setup.sh prepares (INFERSCALE_EMBED_MODEL)."""
    return _required(os.environ["INFERSCALE_EMBED_MODEL"], "scripts/setup.sh")


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A data directory that does not exist yet, for one test."""
    return tmp_path / "data"


@pytest.fixture
def cli(
    inferscale_bin: Path, data_dir: Path, chat_model: Path, embed_model: Path, tmp_path: Path
) -> Cli:
    """The command with a fresh data directory, a fresh home and both models."""
    home = tmp_path / "home"
    home.mkdir()
    models = {
        "INFERSCALE_MODEL": str(chat_model),
        "INFERSCALE_EMBED_MODEL": str(embed_model),
    }
    return Cli(inferscale_bin, data_dir, home, models)
