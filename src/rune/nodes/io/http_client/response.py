"""Bodies of answers: JSON, text, and bytes that are neither.

Bodies as they come in: unpacked piece by piece, never more than was asked for.
"""

from __future__ import annotations

import codecs
import re
import zlib
from collections.abc import AsyncIterator
from email.message import Message
from functools import lru_cache
from typing import Any, Protocol
from urllib.parse import unquote

import msgspec

from rune.core.definition.strict_json import decode_json, json_depth
from rune.core.limits import Limits
from rune.errors import NodeFailure
from rune.nodes.blobs import BINARY, file_name
from rune.nodes.io.http import Wanted

AS_BLOB = object()
"""In place of a body that belongs into the blob store."""

_ODD = object()
_LONG_NUMBER = re.compile(rb"[0-9]{19}")

INLINE = 10 * 1024 * 1024
"""Up to this size JSON and text are values of their own unless the node says otherwise."""

_JSON = re.compile(r"(application|text)/(json|[a-z0-9.+_-]+\+json)")
_TEXT = re.compile(
    r"text/.*|application/(xml|.*\+xml|javascript|ecmascript|x-www-form-urlencoded|x-ndjson|graphql|yaml|x-yaml|toml|sql)"
)
_BINARY = re.compile(
    r"(image|audio|video|font|model)/.*|application/(octet-stream|pdf|zip|gzip|zstd|wasm|x-tar|x-7z-compressed"
    r"|x-protobuf|cbor|msgpack|vnd\.(ms-.*|openxmlformats.*|oasis.*|apache\.(parquet|arrow.*)|sqlite3))"
)
_CHARSET = re.compile(
    r"utf-?8|utf-?(16|32)(-?[lb]e)?|us-ascii|ascii|latin-?1|iso-?8859-?\d{1,2}|windows-?125\d|cp125\d|koi8-[ru]"
    r"|shift_jis|euc-(jp|kr)|gb(2312|k|18030)|big5"
)


class Labelled(Protocol):
    """What an error is about; put into words only if there is one."""

    @property
    def label(self) -> str: ...


def read(data: bytes, content_type: str, limits: Limits, about: Labelled, wanted: Wanted = "auto") -> Any:
    """The body of an answer as a value: JSON or text if its type says so, or looks like it; else `AS_BLOB`."""
    kind, charset = _kind(content_type)
    if wanted == "json":
        return _json(data, charset, limits, about)
    if wanted == "text":
        return data.decode(charset, "replace")
    if wanted == "blob" or len(data) > INLINE:
        return AS_BLOB
    if _JSON.fullmatch(kind):
        return _json(data, charset, limits, about)
    if _TEXT.fullmatch(kind) or not data:
        return data.decode(charset, "replace")
    if not _BINARY.fullmatch(kind) or (kind == BINARY and not content_type):
        try:
            if b"\0" not in data:
                return data.decode("utf-8")
        except UnicodeDecodeError:
            pass
    return AS_BLOB


def named(disposition: str, resource: str) -> str | None:
    """The name of a file: what the server calls it, else the end of its address."""
    header = Message()
    header["content-disposition"] = disposition.replace("\r", " ").replace("\n", " ")
    return file_name(header.get_filename()) or file_name(unquote(resource.partition("?")[0]))


def excerpt(data: bytes, content_type: str, most: int = 500) -> str:
    """The beginning of a body, for an error."""
    _, charset = _kind(content_type)
    return data[: 4 * most].decode(charset, "replace")[:most]


def _json(data: bytes, charset: str, limits: Limits, about: Labelled) -> Any:
    if not data.strip():
        return None
    if charset.startswith(("utf-16", "utf-32", "utf16", "utf32")):
        data = data.decode(charset, "replace").encode()
    value = _plain(data, limits)
    if value is not _ODD:
        return value
    found = decode_json(data, max_bytes=limits.output_bytes, max_depth=limits.json_depth)
    if found.problems:
        raise NodeFailure(
            f"{about.label}: the answer should be JSON but is not: {found.problems[0].message}",
            code="HTTP_BODY",
        )
    return found.value


def _plain(data: bytes, limits: Limits) -> Any:
    """The value of JSON that comes out the same when it is written again, else `_ODD`. Such a text has no key twice and
    no number that is rounded; without long numbers too, the careful reader would find nothing in it to object to."""
    if len(data) > limits.output_bytes or _LONG_NUMBER.search(data):
        return _ODD
    most = limits.json_depth
    if data.count(b"[") + data.count(b"{") > most and json_depth(data) > most:
        return _ODD
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _ODD
    return value if msgspec.json.encode(value) == data else _ODD


@lru_cache(maxsize=256)
def _kind(content_type: str) -> tuple[str, str]:
    header = Message()
    header["content-type"] = content_type.replace("\r", " ").replace("\n", " ") or "application/octet-stream"
    charset = str(header.get_param("charset") or "utf-8").lower()
    return header.get_content_type(), charset if _is_known(charset) else "utf-8"


def _is_known(charset: str) -> bool:
    """Python has more codecs than are fit for strangers' bytes."""
    if not _CHARSET.fullmatch(charset):
        return False
    try:
        codecs.lookup(charset)
    except LookupError:
        return False
    return True


TOO_LARGE = "HTTP_TOO_LARGE"
MAX_COMPRESSION_RATIO = 200
MIN_CHECKED_BYTES = 1024 * 1024
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
        if received > most + MIN_CHECKED_BYTES:  # what is packed has ended, and still more comes
            raise NodeFailure(f"{label}: the answer has more than {most:,} bytes", code=TOO_LARGE)
        left = piece
        while left:
            body += worker.feed(left, min(_PIECE, most + 1 - len(body)))
            left = worker.rest
            if len(body) > most:
                raise NodeFailure(f"{label}: the answer has more than {most:,} bytes", code=TOO_LARGE)
            if len(body) > MIN_CHECKED_BYTES and len(body) > MAX_COMPRESSION_RATIO * received:
                raise NodeFailure(
                    f"{label}: the answer unpacks to more than {MAX_COMPRESSION_RATIO} times its size",
                    code=TOO_LARGE,
                )
    if not worker.done:
        raise zlib.error("the packed body breaks off")
    return bytes(body)
