"""One request written to a connection, and the answer read from it.

aiohttp opens and keeps the connections and reads what comes back. What its sessions do besides, for cookies, traces and
redirects, no node needs, and it takes longer than everything here.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any

import aiohttp
from aiohttp.connector import Connection
from aiohttp.http import HttpProcessingError, StreamWriter

from rune.nodes.io.address import Target

LARGE = 256 * 1024
BUFFER = 64 * 1024

_BARE = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that say nothing of a body that they do not have."""

_FRAMING = frozenset({"content-length", "transfer-encoding"})
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class Response:
    """An answer whose body is as it comes."""

    __slots__ = ("_connection", "_writing", "content", "headers", "status")

    def __init__(self, connection: Connection, message: Any, content: Any) -> None:
        self._connection = connection
        self._writing: asyncio.Task[None] | None = None
        self.status: int = message.code
        self.headers: Mapping[str, str] = message.headers
        self.content: aiohttp.StreamReader = content

    @property
    def content_length(self) -> int | None:
        """How long the body is, if the server says so."""
        announced = self.headers.get("Content-Length")
        return int(announced) if announced is not None and announced.isdecimal() else None

    async def whole(self) -> bytes:
        """The rest of the body."""
        content = self.content
        if content.is_eof() and content.exception() is None:
            return content.read_nowait()
        return await content.read()

    def written_by(self, writing: asyncio.Task[None] | None) -> None:
        """Who may still be writing the request."""
        self._writing = writing

    def close(self) -> None:
        """Nothing more is read. The connection is kept if all of the request and of the answer went over it."""
        if self._writing is not None and not self._writing.done():
            self._writing.cancel()
            self._connection.close()
        else:
            self._connection.release()


def head(method: str, where: Target, headers: Mapping[str, str], body: bytes | None) -> bytes:
    """The request line and headers. What could be read as two headers or two requests is refused."""
    if not _FRAMING.isdisjoint(headers):
        raise ValueError("a header that belongs to the connection cannot be set")
    lines = [f"{method} {where.resource} HTTP/1.1"]
    if "host" not in headers:
        lines.append(f"Host: {where.authority}")
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    elif method not in _BARE:
        lines.append("Content-Length: 0")
    if " " in where.resource or _CONTROL.search("\t".join(lines)):
        raise ValueError("a header or the address holds a line break or control character")
    lines.append("\r\n")
    return "\r\n".join(lines).encode()


async def transfer(connection: Connection, method: str, start: bytes, body: bytes | None) -> Response:
    """Send a request over a connection that is this one's alone, and wait for the head of its answer."""
    writing: asyncio.Task[None] | None = None
    try:
        protocol, transport = connection.protocol, connection.transport
        if protocol is None or transport is None:
            raise aiohttp.ServerDisconnectedError
        protocol.set_response_params(
            skip_payload=method == "HEAD", read_until_eof=True, auto_decompress=False, read_bufsize=BUFFER
        )
        if body is not None and len(body) > LARGE:
            transport.write(start)
            writing = asyncio.create_task(_write(protocol, body))
        else:
            transport.write(start + body if body else start)
        while True:
            message, content = await protocol.read()
            if message.code >= 200 or message.code == 101:
                break
        response = Response(connection, message, content)
        response.written_by(writing)
        return response
    except BaseException as error:
        if writing is not None:
            writing.cancel()
        connection.close()
        if isinstance(error, HttpProcessingError):
            raise aiohttp.ClientPayloadError(error.message) from None
        raise


async def _write(protocol: Any, body: bytes) -> None:
    """What is large is written piece by piece, so that it does not hold up the others."""
    writer = StreamWriter(protocol, asyncio.get_running_loop())
    view = memoryview(body)
    try:
        for start in range(0, len(body), BUFFER):
            await writer.write(view[start : start + BUFFER])
            await writer.drain()
    except (aiohttp.ClientError, OSError):
        return  # whoever waits for the answer hears of it from the connection
