"""A gateway that runs while tests ask it."""

import http.client
import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cli import TIMEOUT_S, Cli


class Served:
    def __init__(self, process: subprocess.Popen[str], hello: dict[str, Any]) -> None:
        self.process = process
        self.hello = hello
        self.model = hello["model"]
        self.url = hello["url"]
        self.port = int(hello["url"].rsplit(":", 1)[1])

    def request(
        self, method: str, path: str, body: Any = None, key: str | None = None
    ) -> tuple[int, bytes]:
        """`body` is sent as JSON, but for bytes, which are sent as they are."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        headers = {"Content-Type": "application/json"} if body is not None else {}
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        data = body if isinstance(body, bytes) or body is None else json.dumps(body)
        connection.request(method, path, data, headers)
        answer = connection.getresponse()
        got = answer.read()
        connection.close()
        return answer.status, got

    def chat(self, **body: Any) -> dict[str, Any]:
        status, data = self.request("POST", "/v1/chat/completions", body)
        assert status == 200, data
        answer: dict[str, Any] = json.loads(data)
        return answer


def make_key(cli: Cli, *words: str) -> str:
    """A new key, by `inferscale keys create`."""
    return str(cli.json("keys", "create", *words)["key"])


@contextmanager
def serve(cli: Cli, *words: str) -> Iterator[Served]:
    """Runs `inferscale serve`, and stops it at the end, which must go well."""
    process = subprocess.Popen(
        [str(cli.binary), "serve", "--port", "0", "-o", "json", "--plain", "0", *words],
        stdout=subprocess.PIPE,
        env=cli.environment(),
        text=True,
    )
    assert process.stdout is not None
    try:
        yield Served(process, json.loads(process.stdout.readline()))
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_S) == 0
        process.stdout.close()
