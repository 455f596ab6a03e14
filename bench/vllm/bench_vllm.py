"""InferScale in vLLM: time to the first token, throughput, decoding, beside vLLM without it.

    python3 bench_vllm.py PART [PART ...] --model FOLDER --out FILE [options]

Parts: check, latency, host, throughput, sweep, decode, decode-plain, store. Results of all runs
with the same --out are kept together. run.sh calls it; docs/vllm.md says how to read the numbers.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("VLLM_USE_FLASHINFER_SAMPLER", "0")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")

from vllm_engine import Engine, Fact, First, Request, Tokens, inject, interleave, summary

TENANT = "bench"
FACT_TOKENS = 32


class Bench:
    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.random = random.Random(args.seed)
        self.results: dict[str, Any] = {}
        self._engine: tuple[tuple[bool, dict[str, Any]], Engine] | None = None
        if Path(args.out).exists():
            self.results = json.loads(Path(args.out).read_text())

    def save(self) -> None:
        self.results |= headline(self.results)
        Path(self.args.out).write_text(json.dumps(self.results, indent=1) + "\n")

    def say(self, text: str) -> None:
        print(f"[{time.perf_counter():7.1f}] {text}", flush=True)

    def name(self, part: str) -> str:
        words = [part, self.args.cudagraph or "default", self.args.kv_dtype]
        return " ".join(word for word in words if word)

    # ---- what is asked --------------------------------------------------------------------------
    def tokens(self, count: int) -> Tokens:
        return [self.random.randrange(1000, self.args.vocab) for _ in range(count)]

    def facts(self, count: int, tokens: int = FACT_TOKENS) -> list[Fact]:
        made = []
        for _ in range(count):
            ids = tuple(self.tokens(tokens))
            made.append(Fact(hashlib.sha256(repr(ids).encode()).hexdigest()[:32], ids))
        return made

    def engine(self, connector: bool = True, **extra: Any) -> Engine:
        """The one that runs, if it is what is asked for."""
        wanted = (connector, extra)
        if self._engine is not None and self._engine[0] == wanted:
            return self._engine[1]
        self.stop()
        self._engine = (wanted, self._start(connector, extra))
        return self._engine[1]

    def stop(self) -> None:
        if self._engine is not None:
            self._engine[1].stop()
        self._engine = None

    def _start(self, connector: bool, extra: dict[str, Any]) -> Engine:
        args = self.args
        options: dict[str, Any] = {
            "load_format": args.load_format,
            "skip_tokenizer_init": True,
            "max_model_len": args.max_len,
            "max_num_seqs": 256,
            "gpu_memory_utilization": args.memory,
        }
        if args.cudagraph:
            options["compilation_config"] = {"cudagraph_mode": args.cudagraph}
        if args.kv_dtype:
            options["kv_cache_dtype"] = args.kv_dtype
        options |= json.loads(args.llm)
        config = {
            "dir": args.store,
            "device_bytes": args.device_gib << 30,
            "host_bytes": args.host_gib << 30,
            "capture_bytes": 2 << 30,
        } | extra
        if args.plugin:
            config["plugin"] = args.plugin
        engine = Engine(args.model, config if connector else None, **options)
        self.say(f"engine up in {engine.start_s:.1f} s")
        self.results.setdefault("engine_start_s", []).append(round(engine.start_s, 1))
        if connector:
            info = engine.self_test()
            self.results["info"] = info
            self.say(
                f"self-test {info['self_test']['state']}, worst {info['self_test'].get('worst')}"
            )
        return engine

    def encode(self, engine: Engine, users: Sequence[Sequence[Fact]]) -> None:
        began = time.perf_counter()
        for user in users:  # one by one: what is captured has to fit until it is stored
            engine.encode(TENANT, user, [])
            self.wait_stored(engine, [user])
        count = sum(len(user) for user in users)
        self.say(f"{count} facts encoded and stored in {time.perf_counter() - began:.1f} s")

    def wait_stored(self, engine: Engine, users: Sequence[Sequence[Fact]]) -> None:
        """Until a plan of every user's facts is taken whole."""
        deadline = time.perf_counter() + self.args.patience
        for user in users:
            while True:
                tokens, plan = inject(TENANT, user)
                got = engine.first_token([*tokens, 7], plan, self.salt())
                if got.cached >= len(tokens):
                    break
                if time.perf_counter() > deadline:
                    raise RuntimeError(
                        f"{got.cached} of {len(tokens)} tokens were taken; {engine.counters()}"
                    )
                time.sleep(0.2)

    def wait_captured(self, engine: Engine) -> None:
        while engine.tell({"op": "info"}, [100])["tier"].get("captures_waiting", 0):
            time.sleep(0.05)

    def salt(self) -> str:
        """Of a request that shall find nothing in vLLM's own prefix cache."""
        return f"s{self.random.getrandbits(64):x}"

    def measure(
        self, arms: dict[str, Callable[[], First]], expected: dict[str, int]
    ) -> dict[str, Any]:
        out: dict[str, Any] = {}
        taken = interleave(arms, self.args.reps, self.random.shuffle, warm=3)
        for name, firsts in taken.items():
            wrong = [f.cached for f in firsts if f.cached != expected[name]]
            if wrong:
                raise RuntimeError(f"{name}: {wrong[0]} tokens not computed, not {expected[name]}")
            ttft = summary([f.ttft_ms for f in firsts])
            step = round(statistics.median(f.step_ms for f in firsts), 3)
            out[name] = ttft | {"step_ms": step}
            self.say(
                f"  {name:22s} {ttft['median']:8.2f} ms [{ttft['p10']:.2f}..{ttft['p90']:.2f}], "
                f"step on the GPU {step:.2f}"
            )
        return out

    def check(self) -> None:
        """Injected KV that was captured from the same tokens against vLLM's own prefix cache."""
        engine = self.engine(model_id="random weights, drawn again")
        engine.llm.collective_rpc("bench_reinit", args=(self.args.seed,))
        info = engine.self_test()
        self.say(f"self-test with large weights: worst {info['self_test']['worst']}")
        out: dict[str, Any] = {"self_test": info["self_test"]}
        self.results["check"] = out
        size, question = self.args.sizes[0], self.tokens(self.args.question)
        facts = self.facts(size // FACT_TOKENS)
        self.encode(engine, [facts])
        tokens, plan = inject(TENANT, facts)
        prompt, shared = [*tokens, *question], self.salt()
        engine.first_token([*tokens, *self.tokens(len(question))], None, shared)
        hit = engine.answer(prompt, 32, None, shared)
        others = {
            "hit again": engine.answer(prompt, 32, None, shared),
            "full prefill": engine.answer(prompt, 32, None, self.salt()),
            "injected": engine.answer(prompt, 32, plan, self.salt()),
        }
        engine.noop(True)
        others["claimed, nothing copied"] = engine.answer(prompt, 32, plan, self.salt())
        engine.noop(False)
        for name, (ids, best, cached) in others.items():
            same = next((i for i, (a, b) in enumerate(zip(ids, hit[0], strict=True)) if a != b), 32)
            apart = max(
                (
                    abs(value - hit[1][i][token])
                    for i in range(min(same + 1, 32))
                    for token, value in best[i].items()
                    if token in hit[1][i]
                ),
                default=None,
            )
            out[name] = {
                "same_tokens": same,
                "of": 32,
                "max_logprob_apart": apart,
                "cached": cached,
            }
            self.say(f"  {name:24s} {out[name]}")
        self.save()

    def ask(
        self,
        engine: Engine,
        memory: Tokens,
        plan: dict[str, Any] | None = None,
        salt: str | None = None,
    ) -> First:
        """Behind `memory` a question that nobody has asked before."""
        prompt = [*memory, *self.tokens(self.args.question)]
        return engine.first_token(prompt, plan, salt or self.salt())

    def ask_about(self, engine: Engine, facts: Sequence[Fact]) -> First:
        """In another order each time, so that vLLM's own cache has none of it."""
        tokens, plan = inject(TENANT, self.random.sample(facts, len(facts)))
        return self.ask(engine, tokens, plan, engine.salt(plan))

    # ---- parts ----------------------------------------------------------------------------------
    def latency(self) -> None:
        engine = self.engine()
        out: dict[str, Any] = self.results.setdefault(self.name("latency"), {})
        for size in self.args.sizes:
            out[str(size)] = self.latency_of(engine, size)
            self.save()

    def latency_of(self, engine: Engine, size: int) -> dict[str, Any]:
        facts = self.facts(size // FACT_TOKENS)
        self.encode(engine, [facts])
        prefix, shared = self.tokens(size), self.salt()
        self.ask(engine, prefix, None, shared)

        def injected(noop: bool) -> First:
            engine.noop(noop)
            first = self.ask_about(engine, facts)
            engine.noop(False)
            return first

        self.say(f"{size} + {self.args.question} tokens, {len(facts)} facts")
        return self.measure(
            {
                "question alone": lambda: self.ask(engine, []),
                "prefix-cache hit": lambda: self.ask(engine, prefix, None, shared),
                "full prefill": lambda: self.ask(engine, self.tokens(size)),
                "injected": lambda: injected(False),
                "injected, no copies": lambda: injected(True),
            },
            {
                "question alone": 0,
                "prefix-cache hit": size,
                "full prefill": 0,
                "injected": size,
                "injected, no copies": size,
            },
        )

    def host(self) -> None:
        """From pinned host memory: the device's budget holds one of two users' facts at a time."""
        size = self.args.sizes[0]
        bytes_needed = size * self.args.token_bytes
        engine = self.engine(device_bytes=bytes_needed * 5 // 4)
        users = [self.facts(size // FACT_TOKENS) for _ in range(2)]
        self.encode(engine, users)
        turn = [0]

        def injected() -> First:
            turn[0] ^= 1
            return self.ask_about(engine, users[turn[0]])

        self.say(f"{size} + {self.args.question} tokens from host memory")
        self.results.setdefault("host", {})[str(size)] = self.measure(
            {
                "from pinned host memory": injected,
                "full prefill": lambda: self.ask(engine, self.tokens(size)),
            },
            {"from pinned host memory": size, "full prefill": 0},
        )
        self.save()

    def traffic(self, engine: Engine) -> Callable[[str, int], Request]:
        """What users ask about the same number of facts each, in every way of remembering them."""
        size, question = self.args.sizes[0], self.args.question
        users = [self.facts(size // FACT_TOKENS) for _ in range(self.args.users)]
        self.encode(engine, users)
        prefix, shared = self.tokens(size), self.salt()
        engine.first_token([*prefix, *self.tokens(question)], None, shared)

        def request(arm: str, number: int) -> Request:
            if arm.startswith("injected"):
                # Another order each time, so that vLLM's own cache has none of it.
                facts = users[number % len(users)]
                tokens, plan = inject(TENANT, self.random.sample(facts, len(facts)))
                return [*tokens, *self.tokens(question)], plan, engine.salt(plan)
            if arm == "one shared cached prefix":
                return [*prefix, *self.tokens(question)], None, shared
            return self.tokens(question if arm == "question alone" else size + question), None, None

        return request

    def throughput(self) -> None:
        args = self.args
        engine = self.engine()
        request = self.traffic(engine)
        arms = [
            "text",
            "injected",
            "injected, no copies",
            "one shared cached prefix",
            "question alone",
        ]
        rates: dict[str, list[float]] = {arm: [] for arm in arms}
        for number in range(args.rounds + 1):
            self.random.shuffle(arms)
            for arm in arms:
                engine.noop(arm.endswith("no copies"))
                made = [request(arm, i) for i in range(args.requests)]
                rate = engine.all_at_once(made, args.output)
                engine.noop(False)
                if number > 0:
                    rates[arm].append(round(rate, 2))
        name = self.name("throughput")
        out = self.results.setdefault(name, {})
        for arm, values in rates.items():
            out[arm] = {"requests_per_s": round(statistics.median(values), 2), "all": values}
            rate = statistics.median(values)
            ratio = rate / statistics.median(rates["text"])
            self.say(f"  {arm:26s} {rate:7.1f} requests/s, {ratio:.2f} x text {values}")
        out["counters"] = engine.counters()
        self.save()

    def sweep(self) -> None:
        """Requests that come at random, ever more of them a second, until an arm can't follow."""
        args = self.args
        engine = self.engine()
        request = self.traffic(engine)
        out: dict[str, Any] = self.results.setdefault(self.name("sweep"), {})
        open_arms = ["text", "injected"]
        for rate in args.rates:
            for arm in list(open_arms):
                at = 0.0
                requests: list[tuple[float, Request]] = []
                while (at := at + self.random.expovariate(rate)) < args.seconds:
                    requests.append((at, request(arm, len(requests))))
                first_ms, seconds = engine.open_loop(requests, args.output)
                answered = len(requests) / seconds
                out.setdefault(arm, {})[str(rate)] = summary(first_ms) | {
                    "answered_per_s": round(answered, 2)
                }
                self.say(
                    f"  {arm:10s} {rate:6.1f}/s came, {answered:6.1f}/s answered: "
                    f"{out[arm][str(rate)]}"
                )
                # The last answers come after the last request, however fast it is.
                if statistics.median(first_ms) > 2000:
                    open_arms.remove(arm)
        self.save()

    def decode(self, connector: bool = True) -> None:
        """Output tokens per second of requests without memory."""
        args = self.args
        engine = self.engine(connector)
        rates = []
        for _ in range(args.rounds * 2 + 1):
            made = [(self.tokens(64), None, None) for _ in range(64)]
            rates.append(engine.all_at_once(made, 256) * 256)
        rates = [round(rate) for rate in rates[1:]]
        name = "with the connector" if connector else "without the connector"
        self.results.setdefault("decode", {}).setdefault(name, []).extend(rates)
        self.say(f"decode {name}: {statistics.median(rates):.0f} tokens/s {rates}")
        self.save()

    def store(self) -> None:
        """The same question against a store with many more facts in it."""
        engine = self.engine()
        size = self.args.sizes[0]
        facts = self.facts(size // FACT_TOKENS)
        self.encode(engine, [facts])
        out = self.results.setdefault("store", {})
        stored = len(facts)
        for goal in (1000, self.args.store_facts):
            began = time.perf_counter()
            while stored < goal:
                # One token a fact: it is their number that is asked about, not their bytes.
                few = self.facts(min(1024, goal - stored), 1)
                engine.encode(TENANT, few, [])
                self.wait_captured(engine)
                stored += len(few)
            self.wait_stored(engine, [facts])
            self.say(f"{stored} facts in the store after {time.perf_counter() - began:.1f} s")
            out[str(stored)] = self.measure(
                {"injected": lambda: self.ask_about(engine, facts)},
                {"injected": size},
            )
            self.save()


def headline(results: dict[str, Any]) -> dict[str, Any]:
    """The few numbers that others look for, out of the first run of each part."""
    out: dict[str, Any] = {}
    sizes: dict[str, Any] = next((v for k, v in results.items() if k.startswith("latency ")), {})
    out["ttft"] = [
        {
            "facts": int(size) // FACT_TOKENS,
            "full_ms": arms["full prefill"]["median"],
            "prefix_hit_ms": arms["prefix-cache hit"]["median"],
            "kv_ms": arms["injected"]["median"],
        }
        for size, arms in sizes.items()
    ]
    arms: dict[str, Any] = next((v for k, v in results.items() if k.startswith("throughput ")), {})
    if arms:
        out["throughput"] = {
            "text_rps": arms["text"]["requests_per_s"],
            "kv_rps": arms["injected"]["requests_per_s"],
        }
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="+")
    parser.add_argument("--model", required=True, help="folder of a Hugging Face model")
    parser.add_argument("--out", required=True)
    parser.add_argument("--store", required=True, help="folder for the KV store")
    parser.add_argument("--plugin", help="libinferscale_cuda.so")
    parser.add_argument("--load-format", default="dummy", help="dummy: random weights")
    parser.add_argument("--cudagraph", default="", help="vLLM's cudagraph_mode, e.g. FULL")
    parser.add_argument("--kv-dtype", default="", help="vLLM's kv_cache_dtype, e.g. fp8")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1600, 4096, 16384])
    parser.add_argument("--question", type=int, default=64)
    parser.add_argument("--output", type=int, default=50)
    parser.add_argument("--users", type=int, default=100)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument(
        "--rates", type=float, nargs="+", default=[5, 10, 20, 40, 80, 120], help="requests a second"
    )
    parser.add_argument("--seconds", type=float, default=10, help="of arrivals at every rate")
    parser.add_argument("--store-facts", type=int, default=100_000)
    parser.add_argument("--reps", type=int, default=25)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--max-len", type=int, default=17408)
    parser.add_argument("--memory", type=float, default=0.6, help="vLLM's gpu_memory_utilization")
    parser.add_argument("--vocab", type=int, default=49152)
    parser.add_argument("--device-gib", type=int, default=28)
    parser.add_argument("--host-gib", type=int, default=8)
    parser.add_argument("--token-bytes", type=int, default=131072, help="KV of one token")
    parser.add_argument(
        "--patience", type=float, default=180, help="seconds for facts to be stored"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--llm", default="{}", help="further arguments of LLM(), JSON")
    args = parser.parse_args()
    bench = Bench(args)
    run = {
        "check": bench.check,
        "latency": bench.latency,
        "host": bench.host,
        "throughput": bench.throughput,
        "sweep": bench.sweep,
        "decode": bench.decode,
        "decode-plain": lambda: bench.decode(connector=False),
        "store": bench.store,
    }
    for part in args.parts:
        if part not in run:
            parser.error(f"{part} is none of {', '.join(run)}")
    import torch
    import vllm

    bench.results["versions"] = {
        "vllm": vllm.__version__,
        "torch": torch.__version__,
        "python": sys.version.split()[0],
    }
    for part in args.parts:
        bench.say(part)
        run[part]()
    bench.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
