"""One vLLM engine with InferScale's connector, and what the benchmark asks of it."""

from __future__ import annotations

import gc
import itertools
import statistics
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Tokens = list[int]
Request = tuple[Tokens, "dict[str, Any] | None", "str | None"]  # prompt, plan, salt


@dataclass(frozen=True)
class Fact:
    """Tokens and the key under which their KV is stored."""

    key: str
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class First:
    """What one request with one output token showed."""

    ttft_ms: float
    step_ms: float  # on the device's clock: from before the loads to after the sampling
    cached: int  # tokens that were not computed


def summary(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    last = len(ordered) - 1
    return {
        "median": round(statistics.median(ordered), 3),
        "p10": round(ordered[last // 10], 3),
        "p90": round(ordered[last * 9 // 10], 3),
        "p99": round(ordered[last * 99 // 100], 3),
        "n": len(ordered),
    }


class Engine:
    """The clock of a request is the client's, from before add_request to the return of the step
    that carries the first token; the core runs in a process of its own, as is vLLM's default."""

    def __init__(self, model: str, connector: dict[str, Any] | None, **options: Any) -> None:
        from vllm import LLM
        from vllm.config import KVTransferConfig

        if connector is not None:
            options["kv_transfer_config"] = KVTransferConfig(
                kv_connector="InferScaleConnector",
                kv_connector_module_path="inferscale.vllm.connector",
                kv_role="kv_both",
                kv_connector_extra_config=connector,
            )
            options["worker_extension_cls"] = "vllm_worker.BenchWorker"
        began = time.perf_counter()
        self.llm = LLM(model=model, dtype="bfloat16", enable_prefix_caching=True, seed=0, **options)
        self.start_s = time.perf_counter() - began
        self._ids = itertools.count()
        self._timed = connector is not None
        self._fingerprint = b""

    def stop(self) -> None:
        self.llm.llm_engine.engine_core.shutdown()
        del self.llm
        gc.collect()

    def params(self, tokens: int = 1, plan: dict[str, Any] | None = None) -> Any:
        from vllm import SamplingParams

        extra = {"kv_transfer_params": {"inferscale": plan}} if plan is not None else None
        return SamplingParams(
            temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False, extra_args=extra
        )

    def first_token(
        self, prompt: Tokens, plan: dict[str, Any] | None = None, salt: str | None = None
    ) -> First:
        if self._timed:
            self.llm.collective_rpc("bench_steps")
        engine = self.llm.llm_engine
        request: dict[str, Any] = {"prompt_token_ids": prompt}
        if salt is not None:
            request["cache_salt"] = salt
        began = time.perf_counter()
        engine.add_request(str(next(self._ids)), request, self.params(1, plan))
        while True:
            outputs: Any = engine.step()
            if outputs and outputs[0].outputs and outputs[0].outputs[0].token_ids:
                break
        ttft_ms = (time.perf_counter() - began) * 1e3
        while engine.has_unfinished_requests():
            engine.step()
        step_ms = self.llm.collective_rpc("bench_steps")[0] if self._timed else 0.0
        return First(ttft_ms, step_ms, outputs[0].num_cached_tokens or 0)

    def all_at_once(self, requests: Iterable[Request], tokens: int) -> float:
        """Requests per second, every one with exactly `tokens` of output."""
        prompts, params = [], []
        for prompt, plan, salt in requests:
            prompts.append({"prompt_token_ids": prompt} | ({"cache_salt": salt} if salt else {}))
            params.append(self.params(tokens, plan))
        began = time.perf_counter()
        outputs = self.llm.generate(prompts, params, use_tqdm=False)
        seconds = time.perf_counter() - began
        short = [o for o in outputs if len(o.outputs[0].token_ids) != tokens]
        if short:
            raise RuntimeError(f"{len(short)} answers are short")
        return len(prompts) / seconds

    def open_loop(
        self, requests: Sequence[tuple[float, Request]], tokens: int
    ) -> tuple[list[float], float]:
        """Requests that come at their seconds, whatever has become of those before.

        Returns the ms from when each was due to its first token, and the seconds until all were
        answered. A request is noticed between two steps, so up to a step late.
        """
        engine = self.llm.llm_engine
        coming = deque(requests)
        due: dict[str, float] = {}
        first_ms: list[float] = []
        began = time.perf_counter()
        while coming or engine.has_unfinished_requests():
            now = time.perf_counter() - began
            while coming and coming[0][0] <= now:
                at, (prompt, plan, salt) = coming.popleft()
                request: dict[str, Any] = {"prompt_token_ids": prompt}
                if salt:
                    request["cache_salt"] = salt
                name = str(next(self._ids))
                due[name] = at
                engine.add_request(name, request, self.params(tokens, plan))
            if not engine.has_unfinished_requests():
                time.sleep(max(0.0, coming[0][0] - (time.perf_counter() - began)))
                continue
            outputs: Any = engine.step()
            now = time.perf_counter() - began
            for output in outputs:
                if output.request_id in due and output.outputs[0].token_ids:
                    first_ms.append((now - due.pop(output.request_id)) * 1e3)
        return first_ms, time.perf_counter() - began

    def answer(
        self, prompt: Tokens, tokens: int, plan: dict[str, Any] | None, salt: str
    ) -> tuple[list[int], list[dict[int, float]], int]:
        """Greedy tokens, the five best log-probabilities at each, and the tokens not computed."""
        params = self.params(tokens, plan)
        params.logprobs = 5
        request = {"prompt_token_ids": prompt, "cache_salt": salt}
        output = self.llm.generate(request, params, use_tqdm=False)[0]
        best = [
            {token: told.logprob for token, told in step.items()}
            for step in output.outputs[0].logprobs or []
        ]
        return list(output.outputs[0].token_ids), best, output.num_cached_tokens or 0

    def noop(self, on: bool) -> None:
        """From now on plans are claimed and nothing is copied: the bound of any injection."""
        self.llm.collective_rpc("bench_noop", args=(on,))

    def tell(self, op: dict[str, Any], prompt: Tokens) -> dict[str, Any]:
        """Sends one of the protocol's requests and returns the answer's object."""
        output = self.llm.generate(
            {"prompt_token_ids": prompt}, self.params(1, op | {"v": 1}), use_tqdm=False
        )[0]
        told: dict[str, Any] = (output.kv_transfer_params or {}).get("inferscale", {})
        return told

    def self_test(self, token: int = 100, position: int = 137) -> dict[str, Any]:
        while not self.tell({"op": "info"}, [token]).get("shape"):
            pass  # the workers speak with the first step
        self.tell({"op": "self_test", "step": 0}, [token])
        self.tell({"op": "self_test", "step": 1}, [token] * (position + 1))
        info = self.tell({"op": "info"}, [token])
        if not info.get("injection"):
            raise RuntimeError(f"the self-test did not pass: {info}")
        self._fingerprint = bytes.fromhex(info["fingerprint"])
        return info

    def salt(self, plan: dict[str, Any]) -> str:
        """What a gateway gives with the plan; see docs/vllm_protocol.md."""
        from inferscale.vllm.plan import Inject, parse
        from inferscale.vllm.salt import marks, of_mark

        parsed = parse({"inferscale": plan}, 1 << 30)
        assert isinstance(parsed, Inject)
        good = np.ones(len(parsed.first), bool)
        return of_mark(marks(parsed, good, self._fingerprint)[0])

    def encode(self, tenant: str, facts: Sequence[Fact], prefix: Tokens) -> None:
        """One causal pass over `prefix` and the facts; every fact is a record."""
        prompt, records = list(prefix), []
        for fact in facts:
            records.append([fact.key, len(prompt), len(fact.tokens)])
            prompt += fact.tokens
        self.tell({"op": "encode", "tenant": tenant, "records": records}, prompt)

    def counters(self) -> dict[str, Any]:
        counters: dict[str, Any] = self.tell({"op": "info"}, [100]).get("counters", {})
        return counters


def inject(tenant: str, facts: Sequence[Fact]) -> tuple[Tokens, dict[str, Any]]:
    """The prompt's beginning that the facts are, and the plan that injects it whole."""
    tokens: Tokens = []
    spans = ""
    for fact in facts:
        spans += struct.pack("<3I", len(tokens), len(fact.tokens), 0).hex() + fact.key
        tokens += fact.tokens
    return tokens, {"v": 1, "op": "inject", "tenant": tenant, "spans": spans}


def interleave(
    arms: dict[str, Callable[[], First]],
    rounds: int,
    shuffle: Callable[[list[str]], None],
    warm: int,
) -> dict[str, list[First]]:
    """All arms in every round, in an order of its own: the machine's speed drifts."""
    out: dict[str, list[First]] = {name: [] for name in arms}
    for number in range(warm + rounds):
        names = list(arms)
        shuffle(names)
        for name in names:
            first = arms[name]()
            if number >= warm:
                out[name].append(first)
    return out
