"""The exception tree.

RuneError                      everything Rune raises on purpose; has a code
├── InvalidDocument            a definition or a start payload is refused; holds every problem found
├── NodeFailure                a node ends as failed, with a code and details
├── LimitExceeded              a size, depth or count limit was passed; names the limit
└── core.expr.errors           ExpressionError, ExpressionSyntaxError
"""

from __future__ import annotations

from typing import Any


class RuneError(Exception):
    """An error with a machine-readable code beside its message."""

    code = "ERROR"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code


class NodeFailure(RuneError):
    """Raised by a node to end as failed; its retry and error policies then apply."""

    code = "NODE_FAILED"

    def __init__(
        self, message: str, *, code: str | None = None, details: dict[str, Any] | None = None
    ) -> None:
        super().__init__(message, code=code)
        self.details = details or {}


class LimitExceededError(RuneError):
    """A configured limit was passed."""

    code = "LIMIT_EXCEEDED"

    def __init__(self, limit: str, allowed: int, found: int | None = None) -> None:
        seen = "" if found is None else f", found {found:,}"
        super().__init__(f"{limit}: at most {allowed:,} allowed{seen}")
        self.limit = limit
        self.allowed = allowed


class InvalidDocumentError(RuneError):
    """A document or start payload that is refused, with all of its problems."""

    code = "INVALID"

    def __init__(self, problems: tuple[Any, ...]) -> None:
        super().__init__("; ".join(f"{each.path or 'document'}: {each.message}" for each in problems[:5]))
        self.problems = problems
