"""The gateway's numbers, one measurement a command, as JSON.

    bench_server.py add      durable adds without a language model
    bench_server.py search   searches over many users
    bench_server.py delete   all facts of one user, with their KV
    bench_server.py chat     what the gateway adds to an answer beside the engine
    bench_server.py streams  /health while many streams are open
    bench_server.py soak     a mixed load; what answers were given must be what was told
    bench_server.py kill     kill -9 under load, then every acknowledged write is looked for
    bench_server.py floor    the loader by itself: /health/live

Options after -- go to `inferscale serve`. In the environment: INFERSCALE (the command),
INFERSCALE_MODEL, INFERSCALE_EMBED_MODEL, INFERSCALE_THREADS. Facts are made in a folder that is
deleted, or in --data, where the next run finds them. Exits with 1 if something was wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from server_load import Ask, Client, Load, drive, latencies
from server_process import Gateway, made_text, nothing_encodes, remember, serving
from server_soak import kill_under_load, soak

Result = dict[str, Any]


def driven(gateway: Gateway, args: argparse.Namespace, ask: Ask) -> Load:
    """The load that the options ask for."""
    return asyncio.run(drive(gateway.port, args.clients, args.seconds, ask, args.warm, args.rate))


def measure_floor(args: argparse.Namespace) -> Result:
    async def ask(number: int, client: Client) -> tuple[int, bytes]:
        return await client.request("GET", "/health/live")

    with serving(args.data, args.serve) as gateway:
        load = driven(gateway, args, ask)
    return load.summary()


def measure_add(args: argparse.Namespace) -> Result:
    numbers = iter(range(10**9))

    async def ask(number: int, client: Client) -> tuple[int, bytes]:
        body = {"messages": made_text(next(numbers)), "user_id": f"user-{number}"}
        return await client.request("POST", "/memories", body)

    with nothing_encodes(args.data), serving(args.data, args.serve) as gateway:
        load = driven(gateway, args, ask)
        return {**load.summary(), "memory_mib": gateway.memory_mib()}


def measure_search(args: argparse.Namespace) -> Result:
    remember(args.data, args.users, args.facts, encode=False)
    pick = random.Random(args.seed)
    wrong = 0

    async def ask(number: int, client: Client) -> tuple[int, bytes]:
        nonlocal wrong
        user = pick.randrange(args.users)
        text = made_text(user * args.facts + pick.randrange(args.facts))
        body = {"query": text, "user_id": f"user-{user}", "top_k": 10}
        status, data = await client.request("POST", "/search", body)
        wrong += status == 200 and text.encode() not in data
        return status, data

    with nothing_encodes(args.data), serving(args.data, args.serve) as gateway:
        load = driven(gateway, args, ask)
        return {
            "users": args.users,
            "facts_per_user": args.facts,
            **load.summary(),
            "wrong": wrong,  # the fact itself was asked for, and not among the answers
            "memory_mib": gateway.memory_mib(),
        }


def measure_delete(args: argparse.Namespace) -> Result:
    remember(args.data, 1, args.facts, encode=True)
    (args.data.parent / f"{args.data.name}.made").unlink()  # it will not be there any more

    async def ask(port: int) -> tuple[float, Any]:
        client = Client(port)
        before = (await client.json("POST", "/v3/memories", {"user_id": "user-0"}))["count"]
        began = time.perf_counter()
        erased = (await client.json("DELETE", "/memories?user_id=user-0"))["erased"]
        took = (time.perf_counter() - began) * 1e3
        after = (await client.json("POST", "/v3/memories", {"user_id": "user-0"}))["count"]
        return took, {"before": before, "after": after, "erased": erased}

    with serving(args.data, args.serve) as gateway:
        took, counts = asyncio.run(ask(gateway.port))
    left = counts["after"] != 0 or counts["erased"]["kv_records"] == 0
    return {"ms": round(took, 1), **counts, "wrong": int(left)}


def measure_chat(args: argparse.Namespace) -> Result:
    """The engine's part is what is left of `total_ms` without the steps before it."""
    remember(args.data, 1, args.facts, encode=True)
    steps: dict[str, list[float]] = {}
    injected: list[int] = []

    async def ask(client: Client, question: str) -> None:
        body = {
            "messages": [{"role": "user", "content": question}],
            "memory": {"user": "user-0", "k": args.facts, "mode": args.mode},
            "max_tokens": 1,
        }
        began = time.perf_counter()
        answer = (await client.json("POST", "/v1/chat/completions", body))["inferscale"]
        wall = (time.perf_counter() - began) * 1e3
        times = answer["times"]
        before = {name: times[name] for name in ("embed_ms", "search_ms", "compose_ms", "load_ms")}
        engine = times["total_ms"] - sum(before.values())
        for name, value in {
            "wall_ms": wall,
            "engine_ms": engine,
            "gateway_ms": wall - engine,
            **before,
            "rest_ms": wall - times["total_ms"],  # HTTP, JSON, the queue of the engine
        }.items():
            steps.setdefault(name, []).append(value)
        injected.append(answer["injected_tokens"])
        if len(answer["facts"]) != args.facts:
            raise SystemExit(f"{len(answer['facts'])} facts in the answer, not {args.facts}")

    async def ask_all(port: int) -> None:
        client = Client(port)
        pick = random.Random(args.seed)
        questions = [f"What about number {pick.randrange(10**6)}?" for _ in range(args.questions)]
        await ask(client, "Who?")  # the first one opens the user's index and reads KV from the disk
        steps.clear()
        for question in questions:
            await ask(client, question)

    with serving(args.data, args.serve) as gateway:
        asyncio.run(ask_all(gateway.port))
    return {
        "facts": args.facts,
        "questions": args.questions,
        "mode": args.mode,
        "injected_tokens": min(injected),  # of the answer with the fewest
        "wrong": int(args.mode == "kv" and min(injected) == 0),
        **{name: latencies(values) for name, values in steps.items()},
    }


def measure_streams(args: argparse.Namespace) -> Result:
    health = Load()
    ends: dict[str, int] = {}
    begun = 0

    async def listen(port: int, number: int) -> None:
        nonlocal begun
        body = {
            "messages": [{"role": "user", "content": f"Count to {number + 1000}, please."}],
            "max_tokens": args.tokens,
            "stream": True,
        }
        client = Client(port)
        end = "ended"
        first = True
        try:
            async for _ in client.events("/v1/chat/completions", body):
                begun += first
                first = False
        except (OSError, EOFError, RuntimeError) as error:
            end = str(error) or type(error).__name__
        except asyncio.CancelledError:
            end = "open until the end" if not first else "waited until the end"
        ends[end] = ends.get(end, 0) + 1

    async def run(port: int) -> None:
        streams = [asyncio.create_task(listen(port, n)) for n in range(args.streams)]
        await asyncio.sleep(min(1.0, args.seconds / 4))
        client = Client(port)
        began = time.perf_counter()
        while time.perf_counter() - began < args.seconds:
            await health.timed(client.request("GET", "/health"))
            await asyncio.sleep(args.every)
        health.seconds = time.perf_counter() - began
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)
        client.close()

    with serving(args.data, args.serve) as gateway:
        asyncio.run(run(gateway.port))
        memory = gateway.memory_mib()
    return {
        "streams": args.streams,
        "begun": begun,
        "stream_ends": ends,
        "health": health.summary(),
        "memory_mib": memory,
    }


def measure_soak(args: argparse.Namespace) -> Result:
    with serving(args.data, args.serve) as gateway:
        return asyncio.run(
            soak(gateway, args.clients, args.seconds, args.pause, args.facts, args.seed)
        )


def measure_kill(args: argparse.Namespace) -> Result:
    result = asyncio.run(
        kill_under_load(args.data, args.serve, args.kills, args.clients, args.seconds, args.seed)
    )
    return {**result, "wrong": result["lost"] + result["resurrected"]}


def parse(words: list[str]) -> argparse.Namespace:
    split = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name: str, measure: Any, **defaults: Any) -> None:
        sub = commands.add_parser(name)
        sub.set_defaults(measure=measure)
        sub.add_argument("--data", type=Path, help="data directory to make, or to use again")
        sub.add_argument("--out", type=Path, help="file for the JSON, which is printed anyway")
        sub.add_argument("--seed", type=int, default=1)
        for option, value in defaults.items():
            sub.add_argument(f"--{option}", type=type(value), default=value, help=f"({value})")

    command("floor", measure_floor, clients=64, seconds=10.0, warm=1.0, rate=0.0)
    command("add", measure_add, clients=64, seconds=30.0, warm=3.0, rate=0.0)
    command(
        "search",
        measure_search,
        clients=64,
        seconds=30.0,
        warm=3.0,
        users=1000,
        facts=50,
        rate=0.0,
    )
    command("delete", measure_delete, facts=800)
    command("chat", measure_chat, facts=50, questions=100, mode="kv")
    command("streams", measure_streams, streams=200, seconds=20.0, every=0.05, tokens=4000)
    command("soak", measure_soak, clients=32, seconds=600.0, pause=0.0, facts=40)
    command("kill", measure_kill, kills=10, clients=16, seconds=3.0)
    args = parser.parse_args(words[:split])
    args.serve = words[split + 1 :]
    return args


def main(words: list[str]) -> int:
    args = parse(words)
    with contextlib.ExitStack() as stack:
        if args.data is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="inferscale-bench-"))
            args.data = Path(folder) / "data"
        result = args.measure(args)
    about = {
        "bench": args.command,
        "clients": getattr(args, "clients", None),
        "serve": args.serve,
        "model": Path(os.environ.get("INFERSCALE_MODEL", "")).name,
        "threads": os.environ.get("INFERSCALE_THREADS"),
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "machine": platform.processor() or platform.machine(),
    }
    text = json.dumps({**about, **result}, indent=1)
    print(text)
    if args.out is not None:
        args.out.write_text(text + "\n")
    return 1 if result.get("wrong") else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
