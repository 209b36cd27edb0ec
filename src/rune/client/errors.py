"""What goes wrong between a client and a server."""

from __future__ import annotations

import msgspec

from rune.client.models import Problem, ProblemDocument
from rune.errors import RuneError


class ClientError(RuneError):
    """Something went wrong between here and the server."""

    code = "CLIENT"


class ConnectionFailedError(ClientError):
    """The server cannot be reached, or went before it answered."""

    code = "UNREACHABLE"


class ApiError(ClientError):
    """The server said no. `code` is what programs look at, `problems` what is wrong with a document."""

    def __init__(self, document: ProblemDocument) -> None:
        super().__init__(document.detail or document.title, code=document.code)
        self.status = document.status
        self.problems: tuple[Problem, ...] = document.problems


def api_error(status: int, body: bytes) -> ApiError:
    """The error that an answer stands for."""
    try:
        return ApiError(msgspec.json.decode(body, type=ProblemDocument))
    except msgspec.DecodeError:
        text = body[:200].decode(errors="replace")
        return ApiError(ProblemDocument(status=status, code="HTTP_STATUS", detail=f"status {status}: {text}"))


def connection_failed(url: object, error: Exception) -> ConnectionFailedError:
    """The error that a broken connection stands for."""
    return ConnectionFailedError(f"{url}: {str(error) or type(error).__name__}")


Refusal = ApiError
Unreachable = ConnectionFailedError
"""The earlier names of both, kept for programs that import them."""
