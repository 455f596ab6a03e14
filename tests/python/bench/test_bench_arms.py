"""Which arms a word means."""

import pytest
from inferscale.bench.arms import Arm, Store, complete, parse


def test_words() -> None:
    assert parse("kv") == [Arm("kv", "anchor(20)", 3, 3, "none")]
    assert parse("kv:window=window(8),episode=1,plain=0,codec=int8") == [
        Arm("kv", "window(8)", 1, 0, "int8")
    ]
    assert [arm.window for arm in parse("article")] == [
        "isolated",
        "window(5)",
        "window(20)",
        "window(50)",
    ]
    assert all(arm.plain == 0 and arm.episode == 1 for arm in parse("article"))


@pytest.mark.parametrize(
    "word",
    [
        "",
        "magic",
        "kv:episode=0",
        "kv:plain=x",
        "kv:window=anchor",
        "kv:codec=int2",
        "kv:facts=3",
        "kv:infer=2",
    ],
)
def test_unknown_words_are_named(word: str) -> None:
    with pytest.raises(ValueError, match="arm '"):
        parse(word)


def test_every_arm_has_its_text() -> None:
    arms = complete([*parse("kv"), *parse("article"), *parse("shuffled:episode=1")])
    names = [arm.name for arm in arms]
    assert len(set(names)) == len(names)
    assert all(arm.reference in names for arm in arms)
    assert {arm.name for arm in arms if arm.memory == "text"} == {"text e3", "text e1"}


def test_text_needs_no_store_of_its_own() -> None:
    arms = complete(parse("kv:window=window(8),codec=int8"))
    assert {arm.store for arm in arms} == {Store("window(8)", 3, "int8")}
    assert {arm.store for arm in complete(parse("text"))} == {Store("anchor(20)", 3, "none")}


def test_what_is_drawn_from_turns_is_compared_with_both() -> None:
    arms = {arm.name: arm for arm in complete(parse("kv:infer=1"))}
    kv, drawn, turns = arms["kv e3 anchor(20) m3 infer"], arms["text e3 infer"], arms["text e3"]
    assert len(arms) == 3
    assert (kv.reference, drawn.reference, turns.reference) == (drawn.name, turns.name, turns.name)
    assert kv.store == drawn.store == Store("anchor(20)", 3, "none", infer=True)
    assert turns.store == Store("anchor(20)", 3, "none")
    assert complete(parse("text:infer=0")) == complete(parse("text"))


def test_folders_differ_as_stores_do() -> None:
    folders = {Store(w, e, c, i).folder for w in ("anchor(8)", "window(8)") for e in (1, 6)
               for c in ("none", "int8") for i in (False, True)}  # fmt: skip
    assert len(folders) == 16
