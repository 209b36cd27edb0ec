"""Write plain data as YAML or JSON text, in the style of the document it becomes part of."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from rune.documents.textedit.tree import Style
from rune.documents.yaml import is_unstorable_number, plain_scalar

MAX_INLINE_CHARS = 90

# Words and dates that readers of YAML 1.1 do not take as text.
_AMBIGUOUS = re.compile(r"(yes|no|on|off|<<|=)\Z|[0-9]+[-:]", re.IGNORECASE)
_INDICATORS = frozenset("-?:,[]{}#&*!|>'\"%@`")
_FLOW_INDICATORS = frozenset(",[]{}:?")
_UNPRINTABLE = re.compile(
    r"[^\x20-\x7e\xa1-\u2027\u2030-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)
_NOT_FINITE = {"Infinity": ".inf", "-Infinity": "-.inf", "NaN": ".nan"}


class Writer(msgspec.Struct, frozen=True):
    """The style of a document: JSON or YAML, spaces inside braces, after colons and commas, and indentation."""

    as_json: bool = False
    padded: bool = True
    spaced: bool = True
    step: int = 2
    list_step: int = 2
    newline: str = "\n"
    ends_with_newline: bool = True
    """Whether the last line of the document has a line break. Without it a block at the end loses its own."""

    def scalar(self, value: Any, style: Style = "plain", *, flow: bool, column: int = 0) -> str:
        """Return the text of a scalar, in a style if that can represent it. `column` is where a block begins."""
        if not isinstance(value, str):
            shown = json.dumps(value)
            return shown if self.as_json else _NOT_FINITE.get(shown, shown)
        if self.as_json:
            return json.dumps(value, ensure_ascii=False)
        keeps_end = self.ends_with_newline or not value.endswith("\n")
        if style == "literal" and not flow and keeps_end and _fits_literal(value):
            return self._literal(value, column)
        if style == "single" and not _UNPRINTABLE.search(value):
            return "'" + value.replace("'", "''") + "'"
        if style != "double" and _is_plain(value, flow=flow):
            return value
        return quoted(value)

    def _literal(self, value: str, column: int) -> str:
        lines = value.removesuffix("\n").split("\n")
        header = "|" if value.endswith("\n") else "|-"
        indented = [f"{' ' * column}{line}" if line else "" for line in lines]
        return self.newline.join([header, *indented])

    def key(self, name: str, *, flow: bool) -> str:
        """Return a key and its colon."""
        return self.scalar(name, flow=flow or self.as_json) + ":"

    def inline(self, value: Any) -> str:
        """Return a value on one line."""
        comma, colon = (", ", " ") if self.spaced else (",", "")
        if not self.as_json:
            colon = " "
        if isinstance(value, Mapping):
            pad = " " if self.padded and value and not self.as_json else ""
            inner = comma.join(
                f"{self.key(name, flow=True)}{colon}{self.inline(each)}" for name, each in value.items()
            )
            return f"{{{pad}{inner}{pad}}}"
        if isinstance(value, list):
            return f"[{comma.join(self.inline(each) for each in value)}]"
        return self.scalar(value, flow=True)

    def fits_inline(self, value: Any, column: int) -> bool:
        """Return whether a list or object is short and shallow enough for one line."""
        return not value or (
            _depth(value) <= 2
            and not _has_lines(value)
            and column + len(self.inline(value)) <= MAX_INLINE_CHARS
        )

    def after_key(self, value: Any, column: int, *, force_block: bool = False) -> str:
        """Return what follows the colon of a key in this column of a block object."""
        if not isinstance(value, dict | list):
            style: Style = "literal" if isinstance(value, str) and "\n" in value else "plain"
            return " " + self.scalar(value, style, flow=False, column=column + self.step)
        if not value or (self.fits_inline(value, column + 12) and not force_block):
            return " " + self.inline(value)
        inner = column + (self.list_step if isinstance(value, list) else self.step)
        return self.newline + self.block(value, inner)

    def block(self, value: Any, column: int) -> str:
        """Return the lines of a list or object in block style, without the last line break."""
        margin = " " * column
        if isinstance(value, list):
            return self.newline.join(f"{margin}{self.element(each, column)}" for each in value)
        return self.newline.join(
            f"{margin}{self.key(name, flow=False)}{self.after_key(each, column)}"
            for name, each in value.items()
        )

    def element(self, value: Any, column: int, *, inline: bool | None = None) -> str:
        """Return an element of a block list whose dash is in this column; an object begins on the line of the dash."""
        if not isinstance(value, dict | list):
            style: Style = "literal" if isinstance(value, str) and "\n" in value else "plain"
            return "- " + self.scalar(value, style, flow=False, column=column + 2)
        if inline is None:
            inline = self.fits_inline(value, column + 2)
        if inline or not value:
            return "- " + self.inline(value)
        return "- " + self.block(value, column + 2).lstrip(" ")

    def pretty(self, value: Any, column: int) -> str:
        """Return JSON on several lines; the first line begins in this column."""
        if not isinstance(value, dict | list) or not value:
            return self.inline(value)
        margin = " " * (column + self.step)
        colon = " " if self.spaced else ""
        if isinstance(value, dict):
            inner = [
                f"{self.key(k, flow=True)}{colon}{self.pretty(v, column + self.step)}"
                for k, v in value.items()
            ]
            opener, closer = "{", "}"
        else:
            inner = [self.pretty(each, column + self.step) for each in value]
            opener, closer = "[", "]"
        body = f",{self.newline}{margin}".join(inner)
        return f"{opener}{self.newline}{margin}{body}{self.newline}{' ' * column}{closer}"


def quoted(value: str) -> str:
    """Return a text in double quotes, as JSON and YAML read it."""
    return _UNPRINTABLE.sub(_escape, json.dumps(value, ensure_ascii=False))


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _is_plain(text: str, *, flow: bool) -> bool:
    """Return whether every reader of YAML takes a text without quotes as this text."""
    if not text or text[0] in _INDICATORS or text != text.strip() or _UNPRINTABLE.search(text):
        return False
    if not isinstance(plain_scalar(text), str) or is_unstorable_number(text) or _AMBIGUOUS.match(text):
        return False
    if ": " in text or " #" in text or text.endswith(":") or text.startswith(("---", "...")):
        return False
    return not flow or _FLOW_INDICATORS.isdisjoint(text)


def _fits_literal(text: str) -> bool:
    lines = text.removesuffix("\n").split("\n")
    return (len(lines) > 1 or text.endswith("\n")) and not (
        text[:1] in (" ", "\n", "")
        or text.endswith("\n\n")
        or any(_UNPRINTABLE.search(line) or (line and not line.strip()) for line in lines)
    )


def _depth(value: Any) -> int:
    if isinstance(value, Mapping):
        return 1 + max((_depth(each) for each in value.values()), default=0)
    if isinstance(value, list):
        return 1 + max((_depth(each) for each in value), default=0)
    return 0


def _has_lines(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(_has_lines(each) for each in value.values())
    if isinstance(value, list):
        return any(_has_lines(each) for each in value)
    return isinstance(value, str) and "\n" in value
