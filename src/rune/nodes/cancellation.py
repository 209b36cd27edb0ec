"""Stops the coroutine of a node that ignores its cancellation.

A task ends only when its coroutine does. One that catches the cancellation and goes on would keep the slot of the
worker, although its node has timed out, and the process, although it is told to stop
(docs/adr/0080-a-node-that-ignores-its-cancellation-is-closed.md).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")

STOP_GRACE_S = 5.0
"""For how long a cancelled node may go on, to release what it holds."""

log = logging.getLogger("rune.worker")


class Stoppable(Generic[T]):
    """Runs a coroutine in the task that awaits this. Once the grace of its cancellation is over, it is closed."""

    __slots__ = ("_coroutine", "_gate", "_is_over", "_timer")

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine
        self._timer: asyncio.TimerHandle | None = None
        self._gate: asyncio.Future[None] | None = None
        self._is_over = False

    def __await__(self) -> Generator[Any, None, T]:
        coroutine = self._coroutine
        error: BaseException | None = None
        try:
            while True:
                waited = coroutine.send(None) if error is None else coroutine.throw(error)
                error = None
                try:
                    if self._timer is None:
                        yield waited
                    else:
                        yield from self._until_over(waited)
                except GeneratorExit:
                    coroutine.close()
                    raise
                except BaseException as raised:
                    error = raised
                    if self._timer is None:
                        self._timer = asyncio.get_running_loop().call_later(STOP_GRACE_S, self._end)
                if self._is_over:
                    self._close()
                    raise asyncio.CancelledError
        except StopIteration as end:
            value: T = end.value
            return value
        finally:
            del error
            if self._timer is not None:
                self._timer.cancel()

    def _end(self) -> None:
        self._is_over = True
        self._open()

    def _open(self, _: object = None) -> None:
        if self._gate is not None and not self._gate.done():
            self._gate.set_result(None)

    def _until_over(self, waited: Any) -> Generator[Any, None, None]:
        """Wait for what the coroutine waits for, at most until the grace is over."""
        if waited is None:
            yield
            return
        # The flag tells the task that a future was awaited; here the future is awaited by the gate instead.
        waited._asyncio_future_blocking = False
        self._gate = asyncio.get_running_loop().create_future()
        waited.add_done_callback(self._open)
        try:
            yield from self._gate
        except BaseException:
            waited.cancel()
            raise
        finally:
            waited.remove_done_callback(self._open)
        if self._is_over and not waited.done():
            waited.cancel()

    def _close(self) -> None:
        name = getattr(self._coroutine, "__qualname__", "a node")
        log.warning("%s went on for %g s after its cancellation and is ended", name, STOP_GRACE_S)
        try:
            self._coroutine.close()
        except Exception as error:
            # It raises while it is closed, or goes on even then; what it holds is released when it is collected.
            log.warning("%s could not be ended: it raised %s", name, type(error).__name__)
