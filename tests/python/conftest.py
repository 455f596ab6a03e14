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


def _cli(inferscale_bin: Path, chat_model: Path, embed_model: Path, folder: Path) -> Cli:
    home = folder / "home"
    home.mkdir()
    models = {
        "INFERSCALE_MODEL": str(chat_model),
        "INFERSCALE_EMBED_MODEL": str(embed_model),
    }
    return Cli(inferscale_bin, folder / "data", home, models)


@pytest.fixture
def cli(inferscale_bin: Path, chat_model: Path, embed_model: Path, tmp_path: Path) -> Cli:
    """The command with a fresh data directory, a fresh home and both models."""
    return _cli(inferscale_bin, chat_model, embed_model, tmp_path)


@pytest.fixture(scope="module")
def module_cli(
    inferscale_bin: Path,
    chat_model: Path,
    embed_model: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Cli:
    """The same for all tests of a module."""
    return _cli(inferscale_bin, chat_model, embed_model, tmp_path_factory.mktemp("module"))
