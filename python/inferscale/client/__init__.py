"""The gateway's client, for programs: `InferScale`, and `AsyncInferScale` for asyncio.

    memory = InferScale("http://127.0.0.1:8080", key=KEY)
    memory.add("I moved to Lisbon.", user="ana")
    answer = memory.chat("Where do I live?", user="ana")
    print(answer.text, [fact.text for fact in answer.facts])

Needs `httpx`: pip install 'inferscale[client]'.
"""

from inferscale.client.calls import Call
from inferscale.client.clients import AsyncChatStream, AsyncInferScale, ChatStream, InferScale
from inferscale.client.errors import (
    ApiError,
    BadRequest,
    Conflict,
    ConnectionFailed,
    Forbidden,
    InferScaleError,
    NotFound,
    RateLimited,
    ServerError,
    TimedOut,
    TooLarge,
    Unauthorized,
    Unavailable,
    UnexpectedAnswer,
)
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

__all__ = [
    "Added",
    "Answer",
    "ApiError",
    "AsyncChatStream",
    "AsyncInferScale",
    "BadRequest",
    "Call",
    "ChatStream",
    "Conflict",
    "ConnectionFailed",
    "Entity",
    "Erased",
    "Event",
    "Forbidden",
    "Health",
    "InferScale",
    "InferScaleError",
    "Memory",
    "Message",
    "NotFound",
    "Page",
    "RateLimited",
    "ServerError",
    "TimedOut",
    "TooLarge",
    "Unauthorized",
    "Unavailable",
    "UnexpectedAnswer",
    "UsedFact",
]
