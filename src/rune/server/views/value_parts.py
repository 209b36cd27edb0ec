"""Responses with a part of a value, with matches in it, and with a range of bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

from pydantic import Field
from starlette.responses import Response

from rune.api.values import ValueEntry, ValueMatch, ValueMatches, ValuePart
from rune.off_loop import off_loop
from rune.runtime.queries.value_parts import (
    MAX_CHARS,
    MAX_INLINE_BYTES,
    MAX_MEMBERS,
    JsonText,
    Member,
    find_in,
)
from rune.server.responses import Reply
from rune.server.routing import Item, Omittable, QueryModel

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


async def value_reply(value: JsonText | bytes, query: PartQuery) -> Reply[Any]:
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
