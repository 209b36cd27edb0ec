"""What goes wrong between a client and a server."""

from __future__ import annotations

import msgspec

from rune.client.models import Problem, ProblemDocument
from rune.errors import RuneError


class ClientError(RuneError):
    """Something went wrong between here and the server."""

    code = "CLIENT"


class Unreachable(ClientError):
    """The server cannot be reached, or went before it answered."""

    code = "UNREACHABLE"


class Refusal(ClientError):
    """The server said no. `code` is what programs look at, `problems` what is wrong with a document."""

    def __init__(self, document: ProblemDocument) -> None:
        super().__init__(document.detail or document.title, code=document.code)
        self.status = document.status
        self.problems: tuple[Problem, ...] = document.problems


def refusal(status: int, body: bytes) -> Refusal:
    """The error that an answer stands for."""
    try:
        return Refusal(msgspec.json.decode(body, type=ProblemDocument))
    except msgspec.DecodeError:
        text = body[:200].decode(errors="replace")
        return Refusal(ProblemDocument(status=status, code="HTTP_STATUS", detail=f"status {status}: {text}"))


def unreachable(url: object, error: Exception) -> Unreachable:
    """The error that a broken connection stands for."""
    return Unreachable(f"{url}: {str(error) or type(error).__name__}")
