"""bench/server: every measurement runs, and those that look for mistakes find planted ones."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench_server import parse
from served import Served, serve
from server_load import Client, Load, latencies
from server_soak import Person, Writer

from cli import Cli


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("floor --clients 2 --seconds 0.2 --warm 0", {"ends": ["200"]}),
        ("add --clients 4 --seconds 0.5 --warm 0", {"ends": ["200"]}),
        ("search --users 3 --facts 4 --clients 4 --seconds 0.5 --warm 0.1", {"wrong": 0}),
        ("delete --facts 4", {"before": 4, "after": 0, "wrong": 0}),
        ("chat --facts 7 --questions 2", {"facts": 7}),
        ("streams --streams 4 --seconds 0.5", {"streams": 4}),
        ("soak --clients 3 --seconds 1 --facts 4", {"wrong": 0, "errors": 0}),
        ("kill --kills 1 --clients 3 --seconds 2 -- --slots 1", {"lost": 0, "resurrected": 0}),
    ],
)
def test_measures(cli: Cli, root: Path, words: str, expected: dict[str, Any]) -> None:
    done = subprocess.run(
        [sys.executable, str(root / "bench" / "server" / "bench_server.py"), *words.split()],
        env=cli.environment(INFERSCALE=str(cli.binary)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    result = json.loads(done.stdout)
    assert result["bench"] == words.split()[0]
    for name, value in expected.items():
        assert (list(result[name]) if name == "ends" else result[name]) == value
    if result["bench"] == "chat":
        assert result["injected_tokens"] > 0
        assert result["gateway_ms"]["p50_ms"] > 0
    if result["bench"] == "kill":
        assert result["acknowledged"] > 0


def test_options_after_the_dashes_are_the_gateways() -> None:
    args = parse(["add", "--clients", "2", "--", "--slots", "1"])
    assert (args.clients, args.serve) == (2, ["--slots", "1"])


def test_percentiles_are_measured_values() -> None:
    ordered = [float(n) for n in range(1, 101)]
    assert latencies(ordered[::-1]) == {"p50_ms": 50, "p90_ms": 90, "p99_ms": 99, "max_ms": 100}
    assert latencies([7.0])["p99_ms"] == 7
    assert latencies([]) == {}


@pytest.mark.parametrize("turns", range(4))
def test_a_request_that_is_cancelled_ends_so(monkeypatch: pytest.MonkeyPatch, turns: int) -> None:
    async def is_cancelled() -> None:
        answer = asyncio.get_running_loop().create_future()
        client = Client(port=1)
        monkeypatch.setattr(client, "_request", lambda *_: asyncio.wait([answer]))
        asking = asyncio.create_task(client.request("GET", "/"))
        await asyncio.sleep(0.01)
        answer.set_result(None)
        for _ in range(turns):
            await asyncio.sleep(0)
        promised = asking.cancel()
        await asyncio.wait([asking])
        assert asking.cancelled() == promised

    asyncio.run(is_cancelled())


@pytest.fixture(scope="module")
def served(module_cli: Cli) -> Iterator[Served]:
    with serve(module_cli) as running:
        yield running


def test_a_person_notices_what_is_lost_or_anothers(served: Served) -> None:
    async def notices() -> None:
        person = Person(1, served.port, seed=1)
        await person._add(Load())
        await person._search(Load())
        await person._chat(Load())
        assert person.wrong == []
        (fact,) = person._facts
        text = person._facts.pop(fact)
        person._facts["another"] = text
        await person._search(Load())
        await person._chat(Load())
        assert [one.split(": ")[1].split()[0:2] for one in person.wrong] == [
            ["a", "search"],
            ["a", "search"],
            ["an", "answer"],
            ["an", "answer"],
        ]

    asyncio.run(notices())


def test_a_writer_notices_what_is_lost_or_came_back(served: Served) -> None:
    async def notices() -> None:
        writer = Writer(1, seed=1)
        writing = asyncio.create_task(writer.write(served.port))
        while len(writer.there) < 5 or writer.unknown:  # a deletion on its way may come through
            assert not writing.done()
            await asyncio.sleep(0.01)
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        counts = await writer.check(served.port)
        assert counts["lost"] == counts["resurrected"] == 0
        fact = next(iter(writer.there))
        writer.gone.add(fact)
        writer.there["never written"] = "x"
        counts = await writer.check(served.port)
        assert (counts["lost"], counts["resurrected"]) == (1, 1)

    asyncio.run(notices())
