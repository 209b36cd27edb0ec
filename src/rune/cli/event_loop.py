"""Runs an engine in an event loop that goes on when a node stops it.

asyncio raises KeyboardInterrupt and SystemExit of any task or callback again out of the event loop, and `loop.stop()`
ends it. A node may start tasks and knows the loop: neither must take the process down, with all that other nodes do.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import traceback
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from rune.nodes.endings import is_ctrl_c

T = TypeVar("T")

log = logging.getLogger("rune.event_loop")


def run_through(
    work: Coroutine[Any, Any, T], loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
) -> T:
    """Run a coroutine to its end, as `asyncio.run` does."""
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        task = runner.get_loop().create_task(work)
        while not task.done():
            try:
                runner.run(_wait_for(task))
            except (KeyboardInterrupt, SystemExit, RuntimeError) as error:
                if task.done() or _is_of_signal(error):
                    raise
                log.error("a node stopped the event loop, which goes on: %s", type(error).__name__)
        return task.result()


def _is_of_signal(error: BaseException) -> bool:
    """Return whether a signal raised what ended the loop. The runner has removed its own handler by now, which leaves
    a frame."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return is_ctrl_c(error)
    handler = asyncio.Runner._on_sigint.__code__  # type: ignore[attr-defined]
    return any(frame.f_code is handler for frame, _ in traceback.walk_tb(error.__traceback__))


async def _wait_for(task: asyncio.Task[Any]) -> None:
    """Wait for a task. A signal cancels it as well."""
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait({task})
        if task.cancelled():
            raise
