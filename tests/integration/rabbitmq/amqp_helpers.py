"""Helpers for tests of the AMQP client."""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from pamqp import commands, frame, header

from rune.adapters.rabbitmq.amqp.client import Channel, Connection, Message, connect
from tests.support.services.listening import listening
from tests.support.services.rabbitmq import Broker, broker


class RecordingConsumer:
    """Records messages and cancellations."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.cancelled: list[str] = []
        self._more = asyncio.Event()

    def on_message(self, message: Message) -> None:
        self.messages.append(message)
        self._more.set()

    def on_cancel(self, tag: str) -> None:
        self.cancelled.append(tag)
        self._more.set()

    async def wait_for_messages(self, count: int) -> list[Message]:
        while len(self.messages) < count:
            self._more.clear()
            await self._more.wait()
        return self.messages

    async def wait_for_cancel(self) -> list[str]:
        while not self.cancelled:
            self._more.clear()
            await self._more.wait()
        return self.cancelled


@asynccontextmanager
async def open_connection(
    options: str = "", on: Broker | None = None, deadline: float = 10.0
) -> AsyncIterator[Connection]:
    """Connect to a new vhost."""
    server = on or broker()
    with server.vhost() as vhost:
        connection = await connect(server.url(vhost) + options, deadline=deadline)
        try:
            yield connection
        finally:
            await connection.close()


@asynccontextmanager
async def open_channel(options: str = "") -> AsyncIterator[Channel]:
    """Open a channel with confirms and a queue `q`."""
    async with open_connection(options) as connection:
        channel = await connection.channel()
        await channel.confirm()
        await channel.declare_queue("q")
        yield channel


Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def method(value: Any, channel: int = 0) -> bytes:
    return frame.marshal(value, channel)


def raw_frame(kind: int, channel: int, payload: bytes, end: bytes = b"\xce") -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + end


def content_header(size: int, channel: int = 1) -> bytes:
    return method(header.ContentHeader(0, size, commands.Basic.Properties()), channel)


async def read_frame(reader: asyncio.StreamReader) -> Any:
    head = await reader.readexactly(7)
    _, _, size = struct.unpack(">BHI", head)
    return frame.unmarshal(head + await reader.readexactly(size + 1))[2]


async def handshake(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    *,
    frame_max: int = 131_072,
    heartbeat: int = 0,
) -> None:
    """Play the broker's part of the handshake."""
    assert await reader.readexactly(8) == b"AMQP\x00\x00\x09\x01"
    writer.write(
        method(
            commands.Connection.Start(server_properties={"version": "3.10.8"}, mechanisms="PLAIN AMQPLAIN")
        )
    )
    await read_frame(reader)
    writer.write(method(commands.Connection.Tune(2047, frame_max, heartbeat)))
    await read_frame(reader)
    await read_frame(reader)
    writer.write(method(commands.Connection.OpenOk()))


@asynccontextmanager
async def fake_broker(script: Script, context: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Run the script as a broker; yield its host and port."""
    async with listening(script, tls=context) as port:
        yield f"127.0.0.1:{port}"
