"""The connector where vLLM has its core and its workers in processes of their own."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import AsyncIterator, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("vllm.v1")

from harness import (  # noqa: E402
    INFO,
    Answer,
    Engine,
    Facts,
    Ids,
    answer_of,
    assert_alike,
    assert_same,
    encode,
    engine_options,
    inject,
    new_key,
    sampling,
    some_facts,
    verify,
    wait_for,
    words,
)


def plan_of(facts: Facts, tenant: str = "acme") -> dict[str, Any]:
    return inject(tenant, facts.spans(), facts.exact)


class Served:
    """vLLM's asynchronous engine, as its server has it."""

    def __init__(self, model: Path, directory: Path, **options: Any) -> None:
        from vllm import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        self.directory = directory
        self.loop = asyncio.new_event_loop()

        async def start() -> Any:
            arguments = engine_options(model, directory, **options)
            return AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments))

        self.llm = self.run(start())

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    async def stream(self, prompt: Ids, plan: Any, tokens: int, salt: str | None = None) -> Any:
        """Outputs as they come, each with all tokens so far."""
        request: dict[str, Any] = {"prompt_token_ids": prompt}
        if salt:
            request["cache_salt"] = salt
        outputs: AsyncIterator[Any] = self.llm.generate(
            request, sampling(plan, tokens), request_id=new_key()
        )
        async for output in outputs:
            yield output

    async def answer(
        self, prompt: Ids, plan: Any = None, tokens: int = 1, salt: str | None = None
    ) -> Answer:
        last = None
        async for output in self.stream(prompt, plan, tokens, salt):
            last = output
        return answer_of(last)

    def ask(
        self, prompt: Ids, plan: Any = None, tokens: int = 1, salt: str | None = None
    ) -> Answer:
        answer: Answer = self.run(self.answer(prompt, plan, tokens, salt))
        return answer

    def info(self) -> dict[str, Any]:
        return self.ask([5], INFO).ours

    def self_test(self) -> dict[str, Any]:
        self.ask([1000], {"v": 1, "op": "self_test", "step": 0})
        self.ask([1000] * 100, {"v": 1, "op": "self_test", "step": 1})
        return self.info()

    def keep(self, facts: Facts) -> Facts:
        self.ask(facts.prompt, encode("acme", facts.records()))
        info = self.info()
        wait_for(lambda: not any(verify(info, facts, "acme")), "the records to be stored")
        return facts

    def close(self) -> None:
        self.llm.shutdown()
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.run(asyncio.sleep(0.1))
        self.loop.close()


SMALL: dict[str, Any] = {
    "dtype": "bfloat16",
    "block_size": 16,
    "num_gpu_blocks_override": 70,  # little more than one request of the longest
}


@pytest.fixture(scope="module")
def served_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def served(short_model: Path, served_dir: Path) -> Iterator[Served]:
    served = Served(short_model, served_dir, **SMALL)
    assert served.self_test()["self_test"]["state"] == "passed"
    yield served
    served.close()


def test_streamed_answers_are_injected_too(served: Served, rng: random.Random) -> None:
    facts = served.keep(some_facts(rng, [30, 50]))
    prompt = facts.prompt + words(rng, 12)

    async def watch() -> tuple[list[int], Answer]:
        lengths, last = [], None
        async for output in served.stream(prompt, plan_of(facts), 8):
            lengths.append(len(output.outputs[0].token_ids))
            last = output
        return lengths, answer_of(last)

    lengths, ours = served.run(watch())
    assert lengths == sorted(lengths)
    assert len(lengths) > 1
    assert ours.injected == 80
    assert_alike(ours, served.ask(prompt, None, 8, salt=new_key()))


def preemptions() -> float:
    """As vLLM's own metrics count them."""
    from prometheus_client import REGISTRY

    samples = [sample for metric in REGISTRY.collect() for sample in metric.samples]
    return float(sum(s.value for s in samples if s.name == "vllm:num_preemptions_total"))


def test_preempted_requests_are_injected_again(served: Served, rng: random.Random) -> None:
    """Eight answers of 150 tokens don't fit together into 70 blocks of 16. Who is preempted finds
    the plan's full blocks in the prefix cache; the two tokens behind them are injected again."""
    shared = served.keep(some_facts(rng, [30, 60, 40]))
    prompts = [shared.prompt + words(rng, 20) for _ in range(8)]
    before, preempted = served.info()["counters"], preemptions()

    async def together() -> list[Answer]:
        return list(
            await asyncio.gather(*(served.answer(p, plan_of(shared), 150) for p in prompts))
        )

    answers = served.run(together())
    after = served.info()["counters"]
    for prompt, answer in zip(prompts, answers, strict=True):
        assert len(answer.tokens) == 150
        alone = served.ask(prompt, None, 8, salt=new_key())
        answer.logprobs, answer.tokens = answer.logprobs[:8], answer.tokens[:8]
        assert_alike(answer, alone)
    assert preemptions() > preempted
    assert after["refused"] == before["refused"]
    assert after["injected_tokens"] - before["injected_tokens"] > 130 + 7 * 2


def test_aborted_streams_leave_a_living_engine(served: Served, rng: random.Random) -> None:
    facts = served.keep(some_facts(rng, [30, 50]))

    async def give_up(number: int) -> None:
        prompt = facts.prompt + words(rng, 5)
        seen = 0
        async for _ in served.stream(prompt, plan_of(facts), 200):
            seen += 1
            if seen > number:
                return

    async def together() -> None:
        await asyncio.gather(*(give_up(number) for number in range(6)))

    served.run(together())
    assert served.ask([*facts.prompt, 9], plan_of(facts)).cached == 80


def test_a_warm_disk_serves_a_new_engine_and_a_damaged_one_costs_time(
    served: Served, short_model: Path, served_dir: Path, rng: random.Random, tmp_path: Path
) -> None:
    every = [served.keep(some_facts(rng, [30, 50, 44])) for _ in range(3)]
    prompts = [facts.prompt + words(rng, 20) for facts in every]
    plain = [served.ask(prompt, None, 8, salt=new_key()) for prompt in prompts]
    shutil.copytree(served_dir, tmp_path / "kv")
    again = Engine(short_model, tmp_path / "kv", **SMALL, extra={"patience_ms": 5000})
    assert again.self_test()["self_test"]["state"] == "passed"

    def ask(number: int) -> Answer:
        ours = again.ask(prompts[number], plan_of(every[number]), 8)
        assert_alike(ours, plain[number])
        return ours

    assert ask(0).injected == 124
    assert not again.refused()
    segments = list((tmp_path / "kv").rglob("*.seg"))
    assert segments
    for segment in segments:
        with segment.open("r+b") as file:
            file.write(b"\xa5" * segment.stat().st_size)
    assert ask(1).injected == 0
    assert again.refused() == {"corrupt": 3}
    for segment in segments:
        segment.unlink()
    assert ask(2).injected == 0
    assert sum(again.refused().values()) == 6
    again.llm.llm_engine.engine_core.shutdown()


def random_model(target: Path) -> Path:
    """With heads for two ranks."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=3,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=2048,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        initializer_range=0.2,
        bos_token_id=1,
        eos_token_id=2,
    )
    LlamaForCausalLM(config).save_pretrained(target)
    return target


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("two")
    engine = Engine(
        random_model(folder / "model"),
        folder / "data",
        dtype="float32",
        block_size=32,
        tensor_parallel_size=2,
        distributed_executor_backend="mp",
        skip_tokenizer_init=True,
    )
    engine.tested = engine.self_test()
    yield engine
    engine.llm.llm_engine.engine_core.shutdown()


def test_two_ranks_keep_their_own_heads(two_ranks: Engine, rng: random.Random) -> None:
    assert two_ranks.tested["self_test"]["state"] == "passed", two_ranks.tested
    assert two_ranks.tested["ranks"] == 2
    assert two_ranks.tested["shape"]["kv_heads"] == 2
    assert two_ranks.tested["tokenizer"] is None
    for _ in range(4):
        facts = some_facts(rng, [rng.randrange(1, 60) for _ in range(4)])
        two_ranks.ask(facts.prompt, encode("acme", facts.records()))
        prompt = facts.prompt + words(rng, 10)

        def injected(facts: Facts = facts, prompt: Ids = prompt) -> bool:
            """A record is stored some time after its answer."""
            two_ranks.llm.reset_prefix_cache()
            return two_ranks.ask(prompt, plan_of(facts)).injected == len(facts.prompt)

        wait_for(injected, "an injection")
        two_ranks.llm.reset_prefix_cache()
        ours = two_ranks.ask(prompt, plan_of(facts), 6)
        assert ours.injected == len(facts.prompt)
        assert_same(ours, two_ranks.plain(prompt, 6), 1e-3)


def hybrid_model(target: Path) -> Path:
    """Layers behind a sliding window and layers without one, each kind with its own rotation."""
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    torch.manual_seed(0)
    config = Gemma3TextConfig(
        vocab_size=49152,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        query_pre_attn_scalar=64,
        max_position_embeddings=2048,
        sliding_window=64,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"] * 2,
        initializer_range=0.1,
    )
    Gemma3ForCausalLM(config).save_pretrained(target)
    return target


def test_groups_of_layers_have_blocks_of_their_own(rng: random.Random, tmp_path: Path) -> None:
    """Of a window's group only the last blocks are there to be written."""
    engine = Engine(
        hybrid_model(tmp_path / "model"),
        tmp_path / "kv",
        dtype="float32",
        block_size=32,
        skip_tokenizer_init=True,
    )
    assert engine.self_test()["self_test"]["state"] == "passed"
    for sizes in ([20, 30, 40], [33, 90, 77, 100], [10, 200, 150, 8]):
        facts = engine.keep(some_facts(rng, sizes))
        prompt = facts.prompt + words(rng, 30)
        ours = engine.ask(prompt, plan_of(facts), 6)
        assert ours.injected == len(facts.prompt)
        assert_same(ours, engine.plain(prompt, 6), 1e-3)
        again = engine.ask(prompt, plan_of(facts), 6)
        assert again.cached >= len(facts.prompt)
        assert_same(again, ours, 1e-3)
    assert not engine.refused()
    engine.llm.llm_engine.engine_core.shutdown()


NAMES = ["Ana", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hana", "Ivan", "Judy", "Karl", "Lena"]


def test_many_at_once_answer_each_its_own(
    vllm_model: Path, rng: random.Random, tmp_path: Path
) -> None:
    """Facts with unique codes, and a model that knows what to do with them: all of SmolLM2."""
    engine = Engine(vllm_model, tmp_path, dtype="float32", block_size=32)
    assert engine.self_test()["self_test"]["state"] == "passed"

    def ids(text: str) -> Ids:
        return list(engine.llm.get_tokenizer().encode(text))

    codes = {name: f"{rng.randrange(1000, 9999)}" for name in NAMES}
    header = ids("<|im_start|>system\nYou answer questions about people.\n")
    questions: list[tuple[Ids, Any]] = []
    for name, code in codes.items():
        facts = Facts(header, [ids(f"The code word of {name} is {code}.\n")])
        engine.ask(facts.prompt, encode("acme", facts.records()))
        tail = ids(
            f"<|im_end|>\n<|im_start|>user\nWhat is the code word of {name}?<|im_end|>\n"
            f"<|im_start|>assistant\nThe code word of {name} is"
        )
        questions.append((facts.prompt + tail, plan_of(facts)))
        last = facts
    wait_for(lambda: engine.stored(last), "the records to be stored")
    plain = engine.ask_all([(prompt, None) for prompt, _ in questions], 6, salt=new_key())
    ours = engine.ask_all(questions, 6)
    engine.llm.llm_engine.engine_core.shutdown()

    def right(answers: list[Answer]) -> list[bool]:
        return [c in a.text for c, a in zip(codes.values(), answers, strict=True)]

    # How many it knows depends on the names and codes drawn: 9 of 12 was seen, 11 is usual.
    assert sum(right(plain)) >= 6, "the model can't do it, so this test would prove nothing"
    assert right(ours) == right(plain)
    assert sum(answer.injected for answer in ours) > 12 * 10
