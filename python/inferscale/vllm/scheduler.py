"""The scheduler half: the brain. It decides what is taken from stored KV and what is captured.

Only what is verified and held by a lease is claimed, so a load can't fail. Whatever else a plan
asks for is computed by vLLM, and counted here by its reason.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import vllm
from vllm.logger import init_logger

from inferscale import _core
from inferscale._core import KEY_BYTES, Claims, Code, Codes, Owner
from inferscale.vllm import salt
from inferscale.vllm.leases import DirectLeases, Leases, RemoteLeases
from inferscale.vllm.messages import (
    Blocks,
    CaptureOrder,
    Greeting,
    Load,
    Orders,
    Ready,
    Report,
    SaveSpan,
    Verdict,
)
from inferscale.vllm.paged import NULL_BLOCK
from inferscale.vllm.plan import BadPlan, Encode, Info, Inject, Record, SelfTest, Span, parse
from inferscale.vllm.salt import Flags
from inferscale.vllm.settings import MIB, Settings
from inferscale.vllm.stats import REFUSED, InferScaleStats
from inferscale.vllm.tokenizer import tokenizer_facts
from inferscale.vllm.worker import rank_keys, workers

logger = init_logger(__name__)

TEST_TENANT = "inferscale-self-test"
TEST_TAIL = 8  # tokens that are compared: all but the last injected, and inside any sliding window


@dataclass
class Injection:
    """A request whose prompt is to be taken from stored KV."""

    plan: Inject
    good: Flags  # of each span: its tokens are those of its record
    lease: int | None = None  # of the good ones' records, in their order
    asked: float | None = None  # when it was first waited for
    late: bool = False
    held: Flags | None = None  # once the lease is settled: good, and at hand
    end: int = 0  # of the last claim
    injected: int = 0  # tokens


@dataclass
class Recording:
    record: Record
    capture: int
    done: int = 0  # tokens captured
    over: bool = False  # captured whole, or given up


@dataclass
class Encoding:
    """A request whose KV is captured."""

    tenant: str
    tokens: Sequence[int]  # the prompt
    recordings: list[Recording]
    blocks: Blocks = ()
    test: int | None = None  # the self-test's step


class Scheduler:
    def __init__(self, vllm_config: Any, kv_cache_config: Any) -> None:
        self._settings = Settings.of(vllm_config)
        self._model = vllm_config.model_config
        self._ranks = vllm_config.parallel_config.tensor_parallel_size
        self._cache_tokens, self._block_tokens = _block_tokens(vllm_config, kv_cache_config)
        self._group_tokens = [g.kv_cache_spec.block_size for g in kv_cache_config.kv_cache_groups]
        worker = workers.get(vllm_config.kv_transfer_config.engine_id)
        alone = vllm_config.parallel_config.world_size == 1
        self._leases: Leases = (
            DirectLeases(worker) if worker and alone else RemoteLeases(self._ranks)
        )
        self._store = _core.Store(self._settings.dir, host_bytes=MIB)
        self._orders = Orders()
        self._injections: dict[str, Injection] = {}
        self._encodings: dict[str, Encoding] = {}
        self._answers: dict[str, dict[str, Any]] = {}
        self._captures = 0
        self._verdict: Verdict | None = None
        self._failure = ""
        self._test_key = b""
        self._totals = InferScaleStats()
        self._news = InferScaleStats()
        self._tier_stats: dict[str, int] = {}
        self._tokenizer_facts: dict[str, Any] | None = None

    # ---- a request comes ----

    def on_new_request(self, request: Any) -> None:
        try:
            plan = parse(request.kv_transfer_params, request.num_prompt_tokens)
            if plan is None:
                salt.keep_out(request)
                return
            if isinstance(plan, Info):
                self._answers[request.request_id] = {}  # made when it is asked for
                return
            self._check(request)
            ready = self._leases.ready()
            if ready.reason:
                raise BadPlan("unsupported")
            if isinstance(plan, Inject):
                self._inject(request, plan, ready)
            elif isinstance(plan, Encode):
                self._encode(request, plan)
            else:
                self._self_test(request, plan, ready)
        except BadPlan as bad:
            salt.keep_out(request)
            self._refuse(bad.reason)
            self._answers[request.request_id] = {"refused": bad.reason}
        except _core.CoreError as error:
            logger.warning("InferScale refuses a plan: %s", error)
            salt.keep_out(request)
            self._refuse(Code(error.code).name.lower())

    def _check(self, request: Any) -> None:
        """Requests whose KV is not that of their tokens alone, or that need all of their prompt."""
        sampling = request.sampling_params
        for reason, bad in (
            ("pooling", request.pooling_params is not None or sampling is None),
            ("lora", request.lora_request is not None),
            ("multimodal", bool(request.mm_features)),
            (
                "prompt_embeds",
                request.prompt_embeds is not None or request.prompt_token_ids is None,
            ),
            ("prompt_logprobs", sampling is not None and sampling.prompt_logprobs is not None),
            ("resumable", bool(getattr(request, "resumable", False))),
        ):
            if bad:
                raise BadPlan(reason)

    def _inject(self, request: Any, plan: Inject, ready: Ready) -> None:
        if self._verdict is None:
            raise BadPlan("untested")
        if not self._verdict.passed:
            raise BadPlan("failed_test")
        good = self._open(request, plan, ready).good
        marks = salt.marks(plan, good, ready.fingerprint)
        if marks and request.cache_salt == salt.of_mark(marks[0]):
            marks = marks[1:]
        else:
            salt.keep_out(request)
        if marks and not salt.mix(request, marks, self._block_tokens):
            self._count("whole_salts")

    def _open(self, request: Any, plan: Inject, ready: Ready) -> Injection:
        """Compares the spans' tokens, and asks for the records of those that are right."""
        assert ready.shape is not None
        keys = rank_keys(plan.keys, 0, self._ranks)
        claims = Claims(keys, plan.record_token, plan.first, plan.tokens)
        owner = Owner(plan.tenant, ready.fingerprint, ready.shape)
        codes = self._store.verify(owner, request.prompt_token_ids, claims)
        self._refuse_all(codes)
        injection = Injection(plan, codes == Code.OK)
        if injection.good.any():
            every = np.frombuffer(plan.keys, f"V{KEY_BYTES}")
            injection.lease = self._leases.open(plan.tenant, every[injection.good].tobytes())
        self._injections[request.request_id] = injection
        return injection

    def _encode(self, request: Any, plan: Encode) -> None:
        # Its prefix-cache hits are other encode requests' blocks: nothing was ever injected there.
        salt.keep_out(request)
        salt.whole(request, f"encode:{plan.tenant}")
        self._encodings[request.request_id] = self._encoding(request, plan.tenant, plan.records)

    def _encoding(self, request: Any, tenant: str, records: Sequence[Record]) -> Encoding:
        recordings = [Recording(record, self._captures + i) for i, record in enumerate(records)]
        self._captures += len(recordings)
        return Encoding(tenant, request.prompt_token_ids, recordings)

    def _self_test(self, request: Any, plan: SelfTest, ready: Ready) -> None:
        tokens = request.num_prompt_tokens
        if plan.step == 0:
            self._verdict, self._failure = None, ""
            self._test_key = os.urandom(16)
            record = Record(self._test_key, 0, 1)
        else:
            if len(set(request.prompt_token_ids)) != 1:
                raise BadPlan("tokens")
            if not self._test_key:
                raise BadPlan("untested")
            spans = [Span(i, 1, 0, self._test_key) for i in range(tokens - 1)]
            self._open(request, Inject.of(TEST_TENANT, spans), ready)
            first = max(tokens - TEST_TAIL, 0)
            record = Record(os.urandom(16), first, tokens - first)
        salt.whole(request, f"self_test:{os.urandom(8).hex()}")
        encoding = self._encoding(request, TEST_TENANT, [record])
        encoding.test = plan.step
        self._encodings[request.request_id] = encoding

    # ---- vLLM asks ----

    def matched_tokens(self, request: Any, computed: int) -> int | None:
        """How many tokens after the first `computed` come from stored KV; None: ask again."""
        injection = self._injections.get(request.request_id)
        if injection is None or injection.lease is None:
            return 0
        plan, last = injection.plan, request.num_prompt_tokens - 1
        if min(covered(plan, injection.good, computed), last) <= computed:
            return 0
        codes = self._leases.poll(injection.lease)
        if codes is None:
            now = time.monotonic()
            if injection.asked is None:
                injection.asked = now
            if now - injection.asked < self._settings.patience_ms / 1e3:
                return None
            self._refuse("late", int(not injection.late))
            injection.late = True
            return 0
        if injection.held is None:
            injection.held = injection.good.copy()
            injection.held[injection.good] = np.asarray(codes) == Code.OK
            self._refuse_all(codes)
        injection.end = min(covered(plan, injection.held, computed), last)
        return max(injection.end - computed, 0)

    def follows(self, request: Any) -> bool:
        return request.request_id in self._injections or request.request_id in self._encodings

    def allocated(self, request: Any, blocks: Blocks, external: int) -> None:
        encoding = self._encodings.get(request.request_id)
        if encoding is not None:
            encoding.blocks = tuple(list(group) for group in blocks)
        injection = self._injections.get(request.request_id)
        if not external or injection is None:
            return
        assert injection.lease is not None
        plan, low, high = injection.plan, injection.end - external, injection.end
        of = slice(np.searchsorted(plan.end, low, "right"), np.searchsorted(plan.first, high))
        first = np.maximum(plan.first[of], low)
        tokens = np.minimum(plan.end[of], high) - first
        record_token = plan.record_token[of] + first - plan.first[of]
        record = np.cumsum(injection.good)[of] - 1  # the lease's are the good ones'
        self._orders.loads.append(
            Load(injection.lease, record, record_token, first, tokens, blocks)
        )
        self._count("injected_requests", int(injection.injected == 0))
        self._count("injected_tokens", external)
        injection.injected = external

    def build(self, output: Any) -> Orders:
        orders, self._orders = self._orders, Orders()
        self._leases.order(orders)
        if self._encodings:
            for new in output.scheduled_new_reqs:
                self._save(orders, output, new.req_id, new.num_computed_tokens)
            cached = output.scheduled_cached_reqs
            for i, name in enumerate(cached.req_ids):
                encoding = self._encodings.get(name)
                if encoding is None:
                    continue
                new_blocks = cached.new_block_ids[i]
                # A resumed request's blocks came with `allocated`.
                if new_blocks is not None and name not in cached.resumed_req_ids:
                    for group, more in zip(encoding.blocks, new_blocks, strict=True):
                        group.extend(more)
                self._save(orders, output, name, cached.num_computed_tokens[i])
        return orders

    def _save(self, orders: Orders, output: Any, name: str, computed: int) -> None:
        """Captures what this step computes, and before it what the prefix cache had."""
        encoding = self._encodings.get(name)
        if encoding is None:
            return
        known = computed + output.num_scheduled_tokens[name]
        blocks = tuple(list(group) for group in encoding.blocks)
        for recording in encoding.recordings:
            record = recording.record
            first = record.first + recording.done
            end = min(record.first + record.tokens, known)
            if recording.over or first >= end:
                continue
            if self._passed(blocks, first, end):
                self._refuse("window")
                recording.over = True
                orders.drops.append(recording.capture)
                continue
            if not recording.done:
                tokens = encoding.tokens[record.first : record.first + record.tokens]
                orders.captures.append(
                    CaptureOrder(recording.capture, encoding.tenant, record.key, tuple(tokens))
                )
            orders.saves.append(
                SaveSpan(recording.capture, recording.done, first, end - first, blocks)
            )
            recording.done = end - record.first
            if recording.done == record.tokens:
                recording.over = True
                if encoding.test == 1:
                    orders.compare = (recording.capture, record.tokens)
                    continue
                orders.commits.append(recording.capture)
                if encoding.test == 0:
                    orders.reference, orders.flush = recording.capture, True

    def _passed(self, blocks: Blocks, first: int, end: int) -> bool:
        """Whether a sliding window has passed over some of these tokens."""
        return any(
            NULL_BLOCK in group[first // size : (end - 1) // size + 1]
            for group, size in zip(blocks, self._group_tokens, strict=True)
        )

    # ---- after a step, and at the end ----

    def greet(self, greetings: Iterable[Greeting]) -> None:
        self._leases.greet(greetings)

    def hear(self, report: Report) -> None:
        self._leases.hear(report)
        for name, count in report.counts.items():
            self._count(name, count)
        if report.stats:
            self._tier_stats = report.stats
        if report.verdicts:
            self._verdict = max(report.verdicts, key=lambda verdict: verdict.worst)
            if not self._verdict.passed:
                self._failure = f"the self-test failed: {self._verdict.worst:.3g}"
            logger.info("InferScale's self-test: worst error %.3g", self._verdict.worst)

    def finished(self, request: Any) -> dict[str, Any] | None:
        name = request.request_id
        answer = self._answers.pop(name, None)
        encoding = self._encodings.pop(name, None)
        if encoding is not None:
            self._orders.drops.extend(r.capture for r in encoding.recordings if not r.over)
            answer = {"captured": sum(r.done == r.record.tokens for r in encoding.recordings)}
        injection = self._injections.pop(name, None)
        if injection is not None:
            if injection.lease is not None:
                self._leases.close(injection.lease)
            answer = {"injected_tokens": injection.injected}
        if encoding is not None and encoding.test == 1 and injection is not None:
            self._end_test(injection)
        if answer is None:
            return None
        return {"inferscale": {"v": 1, **(answer or self.info())}}

    def _end_test(self, injection: Injection) -> None:
        if injection.injected != len(injection.plan.first):
            self._verdict = None
            self._failure = "the self-test's record was not at hand"
        self._store.erase([rank_keys(self._test_key, r, self._ranks) for r in range(self._ranks)])
        self._test_key = b""

    def info(self) -> dict[str, Any]:
        ready = self._leases.ready()
        passed = self._verdict is not None and self._verdict.passed
        reason = ready.reason
        if not reason and not passed:
            reason = self._failure or "the self-test has not run"
        answer: dict[str, Any] = {
            "version": _core.version(),
            "vllm": vllm.__version__,
            "model": self._model.served_model_name or self._model.model,
            "fingerprint": ready.fingerprint.hex(),
            "shape": None,
            "ranks": self._ranks,
            "block_tokens": self._cache_tokens,
            "context_tokens": self._model.max_model_len,
            "dir": self._settings.dir,
            "injection": not reason,
            "reason": reason,
            "self_test": {"state": "none", "worst": 0.0, "layers": []},
            "counters": self._counters(),
            "tokenizer": self._tokenizer(),
            "tier": self._tier_stats,
        }
        if ready.shape:
            shape = ready.shape._asdict()
            answer["shape"] = {**shape, "dtype": ready.shape.dtype.name.lower()}
        if self._verdict is not None or self._failure:
            layers = list(self._verdict.layers) if self._verdict else []
            answer["self_test"] = {
                "state": "passed" if passed else "failed",
                "worst": max(layers, default=0.0),
                "layers": layers,
            }
        return answer

    def _tokenizer(self) -> dict[str, Any] | None:
        if self._tokenizer_facts is None:
            self._tokenizer_facts = tokenizer_facts(self._model)
        return self._tokenizer_facts

    def _counters(self) -> dict[str, Any]:
        counters: dict[str, Any] = {"injected_tokens": 0, "refused": {}}
        for name, count in sorted(self._totals.data.items()):
            if name.startswith(REFUSED):
                counters["refused"][name.removeprefix(REFUSED)] = count
            else:
                counters[name] = count
        return counters

    def stats(self) -> InferScaleStats | None:
        if self._news.is_empty():
            return None
        news, self._news = self._news, InferScaleStats()
        return news

    def _count(self, name: str, count: int = 1) -> None:
        if count:
            self._totals.add(name, count)
            self._news.add(name, count)

    def _refuse(self, reason: str, count: int = 1) -> None:
        self._count(REFUSED + reason, count)

    def _refuse_all(self, codes: Sequence[int] | Codes) -> None:
        every = np.asarray(codes)
        for code in every[every != Code.OK].tolist():
            self._refuse(Code(code).name.lower())

    def shutdown(self) -> None:
        self._store.close()


def covered(plan: Inject, good: Flags, start: int) -> int:
    """How far from `start` on the good spans go without a gap."""
    at = int(np.searchsorted(plan.end, start, "right"))
    first, end, ok = plan.first[at:], plan.end[at:], good[at:]
    if not len(first) or first[0] > start or not ok[0]:
        return start
    stops = np.flatnonzero((first[1:] != end[:-1]) | ~ok[1:])
    return int(end[stops[0]] if len(stops) else end[-1])


def _block_tokens(vllm_config: Any, kv_cache_config: Any) -> tuple[int, int]:
    """At multiples of how many tokens a prefix-cache hit ends, and how many have a hash."""
    try:
        from vllm.v1.core.kv_cache_utils import resolve_kv_cache_block_sizes
    except ImportError:
        size = int(vllm_config.cache_config.block_size)
        return size, size
    cache, hashed = resolve_kv_cache_block_sizes(kv_cache_config, vllm_config)
    return int(cache), int(hashed)
