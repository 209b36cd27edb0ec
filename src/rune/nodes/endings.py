"""Tells exceptions that end a task or the process from the same exceptions raised by a node."""

from __future__ import annotations

import signal
import threading
import traceback
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asyncio import Task


def is_ctrl_c(error: BaseException) -> bool:
    """Return whether an exception is a KeyboardInterrupt that a signal may have raised.

    Python runs signal handlers in the main thread. The default handler leaves no frame in the traceback; any other that
    raises leaves its own. A command that handles the signal in the event loop raises nothing.
    """
    if not isinstance(error, KeyboardInterrupt) or threading.current_thread() is not threading.main_thread():
        return False
    handler: Any = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        return True
    while isinstance(handler, partial):
        handler = handler.func
    code = getattr(handler, "__code__", None)
    return any(frame.f_code is code for frame, _ in traceback.walk_tb(error.__traceback__))


def is_running(task: Task[Any] | None) -> bool:
    """Return whether the event loop is running this task now. A coroutine that is closed is run by no task."""
    from asyncio import current_task  # noqa: PLC0415 - writing a workflow needs no event loop

    try:
        return task is not None and current_task() is task
    except RuntimeError:
        return False
