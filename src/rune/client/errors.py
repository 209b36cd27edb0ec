"""Errors that the clients raise."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from rune.client.models import Execution, Problem, ProblemDocument
from rune.codec.decode import MalformedDataError, decode
from rune.errors import RuneError


class ClientError(RuneError):
    """Base of all errors of a client."""

    code = "CLIENT"


class ConnectionFailedError(ClientError):
    """The server cannot be reached, or the connection was lost before the response."""

    code = "UNREACHABLE"


class ApiError(ClientError):
    """The server rejected a request. Programs compare `code`; `problems` lists what is wrong with a document."""

    def __init__(self, document: ProblemDocument) -> None:
        super().__init__(document.detail or document.title, code=document.code)
        self.status = document.status
        self.problems: tuple[Problem, ...] = document.problems


class NotFound(ApiError):  # noqa: N818 - named by the status, as these are caught by name
    """There is no such thing, or the key may not see it (404)."""


class Conflict(ApiError):  # noqa: N818
    """The request contradicts the current state, or another request under the same key (409, 412)."""


class Forbidden(ApiError):  # noqa: N818
    """The key is missing, unknown, or not permitted to do this (401, 403)."""


class Invalid(ApiError):  # noqa: N818
    """The request, the document or the input is not valid (400, 413, 415, 422); `problems` lists why."""


class RateLimited(ApiError):  # noqa: N818
    """A limit is exceeded (429). `retry_after` is in seconds, if the server says."""

    retry_after: float | None = None


class ExecutionFailed(ClientError):  # noqa: N818
    """An execution whose result was asked for did not complete; `execution` is its final state."""

    code = "EXECUTION_FAILED"

    def __init__(self, execution: Execution) -> None:
        error = execution.error
        reason = f": {error.code}: {error.message}" if error is not None else ""
        super().__init__(f"{execution.execution_id} ended as {execution.status}{reason}")
        if error is not None:
            self.code = error.code
        self.execution = execution


_BY_STATUS: dict[int, type[ApiError]] = {
    400: Invalid,
    401: Forbidden,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    412: Conflict,
    413: Invalid,
    415: Invalid,
    422: Invalid,
    429: RateLimited,
}
_PROBLEM = msgspec.json.Decoder(ProblemDocument)


def api_error(status: int, body: bytes, headers: Mapping[str, str] | None = None) -> ApiError:
    """Return the error for a response that is not successful."""
    try:
        document = decode(_PROBLEM, body)
    except MalformedDataError:
        text = body[:200].decode(errors="replace")
        document = ProblemDocument(
            type="", title="", status=status, code="HTTP_STATUS", detail=f"status {status}: {text}"
        )
    error = _BY_STATUS.get(status, ApiError)(document)
    if isinstance(error, RateLimited):
        given = (headers or {}).get("Retry-After", "")
        error.retry_after = float(given) if given.isdigit() else None
    return error


def connection_failed(url: object, error: Exception) -> ConnectionFailedError:
    reason = str(error) or type(error).__name__
    hint = next((hint for part, hint in _REASONS.items() if part in reason), "")
    return ConnectionFailedError(f"{url}: {reason}{hint}")


_REASONS = {
    "All connection attempts failed": " (no server listens there: compare the URL with the one that `rune up` prints)",
    "Name or service not known": " (no host has this name: check the URL)",
    "WRONG_VERSION_NUMBER": " (the server does not use TLS there: try `http://`)",
}
"""What to do about the failures that follow from a wrong URL, by a part of the message of the operating system."""


# Earlier names, kept for programs that import them.
Refusal = ApiError
Unreachable = ConnectionFailedError
