"""`inferscale serve` before a real vLLM server: facts remembered, encoded, injected, forgotten."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from served import Served, serve

from cli import TIMEOUT_S, Cli

pytest.importorskip("vllm.v1")

CODE_WORDS = {"ana": "Zanzibar", "ben": "Mistletoe", "cleo": "Quartermaine"}
OTHER = [
    "The bicycle stands in the cellar of the old house.",
    "On Sunday we walked to the lake and it rained the whole way.",
    "The bakery on the corner closes at noon on Saturdays.",
]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_up(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()[-4000:]
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise AssertionError(f"vLLM did not come up: {log.read_text()[-4000:]}")


@contextmanager
def vllm_server(model: Path, kv: Path, log: Path) -> Iterator[str]:
    """vLLM's own OpenAI server with the connector; gives its address."""
    kv.mkdir(parents=True)
    settings = {"dir": str(kv), "device_bytes": 0, "host_bytes": 1 << 30, "capture_bytes": 1 << 28}
    transfer = {
        "kv_connector": "InferScaleConnector",
        "kv_role": "kv_both",
        "kv_connector_module_path": "inferscale.vllm.connector",
        "kv_connector_extra_config": settings,
    }
    port = _free_port()
    words = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    words += ["--host", "127.0.0.1", "--port", str(port), "--kv-transfer-config"]
    words += [json.dumps(transfer), "--enable-prompt-tokens-details", "--max-model-len", "2048"]
    words += ["--enforce-eager", "--block-size", "32"]
    with log.open("wb") as out:
        process = subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT)
    try:
        _wait_until_up(f"http://127.0.0.1:{port}", process, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)


@pytest.fixture(scope="module")
def world(
    vllm_model: Path, inferscale_bin: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Cli, Served]]:
    folder = tmp_path_factory.mktemp("gateway")
    (folder / "home").mkdir()
    with vllm_server(vllm_model, folder / "data" / "kv", folder / "vllm.log") as url:
        settings = {
            "INFERSCALE_URL": url,
            "INFERSCALE_EMBED_MODEL": os.environ["INFERSCALE_EMBED_MODEL"],
        }
        cli = Cli(inferscale_bin, folder / "data", folder / "home", settings)
        for user, word in CODE_WORDS.items():
            for text in (*OTHER, f"My cat's name is {word}."):
                cli.ok("add", "--user", user, text)
        cli.ok("encode")
        with serve(cli) as served:
            yield cli, served


def ask(served: Served, user: str, mode: str = "kv", **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "What is the name of my cat?"}]
    memory = {"user": user, "mode": mode}
    more = {"temperature": 0, "max_tokens": 16, **more}
    return served.chat(model=served.model, messages=messages, memory=memory, **more)


def texts(answer: dict[str, Any]) -> list[str]:
    return [choice["message"]["content"] for choice in answer["choices"]]


def test_everybody_is_answered_from_their_own_injected_facts(world: tuple[Cli, Served]) -> None:
    _, served = world
    for user, word in CODE_WORDS.items():
        answer = ask(served, user)
        about = answer["inferscale"]
        assert word in answer["choices"][0]["message"]["content"]
        assert about["injected_tokens"] > 0
        assert all(fact["injected"] for fact in about["facts"])
        assert {word in fact["text"] for fact in about["facts"]} == {True, False}
        cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert 0 < cached < answer["usage"]["prompt_tokens"]


def test_text_and_kv_read_the_same_prompt(world: tuple[Cli, Served]) -> None:
    _, served = world
    kv = ask(served, "ana")
    text = ask(served, "ana", mode="text")
    assert text["usage"]["prompt_tokens"] == kv["usage"]["prompt_tokens"]
    assert CODE_WORDS["ana"] in text["choices"][0]["message"]["content"]


def test_several_answers_have_seeds_of_their_own(world: tuple[Cli, Served]) -> None:
    _, served = world
    several = ask(served, "ana", n=3, temperature=1.5, seed=5)
    assert len(set(texts(several))) == 3
    assert several["inferscale"]["injected_tokens"] > 0
    alike = ask(served, "ana", n=2)
    assert len(texts(alike)) == 2
    assert len(set(texts(alike))) == 1


def test_logprobs_are_vllms(world: tuple[Cli, Served]) -> None:
    _, served = world
    answer = ask(served, "ana", logprobs=True, top_logprobs=3)
    places = answer["choices"][0]["logprobs"]["content"]
    assert "".join(one["token"] for one in places).strip() == texts(answer)[0].strip()
    for one in places:
        assert one["logprob"] == one["top_logprobs"][0]["logprob"] <= 0  # without a temperature
        assert len(one["top_logprobs"]) == 3


def test_answers_keep_to_json(world: tuple[Cli, Served]) -> None:
    _, served = world
    answer = ask(served, "ana", response_format={"type": "json_object"}, max_tokens=80)
    assert texts(answer)[0].startswith("{")
    if answer["choices"][0]["finish_reason"] == "stop":
        assert isinstance(json.loads(texts(answer)[0]), dict)
    names = list(CODE_WORDS.values())
    schema = {
        "type": "object",
        "properties": {"cat": {"enum": names}},
        "required": ["cat"],
        "additionalProperties": False,
    }
    shape = {"type": "json_schema", "json_schema": {"name": "cat", "schema": schema}}
    said = json.loads(texts(ask(served, "ana", response_format=shape, max_tokens=60))[0])
    assert list(said) == ["cat"]
    assert said["cat"] in names


def test_a_changed_fact_is_answered_anew(world: tuple[Cli, Served]) -> None:
    cli, served = world
    facts = cli.json("list", "--user", "ben")["facts"]
    old = next(fact for fact in facts if CODE_WORDS["ben"] in fact["text"])
    cli.ok("update", old["id"], "--text", "My cat's name is Persimmon.")
    cli.ok("encode")
    answer = ask(served, "ben")
    assert "Persimmon" in answer["choices"][0]["message"]["content"]
    assert CODE_WORDS["ben"] not in json.dumps(answer)


def test_what_was_deleted_is_not_injected(world: tuple[Cli, Served]) -> None:
    cli, served = world
    cli.ok("delete", "--user", "cleo", "--yes")
    answer = ask(served, "cleo")
    assert answer["inferscale"]["facts"] == []
    assert CODE_WORDS["cleo"] not in json.dumps(answer)
    assert CODE_WORDS["ana"] in ask(served, "ana")["choices"][0]["message"]["content"]
