"""The gateway with the real embedded engine, over HTTP; and by OpenAI's client."""

import json
import re
import select
import socket
import time
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from served import Served, serve

from cli import TIMEOUT_S, Cli


@pytest.fixture(scope="module")
def served(module_cli: Cli) -> Iterator[Served]:
    for text in ("Ana moved to Lisbon in May.", "Ana has a cat called Miso."):
        assert module_cli("add", text, "--speaker", "Ana", "--user", "ana").code == 0
    with serve(module_cli) as running:
        yield running


def ask(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def test_answers_from_injected_memory(served: Served) -> None:
    question = ask("Where does Ana live?")
    deadline = time.monotonic() + TIMEOUT_S
    while True:  # the background encodes
        answer = served.chat(messages=question, memory={"user": "ana"}, max_tokens=16)
        if all(fact["injected"] for fact in answer["inferscale"]["facts"]):
            break
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert len(answer["inferscale"]["facts"]) == 2
    assert "Lisbon" in answer["choices"][0]["message"]["content"]
    usage = answer["usage"]
    assert (
        usage["prompt_tokens_details"]["cached_tokens"] == answer["inferscale"]["injected_tokens"]
    )
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    text = served.chat(messages=question, memory={"user": "ana", "mode": "text"}, max_tokens=16)
    assert text["usage"]["prompt_tokens"] == usage["prompt_tokens"]
    assert text["inferscale"]["injected_tokens"] == 0
    assert served.chat(messages=question, max_tokens=4)["inferscale"]["facts"] == []


def test_streams_and_remembers(served: Served, module_cli: Cli) -> None:
    body = {"messages": ask("My dog is called Rex."), "stream": True, "max_tokens": 8}
    status, data = served.request(
        "POST", "/v1/chat/completions", {**body, "memory": {"user": "bo", "remember": True}}
    )
    assert status == 200
    events = re.findall(r"^data: (.*)$", data.decode(), re.M)
    assert events[-1] == "[DONE]"
    chunks = [json.loads(event) for event in events[:-1]]
    assert chunks[-1]["choices"][0]["finish_reason"] in ("stop", "length")
    assert chunks[-1]["inferscale"]["mode"] == "kv"
    found = module_cli("search", "dog", "--user", "bo", "-o", "json")
    assert "Rex" in found.out


def test_a_reader_who_leaves_frees_the_model(served: Served) -> None:
    body = json.dumps(
        {"messages": ask("Count to one thousand."), "stream": True, "max_tokens": 4000}
    )
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
        "Content-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    leavers = []
    for _ in range(4):  # twice as many as there are slots
        leaver = socket.create_connection(("127.0.0.1", served.port))
        leaver.sendall((head + body).encode())
        leavers.append(leaver)
    answered, _, _ = select.select(leavers, [], [], TIMEOUT_S)
    assert answered[0].recv(100).startswith(b"HTTP/1.1 200")
    for leaver in leavers:
        leaver.close()
    assert served.chat(messages=ask("Hello"), max_tokens=2)["choices"]


def test_an_addition_is_done_later(served: Served) -> None:
    body = {"messages": "Cy has a boat called Nora.", "user_id": "cy", "async_mode": True}
    for more in ({}, {"infer": True}):
        status, data = served.request("POST", "/v3/memories/add/", {**body, **more})
        assert status == 200
        put = json.loads(data)
        assert put["status"] == "PENDING"
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            event = json.loads(served.request("GET", f"/v1/event/{put['event_id']}/")[1])
            if event["status"] not in ("PENDING", "RUNNING"):
                break
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert event["status"] == "SUCCEEDED", event
    found = served.request("POST", "/v3/memories/search/", {"query": "boat", "user_id": "cy"})
    assert "Nora" in json.loads(found[1])["results"][0]["memory"]
    assert served.request("GET", "/v1/event/nothing/")[0] == 404


def test_errors_and_routes(served: Served) -> None:
    assert json.loads(served.request("GET", "/v1/models")[1])["data"][0]["id"] == served.model
    assert json.loads(served.request("GET", "/health")[1])["injection"] is True
    status, data = served.request("POST", "/v1/chat/completions", {"messages": []})
    assert status == 400
    assert json.loads(data)["error"]["type"] == "invalid_request_error"


def test_only_this_machine_is_served(cli: Cli) -> None:
    refused = cli("serve", "--host", "0.0.0.0")
    assert refused.code == 2
    assert "inferscale keys create" in refused.err
    refused = cli("serve", "--host", "0.0.0.0", "--auth", "off")
    assert refused.code == 2
    assert "--auth off" in refused.err


def test_openai_client(served: Served) -> None:
    client = openai.OpenAI(base_url=served.url + "/v1", api_key="none", max_retries=0)
    assert client.models.list().data[0].id == served.model
    memory = {"memory": {"user": "ana"}}
    answer = client.chat.completions.create(
        model=served.model,
        messages=ask("Where does Ana live?"),
        max_tokens=16,
        extra_body=memory,
    )
    assert "Lisbon" in answer.choices[0].message.content
    assert answer.usage.prompt_tokens_details.cached_tokens > 0
    assert len(answer.inferscale["facts"]) == 2
    text = ""
    usage: Any = None
    for chunk in client.chat.completions.create(
        model=served.model,
        messages=ask("Where does Ana live?"),
        max_tokens=16,
        stream=True,
        stream_options={"include_usage": True},
        extra_body=memory,
    ):
        usage = chunk.usage or usage
        text += chunk.choices[0].delta.content or "" if chunk.choices else ""
    assert text == answer.choices[0].message.content
    assert usage.prompt_tokens == answer.usage.prompt_tokens
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="other", messages=ask("x"))
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model=served.model, messages=ask("x"), n=1000)
