"""The clients: each operation of calls.py as a method, sent by httpx."""

from __future__ import annotations

import asyncio
import functools
import inspect
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

import httpx

from inferscale.client import calls
from inferscale.client.calls import Call, Filters
from inferscale.client.errors import (
    ConnectionFailed,
    TimedOut,
    UnexpectedAnswer,
    error_of,
    retry_after,
)
from inferscale.client.models import Answer, Memory
from inferscale.client.stream import StreamReader

P = ParamSpec("P")
T = TypeVar("T")

DEFAULT_URL = "http://127.0.0.1:8080"
_ASK_AGAIN = (429, 503)
_LONGEST_PAUSE_S = 60.0


# ---- what both clients do ------------------------------------------------------------------------


def _settings(url: str, key: str | None, timeout: float) -> dict[str, Any]:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    return {"base_url": url, "headers": headers, "timeout": timeout}


def _arguments(call: Call[Any]) -> dict[str, Any]:
    return {"method": call.method, "url": call.path, "params": call.params, "json": call.body}


def _pause(
    call: Call[Any], attempt: int, retries: int, outcome: httpx.Response | httpx.TransportError
) -> float | None:
    """Seconds until it is asked again, or None: this outcome counts."""
    if attempt >= retries or not call.repeatable:
        return None
    pause: float = 0.25 * 2**attempt
    if isinstance(outcome, httpx.Response):
        if outcome.status_code not in _ASK_AGAIN:
            return None
        told = retry_after(outcome)
        pause = pause if told is None else told
        return pause if pause <= _LONGEST_PAUSE_S else None
    return None if isinstance(outcome, httpx.TimeoutException) else pause


def _failure(error: httpx.TransportError) -> ConnectionFailed:
    said = str(error) or type(error).__name__
    return TimedOut(said) if isinstance(error, httpx.TimeoutException) else ConnectionFailed(said)


def _accepted(outcome: httpx.Response | httpx.TransportError) -> httpx.Response:
    if isinstance(outcome, httpx.TransportError):
        raise _failure(outcome) from outcome
    if not outcome.is_success:
        raise error_of(outcome)
    return outcome


def _result(call: Call[T], response: httpx.Response) -> T:
    try:
        return call.read(response.json())
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise UnexpectedAnswer(
            f"{call.method} {call.path} was not answered as a gateway does"
        ) from error


def _as_method(method: Callable[..., Any], build: Callable[..., Any], returns: str = "") -> None:
    """For help() and editors: what `build` takes, and not a call but what answers it."""
    functools.update_wrapper(method, build)
    signature = inspect.signature(build)
    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    answer = str(signature.return_annotation).removeprefix("Call[").removesuffix("]")
    method.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[itself, *signature.parameters.values()], return_annotation=returns or answer
    )


def _sync(build: Callable[P, Call[T]]) -> Callable[Concatenate[InferScale, P], T]:
    def method(client: InferScale, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return client.send(build(*args, **kwargs))

    _as_method(method, build)
    return method


def _async(build: Callable[P, Call[T]]) -> Callable[Concatenate[AsyncInferScale, P], Awaitable[T]]:
    async def method(client: AsyncInferScale, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await client.send(build(*args, **kwargs))

    _as_method(method, build)
    return method


def _streams(
    build: Callable[P, Call[Answer]],
) -> Callable[Concatenate[InferScale, P], ChatStream]:
    def method(client: InferScale, /, *args: P.args, **kwargs: P.kwargs) -> ChatStream:
        return ChatStream(client.open(calls.streamed(build(*args, **kwargs)), stream=True))

    _as_method(method, build, "ChatStream")
    return method


def _async_streams(
    build: Callable[P, Call[Answer]],
) -> Callable[Concatenate[AsyncInferScale, P], Awaitable[AsyncChatStream]]:
    async def method(
        client: AsyncInferScale, /, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncChatStream:
        call = calls.streamed(build(*args, **kwargs))
        return AsyncChatStream(await client.open(call, stream=True))

    _as_method(method, build, "AsyncChatStream")
    return method


# ---- the clients ---------------------------------------------------------------------------------


class ChatStream:
    """The text of an answer as it comes; then `answer` has the rest. Leaving it ends the answer."""

    def __init__(self, response: httpx.Response) -> None:
        self._response = response
        self._reader = StreamReader()

    def __iter__(self) -> Iterator[str]:
        try:
            for data in self._response.iter_bytes():
                yield from self._reader.feed(data)
        except httpx.TransportError as error:
            raise _failure(error) from error
        finally:
            self.close()
        self._reader.end()

    @property
    def answer(self) -> Answer:
        return self._reader.answer()

    def close(self) -> None:
        self._response.close()

    def __enter__(self) -> ChatStream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class AsyncChatStream:
    """ChatStream for asyncio."""

    def __init__(self, response: httpx.Response) -> None:
        self._response = response
        self._reader = StreamReader()

    async def __aiter__(self) -> AsyncIterator[str]:
        try:
            async for data in self._response.aiter_bytes():
                for piece in self._reader.feed(data):
                    yield piece
        except httpx.TransportError as error:
            raise _failure(error) from error
        finally:
            await self.close()
        self._reader.end()

    @property
    def answer(self) -> Answer:
        return self._reader.answer()

    async def close(self) -> None:
        await self._response.aclose()

    async def __aenter__(self) -> AsyncChatStream:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


class InferScale:
    """A gateway at `url`, or at the Unix socket `uds`.

    `timeout` is in seconds, for connecting and for each piece of an answer. What may be asked
    twice is asked up to `retries` times again if the gateway is busy (429, 503; after the time
    that it names) or the connection broke. May be used by several threads.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        key: str | None = None,
        uds: str | None = None,
        timeout: float = 120,
        retries: int = 3,
    ) -> None:
        self._retries = retries
        transport = None if uds is None else httpx.HTTPTransport(uds=uds)
        self._http = httpx.Client(transport=transport, **_settings(url, key, timeout))

    add = _sync(calls.add)
    add_many = _sync(calls.add_many)
    search = _sync(calls.search)
    list = _sync(calls.list_page)
    get = _sync(calls.get)
    update = _sync(calls.update)
    delete = _sync(calls.delete)
    delete_all = _sync(calls.delete_all)
    history = _sync(calls.history)
    entities = _sync(calls.entities)
    health = _sync(calls.health)
    chat = _sync(calls.chat)
    stream = _streams(calls.chat)

    def all(
        self,
        *,
        user: str | None = None,
        agent: str | None = None,
        run: str | None = None,
        filters: Filters | None = None,
    ) -> Iterator[Memory]:
        """Every memory, page by page."""
        for page in itertools.count(1):
            got = self.list(user=user, agent=agent, run=run, filters=filters, page=page)
            yield from got.memories
            if not got.has_more:
                return

    def send(self, call: Call[T]) -> T:
        return _result(call, self.open(call))

    def open(self, call: Call[Any], *, stream: bool = False) -> httpx.Response:
        """Its answer, whose status is no error; of a stream, nothing is read yet."""
        for attempt in itertools.count():
            outcome = self._try(call, stream)
            pause = _pause(call, attempt, self._retries, outcome)
            if pause is None:
                break
            time.sleep(pause)
        return _accepted(outcome)

    def _try(self, call: Call[Any], stream: bool) -> httpx.Response | httpx.TransportError:
        try:
            request = self._http.build_request(**_arguments(call))
            response = self._http.send(request, stream=stream)
            if not response.is_success:
                response.read()
        except httpx.TransportError as error:
            return error
        return response

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> InferScale:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class AsyncInferScale:
    """InferScale for asyncio."""

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        key: str | None = None,
        uds: str | None = None,
        timeout: float = 120,
        retries: int = 3,
    ) -> None:
        self._retries = retries
        transport = None if uds is None else httpx.AsyncHTTPTransport(uds=uds)
        self._http = httpx.AsyncClient(transport=transport, **_settings(url, key, timeout))

    add = _async(calls.add)
    add_many = _async(calls.add_many)
    search = _async(calls.search)
    list = _async(calls.list_page)
    get = _async(calls.get)
    update = _async(calls.update)
    delete = _async(calls.delete)
    delete_all = _async(calls.delete_all)
    history = _async(calls.history)
    entities = _async(calls.entities)
    health = _async(calls.health)
    chat = _async(calls.chat)
    stream = _async_streams(calls.chat)

    async def all(
        self,
        *,
        user: str | None = None,
        agent: str | None = None,
        run: str | None = None,
        filters: Filters | None = None,
    ) -> AsyncIterator[Memory]:
        """Every memory, page by page."""
        for page in itertools.count(1):
            got = await self.list(user=user, agent=agent, run=run, filters=filters, page=page)
            for memory in got.memories:
                yield memory
            if not got.has_more:
                return

    async def send(self, call: Call[T]) -> T:
        return _result(call, await self.open(call))

    async def open(self, call: Call[Any], *, stream: bool = False) -> httpx.Response:
        """Its answer, whose status is no error; of a stream, nothing is read yet."""
        for attempt in itertools.count():
            outcome = await self._try(call, stream)
            pause = _pause(call, attempt, self._retries, outcome)
            if pause is None:
                break
            await asyncio.sleep(pause)
        return _accepted(outcome)

    async def _try(self, call: Call[Any], stream: bool) -> httpx.Response | httpx.TransportError:
        try:
            request = self._http.build_request(**_arguments(call))
            response = await self._http.send(request, stream=stream)
            if not response.is_success:
                await response.aread()
        except httpx.TransportError as error:
            return error
        return response

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> AsyncInferScale:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
