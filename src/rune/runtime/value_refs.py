"""Names of values that are not in memory."""

from __future__ import annotations

import msgspec

from rune.core.execution.token import Path
from rune.nodes.base import Interruption

Key = tuple[int, Path]

ABSENT = object()


class SignalRef(msgspec.Struct, frozen=True):
    """Names a signal that is not loaded."""

    id: str


class PagesRef(msgspec.Struct, frozen=True):
    """Names pages of the items of a fan-out that are not loaded."""

    key: str
    numbers: range


class StartRef(msgspec.Struct, frozen=True):
    """Names the start payload, if it is large and not decoded."""


Missing = Key | SignalRef | PagesRef | StartRef | str
"""A result, a signal, pages of items, the start payload, or a blob."""


class ValueNotLoaded(Interruption):
    """A value is needed that is not in memory. Not an Exception, so that no node or expression can catch it."""

    def __init__(self, what: Missing) -> None:
        super().__init__(what)
        self.what = what
