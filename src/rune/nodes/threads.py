"""Threads for nodes that block: they delay neither the event loop nor the exit of the process."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from asyncio import get_running_loop as running_loop
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

__all__ = ["in_thread", "running_loop", "wait_for"]


def wait_for(awaitable: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T:
    """Block this thread until the loop, which runs in another one, has the result."""
    return asyncio.run_coroutine_threadsafe(awaitable, loop).result()


async def in_thread(function: Callable[[], T], abandon: Callable[[], None]) -> T:
    """Run a function in a thread and return its result. On cancellation, call `abandon` and leave the thread running.

    Uses daemon threads because the interpreter waits for the threads of a pool when it exits. Their number is
    bounded by the worker's slots.
    """
    loop = asyncio.get_running_loop()
    completion: asyncio.Future[None] = loop.create_future()
    context = contextvars.copy_context()
    results: list[T] = []
    errors: list[BaseException] = []

    def settle() -> None:
        if not completion.done():
            completion.set_result(None)

    def body() -> None:
        try:
            results.append(context.run(function))
        # Pass on any exception, or the waiting task would never resume.
        except BaseException as raised:
            errors.append(raised)
        # The loop may be closed by now; then no task waits for the result.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle)

    threading.Thread(target=body, name="rune-node", daemon=True).start()
    try:
        await completion
    except asyncio.CancelledError:
        abandon()
        raise
    # Raised here and not by the future: asyncio closes the coroutines that wait for a future with a GeneratorExit.
    if errors:
        raise errors.pop()
    return results[0]
