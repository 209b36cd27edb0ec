"""Build values with their positions from the events of the parser of YAML. The text is known to be a document without
aliases and tags."""

from __future__ import annotations

from typing import Any

from ruamel.yaml.events import (
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from rune.documents.textedit.tree import Entry, Part, Style
from rune.documents.yaml import plain_scalar

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
