"""A lean AMQP 0-9-1 client: what is sent in one turn of the loop travels together, deliveries are parsed in bulk.

    connection = await connect("amqp://user:password@host/vhost", name="worker 1")
    channel = await connection.channel()
    await channel.confirm()
    await channel.declare_queue("work")
    await channel.consume("work", taker, "a tag")      # taker(message), called within the loop
    await channel.publish("", "work", b"...")          # done when the broker has it; raises NotTaken, BrokerAway
    channel.ack(message.tag)
    await connection.close()

Requests of one channel are answered in their order. Publishing does not wait by itself when the broker is short of
memory: ask `channel.is_clear` and await `channel.clear()` first. A confirm that does not come within the deadline is
a BrokerAway, and so is everything that was under way when a connection ends.

A link: keeps one connection, and makes a new one whenever it is lost, for as long as it takes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import ssl
from collections.abc import Awaitable, Callable

from rune.adapters.rabbitmq.amqp.address import Address, parse_address
from rune.adapters.rabbitmq.amqp.channel import Channel
from rune.adapters.rabbitmq.amqp.connection import Connection
from rune.adapters.rabbitmq.amqp.errors import (
    AmqpError,
    BrokerUnavailableError,
    ChannelClosedError,
    ConnectionRefusedByBrokerError,
    InvalidAddressError,
    NackedError,
    PublishError,
    UnroutableError,
)
from rune.adapters.rabbitmq.amqp.frames import Message, MessageProperties

REPLY_TIMEOUT_S = 10.0  # s: a request or a publish that is not answered for so long has failed


async def connect(
    url: str | Address,
    *,
    name: str = "rune",
    deadline: float = REPLY_TIMEOUT_S,
    context: ssl.SSLContext | None = None,
) -> Connection:
    """An open connection. `name` is shown by the broker's tools; `context` overrides what the URL says of TLS."""
    address = parse_address(url) if isinstance(url, str) else url
    loop = asyncio.get_running_loop()
    secure = (context or address.context()) if address.secure else None
    server = (address.server_name_indication or address.host) if secure else None
    connection: Connection | None = None
    try:
        async with asyncio.timeout(address.connection_timeout / 1000):
            _, connection = await loop.create_connection(
                lambda: Connection(address, name, deadline),
                address.host,
                address.port,
                ssl=secure,
                server_hostname=server,
            )
            await connection.opened()
    except ssl.SSLCertVerificationError as error:
        raise ConnectionRefusedByBrokerError(
            f"{address}: the certificate of the broker is not trusted: {error.verify_message};"
            " name its authority with ?cacertfile=FILE",
            code="TLS",
        ) from None
    except ssl.SSLError as error:
        raise ConnectionRefusedByBrokerError(f"{address}: {error}", code="TLS") from None
    except (OSError, TimeoutError) as error:
        away = BrokerUnavailableError(
            f"{address} cannot be reached: {str(error) or 'no answer in time'}", code="UNREACHABLE"
        )
        if connection is not None:
            connection.abort(away)
        raise away from None
    except BaseException:
        if connection is not None:
            connection.abort(BrokerUnavailableError("given up", code="CLOSED"))
        raise
    return connection


__all__ = [
    "Address",
    "AmqpError",
    "BrokerUnavailableError",
    "Channel",
    "ChannelClosedError",
    "Connection",
    "ConnectionRefusedByBrokerError",
    "InvalidAddressError",
    "Message",
    "MessageProperties",
    "NackedError",
    "PublishError",
    "UnroutableError",
    "connect",
    "parse_address",
]


log = logging.getLogger("rune.rabbitmq")

MIN_BACKOFF_S = 0.1
MAX_BACKOFF_S = 5.0
STABLE_AFTER_S = 5.0  # s that a connection has to last for the pauses to begin anew

Prepare = Callable[[Connection], Awaitable[None]]


class ReconnectingConnection:
    """A connection with everything that is needed on it. `prepare` is run on each new one before anybody gets it."""

    def __init__(
        self,
        url: str,
        name: str,
        prepare: Prepare,
        *,
        deadline: float = REPLY_TIMEOUT_S,
        longest_pause: float = MAX_BACKOFF_S,
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
            raise BrokerUnavailableError("the link to the broker is closed", code="CLOSED")
        self.start()
        try:
            async with asyncio.timeout(within):
                await self._up.wait()
        except TimeoutError:
            raise BrokerUnavailableError(f"the broker is away: {self.why}") from None
        assert self.connection is not None
        return self.connection

    def drop(self, reason: str) -> None:
        """Something is wrong with this connection: take another."""
        if self.connection is not None and self.connection.error is None:
            log.warning("%s: connecting anew: %s", self._name, reason)
            self.connection.abort(BrokerUnavailableError(reason))

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
        pause = MIN_BACKOFF_S
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
            if loop.time() - began > STABLE_AFTER_S:
                pause = MIN_BACKOFF_S
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, self._longest)

    async def _hold(self) -> None:
        """One connection from its beginning to its end, which is raised."""
        connection = await connect(self._url, name=self._name, deadline=self._deadline)
        try:
            self.connection = connection
            await self._prepare(connection)
        except BaseException as error:
            connection.abort(BrokerUnavailableError(f"not prepared: {error}"))
            raise
        self.made += 1
        self._up.set()
        raise await asyncio.shield(connection.ended)

    def _say(self, error: AmqpError) -> None:
        if error.message != self.why:  # the same again and again is said once
            log.warning("%s: %s", self._name, error.message)
        self.why = error.message
