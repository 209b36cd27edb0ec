"""The heartbeat: shows people that this process is there, what it does and how busy it is."""

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
from rune.ports.processes import HEARTBEAT_S, ProcessInfo, ProcessRegistry

log = logging.getLogger("rune.heartbeat")


def this_process(
    roles: tuple[str, ...], queues: tuple[str, ...] = (), slots: int = 0, types: tuple[str, ...] = ()
) -> ProcessInfo:
    """How this process shows itself."""
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
    """Beats until cancelled, then says goodbye."""

    def __init__(self, fleet: ProcessRegistry, member: ProcessInfo, busy: Callable[[], int]) -> None:
        self._fleet = fleet
        self._member = member
        self._busy = busy
        self.beaten_at = 0.0
        """When the store last took a beat (monotonic): whoever asks whether this process is well looks here."""

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                await self._send()
                await asyncio.sleep(HEARTBEAT_S)
        finally:
            with contextlib.suppress(StoreUnavailableError, TimeoutError):
                async with asyncio.timeout(1):
                    await self._fleet.leave(self._member.name)

    def drain(self) -> None:
        """From the next beat on it is known that this process takes nothing more."""
        self._member = replace(self._member, draining=True)

    async def _send(self) -> None:
        try:
            await self._fleet.heartbeat(replace(self._member, busy=self._busy()))
            self.beaten_at = time.monotonic()
        except StoreUnavailableError as away:
            log.warning("nobody sees that this process is there: %s", away.message)
