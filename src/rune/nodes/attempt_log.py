"""The log of one attempt of a node: what it writes with `ctx.log`, and with `logging` and
`print` while a custom node runs."""

from __future__ import annotations

import io
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, BinaryIO, TextIO

import msgspec

from rune.core.json_decoder import JsonDecoder
from rune.nodes.redaction import SECRETS_IN_USE, Redactor

MAX_LOG_BYTES = 64 * 1024
"""Of all encoded lines of an attempt. The oldest are dropped."""

MAX_LINE_BYTES = 16 * 1024
_CUT = " [...]"
_FORMATTER = logging.Formatter()
_ENCODER = msgspec.json.Encoder()

WriteLine = Callable[[str, str], None]
"""Takes the level of a line and its text."""


class LogLine(msgspec.Struct, frozen=True):
    """A line of a log, written at a time (epoch ms)."""

    at: int
    level: str
    message: str


class StoredLog(msgspec.Struct, frozen=True):
    """The newest lines of an attempt, oldest first, and the number of older ones that were dropped."""

    dropped: int = 0
    lines: list[LogLine] = []


_DECODER = JsonDecoder(StoredLog)


class AttemptLog:
    """Collects lines, redacted, from any thread. `on_line` is called with each of them. `continues`: lines of an
    earlier run of the same attempt may have been stored and are not loaded yet."""

    def __init__(self, on_line: Callable[[LogLine], None], *, continues: bool = False) -> None:
        self.continues = continues
        self.redactor: Redactor | None = None
        """Of the secrets that the run used."""
        self._on_line = on_line
        self._lock = threading.Lock()
        self._lines: deque[bytes] = deque()
        self._bytes = 0
        self.dropped = 0
        self.unsaved = False
        """Whether lines were added since the last `encoded`."""

    def __bool__(self) -> bool:
        return bool(self._lines)

    def write(self, level: str, message: str) -> None:
        """Add a line."""
        line = LogLine(
            time.time_ns() // 1_000_000, level, shortened(SECRETS_IN_USE.text(_printable(message)))
        )
        self._add(_ENCODER.encode(line))
        self._on_line(line)

    def _add(self, data: bytes) -> None:
        with self._lock:
            self._lines.append(data)
            self._bytes += len(data) + 1
            self.unsaved = True
            while self._bytes > MAX_LOG_BYTES:
                self._bytes -= len(self._lines.popleft()) + 1
                self.dropped += 1

    def clear(self) -> None:
        """Drop all lines: the node is run from its beginning again."""
        with self._lock:
            self._lines.clear()
            self._bytes = self.dropped = 0

    def prepend(self, earlier: StoredLog) -> None:
        """Put the lines of an earlier run of the same attempt before those of this one."""
        with self._lock:
            own, self._lines = self._lines, deque()
            self._bytes, self.dropped = 0, self.dropped + earlier.dropped
        for data in (*map(_ENCODER.encode, earlier.lines), *own):
            self._add(data)

    def encoded(self) -> bytes:
        """Return the log as it is stored."""
        with self._lock:
            self.unsaved = False
            data = b'{"dropped":%d,"lines":[%b]}' % (self.dropped, b",".join(self._lines))
        # A value may have become known as a secret after it was logged.
        return data if self.redactor is None else self.redactor.bytes(data)


def decode_log(data: bytes) -> StoredLog:
    """Decode a stored log."""
    return _DECODER.decode(data)


def _printable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def shortened(text: str) -> str:
    """Return the text of a line, cut if it is too long."""
    if len(text) <= MAX_LINE_BYTES // 6:  # a character takes at most six bytes in JSON
        return text
    data = text.encode()
    if len(data) <= MAX_LINE_BYTES:
        return text
    return data[:MAX_LINE_BYTES].decode("utf-8", "ignore") + _CUT


CURRENT_LOG: ContextVar[WriteLine | None] = ContextVar("rune_attempt_log", default=None)
"""Where records of `logging` go while a custom node runs in this task or thread."""


class _LogOutput(io.TextIOBase):
    """Stands in for `sys.stdout` while custom nodes run: what a node prints goes to the log of its attempt, by lines,
    and what anything else prints goes to the stream that was there."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self.stream = stream

    def write(self, text: str) -> int:
        lines = _PRINTED.get()
        if lines is None:
            return self.stream.write(text)
        lines.write(text)
        return len(text)

    def flush(self) -> None:
        if _PRINTED.get() is None:
            self.stream.flush()

    def isatty(self) -> bool:
        return _PRINTED.get() is None and self.stream.isatty()

    def fileno(self) -> int:
        return self.stream.fileno()

    def writable(self) -> bool:
        return True

    @property
    def buffer(self) -> BinaryIO:
        return self.stream.buffer

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.stream.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        return self.stream.errors


class _PrintedLines:
    """What one run has printed, up to the end of its last line."""

    def __init__(self, write: WriteLine | None) -> None:
        self._write = write
        self._lock = threading.Lock()
        self._rest = ""

    def write(self, text: str) -> None:
        with self._lock:
            *lines, self._rest = (self._rest + text).split("\n")
            if len(self._rest) > MAX_LINE_BYTES:
                lines.append(self._rest)
                self._rest = ""
        self._add(lines)

    def close(self) -> None:
        with self._lock:
            rest, self._rest = self._rest, ""
        self._add([rest] if rest else [])

    def _add(self, lines: list[str]) -> None:
        if self._write is not None:
            for each in lines:
                self._write("info", each)


_PRINTED: ContextVar[_PrintedLines | None] = ContextVar("rune_printed_lines", default=None)
_output_lock = threading.Lock()
_output_users = 0


@contextmanager
def attempt_log(write: WriteLine | None) -> Iterator[None]:
    """Send what a custom node logs and prints in this task or thread to the log of its attempt.

    `sys.stdout` is replaced as long as such a node runs: standard output is that of the command, which may print one
    JSON document there, and nothing redacts it.
    """
    global _output_users  # noqa: PLW0603 - sys.stdout is global, too
    with _output_lock:
        if not isinstance(sys.stdout, _LogOutput):
            sys.stdout = _LogOutput(sys.stdout)
        _output_users += 1
    printed = _PrintedLines(write)
    log, lines = CURRENT_LOG.set(write), _PRINTED.set(printed)
    try:
        yield
    finally:
        printed.close()
        CURRENT_LOG.reset(log)
        _PRINTED.reset(lines)
        with _output_lock:
            _output_users -= 1
            if _output_users == 0 and isinstance(sys.stdout, _LogOutput):
                sys.stdout = sys.stdout.stream


def capture_logging() -> None:
    """Write log records of custom nodes to the log of their attempt, too. Idempotent.

    Wraps the record factory: a handler would have to be the root logger's, and replace Python's own of last resort.
    """
    make = logging.getLogRecordFactory()
    if getattr(make, "captures", False):
        return

    def make_captured(*arguments: Any, **named: Any) -> logging.LogRecord:
        record = make(*arguments, **named)
        write = CURRENT_LOG.get()
        if write is not None and not record.name.startswith("rune."):
            write(record.levelname.lower(), _text_of(record))
        return record

    make_captured.captures = True  # type: ignore[attr-defined]
    make_captured.redacts = getattr(make, "redacts", False)  # type: ignore[attr-defined]
    logging.setLogRecordFactory(make_captured)


def _text_of(record: logging.LogRecord) -> str:
    try:
        message = record.getMessage()
    except Exception:
        message = str(record.msg)  # its arguments do not match; the handlers report that
    if record.exc_info and record.exc_info[0] is not None:
        message += "\n" + _FORMATTER.formatException(record.exc_info)
    elif record.exc_text:
        message += "\n" + record.exc_text
    return message
