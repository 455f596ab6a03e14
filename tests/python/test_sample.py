"""The sample conversation keeps the promises that its own checker states."""

import subprocess
import sys
from pathlib import Path


def test_sample_is_sound(root: Path) -> None:
    run = subprocess.run(
        [sys.executable, root / "scripts/check_sample.py"], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout + run.stderr
