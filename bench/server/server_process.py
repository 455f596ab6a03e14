"""The gateway that is measured, and the facts in it."""

from __future__ import annotations

import fcntl
import json
import os
import random
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

COMMAND = os.environ.get("INFERSCALE", str(Path(__file__).parents[2] / "build" / "inferscale"))

_WHO = ("Marta", "Jonas", "Priya", "Otto", "Lucia", "Femi", "Sven", "Noor", "Hana", "Diego")
_DID = ("painted", "sold", "repaired", "lent out", "photographed", "measured", "cleaned", "moved")
_WHAT = ("rowing boat", "piano", "greenhouse", "bicycle", "bookshelf", "telescope", "tent", "kiln")
_WHERE = ("Ghent", "Tartu", "Braga", "Malmo", "Trieste", "Galway", "Graz", "Bergen", "Lugo", "Brno")
_WHEN = ("January", "March", "May", "June", "August", "October", "December")


def made_text(number: int) -> str:
    """A text of about 25 tokens that no other number has."""
    pick = random.Random(number)
    return (
        f"{pick.choice(_WHO)} {pick.choice(_DID)} the {pick.choice(_WHAT)} number {number} in "
        f"{pick.choice(_WHERE)} last {pick.choice(_WHEN)}, and would like to do so once more."
    )


def run(data: Path, *words: str) -> Any:
    """A verb of the command, and the JSON that it prints."""
    done = subprocess.run(
        [COMMAND, *words, "--data-dir", str(data), "-o", "json"], stdout=subprocess.PIPE, check=True
    )
    return json.loads(done.stdout)


def remember(data: Path, users: int, facts: int, encode: bool) -> None:
    """Facts of user-0, user-1 and so on; what is there already is not done again."""
    data.mkdir(parents=True, exist_ok=True)
    wanted = f"{users} users of {facts} facts\n"
    note = data.parent / f"{data.name}.made"
    if not note.exists():
        file = data.parent / f"{data.name}.jsonl"
        with file.open("w") as out:
            for number in range(users * facts):
                line = {"user": f"user-{number // facts}", "text": made_text(number)}
                out.write(json.dumps(line) + "\n")
        run(data, "import", str(file), "--no-encode")
        note.write_text(wanted)
    elif note.read_text() != wanted:
        raise SystemExit(f"{data} has {note.read_text().strip()}, not {wanted.strip()}")
    if encode:
        run(data, "encode")


@contextmanager
def nothing_encodes(data: Path) -> Iterator[None]:
    """The gateway leaves encoding to who holds this lock; so that it is not measured too."""
    data.mkdir(parents=True, exist_ok=True)
    with (data / "encode.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class Gateway:
    """A running `inferscale serve` on a port of its own."""

    def __init__(self, data: Path, options: list[str]) -> None:
        words = ["serve", "--port", "0", "--auth", "off", "--data-dir", str(data), "-o", "json"]
        self._process = subprocess.Popen(
            [COMMAND, *words, *options], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the gateway did not start: exit code {self._process.wait()}")
        self.hello: dict[str, Any] = json.loads(line)
        self.port = int(self.hello["url"].rsplit(":", 1)[1])

    def memory_mib(self) -> dict[str, float]:
        """Resident now and at most; `anonymous` is without the pages of mapped files."""
        text = Path(f"/proc/{self._process.pid}/status").read_text()
        kib = {
            name: float(value.split()[0])
            for name, _, value in (line.partition(":") for line in text.splitlines())
            if name in ("VmRSS", "VmHWM", "RssAnon")
        }
        return {
            "resident": round(kib["VmRSS"] / 1024, 1),
            "anonymous": round(kib["RssAnon"] / 1024, 1),
            "most": round(kib["VmHWM"] / 1024, 1),
        }

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        code = self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        if code not in (0, -signal.SIGKILL):
            raise SystemExit(f"the gateway ended with {code}")


@contextmanager
def serving(data: Path, options: list[str]) -> Iterator[Gateway]:
    data.mkdir(parents=True, exist_ok=True)
    gateway = Gateway(data, options)
    try:
        yield gateway
    finally:
        gateway.stop()
