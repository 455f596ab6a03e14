"""The programs in examples/, as they are."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from served import Served, serve

from cli import TIMEOUT_S, Cli

# What they print, among other things.
PROGRAMS = {
    "openai_chat.py": ["knew: I am Ana, and I moved to Lisbon."],
    "inferscale_client.py": ["found: Bo moved to Lisbon.", "Miso", "erased: 3"],
    "mem0_client.py": ["I moved to Lisbon."],
    "langgraph_agent.py": ["knows: ['", "I am Di, and I moved to Lisbon.'"],
}
NEEDS_ARGUMENTS = {"mcp_tools.py"}


@pytest.fixture(scope="module")
def served(module_cli: Cli) -> Iterator[Served]:
    with serve(module_cli) as running:
        yield running


def run(root: Path, served: Served, home: Path, *words: str) -> str:
    environment = {
        **os.environ,
        "GATEWAY": served.url,
        "PYTHONPATH": str(root / "python"),
        "HOME": str(home),
    }
    done = subprocess.run(
        [sys.executable, *words],
        cwd=root / "examples",
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("program", PROGRAMS)
def test_program(root: Path, served: Served, tmp_path: Path, program: str) -> None:
    out = run(root, served, tmp_path, program)
    for text in PROGRAMS[program]:
        assert text in out


def test_agents_tools(root: Path, served: Served, tmp_path: Path) -> None:
    config = tmp_path / "mcp.json"
    text = (root / "examples" / "mcp.json").read_text()
    assert "http://127.0.0.1:8080" in text
    config.write_text(text.replace("http://127.0.0.1:8080", served.url))
    out = run(root, served, tmp_path, "mcp_tools.py", str(config))
    assert "'search_memories'" in out
    assert "Eve moved to Lisbon." in out


def test_no_program_is_left_out(root: Path) -> None:
    programs = {file.name for file in (root / "examples").glob("*.py")}
    assert programs == PROGRAMS.keys() | NEEDS_ARGUMENTS
    described = (root / "examples" / "README.md").read_text()
    assert all(f"[{name}]({name})" in described for name in programs)
