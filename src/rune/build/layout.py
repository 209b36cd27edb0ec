"""Lay out Python code: on one line where it fits, else one argument or element per line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

WIDTH = 100
_MAX_TEXT_CHARS = 76
CONCATENATED = ")\0"  # the closing of texts next to each other, which no comma separates


class Code:
    """A piece of code: an atom, or an opening, its elements and a closing."""

    __slots__ = ("closer", "opener", "parts", "prefixes")

    def __init__(
        self, parts: Sequence[Any], opener: str = "", closer: str = "", prefixes: Sequence[str] = ()
    ) -> None:
        self.parts = tuple(parts)
        self.opener = opener
        self.closer = closer
        self.prefixes = tuple(prefixes) or ("",) * len(self.parts)

    @classmethod
    def of_list(cls, elements: Sequence[Code]) -> Code:
        return cls(elements, "[", "]") if elements else cls(("[]",))

    @classmethod
    def of_dict(cls, items: Mapping[str, Code]) -> Code:
        if not items:
            return cls(("{}",))
        return cls(list(items.values()), "{", "}", [f"{quoted(key)}: " for key in items])

    def lines(self, indent: int, prefix: str = "", suffix: str = "") -> list[str]:
        """Return the lines of this code, the first one after `prefix`."""
        margin = " " * indent
        flat = self.flat()
        if flat is not None and len(margin + prefix + flat + suffix) <= WIDTH:
            return [f"{margin}{prefix}{flat}{suffix}"]
        if not self.opener:
            return [f"{margin}{prefix}{self.parts[0]}{suffix}"]
        found = [f"{margin}{prefix}{self.opener}"]
        for name, part in zip(self.prefixes, self.parts, strict=True):
            # Texts next to each other are one text; a comma would separate them.
            found += part.lines(indent + 4, name, "" if self.closer == CONCATENATED else ",")
        return [*found, f"{margin}{self.closer.rstrip(chr(0))}{suffix}"]

    def flat(self) -> str | None:
        """Return this code on one line; None if it has to be broken."""
        if not self.opener:
            return str(self.parts[0])
        if self.closer == CONCATENATED:
            return None
        inner = [part.flat() for part in self.parts]
        if any(each is None for each in inner):
            return None
        joined = ", ".join(f"{name}{each}" for name, each in zip(self.prefixes, inner, strict=True))
        return f"{self.opener}{joined}{self.closer}"


def call(function: str, arguments: Sequence[Code], keywords: Mapping[str, Code]) -> Code:
    """Return a call."""
    if not arguments and not keywords:
        return Code((f"{function}()",))
    prefixes = [*("" for _ in arguments), *(f"{name}=" for name in keywords)]
    return Code([*arguments, *keywords.values()], f"{function}(", ")", prefixes)


def literal(value: Any) -> Code:
    """Return plain data as code."""
    if isinstance(value, str):
        return text(value)
    if isinstance(value, Mapping):
        return Code.of_dict({key: literal(each) for key, each in value.items()})
    if isinstance(value, list | tuple):
        return Code.of_list([literal(each) for each in value])
    return Code((repr(value),))


def text(value: str) -> Code:
    """Return a text as code; a long one as several texts next to each other, broken after line breaks and spaces."""
    if len(value) <= _MAX_TEXT_CHARS and "\n" not in value[:-1]:
        return Code((quoted(value),))
    pieces = [piece for line in value.splitlines(keepends=True) for piece in _pieces(line)]
    if len(pieces) == 1:
        return Code((quoted(value),))
    return Code([Code((quoted(each),)) for each in pieces], "(", CONCATENATED)


def _pieces(line: str) -> list[str]:
    found: list[str] = []
    while len(line) > _MAX_TEXT_CHARS:
        cut = line.rfind(" ", 1, _MAX_TEXT_CHARS)
        cut = _MAX_TEXT_CHARS if cut < 0 else cut + 1
        found.append(line[:cut])
        line = line[cut:]
    return [*found, line] if line else found


def quoted(value: str) -> str:
    """Return a text literal, with the quotes that a formatter would choose."""
    shown = repr(value)
    if shown.startswith("'") and '"' not in shown:
        return '"' + shown[1:-1].replace("\\'", "'") + '"'
    if shown.startswith("'") and "'" in value:
        return json_quoted(value) if value.isprintable() else shown
    return shown


def json_quoted(value: str) -> str:
    """Return a text in double quotes."""
    return json.dumps(value, ensure_ascii=False)
