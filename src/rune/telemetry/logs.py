"""The log: lines for people, or one JSON document a line, with where in which execution it was said."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

import msgspec

from rune.core.execution.token import Token, path_text

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

LogContext = list[Any]
"""Which worker, which execution, what its nodes are called (empty: not known yet), and which of its tokens."""

NO_CONTEXT: LogContext = ["", "", (), None]
LOG_CONTEXT: ContextVar[LogContext] = ContextVar("rune_place", default=NO_CONTEXT)
"""Where this line of work is: put into words only when something is said."""

BESIDE = ("execution", "node", "fields")
"""What whoever logs may say beside the message; a thread of its own has no place of ours."""

Redact = Callable[[dict[str, Any]], dict[str, Any]]


def set_log_context() -> dict[str, Any]:
    """Where we are, in words."""
    worker, execution, ids, token = LOG_CONTEXT.get()
    assert token is None or isinstance(token, Token)
    found: dict[str, Any] = {}
    if execution:
        found["execution"] = execution
    if token is not None and ids:
        found |= {
            "node": ids[token.node],
            "lineage": path_text(token.path, ids),
            "attempt": token.attempt,
        }
    if worker:
        found["worker"] = worker
    return found


class JsonFormatter(logging.Formatter):
    """One document a line. What it says beside the message passes the redactor like everything else."""

    def __init__(self, redact: Redact) -> None:
        super().__init__()
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        said = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **set_log_context(),
            **{name: record.__dict__[name] for name in BESIDE if record.__dict__.get(name)},
        }
        if record.exc_text or (record.exc_info and record.exc_info[0] is not None):
            said["error"] = record.exc_text or self.formatException(record.exc_info)  # type: ignore[arg-type]
        return msgspec.json.encode(self._redact(said)).decode()


def set_up_log(
    kind: Literal["text", "json"], level: str, redact: Redact, stream: TextIO | None = None
) -> None:
    """Have everything that this process says come out in one way."""
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(JsonFormatter(redact) if kind == "json" else logging.Formatter(TEXT))
    root = logging.getLogger()
    for each in list(root.handlers):
        root.removeHandler(each)
    root.addHandler(handler)
    root.setLevel(level.upper())
