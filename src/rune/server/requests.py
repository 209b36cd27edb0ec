"""Parsing of request bodies and of page parameters. Sizes are limited before a body is read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from msgspec import Meta
from starlette.requests import Request

from rune.core.definition.strict_json import decode_json
from rune.core.limits import LIMITS
from rune.errors import InvalidDocumentError
from rune.runtime.queries.reader import ExecutionReader
from rune.server.responses import ApiError

JSON_TYPES = frozenset({"", "application/json"})
YAML_TYPES = frozenset({"application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml"})

_CHOICE = re.compile(r"Invalid enum value .* - at `\$\.(\w+)(?:\[[\d.]*\])?`$")
Limit = Annotated[int, Meta(ge=1, le=1_000, description="Maximum number of results.")]
Cursor = Annotated[str, Meta(min_length=1, max_length=400, description="`next` of the previous page.")]


async def read_body(request: Request, limit: int) -> bytes:
    """Read a body. Reading stops as soon as the declared or the actual size exceeds the limit."""
    declared = request.headers.get("content-length")
    if declared is not None and declared.isascii() and declared.isdecimal() and int(declared) > limit:
        raise _too_large(limit)
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(limit: int) -> ApiError:
    return ApiError(f"the body exceeds {limit:,} bytes", code="TOO_LARGE")


def media_type(request: Request) -> str:
    """Return the media type of a body in lower case, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def check_json(request: Request, also: str = "") -> None:
    """Reject other media types. A page of another origin cannot send `application/json` without a CORS preflight."""
    kind = media_type(request)
    if kind not in JSON_TYPES and not kind.endswith("+json"):
        raise ApiError(f"`{kind[:80]}` is not supported; send application/json{also}", code="BAD_MEDIA")


def invalid_body(error: Exception, wanted: Any) -> str:
    """Describe a validation error; for an enum with the permitted values."""
    text = str(error)
    place = _CHOICE.match(text)
    if place is None or not isinstance(wanted, type) or not issubclass(wanted, msgspec.Struct):
        return text
    kinds = {field.encode_name: field.type for field in msgspec.structs.fields(wanted)}
    kind = kinds.get(place.group(1))
    known = [
        each for part in (kind, *get_args(kind)) if get_origin(part) is Literal for each in get_args(part)
    ]
    return f"{text}: one of {', '.join(map(str, known))}" if known else text


def decode(decoder: msgspec.json.Decoder[Any], data: bytes, limit: int) -> Any:
    """Decode a body strictly: limited depth, no duplicate keys, no numbers that lose precision."""
    decoded = decode_json(data, max_bytes=limit, max_depth=LIMITS.json_depth + 4, root="body")
    if decoded.problems:
        raise InvalidDocumentError(decoded.problems)
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ApiError(f"body: {invalid_body(error, decoder.type)}", code="BAD_BODY") from None


class Page(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Page parameters."""

    limit: Limit = 50
    cursor: Cursor | None = None


async def check_cursor(reader: ExecutionReader, cursor: str | None, found: Sequence[object]) -> None:
    """Reject a cursor whose execution does not exist; its empty page would look like the end of the list."""
    if cursor is not None and not found and await reader.execution(cursor) is None:
        raise ApiError(
            f"`{cursor[:60]}` is not a cursor of this list, or its execution was removed; start over",
            code="BAD_CURSOR",
        )


def offset(cursor: str | None) -> int:
    """Return the offset of a numeric cursor."""
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) < 16):
        raise ApiError(f"`{cursor[:60]}` is not a cursor of this list", code="BAD_CURSOR")
    return int(cursor)
