"""The parts of an answer, put together."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from inferscale.client.calls import answer_from
from inferscale.client.errors import ConnectionFailed, ServerError, UnexpectedAnswer, message_in
from inferscale.client.models import Answer


class StreamReader:
    """Takes the bytes of an event stream as they come, and gives the text in them."""

    def __init__(self) -> None:
        self._rest = b""
        self._text: list[str] = []
        self._finish: str | None = None
        self._memory: Any = None
        self._usage: Any = None
        self.done = False

    def feed(self, data: bytes) -> Iterator[str]:
        # Only at these ends: a text may contain what Unicode also calls a line's end.
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if not line.startswith(b"data:"):
                continue
            event = line.removeprefix(b"data:").strip()
            if event == b"[DONE]":
                self.done = True
                continue
            piece = self._take(event)
            if piece:
                self._text.append(piece)
                yield piece

    def end(self) -> None:
        """No more bytes come: all must have been said."""
        if not self.done:
            raise ConnectionFailed("the answer ended before it was complete")

    def answer(self) -> Answer:
        """Once all is read."""
        if not self.done:
            raise RuntimeError("the stream was not read to its end")
        try:
            return answer_from(
                "".join(self._text), self._finish or "stop", self._memory, self._usage
            )
        except (KeyError, TypeError) as error:
            raise UnexpectedAnswer(f"the stream has no {error}") from error

    def _take(self, event: bytes) -> str:
        try:
            chunk = json.loads(event)
            if "error" in chunk:
                # The status was sent before it failed.
                raise ServerError(message_in(chunk) or "the answer failed", 500)
            self._memory = chunk.get("inferscale") or self._memory
            self._usage = chunk.get("usage") or self._usage
            if not chunk["choices"]:
                return ""
            choice = chunk["choices"][0]
            self._finish = choice["finish_reason"] or self._finish
            return choice["delta"].get("content") or ""
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise UnexpectedAnswer("a part of the answer is none of a chat's") from error
