"""A link: keeps one connection, and makes a new one whenever it is lost, for as long as it takes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable

from rune.adapters.rabbitmq.client import DEADLINE, connect
from rune.adapters.rabbitmq.connection import Connection
from rune.adapters.rabbitmq.errors import AmqpError, BrokerAway

log = logging.getLogger("rune.rabbitmq")

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0
GOOD_AFTER = 5.0  # s that a connection has to last for the pauses to begin anew

Prepare = Callable[[Connection], Awaitable[None]]


class Link:
    """A connection with everything that is needed on it. `prepare` is run on each new one before anybody gets it."""

    def __init__(
        self,
        url: str,
        name: str,
        prepare: Prepare,
        *,
        deadline: float = DEADLINE,
        longest_pause: float = LONGEST_PAUSE,
    ) -> None:
        self._url = url
        self._name = name
        self._prepare = prepare
        self._deadline = deadline
        self._longest = longest_pause
        self._up = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self.why = "it is not connected yet"
        self._closed = False
        self.connection: Connection | None = None
        self.made = 0

    def start(self) -> None:
        """Begin to connect, unless that has begun."""
        if self._running is None and not self._closed:
            self._running = asyncio.create_task(self._run())

    @property
    def is_up(self) -> bool:
        return self._up.is_set()

    async def up(self, within: float) -> Connection:
        """The connection; an error if there is none within this time."""
        if self._closed:
            raise BrokerAway("the link to the broker is closed", code="CLOSED")
        self.start()
        try:
            async with asyncio.timeout(within):
                await self._up.wait()
        except TimeoutError:
            raise BrokerAway(f"the broker is away: {self.why}") from None
        assert self.connection is not None
        return self.connection

    def drop(self, reason: str) -> None:
        """Something is wrong with this connection: take another."""
        if self.connection is not None and self.connection.error is None:
            log.warning("%s: connecting anew: %s", self._name, reason)
            self.connection.abort(BrokerAway(reason))

    async def close(self) -> None:
        """Connect no more, and say good-bye."""
        self._closed = True
        if self._running is not None:
            self._running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._running
        self._up.clear()
        if self.connection is not None:
            await self.connection.close()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        pause = FIRST_PAUSE
        while True:
            began = loop.time()
            try:
                await self._hold()
            except AmqpError as error:
                self._say(error)
            except Exception as error:
                log.exception("%s: the link stumbled", self._name)
                self.why = str(error)
            finally:
                self._up.clear()
            if loop.time() - began > GOOD_AFTER:
                pause = FIRST_PAUSE
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, self._longest)

    async def _hold(self) -> None:
        """One connection from its beginning to its end, which is raised."""
        connection = await connect(self._url, name=self._name, deadline=self._deadline)
        try:
            self.connection = connection
            await self._prepare(connection)
        except BaseException as error:
            connection.abort(BrokerAway(f"not prepared: {error}"))
            raise
        self.made += 1
        self._up.set()
        raise await asyncio.shield(connection.ended)

    def _say(self, error: AmqpError) -> None:
        if error.message != self.why:  # the same again and again is said once
            log.warning("%s: %s", self._name, error.message)
        self.why = error.message
