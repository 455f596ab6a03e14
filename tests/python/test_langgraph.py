"""The store for LangGraph, used as LangGraph uses it."""

import asyncio
from collections.abc import Iterator
from typing import Any, TypedDict

import pytest
from inferscale.client import InferScale
from inferscale.langgraph import InferScaleStore, user_of
from langgraph.graph import START, StateGraph
from langgraph.store.base import BaseStore, GetOp, InvalidNamespaceError, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore
from served import Served, serve

from cli import Cli

ANA = ("memories", "ana")


@pytest.fixture(scope="module")
def served(module_cli: Cli) -> Iterator[Served]:
    with serve(module_cli) as running:
        yield running


@pytest.fixture
def client(served: Served) -> Iterator[InferScale]:
    with InferScale(served.url) as made:
        yield made
        for entity in made.entities():
            if entity.type == "user":
                made.delete_all(user=entity.name)


@pytest.fixture
def store(client: InferScale) -> InferScaleStore:
    return InferScaleStore(client)


@pytest.fixture(params=["inferscale", "in memory"])
def either(request: pytest.FixtureRequest, client: InferScale) -> BaseStore:
    """Ours, and the one that shows how it is meant."""
    return InferScaleStore(client) if request.param == "inferscale" else InMemoryStore()


def keys(items: list[Any]) -> list[str]:
    return sorted(item.key for item in items)


def test_items_are_put_got_and_deleted(either: BaseStore) -> None:
    assert either.get(ANA, "home") is None
    either.put(ANA, "home", {"text": "Ana lives in Lisbon", "tags": ["a", "b"], "n": {"x": 1.5}})
    either.put(("memories", "bo"), "home", {"text": "Bo lives in Rome"})
    first = either.get(ANA, "home")
    assert first is not None
    assert (first.namespace, first.key) == (ANA, "home")
    assert first.value == {"text": "Ana lives in Lisbon", "tags": ["a", "b"], "n": {"x": 1.5}}
    either.put(ANA, "home", {"text": "Ana lives in Porto"})
    second = either.get(ANA, "home")
    assert second is not None
    assert second.value == {"text": "Ana lives in Porto"}
    assert second.updated_at >= first.updated_at
    either.put(ANA, "home", {"text": "Ana lives in Porto", "sure": True})
    assert either.get(ANA, "home").value["sure"] is True  # type: ignore[union-attr]
    either.delete(ANA, "home")
    either.delete(ANA, "home")
    assert either.get(ANA, "home") is None
    assert either.get(("memories", "bo"), "home") is not None


def test_two_keys_may_hold_the_same(either: BaseStore) -> None:
    for key in ("a", "b", "c"):
        either.put(ANA, key, {"text": "the same"})
    assert keys(either.search(ANA)) == ["a", "b", "c"]
    either.delete(ANA, "a")
    assert keys(either.search(ANA)) == ["b", "c"]


@pytest.mark.parametrize(
    ("filter", "found"),
    [
        ({"kind": "tea"}, ["a", "b"]),
        ({"kind": "*"}, ["d"]),
        ({"kind": {"$eq": "tea"}, "cups": {"$gt": 1}}, ["b"]),
        ({"cups": {"$gte": 1, "$lt": 3}}, ["a", "b"]),
        ({"kind": {"$ne": "tea"}}, ["c", "d"]),
        ({"more": {"hot": True}}, ["a"]),
        ({"kind": ["tea"]}, ["c"]),
        ({"dots.in": "a name"}, ["d"]),
        ({"none": None}, ["a", "b", "c", "d"]),
    ],
)
def test_filters_mean_the_same(either: BaseStore, filter: dict[str, Any], found: list[str]) -> None:
    either.put(ANA, "a", {"kind": "tea", "cups": 1, "more": {"hot": True, "sweet": False}})
    either.put(ANA, "b", {"kind": "tea", "cups": 2, "more": {"hot": False}})
    either.put(ANA, "c", {"kind": ["tea"], "cups": 3})
    either.put(ANA, "d", {"kind": "*", "cups": 4, "dots.in": "a name"})
    assert keys(either.search(ANA, filter=filter)) == found
    assert len(either.search((), filter=filter, limit=1)) == 1
    assert len(either.search((), filter=filter, offset=1)) == len(found) - 1


def test_namespaces_are_listed(either: BaseStore) -> None:
    for namespace in (ANA, ("memories", "bo"), ("notes", "ana"), ("memories", "a/b", "100%", "2F")):
        either.put(namespace, "k", {"text": f"of {namespace}"})
        assert either.get(namespace, "k") is not None
    assert either.list_namespaces() == [
        ("memories", "a/b", "100%", "2F"),
        ANA,
        ("memories", "bo"),
        ("notes", "ana"),
    ]
    assert either.list_namespaces(suffix=("ana",)) == [ANA, ("notes", "ana")]
    assert either.list_namespaces(prefix=("*", "bo")) == [("memories", "bo")]
    assert either.list_namespaces(max_depth=1) == [("memories",), ("notes",)]
    assert either.list_namespaces(limit=1, offset=1) == [ANA]
    assert len(either.search(("memories",))) == 3
    assert len(either.search(())) == 4
    assert either.search(("mem",)) == []
    with pytest.raises(InvalidNamespaceError):
        either.put(("a.b",), "k", {"text": "x"})


def test_a_batch_reads_first_and_its_last_put_counts(either: BaseStore) -> None:
    either.put(ANA, "a", {"text": "before"})
    got = either.batch(
        [
            PutOp(ANA, "a", {"text": "between"}),
            GetOp(ANA, "a"),
            PutOp(ANA, "a", {"text": "after"}),
            SearchOp(ANA),
        ]
    )
    assert got[0] is None
    assert got[1].value == {"text": "before"}  # type: ignore[union-attr]
    assert len(got[3]) == 1  # type: ignore[arg-type]
    assert either.get(ANA, "a").value == {"text": "after"}  # type: ignore[union-attr]


def test_items_are_found_by_meaning(store: InferScaleStore) -> None:
    store.put(ANA, "home", {"text": "Ana moved to Lisbon in May."})
    store.put(ANA, "pet", {"content": "Her cat is called Miso.", "kind": "pet"})
    store.put(("notes", "ana"), "tea", {"likes": "green tea"})
    found = store.search(ANA, query="To which city did Ana move?", limit=1)
    assert keys(found) == ["home"]
    assert found[0].score is not None
    assert keys(store.search(ANA, query="To which city did Ana move?", filter={"kind": "pet"})) == [
        "pet"
    ]
    assert keys(store.search((), query="a drink", limit=1)) == ["tea"]
    assert store.search(ANA, query="cat", limit=5, offset=2) == []


def test_many_namespaces_are_searched(
    store: InferScaleStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        store.put(("many", f"{number}"), "k", {"text": f"a note of number {number}"})
    store.put(("few",), "k", {"text": "a note of few"})
    monkeypatch.setattr("inferscale.langgraph._MOST_NAMED", 2)
    assert len(store.search(("many",))) == 4
    found = store.search(("many",), query="a note of few", limit=2)
    assert [item.namespace[0] for item in found] == ["many", "many"]


def test_what_is_remembered_of_a_value(client: InferScale) -> None:
    def remembered(value: dict[str, Any], **more: Any) -> str:
        store = InferScaleStore(client, fields=more.pop("fields", None))
        store.put(ANA, "k", value, **more)
        return next(client.all(user=user_of(ANA))).text

    assert remembered({"n": 1, "content": "It rains.", "memory": "no"}) == "It rains."
    assert remembered({"b": 1, "a": "x"}) == '{"a": "x", "b": 1}'
    assert remembered({"a": "one", "b": {"c": "two"}}, fields=["b.c", "a"]) == "two\none"
    assert remembered({"a": "one", "b": "two"}, fields=["a"], index=["b"]) == "two"
    assert remembered({"text": "  ", "a": 1}) == '{"a": 1, "text": "  "}'
    store = InferScaleStore(client)
    with pytest.raises(NotImplementedError):
        store.put(ANA, "k", {"text": "x"}, index=False)
    with pytest.raises(NotImplementedError):
        store.put(ANA, "k", {"text": "x"}, ttl=5)


def test_a_users_facts_are_items_whoever_told_them(
    store: InferScaleStore, client: InferScale
) -> None:
    fact = client.add("I am allergic to nuts.", user="ana").id
    item = store.get(("ana",), fact)
    assert item is not None
    assert item.value == {"text": "I am allergic to nuts."}
    assert keys(store.search(("ana",), query="allergy", filter={"text": item.value["text"]})) == [
        fact
    ]
    store.put(("ana",), "tea", {"text": "Ana drinks green tea."})
    answer = client.chat("What does Ana drink?", user="ana", max_tokens=4)
    assert {one.text for one in answer.facts} == {"I am allergic to nuts.", "Ana drinks green tea."}
    client.add("of nobody in particular", user="a.name@example.org")
    assert store.list_namespaces() == [("ana",)]


def test_a_graph_remembers_between_threads(store: InferScaleStore) -> None:
    class State(TypedDict):
        said: str
        known: list[str]

    async def remember(state: State, *, store: BaseStore) -> dict[str, Any]:
        known = await store.asearch(ANA, query=state["said"])
        await store.aput(ANA, state["said"], {"text": state["said"]})
        return {"known": [item.value["text"] for item in known]}

    builder = StateGraph(State)
    builder.add_node("remember", remember)
    builder.add_edge(START, "remember")
    graph = builder.compile(store=store)

    def say(text: str) -> list[str]:
        known: list[str] = asyncio.run(graph.ainvoke({"said": text, "known": []}))["known"]
        return known

    assert say("My dog is called Rex.") == []
    assert say("What is my dog called?") == ["My dog is called Rex."]
