"""Errors that the clients raise."""

from __future__ import annotations

import msgspec

from rune.client.models import Problem, ProblemDocument
from rune.decoding import MalformedDataError, decode
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


_PROBLEM = msgspec.json.Decoder(ProblemDocument)


def api_error(status: int, body: bytes) -> ApiError:
    """Return the error for a response that is not successful."""
    try:
        return ApiError(decode(_PROBLEM, body))
    except MalformedDataError:
        text = body[:200].decode(errors="replace")
        return ApiError(ProblemDocument(status=status, code="HTTP_STATUS", detail=f"status {status}: {text}"))


def connection_failed(url: object, error: Exception) -> ConnectionFailedError:
    return ConnectionFailedError(f"{url}: {str(error) or type(error).__name__}")


# Earlier names, kept for programs that import them.
Refusal = ApiError
Unreachable = ConnectionFailedError
