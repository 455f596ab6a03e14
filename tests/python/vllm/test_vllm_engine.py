"""The connector in a real engine in this process: SmolLM2-135M-Instruct's first layers in fp32.

A plain answer to compare with is computed under a salt of its own, so from nothing that was cached.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("vllm.v1")

from harness import (  # noqa: E402
    SHORT_LAYERS,
    Engine,
    Facts,
    Ids,
    assert_same,
    encode,
    erase,
    inject,
    new_key,
    sampling,
    some_facts,
    wait_for,
    words,
)
from inferscale.vllm.cpu import pieces_of  # noqa: E402

BLOCK = 32
# What two plain prefills of one prompt, chunked in different ways, differ by is about 1e-5.
NOISE = 1e-3
PROMPTS = int(os.environ.get("INFERSCALE_VLLM_PROMPTS", "6"))


@pytest.fixture(autouse=True)
def _nothing_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "engine" not in request.fixturenames:
        return
    engine = request.getfixturevalue("engine")
    brain, hands = halves(engine)
    engine.ask([5])  # a step, which takes away what a request left
    assert not brain._injections
    assert not brain._encodings
    assert not brain._answers
    assert not hands._leases
    assert not hands._captures


def halves(engine: Engine) -> tuple[Any, Any]:
    from vllm.distributed.kv_transfer import get_kv_transfer_group

    core = engine.llm.llm_engine.engine_core.engine_core
    return core.scheduler.connector.brain, get_kv_transfer_group().hands


def counted(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    return {r: n - before.get(r, 0) for r, n in after.items() if n != before.get(r, 0)}


def plan_of(facts: Facts, tenant: str = "acme") -> dict[str, Any]:
    return inject(tenant, facts.spans(), facts.exact)


# ---- start


def test_plans_are_refused_before_the_self_test(engine: Engine) -> None:
    assert engine.untested is not None
    assert engine.untested.ours["refused"] == "untested"
    assert engine.untested.cached == 0


def test_the_self_test_passes_in_every_layer(engine: Engine) -> None:
    test = engine.tested["self_test"]
    assert test["state"] == "passed"
    assert len(test["layers"]) == SHORT_LAYERS
    assert test["worst"] == max(test["layers"]) < 1e-3
    assert engine.tested["injection"] is True
    assert engine.tested["reason"] == ""


def test_info_says_who_it_is(engine: Engine) -> None:
    info = engine.info()
    assert info["v"] == 1
    assert info["shape"] == {"layers": SHORT_LAYERS, "kv_heads": 3, "dim": 64, "dtype": "f32"}
    assert info["block_tokens"] == BLOCK
    assert info["context_tokens"] == 1024
    assert info["dir"] == str(engine.directory)
    assert len(bytes.fromhex(info["fingerprint"])) == 16
    assert info["tokenizer"]["special"]["<|im_end|>"] == 2
    assert info["tokenizer"]["bos"] is None
    assert "<|im_start|>" in info["tokenizer"]["chat_template"]


# ---- the answers


def test_injected_prefixes_answer_as_computed_ones(engine: Engine, rng: random.Random) -> None:
    for _ in range(PROMPTS):
        sizes = [rng.randrange(1, 90) for _ in range(rng.randrange(2, 8))]
        facts = engine.keep(some_facts(rng, sizes))
        prompt = facts.prompt + words(rng, rng.randrange(1, 60))
        ours = engine.ask(prompt, plan_of(facts), 8)
        assert ours.injected == ours.cached == len(facts.prompt)
        assert_same(ours, engine.plain(prompt, 8), NOISE)


def test_all_of_a_prompt_but_its_last_token_is_injected(engine: Engine, rng: random.Random) -> None:
    facts = engine.keep(some_facts(rng, [20, 33, 11]))
    ours = engine.ask(facts.prompt, plan_of(facts), 4)
    assert ours.injected == len(facts.prompt) - 1
    assert_same(ours, engine.plain(facts.prompt, 4), NOISE)


def test_a_piece_of_a_record_is_injected(engine: Engine, rng: random.Random) -> None:
    facts = engine.keep(some_facts(rng, [24, 50]))
    prompt = facts.prompt[:50] + words(rng, 10)
    header, fact = facts.spans()
    fact[1] = 50 - 24
    ours = engine.ask(prompt, inject("acme", [header, fact], 24), 4)
    assert ours.injected == 50
    assert_same(ours, engine.plain(prompt, 4), NOISE)


def cached_kv(engine: Engine, pieces: list[Any]) -> list[Any]:
    """[layer]: K and V, [2][token][head][dim], of pieces, read out of the engine's own cache."""
    _, hands = halves(engine)
    (layers,) = hands._records.mover._groups
    place = layers[0].permutation()
    kv = []
    for layer in layers:
        memory = layer.cache.flatten(1)
        rows = [
            memory[piece.blocks[0][token // BLOCK]][place[:, token % BLOCK]]
            for piece in pieces
            for token in range(piece.first, piece.first + piece.tokens)
        ]
        kv.append(torch.stack(rows, 1).double())
    return kv


def rotated(keys: Any, by: Any) -> Any:
    """fp64, SmolLM2's rotation: halves, base 100,000."""
    half = keys.shape[-1] // 2
    angle = by[:, None] * 100000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]
    one, other = keys[..., :half], keys[..., half:]
    return torch.cat([one * cos - other * sin, other * cos + one * sin], -1)


def test_facts_at_other_positions_are_rotated(
    engine: Engine, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stands in the cache is what was captured, its keys turned by the way it was moved."""
    _, hands = halves(engine)
    mover = hands._records.mover
    moved: dict[str, list[Any]] = {}
    for name in ("capture", "inject"):
        real = getattr(mover, name)

        def spy(what: Any, stream: int, name: str = name, real: Any = real) -> None:
            real(what, stream)
            pieces = what if name == "capture" else list(pieces_of(what))
            moved.setdefault(name, []).extend(cached_kv(engine, pieces))
            moved.setdefault(f"{name} at", []).extend(
                token for p in pieces for token in range(p.first, p.first + p.tokens)
            )

        monkeypatch.setattr(mover, name, spy)
    facts = engine.keep(some_facts(rng, [13, 40, 25, 60]))
    header, *spans = facts.spans()
    order = [2, 0, 1]
    plan, first, prompt, captured = [header], 13, list(facts.header), list(range(13))
    for i in order:
        at, tokens, _, key = spans[i]
        captured += range(at, at + tokens)
        plan.append([first, tokens, 0, key])
        prompt += facts.facts[i]
        first += tokens
    ours = engine.ask(prompt + words(rng, 9), inject("acme", plan, 13), 2)
    assert ours.injected == len(prompt)
    assert moved["inject at"] == list(range(len(prompt)))
    by = torch.tensor([to - at for to, at in enumerate(captured)], dtype=torch.float64)
    for before, after in zip(moved["capture"], moved["inject"], strict=True):
        assert torch.equal(before[1][captured], after[1])
        expected = rotated(before[0][captured], by)
        error = ((after[0] - expected).norm(dim=-1) / expected.norm(dim=-1)).max()
        assert error < 1e-5


def test_capture_in_chunks_is_capture_in_one(engine: Engine, rng: random.Random) -> None:
    """The prompt is longer than what vLLM computes in a step (256 tokens), so is a record."""
    facts = engine.keep(some_facts(rng, [40, 300, 200]))
    prompt = facts.prompt + words(rng, 20)
    ours = engine.ask(prompt, plan_of(facts), 4)
    assert ours.injected == 540
    assert_same(ours, engine.plain(prompt, 4), NOISE)


# ---- vLLM's prefix cache stays exact


def poisoned(engine: Engine, rng: random.Random) -> tuple[Facts, Facts]:
    """Facts, and the same ones with the KV that they have behind another header: injecting that
    changes the answer much."""
    facts = some_facts(rng, [40, 70, 50])
    other = Facts(words(rng, 40), facts.facts)
    engine.keep(other)
    engine.keep(facts)
    facts.keys[1:] = other.keys[1:]
    return facts, other


def test_without_a_plan_no_injected_block_is_read(engine: Engine, rng: random.Random) -> None:
    facts, _ = poisoned(engine, rng)
    prompt = facts.prompt + words(rng, 40)
    plain = engine.plain(prompt, 6)
    ours = engine.ask(prompt, plan_of(facts), 6)
    assert ours.injected == 160
    again = engine.ask(prompt, plan_of(facts), 6)
    assert again.cached == len(prompt) // BLOCK * BLOCK - BLOCK * (len(prompt) % BLOCK == 0)
    assert_same(again, ours, NOISE)
    worst = max(abs(plain.logprobs[0].get(t, -20) - p) for t, p in ours.logprobs[0].items())
    assert worst > 20 * NOISE, "the poison does nothing, so this test would prove nothing"
    without = engine.ask(prompt, None, 6)
    assert without.cached <= facts.exact // BLOCK * BLOCK
    assert_same(without, plain, NOISE)


def test_encoding_reads_no_injected_block(engine: Engine, rng: random.Random) -> None:
    """Nor the header's, whose blocks are not salted."""
    facts, _ = poisoned(engine, rng)
    prompt = facts.prompt + words(rng, 40)
    engine.ask(prompt, plan_of(facts))
    again = Facts(facts.header, facts.facts)
    records = again.records()
    assert engine.ask(facts.prompt, encode("acme", records)).cached <= 160 // BLOCK * BLOCK
    wait_for(lambda: engine.stored(again), "the records")
    ours = engine.ask(prompt, plan_of(again), 6)
    assert_same(ours, engine.plain(prompt, 6), NOISE)
    # What a plan injected, a new encode request does not find.
    fresh = Facts(words(rng, 64), facts.facts)
    engine.keep(fresh)
    engine.llm.reset_prefix_cache()
    engine.ask(fresh.prompt, plan_of(fresh))
    assert (
        engine.ask(fresh.prompt, encode("acme", Facts(fresh.header, fresh.facts).records())).cached
        == 0
    )


def test_a_later_turn_hits_the_earlier_ones_blocks(engine: Engine, rng: random.Random) -> None:
    """Injected, computed and generated ones, and injects what the new turn brings."""
    facts = engine.keep(some_facts(rng, [32, 60, 40]))
    more = engine.keep(some_facts(rng, [32, 50]))
    turn = facts.prompt + words(rng, 28)
    first = engine.ask(turn, plan_of(facts), 1 + -len(turn) % BLOCK + 2 * BLOCK)
    said = turn + first.tokens
    said = said[: len(said) // BLOCK * BLOCK]
    _, span = more.spans()
    second = said + more.facts[0] + words(rng, 10)
    plan = inject("acme", [*facts.spans(), [len(said), 50, 0, span[3]]], 32)
    ours = engine.ask(second, plan, 3)
    assert ours.cached == len(said) + 50
    assert ours.injected in (50, 50 + BLOCK)  # the last block may not have been full


def test_tenants_are_separate(engine: Engine, rng: random.Random) -> None:
    facts, _ = poisoned(engine, rng)
    prompt = facts.prompt + words(rng, 20)
    plain = engine.plain(prompt, 4)
    assert engine.ask(prompt, plan_of(facts), 4).injected == 160
    before = engine.refused()
    theirs = engine.ask(prompt, plan_of(facts, "other"), 4)
    assert theirs.injected == 0
    assert theirs.cached <= facts.exact // BLOCK * BLOCK
    assert_same(theirs, plain, NOISE)
    assert counted(before, engine.refused()) == {"not_found": 3}


def test_a_record_of_nobody_is_everybodys(engine: Engine, rng: random.Random) -> None:
    header = words(rng, 50)
    ours = Facts(header, [])
    engine.keep(ours, "")
    for tenant in ("one", "two"):
        answer = engine.ask(header + words(rng, 9), inject(tenant, ours.spans(), 50))
        assert answer.cached == 50
        engine.llm.reset_prefix_cache()


def test_what_is_erased_is_never_hit_again(engine: Engine, rng: random.Random) -> None:
    facts, _ = poisoned(engine, rng)
    prompt = facts.prompt + words(rng, 20)
    plain = engine.plain(prompt, 4)
    assert engine.ask(prompt, plan_of(facts), 4).injected == 160
    erase(engine.directory, facts.keys[2:])
    before = engine.refused()
    ours = engine.ask(prompt, plan_of(facts), 4)
    assert ours.cached == 110
    assert counted(before, engine.refused()) == {"not_found": 1}
    erase(engine.directory, facts.keys)
    ours = engine.ask(prompt, plan_of(facts), 4)
    assert ours.injected == 0
    assert ours.cached <= facts.exact // BLOCK * BLOCK
    assert_same(ours, plain, NOISE)


# ---- plans that are wrong, and requests that take none


def bad_plans(facts: Facts) -> dict[str, tuple[Any, dict[str, int]]]:
    """Each with what is counted for it."""
    header, one, two = facts.spans()
    right = inject("acme", [header, one, two], facts.exact)
    return {
        "unknown key": (inject("acme", [header, [*one[:3], new_key()], two]), {"not_found": 1}),
        "wrong tokens": (
            inject("acme", [header, [*one[:3], two[3]], two]),
            {"invalid": 1} if one[1] > two[1] else {"conflict": 1},
        ),
        "beyond the record": (inject("acme", [header, [*one[:2], 5, one[3]]]), {"invalid": 1}),
        "overlap": (inject("acme", [header, one, [one[0] + 1, *two[1:]]]), {"overlap": 1}),
        "negative length": (inject("acme", [[0, -5, 0, header[3]]]), {"range": 1}),
        "ten thousand": (
            inject("acme", [[i, 1, 0, new_key()] for i in range(10_000)]),
            {"range": 1},
        ),
        "no list": ({**right, "spans": "all"}, {"malformed": 1}),
        "version": ({**right, "v": 9}, {"version": 1}),
        "no object": ("inject", {"malformed": 1}),
        "operation": ({**right, "op": "delete"}, {"op": 1}),
    }


@pytest.mark.parametrize("name", bad_plans(Facts([1], [[2], [3]], ["0" * 32] * 3)))
def test_a_bad_plan_costs_time_only(engine: Engine, rng: random.Random, name: str) -> None:
    facts = engine.keep(some_facts(rng, [30, 40, 35]))
    prompt = facts.prompt + words(rng, 15)
    plan, why = bad_plans(facts)[name]
    before = engine.refused()
    ours = engine.ask(prompt, plan, 4)
    assert ours.injected in (0, 30)  # the header may be right
    assert_same(ours, engine.plain(prompt, 4), NOISE)
    assert counted(before, engine.refused()) == why


def test_prompt_logprobs_need_the_whole_prompt(engine: Engine, rng: random.Random) -> None:
    facts = engine.keep(some_facts(rng, [30, 40]))
    before = engine.refused()
    ours = engine.ask([*facts.prompt, 9], plan_of(facts), 1, prompt_logprobs=1)
    assert ours.ours["refused"] == "prompt_logprobs"
    assert counted(before, engine.refused()) == {"prompt_logprobs": 1}


def test_a_salt_of_ours_is_no_clients(engine: Engine, rng: random.Random) -> None:
    facts = engine.keep(some_facts(rng, [30, 40]))
    before = engine.keep(some_facts(rng, [30, 40])).prompt  # under the salt of encode requests
    assert engine.ask([*before, 9], salt="inferscale:encode:acme").cached == 0
    ours = engine.ask([*facts.prompt, 9], plan_of(facts), salt="inferscale:encode:acme")
    assert (ours.injected, ours.cached) == (70, 70)


def test_a_clients_salt_is_kept(engine: Engine, rng: random.Random) -> None:
    facts = engine.keep(some_facts(rng, [64, 64]))
    prompt = facts.prompt + words(rng, 9)
    assert engine.ask(prompt, plan_of(facts), salt="mine").injected == 128
    assert engine.ask(prompt, plan_of(facts), salt="mine").cached == 128
    assert engine.ask(prompt, plan_of(facts), salt="mine").injected == 0
    assert engine.ask(prompt, plan_of(facts), salt="yours").injected == 128


# ---- many requests


def test_samples_of_one_request_share_the_injected_blocks(
    engine: Engine, rng: random.Random
) -> None:
    from vllm import SamplingParams

    facts = engine.keep(some_facts(rng, [30, 70]))
    prompt = facts.prompt + words(rng, 8)
    params = SamplingParams(
        n=3,
        temperature=1.0,
        seed=1,
        max_tokens=4,
        extra_args={"kv_transfer_params": {"inferscale": plan_of(facts)}},
    )
    (output,) = engine.llm.generate([{"prompt_token_ids": prompt}], params, use_tqdm=False)
    assert len(output.outputs) == 3


def test_stop_strings_end_an_injected_answer(engine: Engine, rng: random.Random) -> None:
    facts = engine.keep(some_facts(rng, [30, 70]))
    prompt = facts.prompt + words(rng, 8)
    plain = engine.plain(prompt, 12)
    stop = engine.llm.get_tokenizer().decode(plain.tokens[3:5])
    ours = engine.ask(prompt, plan_of(facts), 12, stop=[stop])
    assert len(ours.tokens) <= 12
    assert ours.text == plain.text.split(stop)[0]


def test_aborted_requests_leave_nothing(engine: Engine, rng: random.Random) -> None:
    """In the queue, in the middle of an answer, in the middle of a capture."""
    facts = engine.keep(some_facts(rng, [30, 70]))
    inner = engine.llm.llm_engine
    prompt = facts.prompt + words(rng, 8)
    long_ = some_facts(rng, [50, 600])

    def add(name: str, prompt: Ids, plan: Any, tokens: int) -> str:
        return inner.add_request(name, {"prompt_token_ids": prompt}, sampling(plan, tokens)) or name

    queued = add("queued", prompt, plan_of(facts), 50)
    inner.abort_request([queued], internal=True)
    running = add("running", prompt, plan_of(facts), 50)
    for _ in range(4):
        inner.step()
    inner.abort_request([running], internal=True)
    capturing = add("capturing", long_.prompt, encode("acme", long_.records()), 1)
    inner.step()
    _, hands = halves(engine)
    assert hands._captures
    inner.abort_request([capturing], internal=True)
    while inner.has_unfinished_requests():
        inner.step()
    assert not engine.stored(long_)
    assert_same(engine.ask(prompt, plan_of(facts), 4), engine.plain(prompt, 4), NOISE)
