"""Memory as tools for agents, by the official client of the Model Context Protocol."""

import asyncio
import contextlib
import json
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from mcp import StdioServerParameters
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from served import Served, make_key, serve

from cli import TIMEOUT_S, Cli

NEWEST = {"auto": "2026-07-28", "legacy": "2025-11-25"}
READING = {"search_memories", "get_memories", "get_memory", "list_entities"}
WRITING = {
    "add_memory",
    "update_memory",
    "delete_memory",
    "delete_all_memories",
    "delete_entities",
}


@dataclass
class World:
    served: Served
    cli: Cli
    app: str
    reader: str
    stranger: str  # of another tenant


@pytest.fixture(scope="module")
def world(module_cli: Cli) -> Iterator[World]:
    with serve(module_cli, "--auth", "on") as served:
        yield World(
            served,
            module_cli,
            make_key(module_cli, "--tenant", "acme"),
            make_key(module_cli, "--tenant", "acme", "--access", "read"),
            make_key(module_cli, "--tenant", "other"),
        )


@contextlib.asynccontextmanager
async def over_http(
    world: World, key: str, mode: str = "auto", query: str = ""
) -> AsyncIterator[Client]:
    http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=TIMEOUT_S)
    url = f"{world.served.url}/mcp{query}"
    async with http, Client(streamable_http_client(url, http_client=http), mode=mode) as client:
        yield client


@contextlib.asynccontextmanager
async def over_stdio(cli: Cli, *words: str, mode: str = "auto") -> AsyncIterator[Client]:
    command = StdioServerParameters(
        command=str(cli.binary), args=["mcp", *words], env=cli.environment()
    )
    async with Client(command, mode=mode) as client:
        yield client


async def call(client: Client, tool: str, **arguments: Any) -> Any:
    """What the tool answers, which says the same as text and as JSON."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    assert len(result.content) == 1
    assert json.loads(result.content[0].text) == result.structured_content  # type: ignore[union-attr]
    return result.structured_content


async def refusal(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    return str(result.content[0].text)  # type: ignore[union-attr]


def texts(answer: Any) -> list[str]:
    return [one["memory"] for one in answer["results"]]


async def journey(client: Client, user: str) -> None:
    """A life of memories; the client's own user is `user`."""
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert set(tools) == READING | WRITING
    for name, tool in tools.items():
        assert tool.description
        assert tool.input_schema["type"] == "object"
        assert tool.annotations
        assert tool.annotations.read_only_hint == (name in READING)
    added = await call(
        client, "add_memory", text="I moved to Lisbon.", metadata={"topic": "home"}, run_id=None
    )
    assert added["results"][0]["event"] == "ADD"
    await call(
        client,
        "add_memory",
        text="summary",
        messages=[
            {"role": "user", "content": "My dog is called Rex."},
            {"role": "assistant", "content": "A fine name!"},
        ],
        user_id=user,
    )
    await call(client, "add_memory", text="The bot speaks Portuguese.", agent_id="bot")
    found = await call(client, "search_memories", query="Where does she live?", limit=1)
    assert texts(found) == ["I moved to Lisbon."]
    assert found["results"][0]["user_id"] == user
    assert texts(await call(client, "search_memories", query="x", filters={"agent_id": "bot"})) == [
        "The bot speaks Portuguese."
    ]
    page = await call(client, "get_memories", page=2, page_size=2)
    assert page["count"] == 3
    assert texts(page) == ["I moved to Lisbon."]
    memory_id = found["results"][0]["id"]
    changed = await call(client, "update_memory", memory_id=memory_id, text="I moved to Porto.")
    assert changed["metadata"] == {"topic": "home"}
    assert (await call(client, "get_memory", memory_id=memory_id))["memory"] == "I moved to Porto."
    assert (await call(client, "list_entities"))["count"] == 2
    gone = await call(client, "delete_memory", memory_id=memory_id)
    assert gone["erased"]["text"] == 1
    assert "no memory" in await refusal(client, "get_memory", memory_id=memory_id)
    assert (await call(client, "delete_entities", agent_id="bot"))["erased"]["text"] == 1
    assert "identifier" in await refusal(client, "delete_entities")
    assert (await call(client, "delete_all_memories"))["erased"]["text"] == 2
    assert (await call(client, "list_entities"))["count"] == 0


async def wrong_calls(client: Client) -> None:
    """What is wrong with arguments is told to the model; nothing is done."""
    assert "query" in await refusal(client, "search_memories")
    assert "integer" in await refusal(client, "search_memories", query="x", limit="many")
    assert "no such argument" in await refusal(client, "delete_all_memories", app_id="x")
    assert "name one" in await refusal(client, "delete_all_memories", user_id="*")
    assert "filter" in await refusal(
        client, "search_memories", query="x", filters={"user_id": {"like": "x"}}
    )
    with pytest.raises(Exception, match="no such tool"):
        await client.call_tool("forget_everything", {})


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_over_http(world: World, mode: str) -> None:
    async def talk() -> None:
        async with over_http(world, world.app, mode, "?user_id=ana") as client:
            assert client.protocol_version == NEWEST[mode]
            assert client.server_info
            assert client.server_info.name == "inferscale"
            await journey(client, "ana")
            await wrong_calls(client)

    asyncio.run(talk())


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_over_stdio(cli: Cli, mode: str) -> None:
    async def talk() -> None:
        async with over_stdio(cli, "--user", "bo", mode=mode) as client:
            assert client.protocol_version == NEWEST[mode]
            await journey(client, "bo")
            await wrong_calls(client)
            await call(client, "add_memory", text="Bo has a cat.")
            refused = await refusal(client, "add_memory", text="I am Bo.", infer=True)
            assert "language model" in refused

    asyncio.run(talk())
    assert cli.json("list", "--user", "bo")["facts"][0]["text"] == "Bo has a cat."


def test_keys_decide_what_tools_may_do(world: World) -> None:
    async def talk() -> None:
        async with over_http(world, world.app) as client:
            added = await call(client, "add_memory", text="Ana has a secret.", user_id="ana")
            assert "identifier" in await refusal(client, "add_memory", text="Of nobody.")
        memory_id = added["results"][0]["id"]
        async with over_http(world, world.reader) as client:
            assert {tool.name for tool in (await client.list_tools()).tools} == READING
            assert texts(await call(client, "get_memories", user_id="ana")) == ["Ana has a secret."]
            for tool in WRITING:
                assert "access 'write'" in await refusal(client, tool, user_id="ana")
        async with over_http(world, world.stranger) as client:
            assert texts(await call(client, "search_memories", query="secret")) == []
            assert texts(await call(client, "get_memories", filters={"user_id": "*"})) == []
            for tool in ("get_memory", "delete_memory"):
                assert "no memory" in await refusal(client, tool, memory_id=memory_id)
            gone = await call(client, "delete_all_memories", user_id="ana")
            assert gone["erased"]["text"] == 0
        async with over_http(world, world.app) as client:
            assert (await call(client, "get_memory", memory_id=memory_id))["version"] == 1

    asyncio.run(talk())
    assert world.served.request("POST", "/mcp", {})[0] == 401
    assert world.served.request("POST", "/mcp", {}, "wrong")[0] == 401
    for method in ("GET", "DELETE"):  # no server's events, no sessions
        assert world.served.request(method, "/mcp", key=world.app)[0] == 405


def rpc(method: str, identity: Any = 1, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": identity, "method": method, "params": params}


# Messages that no client sends, and the code of the error; 0 for a result, None for no answer.
ODD: list[tuple[Any, int | None]] = [
    (b"{", -32700),
    (b"\xff", -32700),
    (b'{"a":' * 10000, -32700),
    (b"[" * 100000, -32700),
    ([rpc("ping")], -32600),
    ("ping", -32600),
    ({}, -32600),
    ({"jsonrpc": "1.0", "id": 1, "method": "ping"}, -32600),
    (rpc("ping", None), -32600),
    (rpc("ping", 1.5), -32600),
    (rpc("ping", "one"), 0),
    (rpc("resources/list"), -32601),
    ({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": []}, -32602),
    (rpc("initialize"), -32602),
    (rpc("initialize", protocolVersion="1999-01-01"), 0),
    (rpc("tools/list", cursor="2"), -32602),
    (rpc("tools/call", name=7), -32602),
    (rpc("tools/call", name="add_memory", arguments="x"), -32602),
    ({"jsonrpc": "2.0", "method": "notifications/initialized"}, None),
    ({"jsonrpc": "2.0", "method": "no/such/thing"}, None),
    ({"jsonrpc": "2.0", "id": 1, "result": {}}, None),
]


def code_of(answer: dict[str, Any]) -> int:
    assert answer["jsonrpc"] == "2.0"
    assert ("result" in answer) != ("error" in answer)
    return int(answer["error"]["code"]) if "error" in answer else 0


def test_odd_messages_over_http(world: World) -> None:
    for message, expected in ODD:
        status, data = world.served.request("POST", "/mcp", message, world.app)
        if expected is None:
            assert (status, data) == (202, b"")
            continue
        assert code_of(json.loads(data)) == expected
        assert status == (400 if expected in (-32700, -32600) else 200)


def test_odd_messages_over_stdio(cli: Cli) -> None:
    lines = [m if isinstance(m, bytes) else json.dumps(m).encode() for m, _ in ODD]
    lines += [b"", b"  \r", b"[" + b" " * (5 << 20), json.dumps(rpc("ping", "last")).encode()]
    answers = [json.loads(line) for line in cli.ok("mcp", stdin=b"\n".join(lines)).out.splitlines()]
    expected = [code for _, code in ODD if code is not None]
    assert [code_of(answer) for answer in answers] == [*expected, -32700, 0]
    assert answers[-1]["id"] == "last"


def test_stdio_ends_when_it_is_told_to(cli: Cli) -> None:
    process = subprocess.Popen(
        [str(cli.binary), "mcp"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=cli.environment(),
        text=True,
    )
    assert process.stdin
    assert process.stdout
    process.stdin.write(json.dumps(rpc("ping")) + "\n")
    process.stdin.flush()
    assert code_of(json.loads(process.stdout.readline())) == 0
    process.send_signal(signal.SIGTERM)
    assert process.wait(TIMEOUT_S) == 0
    process.stdin.close()
    process.stdout.close()
