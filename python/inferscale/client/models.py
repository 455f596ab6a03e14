"""What goes in and comes out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any


@dataclass(frozen=True)
class Message:
    """One thing that was said; each becomes a fact."""

    text: str
    speaker: str | None = None  # a name; without one the role is the speaker
    role: str = "user"


@dataclass(frozen=True)
class Added:
    """What became of a message."""

    id: str
    text: str
    event: str  # "ADD", "UPDATE", or "NONE": the same was known already
    previous: str | None = None  # what an "UPDATE" corrected


@dataclass(frozen=True)
class Memory:
    """A fact."""

    id: str
    text: str
    user: str | None
    agent: str | None
    run: str | None
    speaker: str | None
    metadata: dict[str, Any]
    said_at: datetime | None
    expires: date | None  # it is deleted at the end of this day, UTC
    created_at: datetime
    updated_at: datetime
    version: int
    score: float | None = None  # of a search: the cosine of query and fact
    score_details: dict[str, float] | None = None  # with explain=True


@dataclass(frozen=True)
class Page:
    """Some of a list, newest first."""

    memories: list[Memory]
    total: int
    has_more: bool


@dataclass(frozen=True)
class Event:
    """What happened to a memory. Once it is deleted, its texts are gone here too."""

    event: str  # "ADD", "UPDATE", "DELETE", "EXPIRE"
    old_text: str | None
    new_text: str | None
    at: datetime
    version: int


@dataclass(frozen=True)
class Erased:
    """How much went from where."""

    facts: int
    kv_records: int
    kv_pending: bool


@dataclass(frozen=True)
class Entity:
    """A user, agent or run that has memories."""

    type: str
    name: str
    total_memories: int


@dataclass(frozen=True)
class UsedFact:
    """A fact that an answer was given."""

    id: str
    text: str
    score: float
    tokens: int
    injected: bool  # its KV was injected; else it was computed
    tier: str | None  # where that KV lay


@dataclass(frozen=True)
class Answer:
    """A reply, and what it was made from."""

    text: str
    facts: list[UsedFact]
    mode: str  # "kv", "text" or "none"
    finish: str  # "stop" or "length"
    prompt_tokens: int
    completion_tokens: int
    injected_tokens: int
    prefilled_tokens: int
    times: dict[str, float] = field(default_factory=dict)  # milliseconds of each step


@dataclass(frozen=True)
class Health:
    status: str
    model: str
    engine: str
    injection: bool
    self_test: str
    quality: Mapping[str, Any] | None  # what `inferscale verify` measured
