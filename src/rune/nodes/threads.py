"""Threads for functions that block. One that never returns holds up neither the loop nor the end of the process."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_thread(function: Callable[[], T], abandon: Callable[[], None]) -> T:
    """What the function gives. If the wait for it is cancelled, `abandon` is called and the thread left to itself.

    The threads of a pool are waited for when the interpreter ends, for as long as it takes; these are not. How many
    there are is bounded by the slots of the worker.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def settle(result: T | None, error: BaseException | None) -> None:
        if ended.done():
            return
        if error is not None:
            ended.set_exception(error)
        else:
            ended.set_result(result)  # type: ignore[arg-type]

    def body() -> None:
        result: T | None = None
        error: BaseException | None = None
        try:
            result = context.run(function)
        except (
            BaseException
        ) as raised:  # whatever it is, it is the function's, and whoever waits must hear of it
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=body, name="rune-node", daemon=True).start()
    try:
        return await ended
    except asyncio.CancelledError:
        abandon()
        raise
