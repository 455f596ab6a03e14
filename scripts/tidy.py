"""Runs clang-tidy over src/ and remembers what was clean.

    tidy.py BUILD [STAMPS]

BUILD is a build folder with compile_commands.json. A file that was clean with the same text, the
same project headers, command and settings is not read again: that is what an empty file in STAMPS
says. System headers are taken for those of the release that setup.sh names.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

TIDY = "clang-tidy-14"
ROOT = Path(__file__).resolve().parent.parent


@dataclass
class Outcome:
    checked: bool
    findings: str = ""


def headers(command: list[str], folder: Path) -> list[Path]:
    """The file and the project's headers that it reads, by the compiler."""
    until = command.index("-o")
    words = command[:until] + command[until + 2 :]
    words.remove("-c")
    rule = subprocess.run([*words, "-MM"], cwd=folder, check=True, capture_output=True, text=True)
    return [folder / name for name in rule.stdout.split(":", 1)[1].split() if name != "\\"]


def key_of(entry: dict[str, str], settings: bytes) -> str:
    command = shlex.split(entry["command"])
    digest = hashlib.sha256(settings + entry["command"].replace(str(ROOT), "").encode())
    for path in headers(command, Path(entry["directory"])):
        digest.update(os.path.relpath(path, ROOT).encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def check(entry: dict[str, str], build: Path, stamps: Path, settings: bytes) -> Outcome:
    stamp = stamps / key_of(entry, settings)
    if stamp.exists():
        return Outcome(checked=False)
    run = subprocess.run(
        [TIDY, "-quiet", "-p", str(build), entry["file"]], capture_output=True, text=True
    )
    if run.returncode == 0 and not run.stdout.strip():
        stamp.touch()
        return Outcome(checked=True)
    return Outcome(checked=True, findings=run.stdout or run.stderr)


def main(words: list[str]) -> int:
    build = Path(words[0])
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    cache = Path(os.environ.get("INFERSCALE_CACHE", home / "inferscale"))
    stamps = Path(words[1]) if len(words) > 1 else cache / "tidy"
    stamps.mkdir(parents=True, exist_ok=True)
    version = subprocess.run([TIDY, "--version"], check=True, capture_output=True).stdout
    settings = version + (ROOT / ".clang-tidy").read_bytes()
    entries = [
        entry
        for entry in json.loads((build / "compile_commands.json").read_text())
        if Path(entry["file"]).is_relative_to(ROOT / "src")
    ]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        outcomes = list(pool.map(lambda entry: check(entry, build, stamps, settings), entries))
    for outcome in outcomes:
        if outcome.findings:
            print(outcome.findings)
    checked = sum(outcome.checked for outcome in outcomes)
    print(f"clang-tidy: {len(outcomes)} files, {len(outcomes) - checked} clean as they were")
    return 1 if any(outcome.findings for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
