"""The values of a document with their positions in its text, and their parser for JSON."""

from __future__ import annotations

import json.decoder
import re
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

Style = Literal["plain", "single", "double", "literal", "folded", "block", "flow"]


class Part(msgspec.Struct, gc=False):
    """One value: the half-open range of its text, how it is written, and the entries of a list or an object.

    `value` is the plain data of a scalar. `column` is the column of the enclosing block list or object, -1 at the root.
    """

    kind: Literal["scalar", "list", "object"]
    start: int
    end: int
    style: Style
    column: int = -1
    value: Any = None
    entries: list[Entry] = []

    @property
    def empty(self) -> bool:
        """Whether the value is absent from the text, as after `key:`."""
        return self.start == self.end

    def plain(self) -> Any:
        """Return the value as plain data."""
        if self.kind == "scalar":
            return self.value
        if self.kind == "list":
            return [each.part.plain() for each in self.entries]
        return {each.key: each.part.plain() for each in self.entries}

    def entry(self, key: str | int) -> Entry | None:
        """Return the entry of a key, or at an index."""
        if self.kind == "list" and isinstance(key, int):
            return self.entries[key] if 0 <= key < len(self.entries) else None
        return next((each for each in self.entries if each.key == key), None)

    def at(self, path: tuple[str | int, ...]) -> Part | None:
        """Return the part at a path."""
        found: Part | None = self
        for key in path:
            entry = found.entry(key) if found is not None else None
            found = entry.part if entry is not None else None
        return found

    def leaves(self) -> Iterator[tuple[int, int]]:
        """Yield the ranges of all keys and scalars, in the order of the text."""
        for each in self.entries:
            if self.kind == "object":
                yield each.start, each.key_end
            yield from each.part.leaves()
        if self.kind == "scalar":
            yield self.start, self.end


class Entry(msgspec.Struct, gc=False):
    """An element of a list, or a key of an object with its value.

    `start` is the position of the dash of a block list, of the key of an object, else of the element.
    """

    key: str | int
    start: int
    key_end: int
    part: Part


_SPACE = re.compile(r"[ \t\r\n]*")
_WORD = re.compile(r"[^,\]}\s]+")


def parse_json(text: str) -> Part:
    """Return the root of a JSON document."""
    return _Parser(text).value(0, -1)


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text

    def _skip(self, at: int) -> int:
        found = _SPACE.match(self._text, at)
        return found.end() if found else at

    def value(self, at: int, column: int) -> Part:
        """Return the value that begins at or after a position."""
        at = self._skip(at)
        char = self._text[at]
        if char == '"':
            value, end = json.decoder.scanstring(self._text, at + 1, True)  # type: ignore[attr-defined]
            return Part("scalar", at, end, "double", column, value)
        if char in "[{":
            return self._collection(at, column)
        word = _WORD.match(self._text, at)
        assert word is not None
        return Part("scalar", at, word.end(), "plain", column, msgspec.json.decode(word[0]))

    def _collection(self, start: int, column: int) -> Part:
        is_list = self._text[start] == "["
        made = Part("list" if is_list else "object", start, start, "flow", column, entries=[])
        at = self._skip(start + 1)
        while self._text[at] not in "]}":
            key: str | int = len(made.entries)
            key_start = key_end = at
            if not is_list:
                key, key_end = json.decoder.scanstring(self._text, at + 1, True)  # type: ignore[attr-defined]
                at = self._skip(key_end) + 1
            part = self.value(at, column)
            made.entries.append(Entry(key, key_start if not is_list else part.start, key_end, part))
            at = self._skip(part.end)
            if self._text[at] == ",":
                at = self._skip(at + 1)
        made.end = at + 1
        return made
