"""Turns exceptions of other people's code into outcomes, off the event loop and in limited time.

The text of an exception is made by its class: `__str__` may compute for long, block, or never return. While it does so
in the event loop, no other node runs, no lease is renewed and no request is answered.
"""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import threading
from collections.abc import Callable
from contextlib import suppress

from rune.core.execution.outcome import Error, Failure
from rune.errors import NodeFailure, RuneError
from rune.nodes.base import NO_TEXT, Interruption, details_are_json, failure_of

READ_S = 2.0
"""How long the text of an exception may take."""

MAX_INTERRUPTIONS = 10
INTERRUPTION_INTERVAL_S = 1.0


class ReadingStopped(Interruption):
    """Raised in a thread in which the text of an exception takes too long."""


def is_own(error: BaseException) -> bool:
    """Return whether reading an exception runs no code but that of Rune."""
    kind = type(error)
    if kind is not NodeFailure and not (
        issubclass(kind, RuneError) and str.startswith(kind.__module__, "rune.")
    ):
        return False
    fields = vars(error)
    texts = (fields.get("message"), fields.get("code", kind.code))
    return all(type(text) is str for text in texts) and details_are_json(fields.get("details") or {})


def failure_in_time(error: BaseException) -> Failure:
    """Convert an exception raised by a node into its outcome; block for at most READ_S."""
    reader = _Reader(error, _ignore)
    reader.start()
    reader.thread.join(READ_S)
    return reader.failure()


async def failure_off_loop(error: BaseException) -> Failure:
    """Convert an exception raised by a node into its outcome, within READ_S, while the event loop goes on."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def settle() -> None:
        if not done.done():
            done.set_result(None)

    def notify() -> None:
        # The loop may be closed by now; then no task waits for the result.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle)

    reader = _Reader(error, notify)
    timer = loop.call_later(READ_S, settle)
    reader.start()
    try:
        await done
    finally:
        timer.cancel()
    return reader.failure()


class _Reader:
    """Reads one exception in a thread of its own, which is interrupted if the text comes too late."""

    def __init__(self, error: BaseException, notify: Callable[[], None]) -> None:
        self._error = error
        self._notify = notify
        self._failure: Failure | None = None
        context = contextvars.copy_context()
        self.thread = threading.Thread(
            target=context.run, args=(self._read,), name="rune-error-text", daemon=True
        )

    def start(self) -> None:
        self.thread.start()

    def _read(self) -> None:
        with suppress(ReadingStopped):
            self._failure = failure_of(self._error)
            self._notify()

    def failure(self) -> Failure:
        """Return the outcome; one without the text if that has not come."""
        if self._failure is not None:
            return self._failure
        threading.Thread(target=self._interrupt, name="rune-error-text-end", daemon=True).start()
        kind = type(self._error)
        if isinstance(self._error, RuneError):
            codes = (vars(each).get("code") for each in (self._error, *kind.__mro__))
            return Failure(Error(next(code for code in codes if type(code) is str), NO_TEXT))
        name: str = type.__dict__["__name__"].__get__(kind)
        return Failure(Error("NODE_ERROR", f"{name}: {NO_TEXT}"))

    def _interrupt(self) -> None:
        """Raise in the thread until it ends. One that computes for ever would take the interpreter from the event loop;
        one that waits ends when it goes on."""
        for _ in range(MAX_INTERRUPTIONS):
            if not self.thread.is_alive() or self.thread.ident is None:
                return
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(self.thread.ident), ctypes.py_object(ReadingStopped)
            )
            self.thread.join(INTERRUPTION_INTERVAL_S)


def _ignore() -> None:
    """Do nothing: the caller waits for the thread."""
