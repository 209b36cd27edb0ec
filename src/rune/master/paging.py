"""Pages: so many at a time, and where to go on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from rune.master.problems import ApiError
from rune.runtime.reader import Reader

Limit = Annotated[int, Meta(ge=1, le=1_000, description="At most so many.")]
Cursor = Annotated[str, Meta(min_length=1, max_length=400, description="The `next` of the page before.")]


class Page(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every list takes."""

    limit: Limit = 50
    cursor: Cursor | None = None


async def check_cursor(reader: Reader, cursor: str | None, found: Sequence[object]) -> None:
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
