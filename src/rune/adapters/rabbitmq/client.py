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
"""

from __future__ import annotations

import asyncio
import ssl

from rune.adapters.rabbitmq.address import Address, parse_address
from rune.adapters.rabbitmq.channel import Channel
from rune.adapters.rabbitmq.connection import Connection
from rune.adapters.rabbitmq.errors import (
    AmqpError,
    BadAddress,
    BrokerAway,
    ChannelClosed,
    ConnectionRefused,
    Nacked,
    NotTaken,
    Unroutable,
)
from rune.adapters.rabbitmq.frames import Message, Stamp

DEADLINE = 10.0  # s: a request or a publish that is not answered for so long has failed


async def connect(
    url: str | Address,
    *,
    name: str = "rune",
    deadline: float = DEADLINE,
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
        raise ConnectionRefused(
            f"{address}: the certificate of the broker is not trusted: {error.verify_message};"
            " name its authority with ?cacertfile=FILE",
            code="TLS",
        ) from None
    except ssl.SSLError as error:
        raise ConnectionRefused(f"{address}: {error}", code="TLS") from None
    except (OSError, TimeoutError) as error:
        away = BrokerAway(
            f"{address} cannot be reached: {str(error) or 'no answer in time'}", code="UNREACHABLE"
        )
        if connection is not None:
            connection.abort(away)
        raise away from None
    except BaseException:
        if connection is not None:
            connection.abort(BrokerAway("given up", code="CLOSED"))
        raise
    return connection


__all__ = [
    "Address",
    "AmqpError",
    "BadAddress",
    "BrokerAway",
    "Channel",
    "ChannelClosed",
    "Connection",
    "ConnectionRefused",
    "Message",
    "Nacked",
    "NotTaken",
    "Stamp",
    "Unroutable",
    "connect",
    "parse_address",
]
