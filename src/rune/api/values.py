"""Parts of large values, and what a search in them finds."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from rune.api.base import Known, View

Kind = Literal["object", "array", "string", "number", "boolean", "null"]


class ValueEntry(View, frozen=True, kw_only=True):
    """A member of an object or array. `bytes` is the length of its JSON, `size` the number of members or characters;
    null for other types, and for an object or array above 1 MB that is not requested itself. `value` is set for
    numbers, booleans, null and texts; a text that is cut has `next`. With `depth` above 1 `entries` has members of the
    same form."""

    key: str | int
    type: Annotated[str, Known(Kind)]
    bytes: int
    size: int | None
    value: Any = None
    next: int | None = None
    entries: list[Any] | None = None


class ValuePart(View, frozen=True, kw_only=True):
    """A part of a value. `next` is the `offset` of the following members or characters; null at the end."""

    pointer: str
    type: Annotated[str, Known(Kind)]
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
    where: Annotated[str, Known(Literal["key", "value"])]
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
