"""HTTP requests: builds a request from the parameters of a node, encodes its body and adapts it to redirects.

A body is JSON, a form, a multipart form with files, text or bytes. Files, also attachments of mails, are given as
text, JSON, base64 or a blob reference.
"""

from __future__ import annotations

import base64
import binascii
import re
import secrets
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from rune.core.definition import problems
from rune.errors import NodeFailure
from rune.nodes.base import NodeCall
from rune.nodes.blobs import BINARY, Blobs, file_name, is_reference, media_type
from rune.nodes.io.http import BodyType
from rune.nodes.io.http_client.pagination import Pagination, first
from rune.nodes.io.http_client.ssrf import Target, target
from rune.nodes.redaction import is_secret_name
from rune.nodes.schema import Model, plain

KEY = "idempotency-key"
TEXT = "text/plain"
FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"
MAX_BODY_BYTES = 64 * 1024 * 1024

_JSON = "application/json"
_TEXT = "text/plain; charset=utf-8"
_BODY_PATH = "parameters.body"
_IN_QUOTES = str.maketrans({'"': "%22", "\r": "%0D", "\n": "%0A", "\0": "%00"})
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")

# Headers of the connection: setting them could make two parsers see different requests (request smuggling).
_CONNECTION_HEADERS = frozenset(
    {
        "host",
        "content-length",
        "transfer-encoding",
        "connection",
        "keep-alive",
        "upgrade",
        "te",
        "trailer",
        "expect",
    }
)
_BODY_HEADERS = ("content-type", "content-encoding", "content-language")
_DEFAULT_HEADERS = {"accept": "*/*", "accept-encoding": "gzip, deflate", "user-agent": "rune"}
_REDIRECT_TO_GET = {301: ("POST",), 302: ("POST",), 303: ("POST", "PUT", "PATCH", "DELETE")}


class File(Model, kw_only=True, frozen=True):
    """A file to send. A blob reference is a valid file; `filename` overrides its name."""

    filename: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="File name. Default: the blob's."),
    ] = None
    content: Annotated[Any, Meta(description="Text, a blob reference, or any other value as JSON.")] = None
    content_type: Annotated[
        str | None, Meta(description="Media type. Default: guessed from the file name.")
    ] = None
    encoding: Annotated[
        Literal["text", "base64"], Meta(description="Encoding of `content` if it is text.")
    ] = "text"
    blob: Annotated[str | None, Meta(description="Key of a blob, instead of `content`.")] = None
    size: Annotated[int | None, Meta(description="Size of the blob.")] = None
    name: Annotated[str | None, Meta(description="Name of the blob.")] = None


class Loaded(msgspec.Struct, frozen=True):
    """A file with its bytes."""

    name: str
    content_type: str
    data: bytes


def is_file(value: Any) -> bool:
    """Return whether a value describes a file."""
    return is_reference(value) or (type(value) is dict and "filename" in value and "content" in value)


def as_file(value: Any, where: str) -> File:
    """Convert an object to a file."""
    try:
        return msgspec.convert(value, File)
    except msgspec.ValidationError as error:
        raise bad_file(where, str(error)) from None


def bad_file(where: str, reason: str) -> NodeFailure:
    """Return the failure for a file that cannot be sent."""
    return NodeFailure(f"{where}: {reason}", code=problems.BAD_PARAMETER)


async def load(file: File, blobs: Blobs, max_bytes: int, where: str) -> Loaded:
    """Load the bytes of a file; fail if there are more than `max_bytes`."""
    reference = _reference(file, where)
    blob_name = None if reference is None else reference.get("name")
    name = file_name(file.filename or blob_name) or "file"
    if reference is not None:
        if reference["size"] > max_bytes:
            raise bad_file(where, f"the file has {reference['size']:,} bytes, the limit is {max_bytes:,}")
        data = await blobs.get(reference)
        kind = file.content_type or reference.get("content_type")
    else:
        data, kind = _encode_content(file, name, where)
    if len(data) > max_bytes:
        raise bad_file(where, f"the file has {len(data):,} bytes, the limit is {max_bytes:,}")
    return Loaded(name, media_type(kind), data)


def _reference(file: File, where: str) -> dict[str, Any] | None:
    if file.blob is not None:
        if file.content is not None:
            raise bad_file(where, "`content` and `blob` are both given")
        found = {"blob": file.blob, "size": file.size, "name": file.name}
        if not is_reference(found):
            raise bad_file(where, "not a blob reference")
        return {**found, "content_type": file.content_type or BINARY}
    return file.content if is_reference(file.content) else None


def _encode_content(file: File, name: str, where: str) -> tuple[bytes, str]:
    import mimetypes  # noqa: PLC0415 - reads system files on import

    kind = file.content_type or mimetypes.guess_type(name)[0]
    content = "" if file.content is None else file.content
    if not isinstance(content, str):
        return msgspec.json.encode(content), kind or "application/json"
    if file.encoding == "base64":
        return decode_base64(content, where), kind or BINARY
    return plain(content).encode("utf-8", "replace"), kind or TEXT


def decode_base64(text: str, where: str) -> bytes:
    """Decode base64; whitespace is ignored."""
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise bad_file(where, "not valid base64") from None


async def encode_body(body: Any, kind: BodyType, content_type: str, blobs: Blobs) -> tuple[bytes | None, str]:
    """Encode a body; return its bytes and content type. A content type given in the request takes precedence."""
    if body is None:
        return None, content_type
    encoding = _choose_encoding(body, content_type) if kind == "auto" else kind
    if encoding == "json":
        return msgspec.json.encode(body), content_type or _JSON
    if encoding == "text":
        return plain(body).encode("utf-8", "replace"), content_type or _TEXT
    if encoding == "binary":
        return await _encode_bytes(body, content_type, blobs)
    if not isinstance(body, dict):
        raise NodeFailure(f"{_BODY_PATH}: a form must be an object", code=problems.BAD_PARAMETER)
    if encoding == "form":
        return urlencode(list(_form_fields(body))).encode(), content_type or FORM
    return await _encode_multipart(body, blobs)


def _choose_encoding(body: Any, content_type: str) -> BodyType:
    media = content_type.partition(";")[0].strip().lower()
    if isinstance(body, dict):
        if media == FORM:
            return "form"
        if media == MULTIPART:
            return "multipart"
        if is_reference(body):
            return "binary"
    return "text" if isinstance(body, str) else "json"


async def _encode_bytes(body: Any, content_type: str, blobs: Blobs) -> tuple[bytes, str]:
    if isinstance(body, str):
        return decode_base64(body, _BODY_PATH), content_type or BINARY
    if not is_file(body):
        raise NodeFailure(
            f"{_BODY_PATH}: bytes must be a blob reference or base64 text",
            code=problems.BAD_PARAMETER,
        )
    file = await load(as_file(body, _BODY_PATH), blobs, MAX_BODY_BYTES, _BODY_PATH)
    return file.data, content_type or file.content_type


def _form_fields(body: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in body.items():
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, list | dict):
                raise NodeFailure(
                    f"{_BODY_PATH}.{name}: a form cannot contain nested lists or objects",
                    code=problems.BAD_PARAMETER,
                )
            if each is not None:
                yield name, plain(each)


async def _encode_multipart(body: Mapping[str, Any], blobs: Blobs) -> tuple[bytes, str]:
    """Encode a multipart form. The boundary is random, so that no content can contain it."""
    boundary = secrets.token_hex(20)
    encoded = bytearray()
    for name, value in body.items():
        for each in value if isinstance(value, list) else [value]:
            if each is None:
                continue
            head, data = await _part(name, each, blobs, MAX_BODY_BYTES - len(encoded))
            encoded += f"--{boundary}\r\nContent-Disposition: form-data; {head}\r\n\r\n".encode(
                "utf-8", "replace"
            )
            encoded += data
            encoded += b"\r\n"
            if len(encoded) > MAX_BODY_BYTES:
                raise NodeFailure(
                    f"{_BODY_PATH}: more than {MAX_BODY_BYTES:,} bytes", code=problems.BAD_PARAMETER
                )
    encoded += f"--{boundary}--\r\n".encode()
    return bytes(encoded), f"{MULTIPART}; boundary={boundary}"


async def _part(name: str, value: Any, blobs: Blobs, max_bytes: int) -> tuple[str, bytes]:
    quoted = name.translate(_IN_QUOTES)
    if is_file(value):
        where = f"{_BODY_PATH}.{name}"
        file = await load(as_file(value, where), blobs, max_bytes, where)
        shown = file.name.translate(_IN_QUOTES)
        return f'name="{quoted}"; filename="{shown}"\r\nContent-Type: {file.content_type}', file.data
    if isinstance(value, list | dict):
        return f'name="{quoted}"\r\nContent-Type: {_JSON}', msgspec.json.encode(value)
    return f'name="{quoted}"', plain(value).encode("utf-8", "replace")


class Request(msgspec.Struct, frozen=True):
    """One request. Header names are in lower case.

    `private` names the headers that come from a credential. `query`, also from a credential, is added to every URL of
    the first origin.
    """

    method: str
    where: Target
    headers: dict[str, str]
    body: bytes | None
    private: frozenset[str] = frozenset()
    query: str = ""

    def redirected(self, status: int, where: Target) -> Request:
        """Return the request for a redirect."""
        moved = self.to(where)
        if self.method not in _REDIRECT_TO_GET.get(status, ()):
            return moved
        kept = {name: value for name, value in moved.headers.items() if name not in _BODY_HEADERS}
        return replace(moved, method="GET", headers=kept, body=None)

    def to(self, where: Target) -> Request:
        """Return the request for another URL. Headers that may be secret are not sent to another origin, and neither is
        the idempotency key: it belongs to an effect at the first one."""
        if where.origin == self.where.origin:
            return replace(self, where=_with_pair(where, self.query))
        kept = {
            name: value
            for name, value in self.headers.items()
            if name not in self.private and not _is_secret(name)
        }
        return replace(self, where=where, headers=kept, private=frozenset(), query="")


def _is_secret(name: str) -> bool:
    return is_secret_name(name) or name.endswith("-key")


async def build(call: NodeCall[Any], rule: Pagination | None) -> Request:
    """Build the first request of a node."""
    parameters, key = call.parameters, call.idempotency_key
    where = first(rule, _with_query(target(parameters.url), parameters.query))
    headers = dict(_DEFAULT_HEADERS)
    headers.update(_headers(parameters.headers))
    body, content_type = await encode_body(
        parameters.body, parameters.body_type, headers.get("content-type", ""), call.blobs
    )
    if content_type:
        headers["content-type"] = content_type
    if key and KEY not in headers:
        headers[KEY] = key_text(key)
    if call.traceparent:
        headers.setdefault("traceparent", call.traceparent)
    return Request(parameters.method, where, headers, body)


def key_text(key: str) -> str:
    """Encode an idempotency key for a header."""
    if key.isascii() and key.isprintable():
        return key
    return quote(key, safe=":/@.,;=+!*()'$&[]{}|~^ #<>?\"\\`%")


def _headers(given: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in given.items():
        if value is None:
            continue
        if not _NAME.fullmatch(name):
            raise _bad_header(name, "is not a valid header name")
        lower = name.lower()
        if lower in _CONNECTION_HEADERS or lower.startswith("proxy-"):
            raise _bad_header(name, "cannot be set: it is controlled by the connection")
        text = ", ".join(
            plain(each) for each in (value if isinstance(value, list) else [value]) if each is not None
        )
        if _CONTROL.search(text):
            raise _bad_header(name, "contains a line break or control character")
        found[lower] = text.strip()
    return found


def _bad_header(name: str, reason: str) -> NodeFailure:
    return NodeFailure(f"parameters.headers: `{name[:80]}` {reason}", code=problems.BAD_PARAMETER)


def _with_query(where: Target, query: dict[str, Any]) -> Target:
    pairs = [
        (name, plain(each))
        for name, value in query.items()
        for each in (value if isinstance(value, list) else [value])
        if each is not None
    ]
    if not pairs:
        return where
    separator = "&" if "?" in where.resource else "?"
    return replace(where, resource=f"{where.resource}{separator}{urlencode(pairs)}")


def _with_pair(where: Target, pair: str) -> Target:
    """Return the URL with a query pair that replaces others of the same name."""
    if not pair:
        return where
    name = pair.partition("=")[0]
    path, _, query = where.resource.partition("?")
    kept = [each for each in query.split("&") if each and each.partition("=")[0] != name]
    return replace(where, resource=f"{path}?{'&'.join([*kept, pair])}")


def raises(listed: str | int | None, status: int) -> bool:
    """Return whether `raise_on_status` lists this status."""
    return listed is not None and status in _parse_statuses(str(listed))


@lru_cache(maxsize=256)
def _parse_statuses(text: str) -> frozenset[int]:
    kinds = {each.strip().lower() for each in text.split(",")}
    return frozenset(each for each in range(100, 600) if {str(each), f"{each // 100}xx"} & kinds)
