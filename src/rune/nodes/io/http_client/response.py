"""Response bodies: decompresses them within a size limit and converts them to JSON, text or blobs."""

from __future__ import annotations

import codecs
import re
import zlib
from collections.abc import AsyncIterator
from email.message import Message
from functools import lru_cache, partial
from typing import Any, Protocol
from urllib.parse import unquote

import msgspec

from rune.codec.decode import MalformedDataError, decode
from rune.core.definition.problems import BAD_NUMBER
from rune.core.definition.strict_json import MAX_DECODED_BYTES, decode_json, json_depth, json_shape
from rune.core.json_decoder import JsonDecoder
from rune.core.limits import Limits
from rune.errors import NodeFailure
from rune.nodes.blobs import BINARY, file_name
from rune.nodes.io.http import Wanted
from rune.off_loop import off_loop_in_turn

AS_BLOB = object()
"""Placeholder for a body that is stored as a blob."""

TOO_LARGE = "HTTP_TOO_LARGE"

# Larger JSON and text bodies become blobs unless the node requests a value.
MAX_INLINE_BYTES = 10 * 1024 * 1024
MAX_COMPRESSION_RATIO = 200

# The compression ratio of smaller bodies is not checked.
MIN_CHECKED_BYTES = 1024 * 1024

_PIECE_BYTES = 256 * 1024
_NOT_CANONICAL = object()
_JSON_DECODER = JsonDecoder()
_LONG_NUMBER = re.compile(rb"[0-9]{19}")

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


_TRANSIENT_CLIENT_ERRORS = frozenset({408, 425, 429})


def is_permanent_status(status: int) -> bool:
    """Return whether the same request would be answered with the same status: 4xx except 408, 425 and 429."""
    return 400 <= status < 500 and status not in _TRANSIENT_CLIENT_ERRORS


class Labelled(Protocol):
    """The subject of an error message; its label is built only if needed."""

    @property
    def label(self) -> str: ...


async def read(
    data: bytes, content_type: str, limits: Limits, about: Labelled, wanted: Wanted = "auto"
) -> Any:
    """Convert a body as `_read` does: a large one off the event loop. The parts of a value take many times the bytes of
    their text, and no other thread runs while they are built."""
    work = partial(_read, data, content_type, limits, about, wanted)
    return work() if len(data) <= MAX_DECODED_BYTES else await off_loop_in_turn(work)


def _read(data: bytes, content_type: str, limits: Limits, about: Labelled, wanted: Wanted) -> Any:
    """Convert a body to JSON or text by its content type, or its content; return `AS_BLOB` for anything else."""
    kind, charset = _kind(content_type)
    if wanted == "json":
        return _json(data, charset, limits, about)
    if wanted == "text":
        return data.decode(charset, "replace")
    if wanted == "blob" or len(data) > MAX_INLINE_BYTES:
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


def response_file_name(disposition: str, resource: str) -> str | None:
    """Return the file name from the Content-Disposition header, or else from the URL."""
    header = Message()
    header["content-disposition"] = disposition.replace("\r", " ").replace("\n", " ")
    return file_name(header.get_filename()) or file_name(unquote(resource.partition("?")[0]))


def excerpt(data: bytes, content_type: str, max_chars: int = 500) -> str:
    """Return the beginning of a body for an error message."""
    _, charset = _kind(content_type)
    return data[: 4 * max_chars].decode(charset, "replace")[:max_chars]


def _json(data: bytes, charset: str, limits: Limits, about: Labelled) -> Any:
    if not data.strip():
        return None
    if charset.startswith(("utf-16", "utf-32", "utf16", "utf32")):
        data = data.decode(charset, "replace").encode()
    if len(data) > MAX_DECODED_BYTES:
        check_containers(data, limits, about.label)
    value = _decode_canonical(data, limits)
    if value is not _NOT_CANONICAL:
        return value
    found = decode_json(data, max_bytes=limits.output_bytes, max_depth=limits.json_depth)
    if found.problems:
        problem = found.problems[0]
        where = f"`{problem.path}`: " if problem.path else ""
        said = "should be JSON but is not" if problem.code != BAD_NUMBER else "has a number beyond 64 bits"
        raise NodeFailure(f"{about.label}: the response {said}: {where}{problem.message}", code="HTTP_BODY")
    return found.value


def check_containers(data: bytes, limits: Limits, label: str) -> None:
    """Refuse a text of more lists and objects than a start payload may have, before they are built."""
    most = limits.payload_containers
    if data.count(b"[") + data.count(b"{") > most and json_shape(data, most).containers > most:
        raise NodeFailure(f"{label}: the response has more than {most:,} lists and objects", code=TOO_LARGE)


def _decode_canonical(data: bytes, limits: Limits) -> Any:
    """Decode JSON that re-encodes to the same bytes; return `_NOT_CANONICAL` otherwise.

    Such a text has no duplicate keys and no rounded numbers, so the slower strict decoder would accept it too.
    """
    if len(data) > limits.output_bytes or _LONG_NUMBER.search(data):
        return _NOT_CANONICAL
    max_depth = limits.json_depth
    if data.count(b"[") + data.count(b"{") > max_depth and json_depth(data) > max_depth:
        return _NOT_CANONICAL
    try:
        value = decode(_JSON_DECODER, data)
    except MalformedDataError:
        return _NOT_CANONICAL
    return value if msgspec.json.encode(value) == data else _NOT_CANONICAL


@lru_cache(maxsize=256)
def _kind(content_type: str) -> tuple[str, str]:
    header = Message()
    header["content-type"] = content_type.replace("\r", " ").replace("\n", " ") or "application/octet-stream"
    charset = str(header.get_param("charset") or "utf-8").lower()
    return header.get_content_type(), charset if _is_known(charset) else "utf-8"


def _is_known(charset: str) -> bool:
    """Return whether a charset is allowed; some Python codecs are not safe for untrusted bytes."""
    if not _CHARSET.fullmatch(charset):
        return False
    try:
        codecs.lookup(charset)
    except LookupError:
        return False
    return True


class Decompressor(Protocol):
    """Decompresses a body piece by piece, at most `max_bytes` at a time."""

    def feed(self, data: bytes, max_bytes: int) -> bytes: ...

    @property
    def rest(self) -> bytes: ...

    @property
    def done(self) -> bool: ...


class _Identity:
    rest = b""
    done = True

    def feed(self, data: bytes, max_bytes: int) -> bytes:
        return data


class _Zlib:
    """gzip with one or more members, or deflate with or without a header."""

    def __init__(self, *, gzip: bool) -> None:
        self._gzip = gzip
        self._inner = zlib.decompressobj(31 if gzip else 15)
        self._started = False

    def feed(self, data: bytes, max_bytes: int) -> bytes:
        if self._inner.eof:
            if not self._gzip:
                return b""
            self._inner = zlib.decompressobj(31)
        try:
            plain = self._inner.decompress(data, max_bytes)
        except zlib.error:
            if self._gzip or self._started:
                raise
            self._inner = zlib.decompressobj(-15)
            plain = self._inner.decompress(data, max_bytes)
        self._started = True
        return plain

    @property
    def rest(self) -> bytes:
        if self._inner.eof:
            return self._inner.unused_data.lstrip(b"\0") if self._gzip else b""
        return self._inner.unconsumed_tail

    @property
    def done(self) -> bool:
        return self._inner.eof or not self._started


def decompressor(encoding: str, label: str) -> Decompressor:
    """Return the decompressor for a `Content-Encoding`."""
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return _Identity()
    if name in ("gzip", "x-gzip", "deflate"):
        return _Zlib(gzip=name != "deflate")
    raise NodeFailure(
        f"{label}: the response has the encoding {name[:40]}, which was not requested", code="HTTP_PROTOCOL"
    )


async def read_decoded(pieces: AsyncIterator[bytes], encoding: str, max_bytes: int, label: str) -> bytes:
    """Read and decompress a body; fail if it exceeds the size limit or the compression ratio of a zip bomb."""
    decoder = decompressor(encoding, label)
    body = bytearray()
    received = 0
    async for piece in pieces:
        received += len(piece)
        # The compressed stream has ended, but the server keeps sending.
        if received > max_bytes + MIN_CHECKED_BYTES:
            raise NodeFailure(f"{label}: the response has more than {max_bytes:,} bytes", code=TOO_LARGE)
        left = piece
        while left:
            body += decoder.feed(left, min(_PIECE_BYTES, max_bytes + 1 - len(body)))
            left = decoder.rest
            if len(body) > max_bytes:
                raise NodeFailure(f"{label}: the response has more than {max_bytes:,} bytes", code=TOO_LARGE)
            if len(body) > MIN_CHECKED_BYTES and len(body) > MAX_COMPRESSION_RATIO * received:
                raise NodeFailure(
                    f"{label}: the response decompresses to more than {MAX_COMPRESSION_RATIO} times its size",
                    code=TOO_LARGE,
                )
    if not decoder.done:
        raise zlib.error("the compressed body is incomplete")
    return bytes(body)
