"""Answers of any OpenAI-compatible server, for arms that are text."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

TIMEOUT_S = 600


class ServerError(Exception):
    """The server did not answer as it should."""


@dataclass(frozen=True)
class Server:
    url: str  # base, up to and with /v1
    model: str
    key: str = ""

    def answer(
        self, system: str, lines: list[str], question: str, max_tokens: int
    ) -> dict[str, Any]:
        """The answer to a question below the lines of its memory, as a worker tells of an arm's."""
        return self._complete(f"{system}\n{''.join(lines)}", question, max_tokens)

    def say(self, system: str, text: str, max_tokens: int) -> str:
        """What it replies."""
        reply: str = self._complete(system, text, max_tokens)["answer"]
        return reply

    def _complete(self, system: str, text: str, max_tokens: int) -> dict[str, Any]:
        body = {
            "model": self.model,
            "messages": [
                {"role": "system", "content": system},
                {"role": "user", "content": text},
            ],
            "temperature": 0,
            "max_tokens": max_tokens,
        }
        reply = self._post(json.dumps(body).encode())
        try:
            choice = reply["choices"][0]
            tokens = reply["usage"]["prompt_tokens"]
            return {
                "answer": choice["message"]["content"] or "",
                "complete": choice["finish_reason"] == "stop",
                "prompt_tokens": tokens,
                "injected_tokens": 0,
                "prefilled_tokens": tokens,
            }
        except (KeyError, IndexError, TypeError) as error:
            raise ServerError(f"{self.url}: its reply has no {error}") from error

    def _post(self, body: bytes) -> Any:
        headers = {"Content-Type": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        request = urllib.request.Request(f"{self.url}/chat/completions", body, headers)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            raise ServerError(f"{self.url}: {error.code} {error.reason}") from error
        except (OSError, ValueError) as error:
            raise ServerError(f"{self.url}: {error}") from error
