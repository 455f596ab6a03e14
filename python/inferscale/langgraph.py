"""LangGraph's long-term memory, kept by a gateway.

    from inferscale.client import InferScale
    from inferscale.langgraph import InferScaleStore

    store = InferScaleStore(InferScale("http://127.0.0.1:8080", key=KEY))
    graph = builder.compile(store=store)

A namespace is a user: what is put into ("memories", "ana") are facts of "memories/ana" (`user_of`),
which a chat with that user is given. And the facts of user "ana", however they came, are items of
the namespace ("ana",): without a key of LangGraph's their key is their id, and their value holds
the text.

Needs `langgraph`: pip install 'inferscale[langgraph]'.
"""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from langgraph.store.base import (
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    get_text_at_path,
    validate_op_namespace,
)

from inferscale.client import InferScale, Memory

Namespace = tuple[str, ...]

# What an item adds to its fact's metadata: {"key": ..., "value": {...}}.
_OURS = "langgraph"
_MOST_FOUND = 1000  # by one search of the gateway
_MOST_NAMED = 500  # users in one filter
_TEXTS = ("text", "content", "memory", "fact")  # a value's text, if it has such a field
_ORDER: dict[str, Callable[[float, float], bool]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


def user_of(namespace: Namespace) -> str:
    """The user whose facts a namespace's items are."""
    return "/".join(label.replace("%", "%25").replace("/", "%2F") for label in namespace)


class InferScaleStore(BaseStore):
    """Items are facts: searchable at once by words and meaning, and given to chats.

    What is remembered of an item is the text at the paths `fields`, or at those of its `put`;
    without either, the value's "text", "content", "memory" or "fact", or all of it as JSON. Every
    item has a text to be found by: `index=False` is refused. So is a `ttl`.
    """

    def __init__(self, client: InferScale, *, fields: Sequence[str] | None = None) -> None:
        self._client = client
        self._fields = fields

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Reads see what was there before; of several puts of one key the last counts."""
        results: list[Result] = []
        puts: dict[tuple[Namespace, str], PutOp] = {}
        for op in ops:
            validate_op_namespace(op)
            if isinstance(op, PutOp):
                puts[op.namespace, op.key] = op
                results.append(None)
            elif isinstance(op, GetOp):
                results.append(next(self._items_of(op.namespace, op.key), None))
            elif isinstance(op, SearchOp):
                results.append(self._search(op))
            elif isinstance(op, ListNamespacesOp):
                results.append(self._list_namespaces(op))
            else:
                raise ValueError(f"an unknown operation: {type(op).__name__}")
        for put in puts.values():
            self._put(put)
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        return await asyncio.to_thread(self.batch, list(ops))

    def _put(self, op: PutOp) -> None:
        there = list(self._memories_of(op.namespace, op.key))
        if op.value is None:
            for memory in there:
                self._client.delete(memory.id)
            return
        text = self._text(op)
        metadata = {_OURS: {"key": op.key, "value": op.value}}
        if there:
            changed = text if text != there[0].text else None
            self._client.update(there[0].id, text=changed, metadata=metadata)
            return
        user = user_of(op.namespace)
        added = self._client.add(text, speaker="", user=user, metadata=metadata)
        if added.event == "NONE":
            # Another item says the same. What is of another run is another fact.
            self._client.add(text, speaker="", user=user, run=op.key, metadata=metadata)

    def _text(self, op: PutOp) -> str:
        if op.index is False:
            raise NotImplementedError("InferScale finds every item: index=False is not supported")
        value = op.value or {}
        paths = op.index or self._fields
        if paths is None:
            texts = [value[name] for name in _TEXTS if isinstance(value.get(name), str)][:1]
        else:
            texts = [text for path in paths for text in get_text_at_path(value, path)]
        return "\n".join(text for text in texts if text.strip()) or get_text_at_path(value, "$")[0]

    def _memories_of(self, namespace: Namespace, key: str) -> Iterator[Memory]:
        named: Mapping[str, Any] = {"OR": [{f"{_OURS}.key": {"eq": key}}, {"id": {"eq": key}}]}
        for memory in self._client.all(user=user_of(namespace), filters=named):
            if _item(namespace, memory).key == key:
                yield memory

    def _items_of(self, namespace: Namespace, key: str) -> Iterator[Item]:
        return (_item(namespace, memory) for memory in self._memories_of(namespace, key))

    def _search(self, op: SearchOp) -> list[SearchItem]:
        depth = len(op.namespace_prefix)
        users = {
            user_of(namespace): namespace
            for namespace in self._namespaces()
            if namespace[:depth] == op.namespace_prefix
        }
        wanted, filters = op.filter or {}, _narrowed(op.filter or {})
        if len(users) <= _MOST_NAMED:
            filters.append({"user_id": {"in": list(users)}})
        found: Iterable[Memory] = ()
        if users and op.query:
            exact = not wanted and len(users) <= _MOST_NAMED  # none of those found is left out
            most = min(op.offset + op.limit, _MOST_FOUND) if exact else _MOST_FOUND
            found = self._client.search(op.query, filters={"AND": filters}, k=most)
        elif users:
            found = self._client.all(filters={"AND": filters})
        items = (
            _item(users[memory.user], memory)
            for memory in found
            if memory.user is not None and memory.user in users
        )
        fitting = (item for item in items if _matches(item.value, wanted))
        return list(islice(fitting, op.offset, op.offset + op.limit))

    def _namespaces(self) -> list[Namespace]:
        """Those that have items; users whose names can't be a namespace's are left out."""
        users = [one.name for one in self._client.entities() if one.type == "user"]
        return sorted(namespace for user in users if (namespace := _namespace_of(user)))

    def _list_namespaces(self, op: ListNamespacesOp) -> list[Namespace]:
        fitting = [
            namespace
            for namespace in self._namespaces()
            if all(_fits(namespace, condition) for condition in op.match_conditions or ())
        ]
        if op.max_depth is not None:
            fitting = sorted({namespace[: op.max_depth] for namespace in fitting})
        return fitting[op.offset : op.offset + op.limit]


def _namespace_of(user: str) -> Namespace | None:
    labels = (label.replace("%2F", "/").replace("%25", "%") for label in user.split("/"))
    namespace = tuple(labels)
    try:
        validate_op_namespace(GetOp(namespace, ""))
    except InvalidNamespaceError:
        return None
    return namespace if user_of(namespace) == user else None


def _item(namespace: Namespace, memory: Memory) -> SearchItem:
    ours = memory.metadata.get(_OURS, {"key": memory.id, "value": {"text": memory.text}})
    return SearchItem(
        namespace, ours["key"], ours["value"], memory.created_at, memory.updated_at, memory.score
    )


# ---- filters -------------------------------------------------------------------------------------


def _narrowed(filter: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the gateway can leave out by itself: no item that matches, and fewer that don't."""
    foreign = {"NOT": [{f"{_OURS}.key": "*"}]}
    return [
        {"OR": [{f"{_OURS}.value.{name}": {"eq": wanted}}, foreign]}
        for name, wanted in filter.items()
        if isinstance(wanted, str) and "." not in name
    ]


def _matches(value: Any, filter: Mapping[str, Any]) -> bool:
    return all(_equals(value.get(name), wanted) for name, wanted in filter.items())


def _equals(value: Any, wanted: Any) -> bool:
    if not isinstance(wanted, Mapping):
        return bool(value == wanted)
    if any(name.startswith("$") for name in wanted):
        return all(_holds(value, test, other) for test, other in wanted.items())
    return isinstance(value, Mapping) and _matches(value, wanted)


def _holds(value: Any, test: str, other: Any) -> bool:
    if test == "$eq":
        return bool(value == other)
    if test == "$ne":
        return bool(value != other)
    if test not in _ORDER:
        raise ValueError(f"an unknown operator: {test}")
    try:
        return _ORDER[test](float(value), float(other))
    except (TypeError, ValueError):
        return False  # what is no number is neither more nor less


def _fits(namespace: Namespace, condition: MatchCondition) -> bool:
    path = condition.path
    if len(path) > len(namespace):
        return False
    part = namespace[: len(path)]
    if condition.match_type == "suffix":
        part = namespace[len(namespace) - len(path) :]
    return all(wanted in ("*", label) for label, wanted in zip(part, path, strict=True))
