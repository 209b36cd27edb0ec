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
from rune.ports.journal import StoreAway
from rune.ports.processes import BEAT, Fleet, Member

log = logging.getLogger("rune.heartbeat")


def this_process(
    roles: tuple[str, ...], queues: tuple[str, ...] = (), slots: int = 0, types: tuple[str, ...] = ()
) -> Member:
    """How this process shows itself."""
    host, pid = socket.gethostname(), os.getpid()
    now = time.time_ns() // 1_000_000
    return Member(
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

    def __init__(self, fleet: Fleet, member: Member, busy: Callable[[], int]) -> None:
        self._fleet = fleet
        self._member = member
        self._busy = busy
        self.beaten_at = 0.0
        """When the store last took a beat (monotonic): whoever asks whether this process is well looks here."""

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                await self._beat()
                await asyncio.sleep(BEAT)
        finally:
            with contextlib.suppress(StoreAway, TimeoutError):
                async with asyncio.timeout(1):
                    await self._fleet.leave(self._member.name)

    def drain(self) -> None:
        """From the next beat on it is known that this process takes nothing more."""
        self._member = replace(self._member, draining=True)

    async def _beat(self) -> None:
        try:
            await self._fleet.beat(replace(self._member, busy=self._busy()))
            self.beaten_at = time.monotonic()
        except StoreAway as away:
            log.warning("nobody sees that this process is there: %s", away.message)
