"""Shows that this process is alive: heartbeats in the registry, a thread that renews leases and deliveries, and one
that watches the event loop and the system clock.

The thread has an event loop of its own. A node that blocks the event loop of the engine must not lose its lease:
another worker would run it a second time.

A blocked loop runs no node and answers no request, and it cannot report itself. A clock that jumps makes schedules
fire early or late, and the times of logs and of the API wrong; the timers of a cluster follow the clock of the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import math
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

import rune
from rune.ports.journal import StoreUnavailableError
from rune.ports.processes import HELD_S, Keepalive, OpenKeepalive, ProcessInfo, ProcessRegistry
from rune.runtime.worker.attempt import RENEWAL_INTERVAL_S, Leases
from rune.telemetry.counters import Counters
from rune.telemetry.logs import execution_of

log = logging.getLogger("rune.keepalive")

DELIVERY_INTERVAL_S = 2.5
"""A third of the time after which another worker takes over a delivery that is not renewed."""

RETRY_DELAY_S = 0.5
STOP_TIMEOUT_S = 5.0

heartbeat_log = logging.getLogger("rune.heartbeat")

SOURCES = frozenset({".py", ".lua", ".sql"})


class KeepaliveThread:
    """Runs while the engine runs, whatever its nodes do."""

    def __init__(
        self,
        open: OpenKeepalive,
        leases: Leases,
        heartbeat: Heartbeat | None,
        on_broken: Callable[[BaseException], None],
    ) -> None:
        """`on_broken` is called in the event loop of the engine if the thread ends by itself."""
        self._open = open
        self._leases = leases
        self._heartbeat = heartbeat
        self._on_broken = on_broken
        self._ready = threading.Event()
        self._stop: Callable[[], None] = lambda: None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Renew during the block; leases that are lost are reported to the event loop that enters it."""
        engine = asyncio.get_running_loop()
        thread = threading.Thread(target=self._run, args=(engine,), name="rune-keepalive", daemon=True)
        self._leases.in_thread = True
        thread.start()
        try:
            yield
        finally:
            await asyncio.to_thread(self._join, thread)
            self._leases.in_thread = False

    def _join(self, thread: threading.Thread) -> None:
        self._ready.wait(STOP_TIMEOUT_S)
        self._stop()
        thread.join(STOP_TIMEOUT_S)

    def _run(self, engine: asyncio.AbstractEventLoop) -> None:
        try:
            asyncio.run(self._renew_all(engine))
        except Exception as error:
            engine.call_soon_threadsafe(self._on_broken, error)
        finally:
            self._ready.set()

    async def _renew_all(self, engine: asyncio.AbstractEventLoop) -> None:
        loop, stopped = asyncio.get_running_loop(), asyncio.Event()

        def stop() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(stopped.set)

        self._stop = stop
        self._ready.set()
        async with self._open() as keepalive:
            work = [
                asyncio.create_task(
                    self._repeat(lambda: self._renew_leases(keepalive, engine), RENEWAL_INTERVAL_S)
                ),
                asyncio.create_task(self._repeat(keepalive.renew_deliveries, DELIVERY_INTERVAL_S)),
            ]
            if self._heartbeat is not None:
                work.append(asyncio.create_task(self._heartbeat.run(keepalive.processes)))
            work.append(asyncio.create_task(_wait_for(stopped)))
            done, pending = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
            for each in pending:
                each.cancel()
            await asyncio.gather(*pending, return_exceptions=True)
            for each in done:
                each.result()

    async def _renew_leases(self, keepalive: Keepalive, engine: asyncio.AbstractEventLoop) -> None:
        held, asked = self._leases.held(), time.monotonic()
        calls = (keepalive.renew_lease(*key, fence) for key, fence in held)
        for (key, fence), renewed in zip(held, await asyncio.gather(*calls), strict=True):
            if renewed:
                self._leases.renewed(key, fence, asked)
            else:
                engine.call_soon_threadsafe(self._leases.lose, key, fence)

    async def _repeat(self, renew: Callable[[], Awaitable[None]], interval: float) -> None:
        """Renew until cancelled, sooner again after a failure."""
        while True:
            try:
                await asyncio.sleep(interval)
                await renew()
                continue
            except StoreUnavailableError as error:
                log.warning("store unavailable, leases are not renewed: %s", error.message)
            except Exception:
                log.exception("renewing leases failed")
            await asyncio.sleep(RETRY_DELAY_S)


async def _wait_for(event: asyncio.Event) -> None:
    await event.wait()


@cache
def build_id() -> str:
    """Return an id of the installed program: `RUNE_BUILD`, otherwise a hash of its files. It tells processes of one
    version apart that run different builds."""
    given = os.environ.get("RUNE_BUILD", "")
    if given:
        return given
    digest = hashlib.blake2b(digest_size=5)
    root = Path(rune.__file__).parent
    for path in sorted(each for each in root.rglob("*") if each.suffix in SOURCES):
        digest.update(str(path.relative_to(root)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def this_process(
    roles: tuple[str, ...], queues: tuple[str, ...] = (), slots: int = 0, types: tuple[str, ...] = ()
) -> ProcessInfo:
    """Describe this process for the registry."""
    host, pid = socket.gethostname(), os.getpid()
    now = time.time_ns() // 1_000_000
    return ProcessInfo(
        name=f"{host}-{pid}-{now:x}",
        host=host,
        pid=pid,
        roles=roles,
        version=rune.__version__,
        build=build_id(),
        started_at=now,
        queues=queues,
        slots=slots,
        types=types,
    )


class Heartbeat:
    """Sends heartbeats until cancelled, then removes the process from the registry."""

    def __init__(
        self,
        process: ProcessInfo,
        busy: Callable[[], int],
        on_drain: Callable[[bool], None],
        delivered: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        """`on_drain` is called, in the thread of the heartbeats, when the registry asks this process to drain or to
        receive work again. `delivered` returns what the queue of this process has received; see ProcessInfo."""
        self._process = process
        self._busy = busy
        self._delivered = delivered
        self._on_drain = on_drain
        self._drained = False
        self.beaten_at = 0.0
        """When the store last accepted a heartbeat (monotonic). The readiness check reads it."""
        self.interval_s = process.heartbeat_s

    async def run(self, registry: ProcessRegistry) -> None:
        """Send heartbeats until cancelled. May run in another thread than the engine."""
        try:
            while True:
                await self._send(registry)
                await asyncio.sleep(self.interval_s)
        finally:
            with contextlib.suppress(StoreUnavailableError, TimeoutError):
                async with asyncio.timeout(1):
                    await registry.leave(self._process.name)

    def drain(self) -> None:
        """Report from the next heartbeat on that this process receives no more work."""
        self._process = replace(self._process, draining=True)

    async def _send(self, registry: ProcessRegistry) -> None:
        try:
            drained = await self._beat(registry)
            if drained is not self._drained:
                self._drained = drained
                self._on_drain(drained)
                await self._beat(registry)
            self.beaten_at = time.monotonic()
        except StoreUnavailableError as error:
            heartbeat_log.warning("store unavailable, heartbeat not sent: %s", error.message)

    async def _beat(self, registry: ProcessRegistry) -> bool:
        draining = self._process.draining or self._drained
        return await registry.heartbeat(
            replace(self._process, busy=self._busy(), draining=draining, delivered=dict(self._delivered()))
        )


watchdog_log = logging.getLogger("rune.watchdog")

BLOCKED_S = 1.0
JUMP_S = 1.0
"""A smaller change of the clock is an adjustment."""

WATCH_PERIOD_S = 0.25
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
        while not self._stop.wait(min(WATCH_PERIOD_S, self._blocked_s / 4)):
            ahead = self._check_clock(ahead)
            asked = self._asked
            if asked is None:
                self._clear()
                self._asked = time.monotonic()
                try:
                    loop.call_soon_threadsafe(self._answer)
                except RuntimeError:  # the loop is closed
                    return
                continue
            if not self._reported and time.monotonic() - asked > self._blocked_s:
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
        period = min(WATCH_PERIOD_S, self._blocked_s / 4)
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
            watchdog_log.exception("%s blocks the event loop, which could not be noted", holder)

    def _clear(self) -> None:
        """Forget the execution that was suspected: it does not block the loop any more."""
        suspected, self._suspected = self._suspected, None
        if suspected is None or self._on_held is None:
            return
        try:
            self._on_held.clear(suspected)
        except Exception:
            watchdog_log.exception("the note that %s blocks the event loop could not be removed", suspected)

    def _check_clock(self, before: float) -> float:
        """Compare the system clock with the monotonic clock; return by how much it is ahead."""
        ahead = time.time() - time.monotonic()
        if abs(ahead - before) > JUMP_S:
            self._counters.clock_jumps += 1
            watchdog_log.warning("the system clock jumped by %+.1f s", ahead - before)
        return ahead

    def _report(self, thread: int) -> None:
        """Log the stack of the loop while it is blocked: afterwards it is gone."""
        self._reported = True
        frame = sys._current_frames().get(thread)
        self.stack = "".join(traceback.format_stack(frame)[-MAX_FRAMES:]) if frame is not None else ""
        watchdog_log.error(
            "the event loop has been blocked for more than %s s by:\n%s", self._blocked_s, self.stack
        )

    def _answer(self) -> None:
        """Called by the loop."""
        asked = self._asked
        assert asked is not None
        took = time.monotonic() - asked
        if took > self._blocked_s:
            self._counters.loop_blocked(took)
            watchdog_log.warning("the event loop was blocked for %.1f s", took)
        self._reported = False
        self._holder = None
        self._asked = None
