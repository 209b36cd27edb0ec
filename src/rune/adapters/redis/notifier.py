"""News: who sleeps until a timer is told of an earlier one, who waits for an end is told of ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

import hiredis

from rune.adapters.redis.client import Client, Connection
from rune.ports.journal import StoreUnavailableError

log = logging.getLogger("rune.redis")

RETRY_DELAY_S = 0.5  # s, while the server is away

OnMessage = Callable[[Sequence[str]], None]
"""What was said; nothing in it: there may be news that were missed."""


class _Subscription(Connection):
    """A connection on which the server speaks unasked."""

    def __init__(self, heard: OnMessage) -> None:
        super().__init__(deadline=None)
        self._heard = heard
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._subscribed = False

    def subscribe(self, channel: str) -> None:
        """From here on everything that comes is news."""
        self._subscribed = True
        assert self._transport is not None
        self._transport.write(hiredis.pack_command(("SUBSCRIBE", channel)))  # type: ignore[arg-type]

    def data_received(self, data: bytes) -> None:
        if not self._subscribed:
            super().data_received(data)
            return
        self._reader.feed(data)
        said: list[str] = []
        while (push := self._reader.gets()) is not False:
            if isinstance(push, list) and push[0] == b"message":
                said.append(push[2].decode())
        self._heard(said)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if not self.gone.done():
            self.gone.set_result(None)


class SubscriberClient(Client):
    """Listens while `run` does. What was missed while the server was away is made up for by one call."""

    def __init__(self, url: str, name: str, heard: OnMessage) -> None:
        super().__init__(url, deadline=None)
        self._channel = name
        self._heard = heard

    def _protocol(self) -> Connection:
        return _Subscription(self._heard)

    async def run(self) -> None:  # type: ignore[override]
        """Until cancelled."""
        while True:
            try:
                connection = await self._connected()
                assert isinstance(connection, _Subscription)
                connection.subscribe(self._channel)
                self._heard([])
                await connection.gone
            except StoreUnavailableError as away:
                log.info("nothing is heard on %s: %s", self._channel, away.message)
            await asyncio.sleep(RETRY_DELAY_S)


class RedisNotifier:
    """Names of executions that have ended."""

    def __init__(self) -> None:
        self._said: set[str] = set()
        self._event = asyncio.Event()

    def on_notification(self, said: Sequence[str]) -> None:
        self._said.update(said)
        self._event.set()

    async def ended(self) -> set[str]:
        await self._event.wait()
        self._event.clear()
        said, self._said = self._said, set()
        return said
