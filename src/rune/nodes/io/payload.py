"""What a request carries: JSON, a form, a form with files, text or bytes."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

import msgspec

from rune.core import codes
from rune.errors import NodeFailure
from rune.nodes.blobs import BINARY, Blobs, is_reference
from rune.nodes.io.files import as_file, decoded, is_file, load
from rune.nodes.io.http import BodyType
from rune.nodes.rules import plain

LARGEST = 64 * 1024 * 1024
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
        raise NodeFailure(f"{_WHERE}: a form is made of an object", code=codes.BAD_PARAMETER)
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
            code=codes.BAD_PARAMETER,
        )
    file = await load(as_file(body, _WHERE), blobs, LARGEST, _WHERE)
    return file.data, content_type or file.content_type


def _fields(body: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in body.items():
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, list | dict):
                raise NodeFailure(
                    f"{_WHERE}.{name}: a form holds no lists of lists and no objects",
                    code=codes.BAD_PARAMETER,
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
            head, data = await _part(name, each, blobs, LARGEST - len(written))
            written += f"--{boundary}\r\nContent-Disposition: form-data; {head}\r\n\r\n".encode(
                "utf-8", "replace"
            )
            written += data
            written += b"\r\n"
            if len(written) > LARGEST:
                raise NodeFailure(f"{_WHERE}: more than {LARGEST:,} bytes", code=codes.BAD_PARAMETER)
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
