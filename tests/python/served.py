"""A gateway that runs while tests ask it."""

import http.client
import json
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from cli import TIMEOUT_S, Cli


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix domain socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=TIMEOUT_S)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Served:
    trusted: str | None = None  # the certificate that a gateway with TLS must show

    def __init__(self, process: subprocess.Popen[str], hello: dict[str, Any]) -> None:
        self.process = process
        self.hello = hello
        self.model = hello["model"]
        self.url = hello["url"]
        self.is_unix = hello["url"].startswith("unix:")
        self.port = 0 if self.is_unix else int(hello["url"].rsplit(":", 1)[1])

    def connect(self) -> http.client.HTTPConnection:
        if self.is_unix:
            return UnixConnection(self.url.removeprefix("unix:"))
        if self.url.startswith("https:"):
            context = ssl.create_default_context(cafile=self.trusted)
            return http.client.HTTPSConnection(
                "127.0.0.1", self.port, timeout=TIMEOUT_S, context=context
            )
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)

    def request(
        self, method: str, path: str, body: Any = None, key: str | None = None
    ) -> tuple[int, bytes]:
        """`body` is sent as JSON, but for bytes, which are sent as they are."""
        connection = self.connect()
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
def serve(cli: Cli, *words: str, stderr: IO[str] | None = None) -> Iterator[Served]:
    """Runs `inferscale serve`, and stops it at the end, which must go well."""
    where = [] if "--unix" in words else ["--port", "0"]
    process = subprocess.Popen(
        [str(cli.binary), "serve", *where, "-o", "json", "--plain", "0", *words],
        stdout=subprocess.PIPE,
        stderr=stderr,
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
