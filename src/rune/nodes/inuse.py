"""The values in use in this process, and the log that must not show them."""

from __future__ import annotations

import logging
import weakref
from typing import Any

from rune.nodes.redaction import NAMES_ONLY, Redactor, by_name


class InUse:
    """The redactors of all calls under way, for what belongs to no single one of them: the log."""

    def __init__(self) -> None:
        self._redactors: dict[int, weakref.ref[Redactor]] = {}

    def enter(self, redactor: Redactor) -> None:
        """From now on its values are in use, until it leaves or nobody has it any more."""
        key = id(redactor)
        if key not in self._redactors:
            self._redactors[key] = weakref.ref(redactor, lambda _: self._redactors.pop(key, None))

    def leave(self, redactor: Redactor) -> None:
        """They are no more."""
        self._redactors.pop(id(redactor), None)

    def _all(self) -> list[Redactor]:
        # Other threads log too: a copy in one step, before anything is looked at.
        return [found for each in tuple(self._redactors.values()) if (found := each()) is not None]

    def text(self, text: str) -> str:
        """A line of the log."""
        text = by_name(text)
        for redactor in self._all():
            text = redactor.text(text)
        return text

    def fields(self, fields: dict[str, Any]) -> dict[str, Any]:
        """What a line of the log carries beside its text."""
        shown = NAMES_ONLY.details(fields)
        for redactor in self._all():
            shown = redactor.details(shown)
        return shown


IN_USE = InUse()
"""Of this process, as the log is."""


class LogFilter(logging.Filter):
    """Rewrites a record before anybody formats it: the message, its arguments, and the traceback."""

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            message = record.getMessage()
        except Exception:  # arguments that do not fit are for the handler to complain about
            return True
        shown = IN_USE.text(message)
        if shown != message:
            record.msg, record.args = shown, ()
        if record.exc_info and record.exc_info[0] is not None:
            trace = _FORMATTER.formatException(record.exc_info)
            clean = IN_USE.text(trace)
            if clean != trace:
                record.exc_text, record.exc_info = clean, None
        return True


_FORMATTER = logging.Formatter()


def protect_log() -> None:
    """Have every log record of this process pass the filter. A filter on a logger is not asked about the records of
    the loggers below it, so it stands where records are made. Done twice it is done once."""
    make = logging.getLogRecordFactory()
    if getattr(make, "redacts", False):
        return
    judge = LogFilter()

    def made(*arguments: Any, **named: Any) -> logging.LogRecord:
        record = make(*arguments, **named)
        judge.filter(record)
        return record

    made.redacts = True  # type: ignore[attr-defined]
    logging.setLogRecordFactory(made)
