"""Bodies: bounded before they are read, checked before they are understood.

Pages: so many at a time, and where to go on.
"""

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


async def read_body(request: Request, limit: int) -> bytes:
    """The bytes of a body. One that says or turns out to be too large is not read to its end."""
    said = request.headers.get("content-length")
    if said is not None and said.isascii() and said.isdecimal() and int(said) > limit:
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
    return ApiError(f"at most {limit:,} bytes are taken here", code="TOO_LARGE")


def media_type(request: Request) -> str:
    """What the sender says the body is."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def check_json(request: Request, also: str = "") -> None:
    """Refuse a body that is said to be something else. Pages of other sites cannot say `application/json` unasked."""
    said = media_type(request)
    if said not in JSON_TYPES and not said.endswith("+json"):
        raise ApiError(f"`{said[:80]}` is not taken here; send application/json{also}", code="BAD_MEDIA")


def invalid_body(error: Exception, wanted: Any) -> str:
    """Why something is not what it should be; of a choice, with what there is to choose from."""
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
    """A body as what it should be. Strict about the text first: depth, doubled keys, numbers that nobody can keep."""
    decoded = decode_json(data, max_bytes=limit, max_depth=LIMITS.json_depth + 4, root="body")
    if decoded.problems:
        raise InvalidDocumentError(decoded.problems)
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ApiError(f"body: {invalid_body(error, decoder.type)}", code="BAD_BODY") from None


Limit = Annotated[int, Meta(ge=1, le=1_000, description="At most so many.")]
Cursor = Annotated[str, Meta(min_length=1, max_length=400, description="The `next` of the page before.")]


class Page(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every list takes."""

    limit: Limit = 50
    cursor: Cursor | None = None


async def check_cursor(reader: ExecutionReader, cursor: str | None, found: Sequence[object]) -> None:
    """Behind an execution that is not there nothing is found, which must not pass for the end of the list."""
    if cursor is not None and not found and await reader.execution(cursor) is None:
        raise ApiError(
            f"`{cursor[:60]}` is no cursor of this list, or its execution was removed: begin anew",
            code="BAD_CURSOR",
        )


def offset(cursor: str | None) -> int:
    """A cursor that counts."""
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) < 16):
        raise ApiError(f"`{cursor[:60]}` is no cursor of this list", code="BAD_CURSOR")
    return int(cursor)
