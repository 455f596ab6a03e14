"""What goes wrong, as classes: by the status of an answer, or because there was none."""

from __future__ import annotations

import json

import httpx


class InferScaleError(Exception):
    """Any of the errors below."""


class ConnectionFailed(InferScaleError):
    """No answer came, or only a part of one."""


class TimedOut(ConnectionFailed):
    """No answer came in time. What was asked may have been done."""


class UnexpectedAnswer(InferScaleError):
    """Something answered, but not as a gateway does."""


class ApiError(InferScaleError):
    """The gateway refused, and says why."""

    def __init__(
        self,
        message: str,
        status: int,
        request_id: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.request_id = request_id  # X-Request-ID, where the answer or a proxy has one
        self.retry_after = retry_after  # seconds

    def __str__(self) -> str:
        known_as = f" (request {self.request_id})" if self.request_id else ""
        return f"{self.status}: {self.message}{known_as}"


class BadRequest(ApiError):
    """400: the request is wrong."""


class Unauthorized(ApiError):
    """401: no key, or none that is valid."""


class Forbidden(ApiError):
    """403: the key may not do this."""


class NotFound(ApiError):
    """404: there is no such memory."""


class Conflict(ApiError):
    """409: something else is in the way."""


class TooLarge(ApiError):
    """413: more than one request may bring."""


class RateLimited(ApiError):
    """429: too many requests with this key, or too many that wait."""


class ServerError(ApiError):
    """5xx: the gateway failed."""


class Unavailable(ServerError):
    """503: the gateway can't do this now."""


_BY_STATUS: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    413: TooLarge,
    429: RateLimited,
    503: Unavailable,
}


def message_in(body: object) -> str | None:
    """The gateway's own words in an error's body."""
    if not isinstance(body, dict):
        return None
    error = body.get("error")
    message = error.get("message") if isinstance(error, dict) else body.get("detail")
    return message if isinstance(message, str) else None


def retry_after(response: httpx.Response) -> float | None:
    """Seconds; a date, which the gateway never sends, counts as nothing."""
    try:
        return max(0.0, float(response.headers["retry-after"]))
    except (KeyError, ValueError):
        return None


def error_of(response: httpx.Response) -> ApiError:
    """That of an answer whose status is an error."""
    try:
        message = message_in(json.loads(response.content))
    except ValueError:
        message = None
    status = response.status_code
    kind = _BY_STATUS.get(status, ServerError if status >= 500 else ApiError)
    return kind(
        message or response.reason_phrase or "no reason given",
        status,
        response.headers.get("x-request-id"),
        retry_after(response),
    )
