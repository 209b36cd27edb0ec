"""Pub/sub notifications: earlier timers wake the scheduler, ended executions wake their waiters."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

import hiredis

from rune.adapters.redis.client import Client, Connection
from rune.ports.journal import StoreUnavailableError

log = logging.getLogger("rune.redis")

RETRY_DELAY_S = 0.5
"""Delay between connection attempts while the server is unavailable."""

OnMessage = Callable[[Sequence[str]], None]
"""Receives messages; an empty list means that messages may have been missed."""


class _Subscription(Connection):
    """A connection that receives published messages."""

    def __init__(self, on_message: OnMessage, on_subscribed: Callable[[], None]) -> None:
        super().__init__(deadline=None)
        self._on_message = on_message
        self._on_subscribed = on_subscribed
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._subscribed = False

    def subscribe(self, channel: str) -> None:
        """Subscribe; from now on the server sends messages only."""
        self._subscribed = True
        assert self._transport is not None
        self._transport.write(hiredis.pack_command(("SUBSCRIBE", channel)))  # type: ignore[arg-type]

    def data_received(self, data: bytes) -> None:
        if not self._subscribed:
            super().data_received(data)
            return
        self._reader.feed(data)
        messages: list[str] = []
        while (push := self._reader.gets()) is not False:
            if isinstance(push, list) and push[0] == b"message":
                messages.append(push[2].decode("utf-8", "replace"))
            elif isinstance(push, list) and push[0] == b"subscribe":
                self._on_subscribed()
        self._on_message(messages)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if not self.closed.done():
            self.closed.set_result(None)


class SubscriberClient(Client):
    """Subscribes to a channel while `run` runs. After each reconnect the callback is called with an empty list, because
    messages may have been missed. `on_subscribed` is called when the server has confirmed the subscription."""

    def __init__(
        self,
        url: str,
        name: str,
        on_message: OnMessage,
        on_subscribed: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(url, deadline=None)
        self._channel = name
        self._on_message = on_message
        self._on_subscribed = on_subscribed

    def _protocol(self) -> Connection:
        return _Subscription(self._on_message, self._on_subscribed)

    async def run(self) -> None:  # type: ignore[override]
        """Receive messages until cancelled."""
        while True:
            try:
                connection = await self._connected()
                assert isinstance(connection, _Subscription)
                connection.subscribe(self._channel)
                self._on_message([])
                await connection.closed
            except StoreUnavailableError as error:
                log.info("not subscribed to %s: %s", self._channel, error.message)
            await asyncio.sleep(RETRY_DELAY_S)


class RedisNotifier:
    """Collects the ids of ended executions until a listener takes them."""

    def __init__(self) -> None:
        self._ended: set[str] = set()
        self._event = asyncio.Event()

    def on_notification(self, executions: Sequence[str]) -> None:
        self._ended.update(executions)
        self._event.set()

    async def ended(self) -> set[str]:
        await self._event.wait()
        self._event.clear()
        ended, self._ended = self._ended, set()
        return ended
