"""Responses with a part of a value, with matches in it, and with a range of bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.responses import Response

from rune.runtime.off_loop import off_loop
from rune.runtime.queries.value_parts import (
    MAX_CHARS,
    MAX_INLINE_BYTES,
    MAX_MEMBERS,
    JsonText,
    Kind,
    Member,
    find_in,
)
from rune.server.responses import Reply
from rune.server.routing import Item, Omittable, QueryModel
from rune.server.schemas.base import View

DEFAULT_MATCHES = 100
_RANGE = re.compile(r"bytes=(\d{0,15})-(\d{0,15})")


class PartQuery(QueryModel):
    """Which part of the value to show; without any of these the whole value."""

    pointer: Omittable[
        Annotated[str, Field(max_length=4_000, description="A JSON pointer; empty for the whole value.")]
    ] = None
    depth: Omittable[
        Annotated[int, Field(ge=0, le=3, description="Levels of members; 0: type and size only.")]
    ] = None
    offset: Omittable[Annotated[int, Field(ge=0, le=2**53, description="`next` of the previous part.")]] = (
        None
    )
    limit: Omittable[
        Annotated[
            int,
            Field(
                ge=1,
                le=MAX_CHARS,
                description="Maximum number of members (at most 1,000) or of characters of a text.",
            ),
        ]
    ] = None

    find: Omittable[
        Annotated[
            str,
            Field(
                min_length=1,
                max_length=200,
                description="List the keys and texts below the pointer that contain this text, in any case.",
            ),
        ]
    ] = None

    @property
    def wanted(self) -> bool:
        """Whether a part is requested."""
        given = (self.pointer, self.depth, self.offset, self.limit, self.find)
        return any(each is not None for each in given)


class RunPartQuery(PartQuery):
    """The item of a node run, and which part of its value to show."""

    lineage: Omittable[Item] = None


class ValueEntry(View, frozen=True, kw_only=True):
    """A member of an object or array. `bytes` is the length of its JSON, `size` the number of members or characters;
    null for other types, and for an object or array above 1 MB that is not requested itself. `value` is set for
    numbers, booleans, null and texts; a text that is cut has `next`. With `depth` above 1 `entries` has members of the
    same form."""

    key: str | int
    type: Kind
    bytes: int
    size: int | None
    value: Any = None
    next: int | None = None
    entries: list[Any] | None = None


class ValuePart(View, frozen=True, kw_only=True):
    """A part of a value. `next` is the `offset` of the following members or characters; null at the end."""

    pointer: str
    type: Kind
    bytes: int
    size: int | None
    offset: int
    next: int | None
    value: Any = None
    entries: list[ValueEntry] | None = None


class ValueMatch(View, frozen=True, kw_only=True):
    """A key, or a text, number or word, that contains the text. `text` is the part of it around the match, which begins
    at `start` in it."""

    pointer: str
    where: Literal["key", "value"]
    text: str
    start: int


class ValueMatches(View, frozen=True, kw_only=True):
    """Matches in the order of the value, from `offset` on. `count` is the number of all; `complete` is false if the
    search ended before the value did, after 2 seconds or 10,000 matches."""

    find: str
    offset: int
    count: int
    complete: bool
    matches: list[ValueMatch]


async def value_reply(value: JsonText | bytes, query: PartQuery) -> Response:
    """Respond with a JSON text, with the requested part of it, or with matches in it."""
    if isinstance(value, bytes) and not query.wanted:
        return Reply(value)
    text = JsonText(value) if isinstance(value, bytes) else value
    read = _matches if query.find is not None else _part
    if text.size <= MAX_INLINE_BYTES:
        return Reply(read(text, query))
    return Reply(await off_loop(partial(read, text, query)))


def _part(text: JsonText, query: PartQuery) -> bytes:
    pointer, offset = query.pointer or "", query.offset or 0
    depth = 1 if query.depth is None else query.depth
    found = text.part(pointer, depth=depth, offset=offset, limit=query.limit)
    # Encoded here: numbers are passed on as the text they are.
    return bytes(Reply(_view(found, pointer, offset)).body)


def _matches(text: JsonText, query: PartQuery) -> bytes:
    wanted, offset = query.find or "", query.offset or 0
    limit = min(query.limit or DEFAULT_MATCHES, MAX_MEMBERS)
    found = find_in(text, wanted, query.pointer or "", offset=offset, limit=limit)
    view = ValueMatches(
        find=wanted,
        offset=offset,
        count=found.count,
        complete=found.complete,
        matches=[
            ValueMatch(pointer=each.pointer, where=each.where, text=each.text, start=each.start)
            for each in found.matches
        ],
    )
    return bytes(Reply(view).body)


def _view(found: Member, pointer: str, offset: int) -> ValuePart:
    return ValuePart(
        pointer=pointer,
        type=found.type,
        bytes=found.bytes,
        size=found.size,
        offset=offset,
        next=found.next,
        value=found.value,
        entries=None if found.entries is None else [_entry(each) for each in found.entries],
    )


def _entry(found: Member) -> ValueEntry:
    assert found.key is not None
    return ValueEntry(
        key=found.key,
        type=found.type,
        bytes=found.bytes,
        size=found.size,
        value=found.value,
        next=found.next,
        entries=None if found.entries is None else [_entry(each) for each in found.entries],
    )


def bytes_reply(data: bytes, range: str | None, headers: Mapping[str, str]) -> Response:
    """Respond with bytes, or with one range of them (RFC 9110). Several ranges, or a header that is none, are ignored;
    a range that begins behind the end is 416."""
    headers = {**headers, "Accept-Ranges": "bytes"}
    media = "application/octet-stream"
    match = None if range is None else _RANGE.fullmatch(range.strip())
    if match is None or match.group(1) == match.group(2) == "":
        return Response(data, headers=headers, media_type=media)
    first, last = match.groups()
    if first:
        start, end = int(first), min(len(data), int(last) + 1 if last else len(data))
        if last and int(last) < int(first):
            return Response(data, headers=headers, media_type=media)
    else:
        start, end = max(0, len(data) - int(last)), len(data)
    if start >= len(data) or start >= end:
        return Response(b"", 416, headers={**headers, "Content-Range": f"bytes */{len(data)}"})
    headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(data)}"
    return Response(data[start:end], 206, headers=headers, media_type=media)
