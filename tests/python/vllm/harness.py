"""What the tests of the vLLM connector share: engines, plans, prompts."""

from __future__ import annotations

import json
import random
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inferscale import _core
from inferscale.vllm.plan import Inject, parse

Ids = list[int]
SHORT_LAYERS = 6  # of the short model
FIRST_WORD, LAST_WORD = 300, 40000  # ids of ordinary pieces of text


def new_key() -> str:
    return secrets.token_hex(16)


def inject(tenant: str, spans: Sequence[Sequence[Any]], exact: int = 0) -> dict[str, Any]:
    spans = [list(span) for span in spans]
    return {"v": 1, "op": "inject", "tenant": tenant, "exact": exact, "spans": spans}


def encode(tenant: str, records: Sequence[Sequence[Any]]) -> dict[str, Any]:
    return {"v": 1, "op": "encode", "tenant": tenant, "records": [list(r) for r in records]}


INFO = {"v": 1, "op": "info"}


@dataclass
class Answer:
    tokens: Ids
    logprobs: list[dict[int, float]]
    text: str
    cached: int  # prompt tokens from vLLM's prefix cache or from stored KV
    ours: dict[str, Any]  # the answer's object

    @property
    def injected(self) -> int:
        return int(self.ours.get("injected_tokens", 0))


@dataclass
class Facts:
    """A header and facts in one prompt, each a record of its own."""

    header: Ids
    facts: list[Ids]
    keys: list[str] = field(default_factory=list)  # the header's first

    @property
    def parts(self) -> list[Ids]:
        return [self.header, *self.facts]

    @property
    def prompt(self) -> Ids:
        return [token for part in self.parts for token in part]

    @property
    def exact(self) -> int:
        return len(self.header)

    def records(self) -> list[list[Any]]:
        self.keys = [new_key() for _ in self.parts]
        return [[key, first, n] for key, first, n in self._places()]

    def spans(self) -> list[list[Any]]:
        return [[first, n, 0, key] for key, first, n in self._places()]

    def _places(self) -> list[tuple[str, int, int]]:
        places, first = [], 0
        for key, part in zip(self.keys, self.parts, strict=True):
            places.append((key, first, len(part)))
            first += len(part)
        return places


def words(random_: random.Random, count: int) -> Ids:
    return [random_.randrange(FIRST_WORD, LAST_WORD) for _ in range(count)]


def some_facts(random_: random.Random, sizes: Sequence[int]) -> Facts:
    header, *facts = (words(random_, size) for size in sizes)
    return Facts(header, facts)


def sampling(plan: dict[str, Any] | None, tokens: int, **more: Any) -> Any:
    from vllm import SamplingParams

    extra = {"kv_transfer_params": {"inferscale": plan}} if plan is not None else None
    return SamplingParams(
        temperature=0, max_tokens=tokens, logprobs=5, extra_args=extra, ignore_eos=True, **more
    )


def answer_of(output: Any) -> Answer:
    first = output.outputs[0]
    return Answer(
        tokens=list(first.token_ids),
        logprobs=[{t: p.logprob for t, p in step.items()} for step in first.logprobs or []],
        text=first.text,
        cached=output.num_cached_tokens or 0,
        ours=(output.kv_transfer_params or {}).get("inferscale", {}),
    )


class Engine:
    """vLLM with the connector, in this process or with its core in another one."""

    def __init__(self, model: Path, directory: Path, **options: Any) -> None:
        from vllm import LLM

        self.directory = directory
        self.tested: dict[str, Any] = {}  # what info said after the self-test
        self.untested: Answer | None = None  # to a plan before it
        self.llm = LLM(**engine_options(model, directory, **options))

    def ask(
        self,
        prompt: Ids,
        plan: dict[str, Any] | None = None,
        tokens: int = 1,
        *,
        salt: str | None = None,
        **more: Any,
    ) -> Answer:
        return self.ask_all([(prompt, plan)], tokens, salt=salt, **more)[0]

    def ask_all(
        self,
        questions: Sequence[tuple[Ids, dict[str, Any] | None]],
        tokens: int = 1,
        *,
        salt: str | None = None,
        **more: Any,
    ) -> list[Answer]:
        prompts: list[dict[str, Any]] = [{"prompt_token_ids": prompt} for prompt, _ in questions]
        if salt:
            prompts = [{**prompt, "cache_salt": salt} for prompt in prompts]
        outputs = self.llm.generate(
            prompts, [sampling(plan, tokens, **more) for _, plan in questions], use_tqdm=False
        )
        return [answer_of(output) for output in outputs]

    def plain(self, prompt: Ids, tokens: int = 1) -> Answer:
        """What vLLM says with nothing from any cache."""
        return self.ask(prompt, None, tokens, salt=new_key())

    def info(self) -> dict[str, Any]:
        return self.ask([5], INFO).ours

    def refused(self) -> dict[str, int]:
        return dict(self.info()["counters"]["refused"])

    def self_test(self, length: int = 200) -> dict[str, Any]:
        self.ask([1000], {"v": 1, "op": "self_test", "step": 0})
        self.ask([1000] * length, {"v": 1, "op": "self_test", "step": 1})
        return self.info()

    def keep(self, facts: Facts, tenant: str = "acme") -> Facts:
        """Encodes the facts and waits until they are stored."""
        self.ask(facts.prompt, encode(tenant, facts.records()))
        wait_for(lambda: self.stored(facts, tenant), "the records to be stored")
        return facts

    def stored(self, facts: Facts, tenant: str = "acme") -> bool:
        codes = verify(self.info(), facts, tenant)
        return all(code == _core.Code.OK for code in codes)


def engine_options(model: Path, directory: Path, **options: Any) -> dict[str, Any]:
    from vllm.config import KVTransferConfig

    extra = {"dir": str(directory), "host_bytes": 256 << 20, "capture_bytes": 64 << 20}
    extra |= options.pop("extra", {})
    return {
        "model": str(model),
        "max_model_len": 1024,
        "max_num_batched_tokens": 256,  # so that long prompts are prefilled in chunks
        "max_num_seqs": 16,
        "gpu_memory_utilization": 0.3,  # of host memory, here
        "enforce_eager": True,
        "disable_log_stats": False,
        "kv_transfer_config": KVTransferConfig(
            kv_connector="InferScaleConnector",
            kv_connector_module_path="inferscale.vllm.connector",
            kv_role="kv_both",
            kv_connector_extra_config=extra,
        ),
        **options,
    }


def owner_of(info: dict[str, Any], tenant: str) -> _core.Owner:
    shape = info["shape"]
    return _core.Owner(
        tenant,
        bytes.fromhex(info["fingerprint"]),
        _core.Shape(
            shape["layers"], shape["kv_heads"], shape["dim"], _core.Dtype[shape["dtype"].upper()]
        ),
    )


def verify(info: dict[str, Any], facts: Facts, tenant: str) -> list[int]:
    store = _core.Store(info["dir"], host_bytes=1 << 20)
    try:
        plan = parse({"inferscale": inject(tenant, facts.spans())}, len(facts.prompt))
        assert isinstance(plan, Inject)
        claims = _core.Claims(plan.keys, plan.record_token, plan.first, plan.tokens)
        codes: list[int] = store.verify(owner_of(info, tenant), facts.prompt, claims).tolist()
        return codes
    finally:
        store.close()


def erase(directory: Path, keys: Sequence[str]) -> None:
    store = _core.Store(str(directory), host_bytes=1 << 20)
    store.erase([bytes.fromhex(key) for key in keys])
    store.close()


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds} s for {what}"
        time.sleep(0.05)


def assert_same(one: Answer, other: Answer, limit: float) -> None:
    """The same tokens, and logprobs that differ by at most `limit`, up to a first near tie."""
    for i, (mine, theirs) in enumerate(zip(one.logprobs, other.logprobs, strict=True)):
        common = set(mine) & set(theirs)
        assert common, f"step {i}: no token in common"
        worst = max(abs(mine[t] - theirs[t]) for t in common)
        assert worst <= limit, f"step {i}: logprobs differ by {worst}"
        if one.tokens[i] != other.tokens[i]:
            best, second = sorted(mine.values(), reverse=True)[:2]
            assert best - second <= limit, f"step {i}: {one.tokens[i]} is not {other.tokens[i]}"
            return


def assert_alike(one: Answer, other: Answer, limit: float = 0.15) -> None:
    """`assert_same` for bfloat16, which rounds logits to eighths: logprobs differ by at most
    `limit` in the mean. Of 600 answers, plain ones differed from injected ones by at most 0.094;
    behind other facts one in ten differed by less than 0.15."""
    differences: list[float] = []
    for i, (mine, theirs) in enumerate(zip(one.logprobs, other.logprobs, strict=True)):
        differences += [abs(mine[t] - theirs[t]) for t in set(mine) & set(theirs)]
        if one.tokens[i] != other.tokens[i]:
            break
    assert differences, "no token in common"
    mean = sum(differences) / len(differences)
    assert mean <= limit, f"logprobs differ by {mean} in the mean, at worst by {max(differences)}"


def shorten(model: Path, target: Path) -> Path:
    """The model's first layers as a model of their own: quick, but it knows nothing."""
    from safetensors.torch import load_file, save_file

    target.mkdir()
    config = json.loads((model / "config.json").read_text())
    config["num_hidden_layers"] = SHORT_LAYERS
    (target / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (target / name).write_bytes((model / name).read_bytes())
    tensors = {
        name: tensor
        for name, tensor in load_file(model / "model.safetensors").items()
        if ".layers." not in name or int(name.split(".layers.")[1].split(".")[0]) < SHORT_LAYERS
    }
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    return target
