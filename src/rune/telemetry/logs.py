"""Logging as text or as one JSON document per line, with the execution and node of each record."""

from __future__ import annotations

import asyncio
import logging
import re
import sys
import time
from collections import OrderedDict
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

_TASK_PREFIX = "execution "

# Record attributes that override the context; threads started by nodes have none.
EXTRA_FIELDS = ("execution", "node", "fields")

# What a terminal obeys or reorders: control characters but tabs and line breaks, marks of the direction of text, line
# separators, and halves of surrogate pairs.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

REPEAT_WINDOW_S = 10.0
MAX_RECENT = 1_000

Redact = Callable[[dict[str, Any]], dict[str, Any]]


def enter_context(context: LogContext) -> None:
    """Set the context of the current task. Its name tells other threads, which see no context, on which execution it
    works."""
    LOG_CONTEXT.set(context)
    task = asyncio.current_task()
    if task is not None:
        task.set_name(f"{_TASK_PREFIX}{context[1]}")


def execution_of(task: asyncio.Task[Any] | None) -> str | None:
    """Return the execution that a task works on; None if it works on none."""
    name = "" if task is None else task.get_name()
    return name.removeprefix(_TASK_PREFIX) if name.startswith(_TASK_PREFIX) else None


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


def visible(text: str) -> str:
    """Return the text with what a terminal would obey as `\\uXXXX`: clients choose paths and messages."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class TextFormatter(logging.Formatter):
    """Formats a record as text. Its message is one line; a traceback keeps its lines."""

    def __init__(self) -> None:
        super().__init__(TEXT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is that of the base class
        return super().formatMessage(record).replace("\n", "\\n")

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))


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
        return visible(msgspec.json.encode(self._redact(document)).decode())


NODE_LOGGER = "rune.node"
"""The logger of `ctx.log` and of `log` nodes."""


class SummarizingHandler(logging.StreamHandler[TextIO]):
    """Writes a warning, an error or a line of Rune itself once in REPEAT_WINDOW_S; identical ones in between are
    counted and written as one line. Lines of nodes below a warning are all written. Lines of Rune with the same
    `cause`, an extra field of the record, count as identical: they differ in the execution alone.

    A store that is away makes every loop and request report the same, thousands of times in a minute.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream)
        self._clock = clock
        self._recent: OrderedDict[tuple[str, int, str, type | None], _Repeated] = OrderedDict()

    def emit(self, record: logging.LogRecord) -> None:
        now = self._clock()
        self._write_summaries(now - REPEAT_WINDOW_S)
        if record.levelno < logging.WARNING and not _is_of_engine(record.name):
            super().emit(record)
            return
        kind = record.exc_info[0] if record.exc_info else None
        cause = getattr(record, "cause", None) if _is_of_engine(record.name) else None
        key = (record.name, record.levelno, cause or record.getMessage(), kind)
        known = self._recent.get(key)
        if known is not None:
            known.count += 1
            return
        if len(self._recent) >= MAX_RECENT:
            self._summarize(self._recent.popitem(last=False)[1])
        self._recent[key] = _Repeated(record, now)
        super().emit(record)

    def _write_summaries(self, until: float) -> None:
        while self._recent:
            key, oldest = next(iter(self._recent.items()))
            if oldest.at > until:
                return
            del self._recent[key]
            self._summarize(oldest)

    def _summarize(self, repeated: _Repeated) -> None:
        if repeated.count:
            record = logging.makeLogRecord(
                {
                    **repeated.record.__dict__,
                    "msg": f"{repeated.record.getMessage()} (repeated {repeated.count} times)",
                    "args": (),
                    "exc_info": None,
                    "exc_text": None,
                }
            )
            super().emit(record)

    def close(self) -> None:
        self._write_summaries(self._clock())
        super().close()


def _is_of_engine(logger: str) -> bool:
    return logger.startswith("rune.") and logger != NODE_LOGGER


class _Repeated:
    """A record that was written, when, and how many identical ones followed."""

    __slots__ = ("at", "count", "record")

    def __init__(self, record: logging.LogRecord, at: float) -> None:
        self.record = record
        self.at = at
        self.count = 0


def set_up_log(
    kind: Literal["text", "json"], level: str, redact: Redact, stream: TextIO | None = None
) -> None:
    """Configure the root logger of this process."""
    handler = SummarizingHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(JsonFormatter(redact) if kind == "json" else TextFormatter())
    root = logging.getLogger()
    for each in list(root.handlers):
        root.removeHandler(each)
    root.addHandler(handler)
    # Records of custom nodes are created from `info` on, for the logs of their attempts, and written from `level` on.
    handler.setLevel(level.upper())
    logging.getLogger("rune").setLevel(level.upper())
    root.setLevel(min(logging.INFO, handler.level))


def create_info_records() -> None:
    """Create log records from `info` on, for the logs of attempts, in a process that has not configured logging. Python
    still writes warnings and errors only."""
    root = logging.getLogger()
    if not root.handlers:
        root.setLevel(logging.INFO)
