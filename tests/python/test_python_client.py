"""The Python client against a gateway that runs."""

import asyncio
import http.server
import inspect
import json
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from inferscale.client import (
    AsyncInferScale,
    BadRequest,
    ConnectionFailed,
    Forbidden,
    InferScale,
    Message,
    NotFound,
    RateLimited,
    ServerError,
    TimedOut,
    Unauthorized,
    UnexpectedAnswer,
)
from inferscale.client.stream import StreamReader
from served import Served, make_key, serve

from cli import Cli


@pytest.fixture(scope="module")
def served(module_cli: Cli) -> Iterator[Served]:
    with serve(module_cli, "--auth", "on") as running:
        yield running


@pytest.fixture(scope="module")
def key(served: Served, module_cli: Cli) -> str:
    return make_key(module_cli, "--tenant", "acme")


@pytest.fixture
def memory(served: Served, key: str) -> Iterator[InferScale]:
    with InferScale(served.url, key=key) as client:
        yield client
        for entity in client.entities():
            if entity.type == "user":
                client.delete_all(user=entity.name)


def test_a_memory_lives_and_goes(memory: InferScale) -> None:
    when = datetime(2026, 3, 4, 5, 6, tzinfo=UTC)
    added = memory.add(
        "I moved to Lisbon.",
        speaker="Ana",
        user="ana",
        agent="bot",
        run="r1",
        metadata={"topic": "home"},
        when=when,
        expires=date(2999, 12, 31),
    )
    assert added.event == "ADD"
    kept = memory.get(added.id)
    assert kept.text == "I moved to Lisbon."
    assert (kept.user, kept.agent, kept.run, kept.speaker) == ("ana", "bot", "r1", "Ana")
    assert kept.metadata == {"topic": "home"}
    assert kept.said_at == when
    assert kept.expires == date(2999, 12, 31)
    assert kept.created_at.tzinfo is not None
    changed = memory.update(added.id, text="I moved to Porto.", metadata={"sure": True})
    assert changed.text == "I moved to Porto."
    assert changed.metadata == {"topic": "home", "sure": True}
    assert changed.version == kept.version + 1
    assert memory.delete(added.id).facts == 1
    assert [one.event for one in memory.history(added.id)] == ["ADD", "UPDATE", "DELETE"]
    assert {one.new_text for one in memory.history(added.id)} == {None}
    with pytest.raises(NotFound) as missing:
        memory.get(added.id)
    assert missing.value.status == 404
    assert "no memory" in missing.value.message


def test_many_are_listed_in_pages_and_searched(memory: InferScale) -> None:
    texts = [f"Ana's number is {number}" for number in range(5)]
    added = memory.add_many([*texts[:3], *(Message(text, "Ana") for text in texts[3:])], user="ana")
    assert [one.text for one in added] == texts
    assert memory.add(texts[0], user="ana").event == "NONE"
    memory.add("Bo likes tea", user="bo", metadata={"n": 1})
    page = memory.list(user="ana", page=2, page_size=2)
    assert (page.total, page.has_more, len(page.memories)) == (5, True, 2)
    assert not memory.list(user="ana", page=3, page_size=2).has_more
    assert sorted(one.text for one in memory.all()) == sorted([*texts, "Bo likes tea"])
    assert [one.text for one in memory.all(filters={"n": 1})] == ["Bo likes tea"]
    found = memory.search("What does Bo drink?", user="bo", k=1, explain=True)
    assert found[0].text == "Bo likes tea"
    assert found[0].score is not None
    assert found[0].score_details is not None
    assert found[0].score == pytest.approx(found[0].score_details["semantic"])
    assert memory.search("tea", user="bo", threshold=0.999) == []
    assert memory.search("number", filters={"n": {"gte": 1}})[0].user == "bo"
    assert memory.delete_all(user="ana").facts == 5


def test_all_goes_over_many_pages(memory: InferScale) -> None:
    memory.add_many([f"This is number {number}." for number in range(230)], user="cy")
    assert len({one.id for one in memory.all(user="cy")}) == 230


def test_chat_is_whole_or_in_parts(memory: InferScale) -> None:
    memory.add("Ana moved to Lisbon.", user="ana")
    whole = memory.chat("Where does Ana live?", user="ana", max_tokens=12)
    assert "Lisbon" in whole.text
    assert [fact.text for fact in whole.facts] == ["Ana moved to Lisbon."]
    assert whole.mode == "kv"
    assert whole.prompt_tokens > whole.injected_tokens
    assert whole.times["total_ms"] > 0
    with memory.stream("Where does Ana live?", user="ana", max_tokens=12) as stream:
        pieces = list(stream)
    assert len(pieces) > 1
    assert "".join(pieces) == stream.answer.text
    assert "Lisbon" in stream.answer.text
    assert [fact.id for fact in stream.answer.facts] == [fact.id for fact in whole.facts]
    assert stream.answer.prompt_tokens == whole.prompt_tokens
    dialogue = [
        {"role": "user", "content": "I am Bo. My dog is Rex."},
        {"role": "assistant", "content": "A fine name."},
        {"role": "user", "content": "What is my dog's name?"},
    ]
    memory.chat(dialogue, user="bo", remember=True, max_tokens=4)
    assert "What is my dog's name?" in [one.text for one in memory.all(user="bo")]
    assert memory.chat("Hello", max_tokens=2).facts == []
    plain = memory.chat("Where?", user="ana", mode="text", k=0, max_tokens=2)
    assert (plain.mode, plain.facts) == ("text", [])


def test_a_stream_that_is_left_is_no_answer(memory: InferScale) -> None:
    with memory.stream("Count to one thousand.", max_tokens=2000) as stream:
        for _ in stream:
            break
    with pytest.raises(RuntimeError, match="end"):
        _ = stream.answer
    assert memory.chat("Hello", max_tokens=2).text


def test_health_needs_no_key(served: Served) -> None:
    with InferScale(served.url) as anybody:
        health = anybody.health()
        assert (health.status, health.model) == ("ok", served.model)
        with pytest.raises(Unauthorized, match="key"):
            anybody.entities()


def test_errors_are_classes(memory: InferScale, served: Served, module_cli: Cli) -> None:
    with pytest.raises(BadRequest, match="identifier"):
        memory.add("nobody's")
    with pytest.raises(BadRequest):
        memory.delete_all()
    with pytest.raises(BadRequest), memory.stream("x", mode="other", user="ana"):
        pass
    reader = InferScale(
        served.url, key=make_key(module_cli, "--tenant", "acme", "--access", "read")
    )
    with reader, pytest.raises(Forbidden, match="write"):
        reader.add("x", user="ana")


def until_refused(ask: Callable[[], object]) -> RateLimited:
    """Asks until there is no more room; every second makes room for one."""
    for _ in range(1000):
        try:
            ask()
        except RateLimited as error:
            return error
    raise AssertionError("it was never refused")


def test_only_what_may_be_repeated_waits_its_turn(served: Served, module_cli: Cli) -> None:
    limited = make_key(module_cli, "--tenant", "limited", "--per-minute", "60")
    with InferScale(served.url, key=limited) as memory:
        assert until_refused(lambda: memory.add("Ana likes tea", user="ana")).retry_after == 1
        assert memory.search("tea", user="ana")
    with InferScale(served.url, key=limited, retries=0) as hasty:
        assert until_refused(hasty.entities).retry_after == 1


def test_no_answer_is_an_error_too(served: Served, key: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with InferScale(url, timeout=0.2) as client, pytest.raises(TimedOut):
            client.health()
    with InferScale(url, retries=1) as client, pytest.raises(ConnectionFailed):
        client.health()
    with InferScale(served.url + "/metrics", key=key) as elsewhere, pytest.raises(NotFound):
        elsewhere.health()


def test_asynchronous_client(served: Served, key: str) -> None:
    async def journey() -> None:
        async with AsyncInferScale(served.url, key=key) as memory:
            added = await asyncio.gather(
                *(memory.add(f"fact number {n}", user="cy") for n in range(8))
            )
            assert len({one.id for one in added}) == 8
            assert len([one async for one in memory.all(user="cy")]) == 8
            assert len(await memory.search("number", user="cy", k=3)) == 3
            assert (await memory.list(user="cy", page_size=5)).has_more
            async with await memory.stream("Which?", user="cy", max_tokens=4) as stream:
                text = "".join([piece async for piece in stream])
            assert stream.answer.text == text
            assert len(stream.answer.facts) == 8
            assert len((await memory.chat("Which?", user="cy", max_tokens=4)).facts) == 8
            with pytest.raises(NotFound):
                await memory.get("none")
            assert (await memory.delete_all(user="cy")).facts == 8
            assert (await memory.health()).status == "ok"

    asyncio.run(journey())


def chunk(text: str) -> bytes:
    choice = {"delta": {"content": text}, "finish_reason": None}
    return b"data: " + json.dumps({"choices": [choice]}, ensure_ascii=False).encode() + b"\n\n"


def test_a_stream_may_be_cut_anywhere() -> None:
    data = chunk("a\u2028b") + chunk("é") + b"data: [DONE]\n\n"
    for size in range(1, len(data)):
        reader = StreamReader()
        parts = [data[at : at + size] for at in range(0, len(data), size)]
        assert "".join(piece for part in parts for piece in reader.feed(part)) == "a\u2028bé"
        reader.end()


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b'data: {"error": {"message": "the engine failed"}}\n', ServerError),
        (b"data: nonsense\n", UnexpectedAnswer),
        (b"data: []\n", UnexpectedAnswer),
        (b'data: {"choices": [{}]}\n', UnexpectedAnswer),
        (chunk("a"), ConnectionFailed),
    ],
)
def test_a_stream_that_fails_says_so(data: bytes, error: type[Exception]) -> None:
    def read() -> None:
        reader = StreamReader()
        list(reader.feed(data))
        reader.end()

    with pytest.raises(error):
        read()


def test_both_clients_have_the_same_operations() -> None:
    def operations(client: type[Any]) -> dict[str, object]:
        return {
            name: getattr(thing, "__wrapped__", None)
            for name, thing in vars(client).items()
            if not name.startswith("_") and name != "all"
        }

    assert operations(InferScale) == operations(AsyncInferScale)


def test_help_shows_what_a_method_takes_and_gives(served: Served) -> None:
    with InferScale(served.url) as memory:
        shown = inspect.signature(memory.search)
        assert list(shown.parameters)[:2] == ["query", "user"]
        assert shown.return_annotation == "list[Memory]"
        assert "nearest" in (memory.search.__doc__ or "")
        assert inspect.signature(memory.stream).return_annotation == "ChatStream"


class CannedHealth(http.server.BaseHTTPRequestHandler):
    drop_next = False

    def do_GET(self) -> None:
        if self.drops():
            return
        names = ("model", "engine", "injection", "self_test", "quality")
        body = json.dumps({"status": self.path, **dict.fromkeys(names)}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        if not self.drops():
            self.send_error(500, "asked twice")

    def drops(self) -> bool:
        dropped = CannedHealth.drop_next
        CannedHealth.drop_next = False
        return dropped

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def unix_server(tmp_path: Path) -> Iterator[str]:
    path = str(tmp_path / "s")
    with socketserver.ThreadingUnixStreamServer(path, CannedHealth) as server:
        threading.Thread(target=server.serve_forever).start()
        yield path
        server.shutdown()


def test_a_unix_socket_is_asked(unix_server: str) -> None:
    async def ask() -> str:
        async with AsyncInferScale(uds=unix_server) as client:
            return (await client.health()).status

    with InferScale(uds=unix_server) as client:
        assert client.health().status == "/health"
    assert asyncio.run(ask()) == "/health"


def test_a_broken_connection_is_made_again_for_what_may_be_repeated(unix_server: str) -> None:
    with InferScale(uds=unix_server) as client:
        CannedHealth.drop_next = True
        assert client.health().status == "/health"
        CannedHealth.drop_next = True
        with pytest.raises(ConnectionFailed):
            client.add("I moved to Lisbon.", user="ana")
