"""Heartbeats: this process describes itself in the registry and shows that it is alive."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import socket
import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from msgspec.structs import replace

import rune
from rune.ports.journal import StoreUnavailableError
from rune.ports.processes import ProcessInfo, ProcessRegistry

log = logging.getLogger("rune.heartbeat")

SOURCES = frozenset({".py", ".lua", ".sql"})


@cache
def build_id() -> str:
    """Return an id of the installed program: `RUNE_BUILD`, otherwise a hash of its files. It tells processes of one
    version apart that run different builds."""
    build = os.environ.get("RUNE_BUILD", "")
    if build:
        return build
    digest = hashlib.blake2b(digest_size=5)
    root = Path(rune.__file__).parent
    for path in sorted(file for file in root.rglob("*") if file.suffix in SOURCES):
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
            log.warning("store unavailable, heartbeat not sent: %s", error.message)

    async def _beat(self, registry: ProcessRegistry) -> bool:
        draining = self._process.draining or self._drained
        return await registry.heartbeat(
            replace(self._process, busy=self._busy(), draining=draining, delivered=dict(self._delivered()))
        )
