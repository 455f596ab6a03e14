"""The command that measures: fills data directories, and answers questions line by line."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from inferscale.bench.arms import Store
from inferscale.bench.datasets import Conversation

PATIENCE_S = 10


class WorkerError(Exception):
    """The command failed, or could not do what was asked."""


def find_command(given: str | None) -> str:
    """The command to run: as given, or $INFERSCALE_BIN, or on the path."""
    command = given or os.environ.get("INFERSCALE_BIN") or shutil.which("inferscale")
    if not command or not shutil.which(command):
        raise WorkerError("no inferscale command: name it with --bin or INFERSCALE_BIN")
    return command


def fill(
    command: Sequence[str],
    folder: Path,
    store: Store,
    conversations: Iterable[Conversation],
    kv: bool,
) -> dict[str, Any]:
    """Remembers the conversations in a data directory and makes their KV. Doing it again goes on
    where it was stopped; but what a model draws from turns it would draw again and otherwise, so
    that begins anew unless it was done. Returns what encoding took this time."""
    whole = folder / "drawn"
    if store.infer and whole.exists():
        return {}
    if store.infer and folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as turns:
        for conversation in conversations:
            for turn in conversation.turns:
                turns.write(json.dumps(turn.line(conversation.id)) + "\n")
        turns.flush()
        words = [*command, "import", turns.name, "--data-dir", str(folder), "--output", "json"]
        words += ["--window", store.window, "--episode", str(store.episode)]
        words += ["--kv-codec", store.codec, *([] if kv else ["--no-encode"])]
        words += ["--infer"] if store.infer else []
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise WorkerError(f"inferscale import into {folder} failed ({done.returncode})")
    report: dict[str, Any] = json.loads(done.stdout)
    if report["skipped"]:
        raise WorkerError(f"inferscale import: {report['errors'][0]}")
    if store.infer:
        whole.touch()
    return report.get("encoded") or {}


class Worker:
    """`inferscale bench score`, until it is closed."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._log = log
        with log.open("a") as stderr:
            self._process = subprocess.Popen(
                [*command, "bench", "score"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                encoding="utf-8",
            )
        try:
            self.model: dict[str, Any] = self._read()["model"]
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()  # it ends when it has nothing more to read
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def score(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """One object for each arm of the request."""
        arms: list[dict[str, Any]] = self._ask(request)["arms"]
        return arms

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Vectors of its own embedder."""
        vectors: list[list[float]] = self._ask({"embed": list(texts)})["vectors"]
        return vectors

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise self._ended() from error
        reply = self._read()
        if "error" in reply:
            raise WorkerError(reply["error"]["message"])
        return reply

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._ended()
        reply: dict[str, Any] = json.loads(line)
        return reply

    def _ended(self) -> WorkerError:
        said = self._log.read_text(errors="replace").strip().splitlines()[-1:]
        return WorkerError(
            f"inferscale bench score ended: {said[0] if said else 'it said nothing'}"
        )


class Workers:
    """Several of them, until they are closed: each call takes one that is idle."""

    def __init__(self, command: Sequence[str], log: Path, count: int) -> None:
        self._all: list[Worker] = []
        self._idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        try:
            for _ in range(count):
                self._all.append(Worker(command, log))
                self._idle.put(self._all[-1])
        except BaseException:
            self.close()
            raise
        self.model = self._all[0].model

    def close(self) -> None:
        for worker in self._all:
            worker.close()

    def score(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        with self._one() as worker:
            return worker.score(request)

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        with self._one() as worker:
            return worker.embed(texts)

    @contextlib.contextmanager
    def _one(self) -> Iterator[Worker]:
        worker = self._idle.get()
        try:
            yield worker
        finally:
            self._idle.put(worker)
