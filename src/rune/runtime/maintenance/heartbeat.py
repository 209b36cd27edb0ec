"""Registers this process in the process registry and reports its roles and load."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import Callable

from msgspec.structs import replace

import rune
from rune.ports.journal import StoreUnavailableError
from rune.ports.processes import ProcessInfo, ProcessRegistry

log = logging.getLogger("rune.heartbeat")


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
        started_at=now,
        queues=queues,
        slots=slots,
        types=types,
    )


class Heartbeat:
    """Sends heartbeats until cancelled, then removes the process from the registry."""

    def __init__(self, registry: ProcessRegistry, process: ProcessInfo, busy: Callable[[], int]) -> None:
        self._registry = registry
        self._process = process
        self._busy = busy
        self.beaten_at = 0.0
        """When the store last accepted a heartbeat (monotonic). The readiness check reads it."""
        self.interval_s = process.heartbeat_s

    async def run(self) -> None:
        """Send heartbeats until cancelled."""
        try:
            while True:
                await self._send()
                await asyncio.sleep(self.interval_s)
        finally:
            with contextlib.suppress(StoreUnavailableError, TimeoutError):
                async with asyncio.timeout(1):
                    await self._registry.leave(self._process.name)

    def drain(self) -> None:
        """Report from the next heartbeat on that this process receives no more work."""
        self._process = replace(self._process, draining=True)

    async def _send(self) -> None:
        try:
            await self._registry.heartbeat(replace(self._process, busy=self._busy()))
            self.beaten_at = time.monotonic()
        except StoreUnavailableError as error:
            log.warning("store unavailable, heartbeat not sent: %s", error.message)
