"""Mem0 as a peer: its own retrieval over the same turns, with the same embedder.

The turns are kept as they are (`infer=False`), in Qdrant's local mode; nothing leaves the machine.
Needs the packages `mem0ai` and `qdrant-client`.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from inferscale.bench.datasets import Conversation

os.environ.setdefault("MEM0_TELEMETRY", "False")

Embed = Callable[[Sequence[str]], list[list[float]]]


class _Embedder:
    """What Mem0 asks of an embedding model."""

    def __init__(self, embed: Embed) -> None:
        self._embed = embed

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        return self._embed([text])[0]

    def embed_batch(self, texts: list[str], memory_action: str = "add") -> list[list[float]]:
        return self._embed(texts)


class Mem0:
    def __init__(self, folder: Path, embed: Embed) -> None:
        mem0: Any = importlib.import_module("mem0")  # only who compares with it needs it
        store = {
            "collection_name": "turns",
            "path": str(folder / "qdrant"),
            "on_disk": True,
            "embedding_model_dims": len(embed(["one text"])[0]),
        }
        # Neither model is ever asked: the embedder is replaced, and nothing is inferred.
        unused = {"provider": "openai", "config": {"api_key": "none"}}
        self._memory: Any = mem0.Memory.from_config(
            {
                "vector_store": {"provider": "qdrant", "config": store},
                "history_db_path": str(folder / "history.db"),
                "llm": unused,
                "embedder": unused,
            }
        )
        self._memory.embedding_model = _Embedder(embed)

    def remember(self, conversations: Iterable[Conversation]) -> None:
        """Turns that are not there yet."""
        for conversation in conversations:
            every = {"filters": {"user_id": conversation.id}, "top_k": len(conversation.turns)}
            there = {one["metadata"]["turn"] for one in self._memory.get_all(**every)["results"]}
            for turn in conversation.turns:
                if turn.id in there:
                    continue
                text = f"{turn.speaker}: {turn.text}" if turn.speaker else turn.text
                message = {"role": "user", "content": text}
                about = {"turn": turn.id}
                self._memory.add([message], user_id=conversation.id, metadata=about, infer=False)

    def find(self, conversation: str, question: str, count: int) -> list[str]:
        """Ids of turns, nearest first."""
        filters = {"user_id": conversation}
        found = self._memory.search(question, filters=filters, top_k=count, threshold=0.0)
        return [one["metadata"]["turn"] for one in found["results"]]


class Found:
    """What Mem0 found for each question, in a file: asked once, also by a run that goes on, or goes
    on where Mem0 is not installed."""

    def __init__(self, folder: Path, conversations: Sequence[Conversation], embed: Embed) -> None:
        self._folder = folder
        self._conversations = conversations
        self._embed = embed
        self._mem0: Mem0 | None = None
        self._path = folder / "found.jsonl"
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        self._turns: dict[str, list[str]] = dict(json.loads(line) for line in lines)

    def find(self, conversation: str, question: str, count: int) -> list[str]:
        """As Mem0.find; the conversations are remembered when the first one is missing."""
        key = json.dumps([conversation, question, count])
        if key not in self._turns:
            if self._mem0 is None:
                self._mem0 = Mem0(self._folder, self._embed)
                self._mem0.remember(self._conversations)
            self._turns[key] = self._mem0.find(conversation, question, count)
            with self._path.open("a") as out:
                out.write(json.dumps([key, self._turns[key]]) + "\n")
        return self._turns[key]
