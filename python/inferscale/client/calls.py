"""Requests, and how their answers are read. Sends nothing: that is the clients' part."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from inferscale.client.models import (
    Added,
    Answer,
    Entity,
    Erased,
    Event,
    Health,
    Memory,
    Message,
    Page,
    UsedFact,
)

T = TypeVar("T")
Filters = Mapping[str, Any]


@dataclass(frozen=True)
class Call(Generic[T]):
    """A request, and what makes a result of the JSON that answers it."""

    method: str
    path: str
    read: Callable[[Any], T]
    params: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    repeatable: bool = True  # asking twice does what asking once does


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _who(user: str | None, agent: str | None, run: str | None) -> dict[str, str]:
    return _given(user_id=user, agent_id=agent, run_id=run)


def _memory_path(id: str) -> str:
    return f"/memories/{quote(id, safe='')}"


def _time_text(time: datetime) -> str:
    """A time without a zone is the machine's, as elsewhere in Python."""
    return time.astimezone().isoformat()


# ---- reading -------------------------------------------------------------------------------------


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def _memory(data: Any) -> Memory:
    said_at, expires = data["said_at"], data["expiration_date"]
    return Memory(
        id=data["id"],
        text=data["memory"],
        user=data["user_id"],
        agent=data["agent_id"],
        run=data["run_id"],
        speaker=data["actor_id"],
        metadata=data["metadata"],
        said_at=None if said_at is None else _time(said_at),
        expires=None if expires is None else date.fromisoformat(expires),
        created_at=_time(data["created_at"]),
        updated_at=_time(data["updated_at"]),
        version=data["version"],
        score=data.get("score"),
        score_details=data.get("score_details"),
    )


def _memories(data: Any) -> list[Memory]:
    return [_memory(one) for one in data["results"]]


def _page(data: Any) -> Page:
    return Page(_memories(data), data["count"], data["next"] is not None)


def _added(data: Any) -> list[Added]:
    return [
        Added(one["id"], one["memory"], one["event"], one.get("previous_memory"))
        for one in data["results"]
    ]


def _erased(data: Any) -> Erased:
    erased = data["erased"]
    return Erased(erased["text"], erased["kv_records"], erased["kv_pending"])


def _history(data: Any) -> list[Event]:
    return [
        Event(
            one["event"],
            one["old_memory"],
            one["new_memory"],
            _time(one["created_at"]),
            one["version"],
        )
        for one in data
    ]


def _entities(data: Any) -> list[Entity]:
    return [Entity(one["type"], one["name"], one["total_memories"]) for one in data]


def _health(data: Any) -> Health:
    names = ("status", "model", "engine", "injection", "self_test", "quality")
    return Health(*(data[name] for name in names))


def _answer(data: Any) -> Answer:
    choice = data["choices"][0]
    return answer_from(
        choice["message"]["content"], choice["finish_reason"], data["inferscale"], data["usage"]
    )


def answer_from(text: str, finish: str, memory: Any, usage: Any) -> Answer:
    """An answer from its parts, which a stream has in different chunks."""
    names = ("id", "text", "score", "tokens", "injected", "tier")
    return Answer(
        text=text,
        facts=[UsedFact(*(fact[name] for name in names)) for fact in memory["facts"]],
        mode=memory["mode"],
        finish=finish,
        prompt_tokens=usage["prompt_tokens"],
        completion_tokens=usage["completion_tokens"],
        injected_tokens=memory["injected_tokens"],
        prefilled_tokens=memory["prefilled_tokens"],
        times=memory["times"],
    )


# ---- asking --------------------------------------------------------------------------------------


def add_many(
    messages: Sequence[Message | str],
    *,
    user: str | None = None,
    agent: str | None = None,
    run: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    when: datetime | None = None,
    expires: date | None = None,
    infer: bool = False,
) -> Call[list[Added]]:
    """Remembers up to 1000 messages, a fact each, all said at `when` (now).

    With `infer` the gateway's model draws the facts from them. A user, agent or run is needed.
    """
    said = (Message(one) if isinstance(one, str) else one for one in messages)
    body = {
        "messages": [_given(role=one.role, content=one.text, name=one.speaker) for one in said],
        **_who(user, agent, run),
        **_given(
            metadata=metadata,
            timestamp=None if when is None else _time_text(when),
            expiration_date=None if expires is None else expires.isoformat(),
        ),
        "infer": infer,
    }
    return Call("POST", "/memories", _added, body=body, repeatable=False)


def add(
    text: str,
    *,
    speaker: str | None = None,
    user: str | None = None,
    agent: str | None = None,
    run: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    when: datetime | None = None,
    expires: date | None = None,
) -> Call[Added]:
    """Remembers a text as it is. A user, agent or run is needed."""
    many = add_many(
        [Message(text, speaker)],
        user=user,
        agent=agent,
        run=run,
        metadata=metadata,
        when=when,
        expires=expires,
    )
    return Call(
        many.method, many.path, lambda data: _added(data)[0], body=many.body, repeatable=False
    )


def search(
    query: str,
    *,
    user: str | None = None,
    agent: str | None = None,
    run: str | None = None,
    k: int | None = None,
    filters: Filters | None = None,
    threshold: float | None = None,
    explain: bool = False,
) -> Call[list[Memory]]:
    """The `k` memories nearest to a query, best first; without a user, of all users.

    `filters` are Mem0's: {"AND": [{"topic": "home"}, {"created_at": {"gte": "2026-01-01"}}]}.
    """
    body = {
        "query": query,
        **_who(user, agent, run),
        **_given(top_k=k, filters=filters, threshold=threshold, explain=explain or None),
    }
    return Call("POST", "/search", _memories, body=body)


def list_page(
    *,
    user: str | None = None,
    agent: str | None = None,
    run: str | None = None,
    filters: Filters | None = None,
    page: int = 1,
    page_size: int = 100,
) -> Call[Page]:
    """A page of memories, newest first; pages are counted from 1 and have up to 1000."""
    body = {**_who(user, agent, run), **_given(filters=filters)}
    params = {"page": str(page), "page_size": str(page_size)}
    return Call("POST", "/v3/memories", _page, params, body)


def get(id: str) -> Call[Memory]:
    """One memory."""
    return Call("GET", _memory_path(id), _memory)


def update(
    id: str,
    *,
    text: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    when: datetime | None = None,
    expires: date | None = None,
) -> Call[Memory]:
    """Changes what is given. Metadata goes into what is there; a None in it takes a name away."""
    body = _given(
        text=text,
        metadata=metadata,
        timestamp=None if when is None else _time_text(when),
        expiration_date=None if expires is None else expires.isoformat(),
    )
    return Call("PUT", _memory_path(id), _memory, body=body)


def delete(id: str) -> Call[Erased]:
    """Erases a memory: text, vector, history and KV."""
    return Call("DELETE", _memory_path(id), _erased)


def delete_all(
    *, user: str | None = None, agent: str | None = None, run: str | None = None
) -> Call[Erased]:
    """Erases all of a user, agent or run; at least one is needed."""
    return Call("DELETE", "/memories", _erased, _who(user, agent, run))


def history(id: str) -> Call[list[Event]]:
    """What became of a memory, oldest first."""
    return Call("GET", f"{_memory_path(id)}/history", _history)


def entities() -> Call[list[Entity]]:
    """The users, agents and runs that have memories."""
    return Call("GET", "/entities", _entities)


def health() -> Call[Health]:
    """The model, and whether KV is injected. Needs no key."""
    return Call("GET", "/health", _health)


def chat(
    messages: str | Sequence[Mapping[str, str]],
    *,
    user: str | None = None,
    agent: str | None = None,
    run: str | None = None,
    k: int | None = None,
    mode: str | None = None,
    filters: Filters | None = None,
    remember: bool = False,
    max_tokens: int | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    stop: str | Sequence[str] | None = None,
) -> Call[Answer]:
    """An answer from the user's memories, to a question or to a dialogue in OpenAI's form.

    `k` is the most facts, `mode` "auto", "kv", "text" or "none". With `remember` the question and
    the answer become facts. Without a user there is no memory.
    """
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    memory = _given(
        user=user,
        agent=agent,
        run=run,
        k=k,
        mode=mode,
        filter=filters,
        remember=remember or None,
    )
    body = {
        "messages": list(messages),
        **({"memory": memory} if memory else {}),
        **_given(max_tokens=max_tokens, temperature=temperature, top_p=top_p, seed=seed, stop=stop),
    }
    return Call("POST", "/v1/chat/completions", _answer, body=body, repeatable=not remember)


def streamed(call: Call[Answer]) -> Call[Answer]:
    """The same, answered in parts."""
    body = {**(call.body or {}), "stream": True, "stream_options": {"include_usage": True}}
    return Call(call.method, call.path, call.read, body=body, repeatable=call.repeatable)
