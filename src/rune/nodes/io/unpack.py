"""Bodies as they come in: unpacked piece by piece, never more than was asked for."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator
from typing import Protocol

from rune.errors import NodeFailure

TOO_LARGE = "HTTP_TOO_LARGE"
RATIO = 200
SMALL = 1024 * 1024
"""Up to this size nobody minds how well a body was packed."""

_PIECE = 256 * 1024


class Unpacker(Protocol):
    """Takes packed bytes, gives plain ones, at most so many at a time."""

    def feed(self, data: bytes, most: int) -> bytes: ...

    @property
    def rest(self) -> bytes: ...

    @property
    def done(self) -> bool: ...


class _Plain:
    rest = b""
    done = True

    def feed(self, data: bytes, most: int) -> bytes:
        return data


class _Zipped:
    """gzip, in one or more members, or deflate with and without its header."""

    def __init__(self, *, gzip: bool) -> None:
        self._gzip = gzip
        self._inner = zlib.decompressobj(31 if gzip else 15)
        self._begun = False

    def feed(self, data: bytes, most: int) -> bytes:
        if self._inner.eof:
            if not self._gzip:
                return b""
            self._inner = zlib.decompressobj(31)
        try:
            plain = self._inner.decompress(data, most)
        except zlib.error:
            if self._gzip or self._begun:
                raise
            self._inner = zlib.decompressobj(-15)
            plain = self._inner.decompress(data, most)
        self._begun = True
        return plain

    @property
    def rest(self) -> bytes:
        if self._inner.eof:
            return self._inner.unused_data.lstrip(b"\0") if self._gzip else b""
        return self._inner.unconsumed_tail

    @property
    def done(self) -> bool:
        return self._inner.eof or not self._begun


def unpacker(encoding: str, label: str) -> Unpacker:
    """For the `Content-Encoding` of an answer."""
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return _Plain()
    if name in ("gzip", "x-gzip", "deflate"):
        return _Zipped(gzip=name != "deflate")
    raise NodeFailure(
        f"{label}: the answer is packed as {name[:40]}, which was not asked for", code="HTTP_PROTOCOL"
    )


async def unpacked(pieces: AsyncIterator[bytes], encoding: str, most: int, label: str) -> bytes:
    """The whole body, if it has at most so many bytes and no piece of it is a bomb."""
    worker = unpacker(encoding, label)
    body = bytearray()
    received = 0
    async for piece in pieces:
        received += len(piece)
        if received > most + SMALL:  # what is packed has ended, and still more comes
            raise NodeFailure(f"{label}: the answer has more than {most:,} bytes", code=TOO_LARGE)
        left = piece
        while left:
            body += worker.feed(left, min(_PIECE, most + 1 - len(body)))
            left = worker.rest
            if len(body) > most:
                raise NodeFailure(f"{label}: the answer has more than {most:,} bytes", code=TOO_LARGE)
            if len(body) > SMALL and len(body) > RATIO * received:
                raise NodeFailure(
                    f"{label}: the answer unpacks to more than {RATIO} times its size", code=TOO_LARGE
                )
    if not worker.done:
        raise zlib.error("the packed body breaks off")
    return bytes(body)
