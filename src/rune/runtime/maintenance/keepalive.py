"""The thread that renews leases and deliveries and sends heartbeats.

It has an event loop of its own. A node that blocks the event loop of the engine must not lose its lease: another worker
would run it a second time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from rune.ports.journal import StoreUnavailableError
from rune.ports.processes import Keepalive, OpenKeepalive
from rune.runtime.maintenance.heartbeat import Heartbeat
from rune.runtime.worker.leases import RENEWAL_S, Leases

log = logging.getLogger("rune.keepalive")

RETRY_DELAY_S = 0.5
STOP_TIMEOUT_S = 5.0


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
                asyncio.create_task(self._repeat(lambda: self._renew_leases(keepalive, engine), RENEWAL_S)),
                asyncio.create_task(self._repeat(keepalive.renew_deliveries, RENEWAL_S)),
            ]
            if self._heartbeat is not None:
                work.append(asyncio.create_task(self._heartbeat.run(keepalive.processes)))
            work.append(asyncio.create_task(_wait_for(stopped)))
            done, pending = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
            for task in pending:
                task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)
            for task in done:
                task.result()

    async def _renew_leases(self, keepalive: Keepalive, engine: asyncio.AbstractEventLoop) -> None:
        leases, asked_at = self._leases.held(), time.monotonic()
        calls = (keepalive.renew_lease(*key, fence) for key, fence in leases)
        for (key, fence), renewed in zip(leases, await asyncio.gather(*calls), strict=True):
            if renewed:
                self._leases.renewed(key, fence, asked_at)
            else:
                engine.call_soon_threadsafe(self._leases.recheck, key, fence)

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
