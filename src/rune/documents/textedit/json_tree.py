"""Parse JSON into values with their positions. The text is known to be JSON."""

from __future__ import annotations

import json.decoder
import re

import msgspec

from rune.documents.textedit.tree import Entry, Part

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
