"""The values of a document with their positions in its text, parsed from JSON, or built from the events of the parser
of YAML. The text is known to be a document without aliases and tags.
"""

from __future__ import annotations

import json.decoder
import re
from collections.abc import Iterator
from typing import Any, Literal

import msgspec
from ruamel.yaml.events import (
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from rune.core.json_decoder import read_json
from rune.documents.yaml import plain_scalar

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
        return Part("scalar", at, word.end(), "plain", column, read_json(word[0]))

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


_STYLES: dict[str | None, Style] = {
    None: "plain",
    "": "plain",
    "'": "single",
    '"': "double",
    "|": "literal",
    ">": "folded",
}


class _Open:
    """A list or object whose end has not been read."""

    def __init__(self, part: Part, column: int) -> None:
        self.part = part
        self.column = column
        self.key: ScalarEvent | None = None


class TreeBuilder:
    """Builds the tree of a document; `root` is complete after the last event."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._open: list[_Open] = []
        self.root = Part("scalar", len(text), len(text), "plain")

    def add(self, event: Event) -> None:
        if isinstance(event, SequenceEndEvent | MappingEndEvent):
            self._close(event)
        elif isinstance(event, ScalarEvent):
            top = self._open[-1] if self._open else None
            if top is not None and top.part.kind == "object" and top.key is None:
                top.key = event
            else:
                self._store(self._scalar(event))
        elif isinstance(event, SequenceStartEvent | MappingStartEvent):
            start = event.start_mark.index
            flow = bool(event.flow_style)
            kind: Any = "list" if isinstance(event, SequenceStartEvent) else "object"
            part = Part(kind, start, start, "flow" if flow else "block", self._column(), entries=[])
            self._store(part)
            self._open.append(_Open(part, self._column() if flow else event.start_mark.column))

    def _column(self) -> int:
        return self._open[-1].column if self._open else -1

    def _scalar(self, event: ScalarEvent) -> Part:
        start, end = event.start_mark.index, event.end_mark.index
        style = _STYLES[event.style]
        value = plain_scalar(event.value) if style == "plain" else event.value
        if style in {"literal", "folded"}:
            end = _block_scalar_end(self._text, start, self._column())
        return Part("scalar", start, end, style, self._column(), value)

    def _store(self, part: Part) -> None:
        if not self._open:
            self.root = part
            return
        top = self._open[-1]
        owner = top.part
        if owner.kind == "object":
            assert top.key is not None
            entry = Entry(top.key.value, top.key.start_mark.index, top.key.end_mark.index, part)
            top.key = None
        else:
            start = part.start if owner.style == "flow" else self._dash(owner, top.column)
            entry = Entry(len(owner.entries), start, start, part)
        owner.entries.append(entry)

    def _dash(self, owner: Part, column: int) -> int:
        """Return the position of the dash of the next entry of a block list."""
        if not owner.entries:
            return owner.start
        at = owner.entries[-1].part.end
        wanted = " " * column + "-"
        while True:
            at = self._text.index("\n", at) + 1
            if (
                self._text.startswith(wanted, at)
                and self._text[at + column + 1 : at + column + 2] in " \t\r\n"
            ):
                return at + column

    def _close(self, event: Event) -> None:
        part = self._open.pop().part
        if part.style == "flow":
            part.end = event.end_mark.index
        elif part.entries:
            last = part.entries[-1]
            part.end = max(last.part.end, last.key_end)


def _block_scalar_end(text: str, start: int, column: int) -> int:
    """Return where the text of a block scalar ends, without its last line break; blank lines that it keeps belong to
    it."""
    line_end = text.find("\n", start)
    if line_end < 0:
        return len(text.rstrip())
    header = text[start:line_end].split("#", maxsplit=1)[0].strip()
    digits = [each for each in header if each.isdigit()]
    indent = max(column, 0) + int(digits[0]) if digits else None
    end = start + len(text[start:line_end].split(" #", maxsplit=1)[0].rstrip())
    at = line_end + 1
    while at < len(text):
        stop = text.find("\n", at)
        stop = len(text) if stop < 0 else stop
        line = text[at:stop].rstrip("\r")
        if line.strip(" "):
            depth = len(line) - len(line.lstrip(" "))
            if indent is None:
                indent = depth if depth > column else len(text)
            if depth < indent:
                break
            end = at + len(line)
        elif "+" in header:
            end = at + len(line)
        at = stop + 1
    return end
