"""From the question to the first token through `inferscale serve`: embedding, search, tokenising,
composition and HTTP included.

    python3 gateway.py --url http://127.0.0.1:8080 --out FILE [--facts 5 10 ...] [--users 8]
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import sys
import threading
import time
import urllib.parse
from pathlib import Path
from typing import Any

from conversation import questions
from vllm_engine import summary


class Gateway:
    def __init__(self, url: str, user: str) -> None:
        parts = urllib.parse.urlsplit(url)
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=120)
        self._user = user
        self._connection.request("GET", "/v1/models")
        self._model = json.loads(self._connection.getresponse().read())["data"][0]["id"]

    def ask(self, question: str, facts: int, mode: str) -> tuple[float, dict[str, Any]]:
        """ms to the first piece of text, and what the gateway says about the answer."""
        body = {
            "model": self._model,
            "messages": [{"role": "user", "content": question}],
            "stream": True,
            "max_tokens": 4,
            "temperature": 0,
            "memory": {"user": self._user, "mode": mode, "k": facts},
        }
        payload = json.dumps(body).encode()
        began = time.perf_counter()
        self._connection.request(
            "POST", "/v1/chat/completions", payload, {"Content-Type": "application/json"}
        )
        response = self._connection.getresponse()
        if response.status != 200:
            raise RuntimeError(f"{response.status}: {response.read()[:500]!r}")
        first_ms = 0.0
        about: dict[str, Any] = {}
        while line := response.readline():
            if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                continue
            event = json.loads(line[6:])
            about = event.get("inferscale") or about
            delta = (event.get("choices") or [{}])[0].get("delta", {})
            if first_ms == 0 and delta.get("content"):
                first_ms = (time.perf_counter() - began) * 1e3
        return first_ms, about


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--url", required=True)
    parser.add_argument("--user", default="bench")
    parser.add_argument("--out", required=True)
    parser.add_argument("--facts", type=int, nargs="+", default=[5, 10, 20, 50, 100, 200])
    parser.add_argument("--reps", type=int, default=25)
    parser.add_argument("--warm", type=int, default=60, help="questions before anything is timed")
    parser.add_argument("--users", type=int, default=8, help="at the same time, in the second part")
    args = parser.parse_args()
    asked = questions(4000)
    random.Random(1).shuffle(asked)
    results: dict[str, Any] = (
        json.loads(Path(args.out).read_text()) if Path(args.out).exists() else {}
    )

    gateway = Gateway(args.url, args.user)
    # Facts come to the device as they are asked for; what is measured is a server that has them.
    for number in range(args.warm):
        first_ms, _ = gateway.ask(asked.pop(), max(args.facts), "kv")
        if number % 10 == 0:
            print(f"warming, question {number}: {first_ms:.1f} ms", flush=True)
    rows: list[dict[str, Any]] = []
    results["gateway"] = rows
    for facts in args.facts:
        times: dict[str, list[float]] = {"kv": [], "text": []}
        about: dict[str, Any] = {}
        for number in range(args.reps + 3):
            for mode, taken in times.items():
                first_ms, told = gateway.ask(asked.pop(), facts, mode)
                if number >= 3:
                    taken.append(first_ms)
                    about[mode] = {name: one for name, one in told.items() if name != "facts"}
        row: dict[str, Any] = {"facts": facts, "last": about}
        for mode, taken in times.items():
            row[mode] = summary(taken)
        rows.append(row)
        text, kv = row["text"]["median"], row["kv"]["median"]
        print(
            f"{facts:4d} facts: text {text:8.1f} ms, kv {kv:7.1f} ms, {text / kv:.1f} x", flush=True
        )
        print("      ", json.dumps(about.get("kv", {}))[:600], flush=True)
        Path(args.out).write_text(json.dumps(results, indent=1) + "\n")

    taken_together: list[float] = []
    lock = threading.Lock()

    def one_user(mine: list[str]) -> None:
        own = Gateway(args.url, args.user)
        for number, question in enumerate(mine):
            first_ms, _ = own.ask(question, 50, "kv")
            with lock:
                if number > 0:
                    taken_together.append(first_ms)

    share = 26
    threads = [
        threading.Thread(target=one_user, args=([asked.pop() for _ in range(share)],))
        for _ in range(args.users)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results["gateway_concurrent"] = {"users": args.users, "facts": 50} | summary(taken_together)
    print(f"{args.users} users at once, 50 facts: {results['gateway_concurrent']}", flush=True)
    Path(args.out).write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
