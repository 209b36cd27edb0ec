"""Logging as text or as one JSON document per line, with the execution and node of each record."""

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
"""Worker, execution, node ids of its plan (empty: not loaded yet) and token."""

NO_CONTEXT: LogContext = ["", "", (), None]
LOG_CONTEXT: ContextVar[LogContext] = ContextVar("rune_place", default=NO_CONTEXT)
"""The context of the current task, formatted only when a record is written."""

# Record attributes that override the context; threads started by nodes have none.
EXTRA_FIELDS = ("execution", "node", "fields")

Redact = Callable[[dict[str, Any]], dict[str, Any]]


def log_context_fields() -> dict[str, Any]:
    """Return the context of the current task as log fields."""
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
    """Formats a record as one JSON document, with its fields redacted."""

    def __init__(self, redact: Redact) -> None:
        super().__init__()
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        document = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **log_context_fields(),
            **{name: record.__dict__[name] for name in EXTRA_FIELDS if record.__dict__.get(name)},
        }
        if record.exc_text or (record.exc_info and record.exc_info[0] is not None):
            document["error"] = record.exc_text or self.formatException(record.exc_info)  # type: ignore[arg-type]
        return msgspec.json.encode(self._redact(document)).decode()


def set_up_log(
    kind: Literal["text", "json"], level: str, redact: Redact, stream: TextIO | None = None
) -> None:
    """Configure the root logger of this process."""
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(JsonFormatter(redact) if kind == "json" else logging.Formatter(TEXT))
    root = logging.getLogger()
    for each in list(root.handlers):
        root.removeHandler(each)
    root.addHandler(handler)
    root.setLevel(level.upper())
