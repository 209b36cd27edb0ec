"""How a value is stored: inside its row, as one blob or several, or as a reference to another stored value."""

from __future__ import annotations

import msgspec

from rune.core.execution.token import Ref


class Inline(msgspec.Struct, frozen=True, tag="v"):
    """A small value, as JSON bytes."""

    data: bytes


class Large(msgspec.Struct, frozen=True, tag="b"):
    """A value that is stored as a blob."""

    key: str
    size: int


class Paged(msgspec.Struct, frozen=True, tag="p"):
    """The items of a fan-out, stored as blobs of whole items: `starts[i]` is the index of the first item in page i."""

    key: str
    count: int
    starts: tuple[int, ...]


class Same(msgspec.Struct, frozen=True, tag="s"):
    """A reference to a stored value: a value that a node passes through is not stored twice."""

    ref: Ref


StoredValue = Inline | Large | Paged | Same
