"""A run: data set x arms x numbers of facts, one JSON line for each question.

The first line says what is needed to repeat the run. A run that was stopped goes on where it was,
and refuses to if anything that matters is another.
"""

from __future__ import annotations

import json
import os
import platform
import random
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from inferscale.bench.arms import Arm, Store
from inferscale.bench.datasets import DataSet, Question
from inferscale.bench.mem0_peer import Found
from inferscale.bench.server import Server, ServerError
from inferscale.bench.worker import WorkerError, Workers, fill

FORMAT = 1
# Of the first line, what may differ when a run goes on.
_CIRCUMSTANCES = ("encoding", "machine", "command", "started")


class RunError(Exception):
    """A run's file is not of this run, or damaged."""


@dataclass(frozen=True)
class Plan:
    data: DataSet
    arms: list[Arm]
    facts: list[int]
    folder: Path
    command: list[str]  # inferscale with its options
    max_tokens: int = 32
    seed: int = 0
    jobs: int = 1  # processes at a time
    selection: str = ""  # how the questions were chosen, in words
    server: Server | None = None  # answers too, from the text of every text arm


def key(arm: Arm, facts: int) -> str:
    return f"{arm.name} @{facts}"


def _with_server(plan: Plan) -> list[Arm]:
    """The plan's arms and those that the server answers."""
    text = [arm for arm in plan.arms if arm.memory == "text"] if plan.server else []
    return [*plan.arms, *(replace(arm, memory="server") for arm in text)]


def read(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]], int]:
    """Header, questions, and how many bytes are whole lines: what was being written when a run was
    killed is no line yet."""
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    lines = []
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            lines.append(json.loads(line))
        except ValueError as error:
            raise RunError(f"{path}, line {number}: not JSON ({error})") from error
    if lines and "run" not in lines[0]:
        raise RunError(f"{path}: the first line is not a run's")
    return (lines[0]["run"] if lines else {}), lines[1:], len(whole)


def _header(plan: Plan, model: dict[str, Any]) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "data": {"name": plan.data.name, "sha256": plan.data.sha256},
        "selection": plan.selection,
        "questions": len(plan.data.questions()),
        "conversations": len(plan.data.conversations),
        "arms": [{"name": arm.name, **asdict(arm)} for arm in _with_server(plan)],
        "server": {"url": plan.server.url, "model": plan.server.model} if plan.server else None,
        "facts": plan.facts,
        "max_tokens": plan.max_tokens,
        "seed": plan.seed,
        "model": model,
        "encoding": {},
        "machine": {
            "system": platform.platform(),
            "processors": os.cpu_count(),
            "python": platform.python_version(),
            "numpy": np.__version__,
        },
        "command": sys.argv[1:],
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _check_same(path: Path, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    for name, value in wanted.items():
        if name not in _CIRCUMSTANCES and found.get(name) != value:
            raise RunError(f"{path} is of another run: its {name} differs. Choose another --out")


def _request(plan: Plan, question: Question, peer: Found | None) -> dict[str, Any]:
    def given(arm: Arm, facts: int) -> list[str]:
        if arm.memory != "mem0" or peer is None:
            return []
        return peer.find(question.conversation, question.text, facts)[::-1]  # the best last

    arms = [
        {
            "memory": "given" if arm.memory == "mem0" else arm.memory,
            "given": given(arm, facts),
            "data_dir": str(plan.folder / "stores" / arm.store.folder),
            "window": arm.window,
            "episode": arm.episode,
            "codec": arm.codec,
            "facts": facts,
            "plain": arm.plain,
        }
        for facts in plan.facts
        for arm in plan.arms
    ]
    return {
        "user": question.conversation,
        "question": question.text,
        "gold": question.answer,
        "options": list(question.wrong),
        "max_tokens": plan.max_tokens,
        "seed": plan.seed,
        "show": plan.server is not None,
        "arms": arms,
    }


def _fill_stores(plan: Plan, say: Callable[[str], None]) -> dict[str, Any]:
    needed = {arm.store: False for arm in plan.arms}
    for arm in plan.arms:
        needed[arm.store] |= arm.memory == "kv"

    def fill_one(store: Store) -> dict[str, Any]:
        say(f"store {store.folder}")
        folder = plan.folder / "stores" / store.folder
        return fill(plan.command, folder, store, plan.data.conversations, needed[store])

    with ThreadPoolExecutor(plan.jobs) as pool:
        reports = list(pool.map(fill_one, needed))
    return {store.folder: told for store, told in zip(needed, reports, strict=True)}


def run(plan: Plan, say: Callable[[str], None]) -> Path:
    """Runs what is not done yet; returns the file."""
    plan.folder.mkdir(parents=True, exist_ok=True)
    path = plan.folder / "run.jsonl"
    header, done, size = read(path) if path.exists() else ({}, [], 0)
    answered = {row["id"] for row in done}
    questions = plan.data.questions()
    random.Random(plan.seed).shuffle(questions)  # what is done when a run stops is a fair sample
    waiting = [question for question in questions if question.id not in answered]
    wanted = _header(plan, header.get("model", {}))
    if header:
        _check_same(path, header, wanted)
    if header and not waiting:
        say(f"all {len(answered)} questions are answered already")
        return path
    wanted["encoding"] = _fill_stores(plan, say)
    log = plan.folder / "worker.log"
    with closing(Workers(plan.command, log, plan.jobs)) as workers, path.open("ab") as out:
        wanted["model"] = workers.model
        out.truncate(size)
        if header:
            _check_same(path, header, wanted)
        else:
            append(out, {"run": wanted})
        peer = None
        if any(arm.memory == "mem0" for arm in plan.arms):
            peer = Found(plan.folder / "mem0", plan.data.conversations, workers.embed)
        _answer(plan, workers, peer, waiting, lambda row: append(out, row), say)
    return path


def _ask_server(
    plan: Plan, question: Question, system: str, results: dict[str, dict[str, Any]]
) -> None:
    """Adds the server's arms to those of the worker, and takes the lines out of these."""
    lines = {name: result.pop("lines", []) for name, result in results.items()}
    if plan.server is None:
        return
    for facts in plan.facts:
        for arm in _with_server(plan)[len(plan.arms) :]:
            text = key(replace(arm, memory="text"), facts)
            told = plan.server.answer(system, lines[text], question.text, plan.max_tokens)
            results[key(arm, facts)] = {**told, "facts": results[text]["facts"]}


def append(out: Any, row: dict[str, Any]) -> None:
    out.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
    out.flush()
    os.fsync(out.fileno())


def _row(
    plan: Plan, system: str, question: Question, measured: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """A line of the file."""
    names = [key(arm, facts) for facts in plan.facts for arm in plan.arms]
    results = dict(zip(names, measured, strict=True))
    _ask_server(plan, question, system, results)
    return {
        "id": question.id,
        "conversation": question.conversation,
        "category": question.category,
        "question": question.text,
        "wrong": list(question.wrong),
        "answer": question.answer,
        "evidence": list(question.evidence),
        "arms": results,
    }


def _answer(
    plan: Plan,
    workers: Workers,
    peer: Found | None,
    waiting: Sequence[Question],
    append: Callable[[dict[str, Any]], None],
    say: Callable[[str], None],
) -> None:
    started = time.monotonic()
    asked: dict[Future[list[dict[str, Any]]], Question] = {}
    done = 0

    def finish(most_left: int) -> None:
        """Waits until no more than so many are still being answered."""
        nonlocal done
        while len(asked) > most_left:
            wait(asked, return_when=FIRST_COMPLETED)
            for future in [future for future in asked if future.done()]:
                question = asked.pop(future)
                try:
                    row = _row(plan, workers.model["system"], question, future.result())
                except (WorkerError, ServerError) as error:
                    raise type(error)(f"question {question.id}: {error}") from error
                append(row)
                done += 1
                each = (time.monotonic() - started) / done
                left = f"{each:.1f} s each, {each * (len(waiting) - done) / 60:.0f} min left"
                say(f"{done} of {len(waiting)}  {question.id}  {left}")

    with ThreadPoolExecutor(plan.jobs) as pool:
        for question in waiting:
            asked[pool.submit(workers.score, _request(plan, question, peer))] = question
            finish(plan.jobs)
        finish(0)
