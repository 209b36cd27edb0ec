"""Shows that this process is alive: heartbeats in the registry, and a thread that renews leases and deliveries.

The thread has an event loop of its own. A node that blocks the event loop of the engine must not lose its lease:
another worker would run it a second time.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

from msgspec.structs import replace

import rune
from rune.ports.journal import StoreUnavailableError
from rune.ports.processes import Keepalive, OpenKeepalive, ProcessInfo, ProcessRegistry
from rune.runtime.worker.attempt import RENEWAL_INTERVAL_S, Leases

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
        held = self._leases.held()
        calls = (keepalive.renew_lease(*key, fence) for key, fence in held)
        for (key, fence), renewed in zip(held, await asyncio.gather(*calls), strict=True):
            if not renewed:
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
        self, process: ProcessInfo, busy: Callable[[], int], on_drain: Callable[[bool], None]
    ) -> None:
        """`on_drain` is called, in the thread of the heartbeats, when the registry asks this process to drain or to
        receive work again."""
        self._process = process
        self._busy = busy
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
        return await registry.heartbeat(replace(self._process, busy=self._busy(), draining=draining))
