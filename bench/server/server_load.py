"""Load on a gateway: many clients in one loop, each with a connection of its own.

Plain sockets and no HTTP library, so that most of the machine's time is left to what is measured;
`Load.summary` says how much of a core this process took all the same.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

TIMEOUT_S = 120
_NO_ANSWER = (OSError, EOFError, ValueError, asyncio.TimeoutError)  # EOFError: it ended too early


class Client:
    """Asks one thing after the other, over a connection that is kept."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def request(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        try:
            async with asyncio.timeout(TIMEOUT_S):  # Python 3.11's wait_for loses cancellations
                return await self._request(method, path, body)
        except BaseException:
            self.close()
            raise

    async def json(self, method: str, path: str, body: Any = None) -> Any:
        """What is answered, which must be no error."""
        status, data = await self.request(method, path, body)
        if status != 200:
            raise RuntimeError(f"{method} {path}: {status} {data[:300]!r}")
        return json.loads(data)

    async def events(self, path: str, body: Any) -> AsyncIterator[bytes]:
        """The parts of a stream as they come. RuntimeError for any other answer."""
        try:
            status, _ = await self._ask("POST", path, body)
            assert self._reader is not None
            if status != 200:
                raise RuntimeError(f"{status}")
            while True:
                line = await self._reader.readline()
                if not line:
                    raise EOFError("the stream was cut off")
                if line.startswith(b"data: "):
                    yield line[6:].strip()
                    if line.startswith(b"data: [DONE]"):
                        return
        finally:
            self.close()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()
        self._reader = self._writer = None

    async def _request(self, method: str, path: str, body: Any) -> tuple[int, bytes]:
        status, headers = await self._ask(method, path, body)
        assert self._reader is not None
        data = await self._reader.readexactly(int(headers[b"content-length"]))
        if headers.get(b"connection", b"").lower() == b"close":
            self.close()
        return status, data

    async def _ask(self, method: str, path: str, body: Any) -> tuple[int, dict[bytes, bytes]]:
        if self._reader is not None and self._reader.at_eof():
            self.close()  # it rested longer than the gateway waits for a request
        if self._reader is None or self._writer is None:
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        data = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n"
        if data:
            head += "Content-Type: application/json\r\n"
        self._writer.write(head.encode() + b"\r\n" + data)
        first, *lines = (await self._reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
        pairs = (line.partition(b":") for line in lines if line)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        return int(first.split(b" ", 2)[1]), headers


class Load:
    """How long requests took, and how they ended."""

    def __init__(self) -> None:
        self.ms: list[float] = []
        self.ends: Counter[str] = Counter()
        self.seconds = 0.0
        self.cpu_seconds = 0.0

    async def timed(
        self, request: Awaitable[tuple[int, bytes]], due: float | None = None
    ) -> bytes | None:
        """The answer, or nothing if there was none or it was an error; both are counted.

        Time counts from `due`, when the request should have been sent, if that is given.
        """
        began = time.perf_counter() if due is None else due
        try:
            status, data = await request
        except _NO_ANSWER as error:
            self.ends[type(error).__name__] += 1
            return None
        self.ends[str(status)] += 1
        if status != 200:
            return None
        self.ms.append((time.perf_counter() - began) * 1e3)
        return data

    def summary(self) -> dict[str, Any]:
        return {
            "ok": len(self.ms),
            "per_second": round(len(self.ms) / self.seconds, 1) if self.seconds else None,
            **latencies(self.ms),
            "ends": dict(sorted(self.ends.items())),
            "seconds": round(self.seconds, 2),
            "loader_cores": round(self.cpu_seconds / self.seconds, 2) if self.seconds else None,
        }


def latencies(ms: list[float]) -> dict[str, float]:
    if not ms:
        return {}
    ordered = sorted(ms)

    def rank(share: float) -> float:
        return round(ordered[max(0, math.ceil(share * len(ordered)) - 1)], 3)

    return {
        "p50_ms": rank(0.5),
        "p90_ms": rank(0.9),
        "p99_ms": rank(0.99),
        "max_ms": round(ordered[-1], 3),
    }


# A client's number and the client: the status and the body of an answer.
Ask = Callable[[int, Client], Awaitable[tuple[int, bytes]]]


async def drive(
    port: int,
    clients: int,
    seconds: float,
    ask: Ask,
    warm_seconds: float = 0,
    rate: float = 0,
) -> Load:
    """Each client asks as soon as it is answered; what the warm-up brings is not counted.

    With a rate, all clients together ask so often a second, at random times (exponential gaps),
    and a request that had to wait for its client's last one counts from when it was due.
    """
    if warm_seconds > 0:
        await drive(port, clients, warm_seconds, ask, rate=rate)
    load = Load()
    began, began_cpu = time.perf_counter(), time.process_time()

    async def run(number: int) -> None:
        client = Client(port)
        gaps = random.Random(number)
        due = began
        while time.perf_counter() - began < seconds:
            if rate > 0:
                due += gaps.expovariate(rate / clients)
                if due >= began + seconds:
                    break
                await asyncio.sleep(due - time.perf_counter())
            await load.timed(ask(number, client), due if rate > 0 else None)
        client.close()

    await asyncio.gather(*(run(number) for number in range(clients)))
    load.seconds = time.perf_counter() - began
    load.cpu_seconds = time.process_time() - began_cpu
    return load
