"""The gateway asked by Mem0's and OpenAI's own clients, with keys, and by odd bytes."""

import asyncio
import datetime
import importlib
import json
import math
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import openai
import pydantic
import pytest
from served import Served, make_key, serve

from cli import Cli


@dataclass
class World:
    served: Served
    cli: Cli
    admin: str  # of tenant default, as acme is what the others are of
    app: str
    reader: str
    stranger: str  # of another tenant


@pytest.fixture(scope="module")
def world(module_cli: Cli) -> Iterator[World]:
    with serve(module_cli, "--auth", "on") as served:
        yield World(
            served,
            module_cli,
            served.hello["admin_key"],
            make_key(module_cli, "--tenant", "acme", "--name", "app"),
            make_key(module_cli, "--tenant", "acme", "--access", "read"),
            make_key(module_cli, "--tenant", "other"),
        )


@pytest.fixture(scope="module")
def mem0(tmp_path_factory: pytest.TempPathFactory) -> Any:
    # Read when it is imported: it would report its use, and writes into the home directory.
    os.environ["MEM0_TELEMETRY"] = "False"
    os.environ["MEM0_DIR"] = str(tmp_path_factory.mktemp("mem0"))
    return importlib.import_module("mem0")


@pytest.fixture(scope="module")
def errors(mem0: Any) -> Any:
    return importlib.import_module("mem0.exceptions")


@pytest.fixture
def client(mem0: Any, world: World) -> Iterator[Any]:
    """Mem0's client; what a test leaves is deleted."""
    made = mem0.MemoryClient(api_key=world.app, host=world.served.url)
    yield made
    if made.users()["results"]:
        made.reset()


def texts(answer: dict[str, Any]) -> list[str]:
    return [one["memory"] for one in answer["results"]]


def test_mem0_client_remembers_and_forgets(client: Any, errors: Any) -> None:
    added = client.add(
        [
            {"role": "system", "content": "You are kind."},
            {"role": "user", "content": "I moved to Lisbon.", "name": "Ana"},
            {"role": "assistant", "content": "How nice!"},
        ],
        user_id="ana",
        metadata={"topic": "home"},
        expiration_date="2999-12-31",
    )
    assert [one["event"] for one in added["results"]] == ["ADD", "ADD"]
    assert client.add("I moved to Lisbon", user_id="bo")["results"][0]["event"] == "ADD"
    found = client.search("Where does she live?", filters={"user_id": "ana"}, top_k=1)
    assert texts(found) == ["I moved to Lisbon."]
    memory = found["results"][0]
    assert memory["user_id"] == "ana"
    assert memory["actor_id"] == "Ana"
    assert memory["metadata"] == {"topic": "home"}
    assert memory["expiration_date"] == "2999-12-31"
    assert 0.1 < memory["score"] <= 1
    fact = memory["id"]
    assert client.get(fact)["memory"] == "I moved to Lisbon."
    changed = client.update(fact, text="I moved to Porto.", metadata={"sure": True})
    assert changed["metadata"] == {"topic": "home", "sure": True}
    assert client.update(fact, expiration_date=None)["expiration_date"] is None
    assert [one["event"] for one in client.history(fact)] == ["ADD", "UPDATE"]
    gone = client.delete(fact)
    assert gone["message"] == "Memory deleted successfully"
    assert gone["erased"]["text"] == gone["erased"]["vector"] == gone["erased"]["history"] == 1
    assert [one["new_memory"] for one in client.history(fact)] == [None, None, None]
    for call in (client.get, client.delete):
        with pytest.raises(errors.MemoryNotFoundError):
            call(fact)


def test_mem0_client_lists_filters_and_batches(client: Any, errors: Any) -> None:
    for number in range(5):
        client.add(f"Ana's number is {number}", user_id="ana", metadata={"n": number})
    client.add("Bo speaks to the bot", user_id="bo", agent_id="bot")
    client.add("The bot is alone", agent_id="bot", run_id="r1")
    page = client.get_all(filters={"user_id": "ana"}, page=2, page_size=2)
    assert page["count"] == 5
    assert texts(page) == ["Ana's number is 2", "Ana's number is 1"]
    assert page["next"]
    assert len(client.get_all()["results"]) == 7
    wide = {"AND": [{"user_id": "*"}, {"NOT": [{"n": {"gte": 1}}]}]}
    assert sorted(texts(client.get_all(filters=wide))) == [
        "Ana's number is 0",
        "Bo speaks to the bot",
    ]
    some = {"OR": [{"metadata": {"n": 3}}, {"agent_id": "bot"}]}
    assert len(client.search("number", filters=some)["results"]) == 3
    assert client.search("number", filters={"user_id": "ana"}, threshold=0.99)["results"] == []
    ids = [one["id"] for one in page["results"]]
    client.batch_update([{"memory_id": one, "text": f"changed {one}"} for one in ids])
    assert client.get(ids[0])["memory"] == f"changed {ids[0]}"
    with pytest.raises(errors.MemoryNotFoundError):
        client.batch_delete([{"memory_id": ids[0]}, {"memory_id": "none"}])
    assert client.batch_delete([{"memory_id": one} for one in ids])["erased"]["text"] == 2
    kinds = {(one["type"], one["name"]): one["total_memories"] for one in client.users()["results"]}
    assert kinds == {
        ("user", "ana"): 3,
        ("user", "bo"): 1,
        ("agent", "bot"): 2,
        ("run", "r1"): 1,
    }
    with pytest.raises(errors.ValidationError):
        client.delete_all()
    assert client.delete_all(user_id="ana")["erased"]["text"] == 3
    client.delete_users(agent_id="bot")
    assert client.users()["count"] == 0


def test_mem0_client_has_facts_drawn_from_messages(client: Any) -> None:
    """What a small model draws, if anything, is not foretold; that it keeps to the form is."""
    said = [
        {"role": "user", "name": "Ana", "content": "I moved from Rome to Lisbon last week."},
        {"role": "assistant", "content": "How do you like it?"},
    ]
    results = client.add(said, user_id="ana", infer=True)["results"]
    kept = client.get_all(filters={"user_id": "ana"})["results"]
    assert len(kept) <= 16
    assert {one["id"] for one in results} == {one["id"] for one in kept}
    assert {one["event"] for one in results} <= {"ADD", "UPDATE", "NONE"}
    client.delete_all(user_id="ana")


def test_mem0_client_sees_its_own_errors(client: Any, mem0: Any, errors: Any, world: World) -> None:
    with pytest.raises(ValueError, match="key"):
        mem0.MemoryClient(api_key="wrong", host=world.served.url)
    with pytest.raises(errors.ValidationError, match="identifier"):
        client.add("x")
    with pytest.raises(errors.ValidationError, match="filter"):
        client.search("x", filters={"user_id": {"like": "a"}})
    with pytest.raises(errors.MemoryError, match="does not offer"):
        client.get_summary()
    reader = mem0.MemoryClient(api_key=world.reader, host=world.served.url)
    fact = client.add("Ana has a dog", user_id="ana")["results"][0]["id"]
    assert texts(reader.search("dog", filters={"user_id": "ana"})) == ["Ana has a dog"]
    with pytest.raises(errors.AuthenticationError):
        reader.add("x", user_id="ana")
    with pytest.raises(errors.AuthenticationError):
        reader.delete(fact)
    with pytest.raises(errors.AuthenticationError):
        reader.update(fact, text="x")
    stranger = mem0.MemoryClient(api_key=world.stranger, host=world.served.url)
    assert stranger.search("dog", filters={"user_id": "ana"})["results"] == []
    assert stranger.get_all(filters={"OR": [{"user_id": "*"}]})["count"] == 0
    with pytest.raises(errors.MemoryNotFoundError):
        stranger.get(fact)
    assert stranger.delete_all(user_id="ana")["erased"]["text"] == 0
    assert client.get(fact)["memory"] == "Ana has a dog"


def test_mem0_client_is_told_to_wait(mem0: Any, errors: Any, world: World) -> None:
    key = make_key(world.cli, "--tenant", "acme", "--per-minute", "2")
    limited = mem0.MemoryClient(api_key=key, host=world.served.url)  # the first request
    limited.users()
    with pytest.raises(errors.RateLimitError) as refused:
        limited.users()
    assert 0 < refused.value.debug_info["retry_after"] <= 30


def test_mem0_asynchronous_client(client: Any, mem0: Any, world: World) -> None:
    async def journey() -> list[str]:
        made = mem0.AsyncMemoryClient(api_key=world.app, host=world.served.url)
        await asyncio.gather(*(made.add(f"fact {n}", user_id="cy") for n in range(8)))
        return texts(await made.get_all(filters={"user_id": "cy"}))

    assert sorted(asyncio.run(journey())) == [f"fact {n}" for n in range(8)]


def test_openai_client_reads_what_mem0s_wrote(client: Any, world: World) -> None:
    client.add([{"role": "user", "content": "Ana moved to Lisbon."}], user_id="ana")

    def ask(key: str, **memory: Any) -> Any:
        return openai.OpenAI(
            base_url=world.served.url + "/v1", api_key=key, max_retries=0
        ).chat.completions.create(
            model="inferscale",
            messages=[{"role": "user", "content": "Where does Ana live?"}],
            max_tokens=12,
            extra_body={"memory": {"user": "ana", **memory}},
        )

    answer = ask(world.app)
    assert [one["text"] for one in answer.inferscale["facts"]] == ["Ana moved to Lisbon."]
    assert "Lisbon" in answer.choices[0].message.content
    assert ask(world.stranger).inferscale["facts"] == []
    assert len(ask(world.reader).inferscale["facts"]) == 1
    with pytest.raises(openai.PermissionDeniedError):
        ask(world.reader, remember=True)
    with pytest.raises(openai.AuthenticationError):
        ask("wrong")


def openai_client(world: World, key: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=world.served.url + "/v1", api_key=key, max_retries=0)


def test_openai_client_embeds(world: World) -> None:
    client = openai_client(world, world.reader)
    model = client.models.list().data[1].id
    texts = ["Ana has a cat.", "A cat is Ana's.", "The train is late."]
    made = client.embeddings.create(model=model, input=texts, encoding_format="float")
    assert made.model == model
    assert [one.index for one in made.data] == [0, 1, 2]
    vectors: list[list[float]] = [one.embedding for one in made.data]

    def cosine(a: int, b: int) -> float:
        return sum(x * y for x, y in zip(vectors[a], vectors[b], strict=True))

    assert cosine(0, 0) == pytest.approx(1, abs=1e-5)
    assert cosine(0, 1) > 0.8 > 0.4 > cosine(0, 2)
    # Without a format the client asks for base64, and decodes it.
    alone = client.embeddings.create(model="inferscale", input=texts[2])
    assert alone.data[0].embedding == pytest.approx(vectors[2], abs=1e-4)
    assert 3 < alone.usage.prompt_tokens < made.usage.total_tokens
    many = client.embeddings.create(model=model, input=[f"number {n}" for n in range(100)])
    assert len(many.data) == 100
    single = client.embeddings.create(model=model, input="number 70")
    assert many.data[70].embedding == pytest.approx(single.data[0].embedding, abs=1e-4)
    wrong: list[dict[str, Any]] = [
        {"input": [1, 2]},
        {"input": [[1, 2]]},
        {"input": ""},
        {"input": []},
        {"input": "x", "dimensions": 8},
        {"input": ["x"] * 2049},
        {"input": "x", "encoding_format": "int8"},
    ]
    for arguments in wrong:
        with pytest.raises(openai.BadRequestError):
            client.embeddings.create(model=model, **arguments)
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="other", input="x")
    with pytest.raises(openai.AuthenticationError):
        openai_client(world, "wrong").embeddings.create(model=model, input="x")


def test_openai_client_completes(world: World) -> None:
    client = openai_client(world, world.reader)
    prompt = "The capital of France is Paris. The capital of Italy is"

    def complete(**more: Any) -> Any:
        return client.completions.create(
            **{"model": "inferscale", "prompt": prompt, "max_tokens": 6, **more}
        )

    whole = complete()
    assert whole.object == "text_completion"
    assert "Rome" in whole.choices[0].text
    assert whole.choices[0].finish_reason == "length"
    assert whole.usage.completion_tokens == 6
    assert whole.usage.prompt_tokens < 20  # no template, no memories
    parts = list(complete(stream=True, stream_options={"include_usage": True}))
    assert "".join(one.choices[0].text for one in parts if one.choices) == whole.choices[0].text
    assert parts[-2].choices[0].finish_reason == "length"
    assert parts[-1].usage.prompt_tokens == whole.usage.prompt_tokens
    stopped = complete(stop="Rome", max_tokens=32)
    assert "Rome" not in stopped.choices[0].text
    assert stopped.choices[0].finish_reason == "stop"
    warm = [complete(temperature=1.5, seed=n, max_tokens=12).choices[0].text for n in (1, 1, 2)]
    assert warm[0] == warm[1] != warm[2]
    wrong: list[dict[str, Any]] = [
        {"prompt": ""},
        {"prompt": ["a", "b"]},
        {"prompt": [1, 2]},
        {"n": 9},
        {"best_of": 2},
        {"echo": True},
        {"suffix": "x"},
        {"logprobs": 6},
        {"max_tokens": 0},
        {"prompt": "word " * 20000},
        {"extra_body": {"memory": {"user": "ana"}}},
    ]
    for arguments in wrong:
        with pytest.raises(openai.BadRequestError):
            complete(**arguments)
    with pytest.raises(openai.NotFoundError):
        complete(model="other")


def chat(client: openai.OpenAI, question: str, **more: Any) -> Any:
    arguments = {"model": "inferscale", "max_tokens": 8, **more}
    return client.chat.completions.create(
        messages=[{"role": "user", "content": question}], **arguments
    )


def texts_of(parts: list[Any], choices: int) -> list[str]:
    """Of a stream."""
    out = [""] * choices
    for part in parts:
        for choice in part.choices:
            out[choice.index] += choice.delta.content or ""
    return out


def test_openai_client_gets_several_answers(world: World) -> None:
    client = openai_client(world, world.reader)
    ask = partial(chat, client, "Name an animal.")
    one = ask()
    alike = ask(n=2)
    assert [choice.index for choice in alike.choices] == [0, 1]
    assert {choice.message.content for choice in alike.choices} == {one.choices[0].message.content}
    assert alike.usage.prompt_tokens == one.usage.prompt_tokens
    assert alike.usage.completion_tokens == 2 * one.usage.completion_tokens
    warm = ask(n=3, temperature=1.5, seed=4)
    alone = ask(temperature=1.5, seed=4)
    answers = [choice.message.content for choice in warm.choices]
    assert answers[0] == alone.choices[0].message.content
    assert len(set(answers)) == 3
    assert warm.usage.prompt_tokens == one.usage.prompt_tokens
    assert 3 <= warm.usage.completion_tokens <= 24
    options = {"include_usage": True}
    parts = list(ask(n=3, temperature=1.5, seed=4, stream=True, stream_options=options))
    assert texts_of(parts, 3) == answers
    ends = [part.choices[0] for part in parts if part.choices and part.choices[0].finish_reason]
    assert [choice.index for choice in ends] == [0, 1, 2]
    assert parts[-1].usage == warm.usage
    assert texts_of(list(ask(n=2, stream=True)), 2) == [one.choices[0].message.content] * 2
    written = client.completions.create(
        model="inferscale", prompt="Once", n=3, temperature=1.5, max_tokens=6
    )
    assert len({choice.text for choice in written.choices}) > 1
    assert written.usage is not None
    assert written.usage.completion_tokens <= 18
    with pytest.raises(openai.BadRequestError, match="from 1 to 8"):
        ask(n=9)
    user = {"user": "ana", "remember": True}
    with pytest.raises(openai.BadRequestError, match="remember"):
        chat(openai_client(world, world.app), "Hi!", n=2, extra_body={"memory": user})


def test_openai_client_reads_logprobs(world: World) -> None:
    client = openai_client(world, world.reader)
    ask = partial(chat, client, "Name an animal.", logprobs=True, top_logprobs=3)
    said = ask().choices[0]
    content = said.logprobs.content
    assert b"".join(bytes(one.bytes) for one in content).decode() == said.message.content
    for one in content:
        assert one.logprob == one.top_logprobs[0].logprob <= 0  # without a temperature
        assert one.token == one.top_logprobs[0].token
        assert len(one.top_logprobs) == 3
        assert 0 < sum(math.exp(top.logprob) for top in one.top_logprobs) <= 1 + 1e-6
    streamed = [
        one
        for part in ask(stream=True)
        for choice in part.choices
        if choice.logprobs
        for one in choice.logprobs.content
    ]
    assert streamed == content
    assert chat(client, "Hi!").choices[0].logprobs is None
    prompt = "The capital of France is Paris. The capital of Italy is"
    made = client.completions.create(
        model="inferscale", prompt=prompt, max_tokens=6, logprobs=2, temperature=0
    ).choices[0]
    lists = made.logprobs
    assert lists is not None
    assert lists.tokens is not None
    assert lists.text_offset is not None
    assert lists.token_logprobs is not None
    assert lists.top_logprobs is not None
    assert "".join(lists.tokens) == made.text
    for i, token in enumerate(lists.tokens):
        assert made.text[lists.text_offset[i] :].startswith(token)
        assert lists.top_logprobs[i][token] == lists.token_logprobs[i]
        assert len(lists.top_logprobs[i]) == 2


def test_openai_client_gets_json(world: World) -> None:
    client = openai_client(world, world.reader)
    ask = partial(chat, client, "Give a JSON object with a cat's name.", max_tokens=80)
    for seed in range(3):
        formed = ask(response_format={"type": "json_object"}, temperature=0.5 * seed, seed=seed)
        text = formed.choices[0].message.content
        assert text.startswith("{")
        if formed.choices[0].finish_reason == "stop":
            assert isinstance(json.loads(text), dict)
        else:
            assert formed.usage.completion_tokens == 80
    plain = ask(response_format={"type": "text"}).choices[0].message.content
    assert plain == ask().choices[0].message.content


def test_openai_client_gets_json_by_a_schema(world: World) -> None:
    class Owner(pydantic.BaseModel):
        name: str
        born: datetime.date | None

    class Cat(pydantic.BaseModel):
        name: str = pydantic.Field(max_length=20)
        colour: Literal["black", "white", "red"]
        lives: int = pydantic.Field(ge=1, le=9)
        owners: list[Owner] = pydantic.Field(min_length=1, max_length=2)

    client = openai_client(world, world.reader)
    for seed in range(3):
        parsed = client.chat.completions.parse(
            model=world.served.model,
            messages=[{"role": "user", "content": "Tell me about a cat."}],
            response_format=Cat,
            temperature=0.5 * seed,
            seed=seed,
            max_tokens=400,
        )
        cat = parsed.choices[0].message.parsed
        assert isinstance(cat, Cat)
        assert 1 <= len(cat.owners) <= 2
    ask = partial(chat, client, "Give a cat's name.", max_tokens=60)
    for schema, word in (
        ({"type": "string", "pattern": "a+"}, "pattern"),
        ({"type": "animal"}, "type"),
        ({"$ref": "#"}, "grammar"),
    ):
        shape = {"type": "json_schema", "json_schema": {"name": "cat", "schema": schema}}
        with pytest.raises(openai.BadRequestError, match=word):
            ask(response_format=shape)


def test_openai_client_finds_its_requests(world: World) -> None:
    client = openai_client(world, world.reader)
    ask = partial(chat, client, "Hi!", max_tokens=2)
    assert ask(extra_headers={"X-Request-ID": "mine-7"})._request_id == "mine-7"
    made = ask()._request_id
    with pytest.raises(openai.BadRequestError) as wrong:
        ask(n=0)
    client.models.list()  # over the same connection, so that what was before is logged
    status, log = world.served.request("GET", "/v1/requests", key=world.reader)
    assert status == 200
    logged = [one["id"] for one in json.loads(log)["requests"]]
    first = logged.index(wrong.value.request_id)
    assert logged[first : first + 3] == [wrong.value.request_id, made, "mine-7"]


def test_keys_end_at_once(world: World) -> None:
    made = world.cli.json("keys", "create", "--tenant", "acme")

    def ping(key: str) -> int:
        return world.served.request("GET", "/v1/ping/", key=key)[0]

    assert ping(made["key"]) == 200
    rotated = world.cli.json("keys", "rotate", made["id"])
    assert (ping(made["key"]), ping(rotated["key"])) == (401, 200)
    assert world.cli.ok("keys", "revoke", made["id"]).out == f"{made['id']} is revoked\n"
    assert ping(rotated["key"]) == 401
    listed = world.cli.ok("keys", "list").out
    assert "revoked" in listed
    assert rotated["key"] not in listed
    assert world.cli("keys", "revoke", "none").code == 3
    status, data = world.served.request("GET", "/v1/keys", key=world.admin)
    assert status == 200
    assert made["id"] in [one["id"] for one in json.loads(data)["keys"]]
    assert world.served.request("GET", "/v1/keys", key=world.app)[0] == 403


def test_bytes_that_no_client_sends(world: World) -> None:
    def status(method: str, path: str, body: Any = None) -> int:
        return world.served.request(method, path, body, world.app)[0]

    def raw(data: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", world.served.port)) as connection:
            connection.sendall(data)
            got = b""
            while piece := connection.recv(65536):
                got += piece
            return got

    for body in (b"{", b"[]", b'{"a":' * 10000, b'{"query":"\xff"}', b'{"query":1e999}', b"\0"):
        assert status("POST", "/search", body) == 400
        assert status("POST", "/memories", body) == 400
    assert status("GET", "/memories?user_id=%ff") == 400
    for path in ("/../../etc/passwd", "/memories/..%2f..%2fx", "/memories/%00", "/%2e%2e", "//x"):
        assert status("GET", path) == 404
    assert status("DELETE", "/memories?user_id=*") == 400
    head = f"Host: x\r\nConnection: close\r\nAuthorization: Token {world.app}\r\n".encode()
    huge = raw(b"POST /memories HTTP/1.1\r\nContent-Length: 100000000\r\n" + head + b"\r\n")
    assert huge.split()[1] == b"413"
    assert raw(b"GET /health HTTP/1.1\r\nX: " + b"y" * 20000 + b"\r\n\r\n").split()[1] == b"431"
    injected = raw(b"GET /memories/%0d%0aSet-Cookie:%20x=1 HTTP/1.1\r\n" + head + b"\r\n")
    assert injected.split()[1] == b"404"
    assert b"Set-Cookie" not in injected
    twice = raw(
        b"GET /v1/ping HTTP/1.1\r\nHost: x\r\n\r\nGET /v1/ping HTTP/1.1\r\n" + head + b"\r\n"
    )
    assert twice.count(b"HTTP/1.1 401") == twice.count(b"HTTP/1.1 200") == 1
    assert status("GET", "/health") == 200
