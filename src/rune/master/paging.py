"""Pages: so many at a time, and where to go on."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from rune.master.problems import ApiError

Limit = Annotated[int, Meta(ge=1, le=1_000, description="At most so many.")]
Cursor = Annotated[str, Meta(min_length=1, max_length=400, description="The `next` of the page before.")]


class Page(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every list takes."""

    limit: Limit = 50
    cursor: Cursor | None = None


def offset(cursor: str | None) -> int:
    """A cursor that counts."""
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) < 16):
        raise ApiError(f"`{cursor[:60]}` is no cursor of this list", code="BAD_CURSOR")
    return int(cursor)
