"""The command as a test's user types it."""

import json
import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Generous: sanitizer builds on a busy machine are slow. A test that hits it has hung.
TIMEOUT_S = 300


@dataclass
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output, which must be exactly one JSON document."""
        return json.loads(self.out)


@dataclass
class Cli:
    """Runs the command with one data directory and nothing else from the user's environment."""

    binary: Path
    data_dir: Path
    home: Path
    models: dict[str, str]

    def environment(self, **extra: str) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("INFERSCALE_", "XDG_")) or name == "INFERSCALE_THREADS"
        }
        return {
            **kept,
            **self.models,
            "HOME": str(self.home),
            "INFERSCALE_DATA_DIR": str(self.data_dir),
            "INFERSCALE_AUTO_FACTS": "0",  # the tests' few facts are injected too
            **extra,
        }

    def __call__(
        self, *words: str | bytes, stdin: str | bytes = b"", env: dict[str, str] | None = None
    ) -> Result:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        done = subprocess.run(
            [str(self.binary), *words],
            input=data,
            capture_output=True,
            env=self.environment(**(env or {})),
            timeout=TIMEOUT_S,
            check=False,
        )
        # Output is UTF-8 whatever the data: a strict decode is part of every test.
        return Result(done.returncode, done.stdout.decode(), done.stderr.decode())

    def ok(self, *words: str | bytes, **options: Any) -> Result:
        result = self(*words, **options)
        assert result.code == 0, result.err
        return result

    def json(self, *words: str | bytes, **options: Any) -> Any:
        return self.ok(*words, "-o", "json", **options).json

    def interrupted(self, *words: str, after: str) -> Result:
        """Runs, and sends SIGINT as soon as a line of standard error begins with `after`."""
        process = subprocess.Popen(
            [str(self.binary), *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment(),
            text=True,
        )
        assert process.stderr is not None
        seen = []
        for line in process.stderr:
            seen.append(line)
            if line.startswith(after):
                process.send_signal(signal.SIGINT)
                break
        out, err = process.communicate(timeout=TIMEOUT_S)
        return Result(process.returncode, out, "".join(seen) + err)
