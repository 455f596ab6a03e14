"""`inferscale serve` reads its file again when it is told to."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

from served import Served, serve

from cli import TIMEOUT_S, Cli


def hang_up(served: Served, errors: Path) -> str:
    """What it says when it has read everything again."""
    before = len(errors.read_text())
    served.process.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + TIMEOUT_S
    while "\n" not in errors.read_text()[before:]:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return errors.read_text()[before:]


def test_settings_are_read_again(cli: Cli, tmp_path: Path) -> None:
    for number in range(6):
        cli.ok("add", f"Ana has {number} cats.")
    config = tmp_path / "config.toml"
    config.write_text('facts = 5\n[serve]\nmode = "text"\n[ask]\nmode = "kv"\n')
    errors = tmp_path / "errors"

    def ask(served: Served) -> tuple[int, str]:
        body = {"messages": [{"role": "user", "content": "How many cats has Ana?"}]}
        memory = served.chat(**body, user="default", max_tokens=1)["inferscale"]
        return len(memory["facts"]), memory["mode"]

    with (
        errors.open("w") as log,
        serve(cli, "--config", str(config), "--per-minute", "1000", stderr=log) as served,
    ):
        assert ask(served) == (5, "text")
        config.write_text('facts = 2\nslots = 1\n[serve]\nmode = "none"\nper-minute = 3\n')
        said = hang_up(served, errors)
        # The command line says --per-minute.
        assert said.endswith("changed: --facts, --mode; with the next start: --slots\n")
        assert ask(served) == (0, "none")
        config.write_text("facts = 2\nslots = 1\n[serve]\nmood = 'none'\n")
        assert "unknown key 'serve.mood'" in hang_up(served, errors)
        assert ask(served) == (0, "none")
        config.write_text("facts = 3\n")
        said = hang_up(served, errors)
        assert said.endswith("changed: --facts, --mode\n")
        assert ask(served) == (3, "kv")  # auto again


def test_without_files_a_hangup_ends_it(cli: Cli) -> None:
    process = subprocess.Popen(
        # Whoever ignores hangups (nohup) has children that do.
        ["env", "--default-signal=HUP", str(cli.binary), "serve", "--port", "0"],
        stdout=subprocess.PIPE,
        env=cli.environment(),
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGHUP)
    assert process.wait(TIMEOUT_S) == -signal.SIGHUP
    process.stdout.close()
