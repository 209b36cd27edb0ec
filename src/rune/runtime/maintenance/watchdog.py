"""Watches the event loop and the system clock of this process.

A blocked loop runs no node and answers no request, and it cannot report itself. A clock that jumps makes schedules
fire early or late, and the times of logs and of the API wrong; the timers of a cluster follow the clock of the store.
"""

from __future__ import annotations

import asyncio
import logging
import math
import sys
import threading
import time
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from rune.ports.processes import HELD_S
from rune.telemetry.counters import Counters
from rune.telemetry.logs import execution_of

log = logging.getLogger("rune.watchdog")

BLOCKED_S = 1.0
JUMP_S = 1.0
"""A smaller change of the clock is an adjustment."""

PERIOD_S = 0.25
MAX_FRAMES = 30


class OnHeld(Protocol):
    """Is told in the thread of the watchdog which execution blocks the loop."""

    def suspect(self, execution: str) -> None:
        """It has done so for as long as is reported."""

    def clear(self, execution: str) -> None:
        """The loop runs again, before `note`."""

    def note(self, execution: str, loop: asyncio.AbstractEventLoop) -> None:
        """It has done so for `held_s`."""


class LoopWatchdog:
    """Asks the event loop for an answer four times a second. Reports an answer that takes longer than a second."""

    def __init__(
        self,
        counters: Counters,
        blocked_s: float = BLOCKED_S,
        *,
        held_s: float = HELD_S,
        on_held: OnHeld | None = None,
    ) -> None:
        self._counters = counters
        self._blocked_s = blocked_s
        self._held_s = held_s
        self._on_held = on_held
        self._holder: str | None = None
        self._suspected: str | None = None
        self._looks = 0  # since the loop was asked: a process that was stopped has blocked nothing
        self._stop = threading.Event()
        self._asked: float | None = None
        self._reported = False
        self.stack = ""
        """The stack of the event loop when it was last found blocked."""

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[LoopWatchdog]:
        """Watch the running loop during the block."""
        loop, thread = asyncio.get_running_loop(), threading.get_ident()
        watch = threading.Thread(target=self._watch, args=(loop, thread), name="rune-watchdog", daemon=True)
        watch.start()
        try:
            yield self
        finally:
            self._stop.set()

    def _watch(self, loop: asyncio.AbstractEventLoop, thread: int) -> None:
        ahead = time.time() - time.monotonic()
        while not self._stop.wait(min(PERIOD_S, self._blocked_s / 4)):
            ahead = self._check_clock(ahead)
            asked_at = self._asked
            if asked_at is None:
                self._clear()
                self._asked = time.monotonic()
                try:
                    loop.call_soon_threadsafe(self._answer)
                except RuntimeError:  # the loop is closed
                    return
                continue
            if not self._reported and time.monotonic() - asked_at > self._blocked_s:
                self._report(thread)
            self._look(loop)
        self._clear()

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Look which execution the loop works on, and note it once it has been the same for too long."""
        holder = execution_of(asyncio.current_task(loop))
        if holder != self._holder or holder is None:
            self._clear()
            self._holder, self._looks = holder, 0
            return
        self._looks += 1
        period = min(PERIOD_S, self._blocked_s / 4)
        if self._on_held is None:
            return
        try:
            if self._looks == math.ceil(self._held_s / period):
                self._suspected = None
                self._on_held.note(holder, loop)
            elif self._looks == math.ceil(self._blocked_s / period):
                self._suspected = holder
                self._on_held.suspect(holder)
        except Exception:
            log.exception("%s blocks the event loop, which could not be noted", holder)

    def _clear(self) -> None:
        """Forget the execution that was suspected: it does not block the loop any more."""
        suspected, self._suspected = self._suspected, None
        if suspected is None or self._on_held is None:
            return
        try:
            self._on_held.clear(suspected)
        except Exception:
            log.exception("the note that %s blocks the event loop could not be removed", suspected)

    def _check_clock(self, before: float) -> float:
        """Compare the system clock with the monotonic clock; return by how much it is ahead."""
        ahead = time.time() - time.monotonic()
        if abs(ahead - before) > JUMP_S:
            self._counters.clock_jumps += 1
            log.warning("the system clock jumped by %+.1f s", ahead - before)
        return ahead

    def _report(self, thread: int) -> None:
        """Log the stack of the loop while it is blocked: afterwards it is gone."""
        self._reported = True
        frame = sys._current_frames().get(thread)
        self.stack = "".join(traceback.format_stack(frame)[-MAX_FRAMES:]) if frame is not None else ""
        log.error("the event loop has been blocked for more than %s s by:\n%s", self._blocked_s, self.stack)

    def _answer(self) -> None:
        """Called by the loop."""
        asked_at = self._asked
        assert asked_at is not None
        duration = time.monotonic() - asked_at
        if duration > self._blocked_s:
            self._counters.loop_blocked(duration)
            log.warning("the event loop was blocked for %.1f s", duration)
        self._reported = False
        self._holder = None
        self._asked = None
