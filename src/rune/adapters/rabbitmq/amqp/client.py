"""AMQP 0-9-1 client that writes the frames of one event loop turn together and parses deliveries in bulk.

    connection = await connect("amqp://user:password@host/vhost", name="worker 1")
    channel = await connection.channel()
    await channel.confirm()
    await channel.declare_queue("work")
    await channel.consume("work", on_message, "a tag")  # on_message(message), called within the event loop
    await channel.publish("", "work", b"...")           # raises PublishError, BrokerUnavailableError
    channel.ack(message.tag)
    await connection.close()

Publishing does not wait by itself while the broker is short of memory: check `channel.is_clear` and await
`channel.clear()` first. A confirm that is missing after the deadline raises BrokerUnavailableError, and so does every
command in progress when the connection is lost. `ReconnectingConnection` replaces lost connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import ssl
from collections.abc import Awaitable, Callable

from rune.adapters.rabbitmq.amqp.channel import Channel
from rune.adapters.rabbitmq.amqp.connection import Address, Connection, parse_address
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

log = logging.getLogger("rune.rabbitmq")

REPLY_TIMEOUT_S = 10.0
"""How long a request waits for its reply and a published message for its confirm."""

MIN_BACKOFF_S = 0.1
MAX_BACKOFF_S = 5.0
STABLE_AFTER_S = 5.0
"""How long a connection must last for the backoff to start again at its minimum."""

Prepare = Callable[[Connection], Awaitable[None]]


async def connect(
    url: str | Address,
    *,
    name: str = "rune",
    deadline: float = REPLY_TIMEOUT_S,
    context: ssl.SSLContext | None = None,
) -> Connection:
    """Open a connection. The broker's tools show its `name`; `context` overrides the TLS options of the URL."""
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
        unreachable = BrokerUnavailableError(
            f"{address} cannot be reached: {str(error) or 'no reply in time'}", code="UNREACHABLE"
        )
        if connection is not None:
            connection.abort(unreachable)
        raise unreachable from None
    except BaseException:
        if connection is not None:
            connection.abort(BrokerUnavailableError("connecting was cancelled", code="CLOSED"))
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


class ReconnectingConnection:
    """A connection that is replaced whenever it is lost. `prepare` runs on each new connection before it is used."""

    def __init__(
        self,
        url: str,
        name: str,
        prepare: Prepare,
        *,
        deadline: float = REPLY_TIMEOUT_S,
        max_backoff: float = MAX_BACKOFF_S,
    ) -> None:
        self._url = url
        self._name = name
        self._prepare = prepare
        self._deadline = deadline
        self._max_backoff = max_backoff
        self._up = asyncio.Event()
        self.is_up = False
        self._running: asyncio.Task[None] | None = None
        self.why = ""
        self._closed = False
        self.connection: Connection | None = None
        self.made = 0

    def start(self) -> None:
        """Start connecting unless already started."""
        if self._running is None and not self._closed:
            self._running = asyncio.create_task(self._run())

    async def up(self, within: float) -> Connection:
        """Return the connection; raise if there is none within this many seconds."""
        if self._closed:
            raise BrokerUnavailableError("the connection to the broker is closed", code="CLOSED")
        self.start()
        try:
            async with asyncio.timeout(within):
                await self._up.wait()
        except TimeoutError:
            raise BrokerUnavailableError(f"the broker is unavailable: {self.why}") from None
        assert self.connection is not None
        return self.connection

    def drop(self, reason: str) -> None:
        """Abort the current connection; a new one replaces it."""
        if self.connection is not None and self.connection.error is None:
            log.warning("%s: reconnecting: %s", self._name, reason)
            self.connection.abort(BrokerUnavailableError(reason))

    async def close(self) -> None:
        """Stop reconnecting and close the connection."""
        self._closed = True
        if self._running is not None:
            self._running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._running
        self._set_up(False)
        if self.connection is not None:
            await self.connection.close()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        backoff = MIN_BACKOFF_S
        while True:
            began = loop.time()
            try:
                await self._connect_until_lost()
            except AmqpError as error:
                self._note_error(error)
            except Exception as error:
                log.exception("%s: connecting failed", self._name)
                self.why = str(error)
            finally:
                self._set_up(False)
            if loop.time() - began > STABLE_AFTER_S:
                backoff = MIN_BACKOFF_S
            await asyncio.sleep(backoff * random.uniform(0.5, 1.0))
            backoff = min(backoff * 2, self._max_backoff)

    async def _connect_until_lost(self) -> None:
        """Open one connection and raise the error that ends it."""
        address = parse_address(self._url)
        self.why = self.why or f"{address} does not answer"
        connection = await connect(address, name=self._name, deadline=self._deadline)
        try:
            self.connection = connection
            await self._prepare(connection)
        except BaseException as error:
            connection.abort(BrokerUnavailableError(f"not prepared: {error}"))
            raise
        self.made += 1
        self._set_up(True)
        raise await asyncio.shield(connection.ended)

    def _set_up(self, is_up: bool) -> None:
        self.is_up = is_up
        if is_up:
            self._up.set()
        else:
            self._up.clear()

    def _note_error(self, error: AmqpError) -> None:
        # Log a repeated error once.
        if error.message != self.why:
            log.warning("%s: %s", self._name, error.message)
        self.why = error.message
