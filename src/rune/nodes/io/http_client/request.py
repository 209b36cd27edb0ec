"""Files that go out with a request or a mail: given as text, as JSON, as base64, or by reference to a blob.

What a request carries: JSON, a form, a form with files, text or bytes.

A request: what an http node's parameters ask for, and what becomes of it on the way.
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

TEXT = "text/plain"


class File(Model, kw_only=True, frozen=True):
    """One file. A reference to a blob is one as it stands; `filename` may give it another name."""

    filename: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="Name of the file. Default: the blob's."),
    ] = None
    content: Annotated[Any, Meta(description="Text, a reference to a blob, or anything else as JSON.")] = None
    content_type: Annotated[str | None, Meta(description="Media type. Default: by the file's name.")] = None
    encoding: Annotated[
        Literal["text", "base64"], Meta(description="How `content` is written, if it is text.")
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
    """Whether an object describes a file and not a value."""
    return is_reference(value) or (type(value) is dict and "filename" in value and "content" in value)


def as_file(value: Any, where: str) -> File:
    """An object as a file."""
    try:
        return msgspec.convert(value, File)
    except msgspec.ValidationError as error:
        raise refused(where, str(error)) from None


def refused(where: str, why: str) -> NodeFailure:
    """A file that cannot be sent."""
    return NodeFailure(f"{where}: {why}", code=problems.BAD_PARAMETER)


async def load(file: File, blobs: Blobs, most: int, where: str) -> Loaded:
    """The bytes of a file, at most so many."""
    reference = _reference(file, where)
    given = None if reference is None else reference.get("name")
    name = file_name(file.filename or given) or "file"
    if reference is not None:
        if reference["size"] > most:
            raise refused(where, f"the file has {reference['size']:,} bytes, and there is room for {most:,}")
        data = await blobs.get(reference)
        kind = file.content_type or reference.get("content_type")
    else:
        data, kind = _given(file, name, where)
    if len(data) > most:
        raise refused(where, f"the file has {len(data):,} bytes, and there is room for {most:,}")
    return Loaded(name, media_type(kind), data)


def _reference(file: File, where: str) -> dict[str, Any] | None:
    if file.blob is not None:
        if file.content is not None:
            raise refused(where, "`content` and `blob` are both given")
        found = {"blob": file.blob, "size": file.size, "name": file.name}
        if not is_reference(found):
            raise refused(where, "this is no reference to a blob")
        return {**found, "content_type": file.content_type or BINARY}
    return file.content if is_reference(file.content) else None


def _given(file: File, name: str, where: str) -> tuple[bytes, str]:
    import mimetypes  # noqa: PLC0415 - reads the system's tables when it is loaded

    kind = file.content_type or mimetypes.guess_type(name)[0]
    content = "" if file.content is None else file.content
    if not isinstance(content, str):
        return msgspec.json.encode(content), kind or "application/json"
    if file.encoding == "base64":
        return decoded(content, where), kind or BINARY
    return plain(content).encode("utf-8", "replace"), kind or TEXT


def decoded(text: str, where: str) -> bytes:
    """Bytes written as base64; line breaks are let pass."""
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise refused(where, "this is no base64") from None


MAX_BODY_BYTES = 64 * 1024 * 1024
FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"
_JSON = "application/json"
_TEXT = "text/plain; charset=utf-8"
_WHERE = "parameters.body"
_IN_QUOTES = str.maketrans({'"': "%22", "\r": "%0D", "\n": "%0A", "\0": "%00"})


async def payload(body: Any, kind: BodyType, content_type: str, blobs: Blobs) -> tuple[bytes | None, str]:
    """The bytes that are sent, and their type; one that the request names is kept."""
    if body is None:
        return None, content_type
    chosen = _chosen(body, content_type) if kind == "auto" else kind
    if chosen == "json":
        return msgspec.json.encode(body), content_type or _JSON
    if chosen == "text":
        return plain(body).encode("utf-8", "replace"), content_type or _TEXT
    if chosen == "binary":
        return await _bytes(body, content_type, blobs)
    if not isinstance(body, dict):
        raise NodeFailure(f"{_WHERE}: a form is made of an object", code=problems.BAD_PARAMETER)
    if chosen == "form":
        return urlencode(list(_fields(body))).encode(), content_type or FORM
    return await _multipart(body, blobs)


def _chosen(body: Any, content_type: str) -> BodyType:
    named = content_type.partition(";")[0].strip().lower()
    if isinstance(body, dict):
        if named == FORM:
            return "form"
        if named == MULTIPART:
            return "multipart"
        if is_reference(body):
            return "binary"
    return "text" if isinstance(body, str) else "json"


async def _bytes(body: Any, content_type: str, blobs: Blobs) -> tuple[bytes, str]:
    if isinstance(body, str):
        return decoded(body, _WHERE), content_type or BINARY
    if not is_file(body):
        raise NodeFailure(
            f"{_WHERE}: bytes are given by reference to a blob, or as text in base64",
            code=problems.BAD_PARAMETER,
        )
    file = await load(as_file(body, _WHERE), blobs, MAX_BODY_BYTES, _WHERE)
    return file.data, content_type or file.content_type


def _fields(body: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in body.items():
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, list | dict):
                raise NodeFailure(
                    f"{_WHERE}.{name}: a form holds no lists of lists and no objects",
                    code=problems.BAD_PARAMETER,
                )
            if each is not None:
                yield name, plain(each)


async def _multipart(body: Mapping[str, Any], blobs: Blobs) -> tuple[bytes, str]:
    """Written at once; the boundary is drawn, so no content can be made to hold it."""
    boundary = secrets.token_hex(20)
    written = bytearray()
    for name, value in body.items():
        for each in value if isinstance(value, list) else [value]:
            if each is None:
                continue
            head, data = await _part(name, each, blobs, MAX_BODY_BYTES - len(written))
            written += f"--{boundary}\r\nContent-Disposition: form-data; {head}\r\n\r\n".encode(
                "utf-8", "replace"
            )
            written += data
            written += b"\r\n"
            if len(written) > MAX_BODY_BYTES:
                raise NodeFailure(
                    f"{_WHERE}: more than {MAX_BODY_BYTES:,} bytes", code=problems.BAD_PARAMETER
                )
    written += f"--{boundary}--\r\n".encode()
    return bytes(written), f"{MULTIPART}; boundary={boundary}"


async def _part(name: str, value: Any, blobs: Blobs, most: int) -> tuple[str, bytes]:
    quoted = name.translate(_IN_QUOTES)
    if is_file(value):
        where = f"{_WHERE}.{name}"
        file = await load(as_file(value, where), blobs, most, where)
        shown = file.name.translate(_IN_QUOTES)
        return f'name="{quoted}"; filename="{shown}"\r\nContent-Type: {file.content_type}', file.data
    if isinstance(value, list | dict):
        return f'name="{quoted}"\r\nContent-Type: {_JSON}', msgspec.json.encode(value)
    return f'name="{quoted}"', plain(value).encode("utf-8", "replace")


KEY = "idempotency-key"
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_OURS = frozenset(
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
"""Headers that belong to the connection: who sets them can make two readers see different requests."""

_OF_BODY = ("content-type", "content-encoding", "content-language")
_DEFAULTS = {"accept": "*/*", "accept-encoding": "gzip, deflate", "user-agent": "rune"}
_TO_GET = {301: ("POST",), 302: ("POST",), 303: ("POST", "PUT", "PATCH", "DELETE")}


class Request(msgspec.Struct, frozen=True):
    """One request. Header names are in lower case. `private` headers and `query`, which is part of every address of
    the first origin, come from a credential."""

    method: str
    where: Target
    headers: dict[str, str]
    body: bytes | None
    private: frozenset[str] = frozenset()
    query: str = ""

    def redirected(self, status: int, where: Target) -> Request:
        """The request that a redirect asks for."""
        moved = self.to(where)
        if self.method not in _TO_GET.get(status, ()):
            return moved
        kept = {name: value for name, value in moved.headers.items() if name not in _OF_BODY}
        return replace(moved, method="GET", headers=kept, body=None)

    def to(self, where: Target) -> Request:
        """The same request elsewhere; what may be a secret does not leave its origin."""
        if where.origin == self.where.origin:
            return replace(self, where=_with_pair(where, self.query))
        kept = {
            name: value
            for name, value in self.headers.items()
            if name not in self.private and not _is_secret(name)
        }
        return replace(self, where=where, headers=kept, private=frozenset(), query="")


def _is_secret(name: str) -> bool:
    return name != KEY and (is_secret_name(name) or name.endswith("-key"))


async def build(call: NodeCall[Any], rule: Pagination | None) -> Request:
    """The first request of a node."""
    parameters, key = call.parameters, call.idempotency_key
    where = first(rule, _with_query(target(parameters.url), parameters.query))
    headers = dict(_DEFAULTS)
    headers.update(_headers(parameters.headers))
    body, content_type = await payload(
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
    """An idempotency key as a header holds it."""
    if key.isascii() and key.isprintable():
        return key
    return quote(key, safe=":/@.,;=+!*()'$&[]{}|~^ #<>?\"\\`%")


def _headers(given: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in given.items():
        if value is None:
            continue
        if not _NAME.fullmatch(name):
            raise _refused(name, "is no name of a header")
        lower = name.lower()
        if lower in _OURS or lower.startswith("proxy-"):
            raise _refused(name, "cannot be set: it belongs to the connection")
        text = ", ".join(
            plain(each) for each in (value if isinstance(value, list) else [value]) if each is not None
        )
        if _CONTROL.search(text):
            raise _refused(name, "holds a line break or control character")
        found[lower] = text.strip()
    return found


def _refused(name: str, why: str) -> NodeFailure:
    return NodeFailure(f"parameters.headers: `{name[:80]}` {why}", code=problems.BAD_PARAMETER)


def _with_query(where: Target, query: dict[str, Any]) -> Target:
    pairs = [
        (name, plain(each))
        for name, value in query.items()
        for each in (value if isinstance(value, list) else [value])
        if each is not None
    ]
    if not pairs:
        return where
    joint = "&" if "?" in where.resource else "?"
    return replace(where, resource=f"{where.resource}{joint}{urlencode(pairs)}")


def _with_pair(where: Target, pair: str) -> Target:
    """The address with a name and value in its query, in the place of any other value of this name."""
    if not pair:
        return where
    name = pair.partition("=")[0]
    path, _, query = where.resource.partition("?")
    kept = [each for each in query.split("&") if each and each.partition("=")[0] != name]
    return replace(where, resource=f"{path}?{'&'.join([*kept, pair])}")


def raises(listed: str | int | None, status: int) -> bool:
    """Whether `raise_on_status` names this status."""
    return listed is not None and status in _listed(str(listed))


@lru_cache(maxsize=256)
def _listed(text: str) -> frozenset[int]:
    kinds = {each.strip().lower() for each in text.split(",")}
    return frozenset(each for each in range(100, 600) if {str(each), f"{each // 100}xx"} & kinds)
