"""Finding the end of an expression inside text."""

from __future__ import annotations


def expression_end(text: str, start: int) -> int:
    """Where the `}}` stands that closes an expression beginning at `start`; -1 if it is not closed.

    Braces of objects and whatever stands in quotes do not close it.
    """
    depth = 0
    at = start
    while at < len(text):
        char = text[at]
        if char in "\"'":
            at = _quote_end(text, at)
        elif char == "{":
            depth += 1
        elif char == "}":
            if depth == 0 and text.startswith("}}", at):
                return at
            depth -= 1
        at += 1
    return -1


def _quote_end(text: str, start: int) -> int:
    at = start + 1
    while at < len(text) and text[at] != text[start]:
        at += 2 if text[at] == "\\" else 1
    return at
