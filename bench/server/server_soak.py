"""What must hold under a mixed load, and after `kill -9`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import quote

from server_load import Client, Load
from server_process import Gateway, serving

_TOPICS = ("garage", "safe", "garden gate", "archive", "boat house", "office", "attic", "cellar")
_SHARES = {"add": 6, "search": 8, "chat": 1, "delete": 3}
_MOST_WRONG = 20  # that are told of


def code_word(pick: random.Random) -> str:
    syllables = ("ba", "do", "fe", "gu", "ki", "lo", "ma", "ne", "pi", "ru", "sa", "to", "vu", "za")
    return "".join(pick.choice(syllables) for _ in range(5))


class Person:
    """A user, and what the gateway must know of it: that, and nothing of anybody else's."""

    def __init__(self, number: int, port: int, seed: int) -> None:
        self.name = f"soak-{number}"
        self._pick = random.Random(f"{seed} {number}")
        self._client = Client(port)
        self._facts: dict[str, str] = {}  # id: text
        self._said = 0
        self.wrong: list[str] = []
        self.read: Counter[str] = Counter()  # tokens of this user's prompts, and how they came in

    async def rest(self, seconds: float) -> None:
        """So long on average."""
        if seconds > 0:
            await asyncio.sleep(self._pick.expovariate(1 / seconds))

    async def act(self, loads: dict[str, Load], most_facts: int) -> None:
        kind = self._pick.choices(list(_SHARES), list(_SHARES.values()))[0]
        if not self._facts:
            kind = "add"
        elif len(self._facts) >= most_facts:
            kind = "delete"
        await getattr(self, f"_{kind}")(loads[kind])

    async def _add(self, load: Load) -> None:
        self._said += 1
        text = (
            f"The code word of {self.name} for the {self._pick.choice(_TOPICS)} number "
            f"{self._said} is {code_word(self._pick)}."
        )
        body = {"messages": text, "user_id": self.name}
        data = await load.timed(self._client.request("POST", "/memories", body))
        if data is not None:
            self._facts[json.loads(data)["results"][0]["id"]] = text

    async def _search(self, load: Load) -> None:
        fact, text = self._pick.choice(list(self._facts.items()))
        body = {"query": text, "user_id": self.name, "top_k": 5}
        data = await load.timed(self._client.request("POST", "/search", body))
        if data is None:
            return
        found = {one["id"]: one["memory"] for one in json.loads(data)["results"]}
        if fact not in found:
            self._say(f"a search for the text of {fact} did not find it")
        self._check_all_mine(found, "a search")

    async def _chat(self, load: Load) -> None:
        topic = self._pick.choice(_TOPICS)
        body = {
            "messages": [{"role": "user", "content": f"What is the code word for the {topic}?"}],
            "memory": {"user": self.name, "k": 1000},
            "max_tokens": 4,
        }
        data = await load.timed(self._client.request("POST", "/v1/chat/completions", body))
        if data is None:
            return
        answer = json.loads(data)
        used = {one["id"]: one["text"] for one in answer["inferscale"]["facts"]}
        self.read["prompt"] += answer["usage"]["prompt_tokens"]
        self.read["injected"] += answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        if missing := self._facts.keys() - used.keys():
            self._say(f"an answer was not given {len(missing)} of {len(self._facts)} facts")
        self._check_all_mine(used, "an answer")

    async def _delete(self, load: Load) -> None:
        fact = self._pick.choice(list(self._facts))
        data = await load.timed(self._client.request("DELETE", f"/memories/{quote(fact)}"))
        if data is not None:
            del self._facts[fact]

    def _check_all_mine(self, got: dict[str, str], what: str) -> None:
        for fact, text in got.items():
            if self._facts.get(fact) != text:
                self._say(f"{what} brought {fact}, which is not what {self.name} has")

    def _say(self, what: str) -> None:
        self.wrong.append(f"{self.name}: {what}")


async def soak(
    gateway: Gateway, clients: int, seconds: float, pause: float, most_facts: int, seed: int
) -> dict[str, Any]:
    loads = {kind: Load() for kind in _SHARES}
    people = [Person(number, gateway.port, seed) for number in range(clients)]
    began = time.perf_counter()
    memory: list[dict[str, float]] = []

    async def live(person: Person) -> None:
        while time.perf_counter() - began < seconds:
            await person.rest(pause)
            await person.act(loads, most_facts)

    async def watch() -> None:
        while True:
            second = round(time.perf_counter() - began, 1)
            memory.append({"second": second, **gateway.memory_mib()})
            await asyncio.sleep(max(1.0, seconds / 100))

    watching = asyncio.create_task(watch())
    await asyncio.gather(*(live(person) for person in people))
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching
    memory.append({"second": round(time.perf_counter() - began, 1), **gateway.memory_mib()})
    for load in loads.values():
        load.seconds = time.perf_counter() - began
    wrong = [text for person in people for text in person.wrong]
    return {
        "wrong": len(wrong),
        "wrong_first": wrong[:_MOST_WRONG],
        "errors": sum(
            count for load in loads.values() for end, count in load.ends.items() if end != "200"
        ),
        **{kind: load.summary() for kind, load in loads.items()},
        "tokens": dict(sum((person.read for person in people), Counter())),
        "memory_mib": memory,
    }


class Writer:
    """Adds, and deletes some; remembers what was acknowledged, and what may have happened."""

    def __init__(self, number: int, seed: int) -> None:
        self.name = f"writer-{number}"
        self._pick = random.Random(f"{seed} {number}")
        self.there: dict[str, str] = {}
        self.gone: set[str] = set()
        self.unknown: set[str] = set()  # deletions that nobody acknowledged
        self._said = 0

    async def write(self, port: int) -> None:
        """Until the connection breaks."""
        client = Client(port)
        with contextlib.suppress(OSError, EOFError):
            while True:
                if self.there and self._pick.random() < 0.2:
                    await self._delete(client)
                else:
                    await self._add(client)
        client.close()

    async def _add(self, client: Client) -> None:
        self._said += 1
        text = f"{self.name} wrote note {self._said} about {code_word(self._pick)}."
        body = {"messages": text, "user_id": self.name}
        answer = await client.json("POST", "/memories", body)
        self.there[answer["results"][0]["id"]] = text

    async def _delete(self, client: Client) -> None:
        fact = self._pick.choice(list(self.there))
        self.unknown.add(fact)
        del self.there[fact]
        await client.json("DELETE", f"/memories/{quote(fact)}")
        self.unknown.discard(fact)
        self.gone.add(fact)

    async def check(self, port: int) -> Counter[str]:
        client = Client(port)
        found: dict[str, str] = {}
        page, more = 1, True
        while more:
            path = f"/v3/memories?page={page}&page_size=1000"
            answer = await client.json("POST", path, {"user_id": self.name})
            found |= {one["id"]: one["memory"] for one in answer["results"]}
            page, more = page + 1, answer["next"] is not None
        client.close()
        # What was on its way when it was killed may be there; then it counts from now on.
        self.there |= {fact: found[fact] for fact in self.unknown & found.keys()}
        self.unknown.clear()
        result = Counter(
            acknowledged=len(self.there) + len(self.gone),
            lost=sum(found.get(fact) != text for fact, text in self.there.items()),
            resurrected=len(self.gone & found.keys()),
        )
        self.there |= found
        return result


async def kill_under_load(
    data: Path, options: list[str], rounds: int, clients: int, seconds: float, seed: int
) -> dict[str, Any]:
    pick = random.Random(seed)
    writers = [Writer(number, seed) for number in range(clients)]
    starts: list[float] = []
    results: list[dict[str, int]] = []
    for _ in range(rounds):
        with serving(data, options) as gateway:
            writing = asyncio.gather(*(writer.write(gateway.port) for writer in writers))
            await asyncio.sleep(seconds * pick.uniform(0.5, 1.5))
            gateway.kill()
            await writing
        began = time.perf_counter()
        with serving(data, options) as gateway:
            starts.append(round(time.perf_counter() - began, 2))
            counts: Counter[str] = Counter()
            for writer in writers:
                counts.update(await writer.check(gateway.port))
            results.append(dict(counts))
    return {
        "kills": rounds,
        "acknowledged": results[-1]["acknowledged"],
        "lost": sum(one["lost"] for one in results),
        "resurrected": sum(one["resurrected"] for one in results),
        "start_seconds": starts,
    }
