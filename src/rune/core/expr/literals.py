"""Text and numbers as they are written in an expression."""

from __future__ import annotations

import math
import re

from rune.core.expr.budget import MAX_INT_BITS, MAX_INT_DIGITS
from rune.core.expr.errors import ExpressionSyntaxError

_DIGITS = frozenset("0123456789")
# A whole number that nothing could make another number of.
_SHORT = re.compile(r"(?:0|[1-9][0-9]{0,15})(?![\w.])")
_HEX = frozenset("0123456789abcdefABCDEF")
_ESCAPES = {
    "\\": "\\",
    "'": "'",
    '"': '"',
    "/": "/",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "b": "\b",
    "f": "\f",
    "v": "\v",
    "0": "\0",
}
_HEX_ESCAPES = {"x": 2, "u": 4, "U": 8}


def read_text(source: str, start: int, *, raw: bool = False) -> tuple[str, int]:
    """The text literal whose opening quote is at `start`, and where it ends."""
    quote = source[start]
    pieces: list[str] = []
    at = start + 1
    while at < len(source):
        char = source[at]
        if char == quote:
            return _joined(pieces, start), at + 1
        if char != "\\":
            pieces.append(char)
            at += 1
        elif raw:
            pieces.append(source[at : at + 2])
            at += 2
        else:
            piece, at = _escape(source, at)
            pieces.append(piece)
    raise ExpressionSyntaxError("text is not closed", start, f"a {quote} is missing")


def _escape(source: str, at: int) -> tuple[str, int]:
    """What the backslash at `at` stands for. An escape that means nothing stays as written."""
    letter = source[at + 1 : at + 2]
    if letter in _HEX_ESCAPES:
        end = at + 2 + _HEX_ESCAPES[letter]
        digits = source[at + 2 : end]
        if len(digits) < _HEX_ESCAPES[letter] or not _HEX.issuperset(digits) or int(digits, 16) > 0x10FFFF:
            raise ExpressionSyntaxError(f"\\{letter} needs {_HEX_ESCAPES[letter]} hexadecimal digits", at)
        return chr(int(digits, 16)), end
    return _ESCAPES.get(letter, "\\" + letter), at + 2


def _joined(pieces: list[str], start: int) -> str:
    """The text, with escaped surrogate pairs joined as JSON does; half a pair is no character."""
    text = "".join(pieces)
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise ExpressionSyntaxError("text holds half of a surrogate pair", start) from None


def read_number(source: str, start: int) -> tuple[int | float, int]:
    """The number that begins at `start`, and where it ends."""
    short = _SHORT.match(source, start)
    if short is not None:
        return int(short[0]), short.end()
    at = whole = _digits_end(source, start)
    if source.startswith(".", at) and source[at + 1 : at + 2] in _DIGITS:
        at = _digits_end(source, at + 1)
    if source[at : at + 1] in ("e", "E"):
        mark = at + 2 if source[at + 1 : at + 2] in ("+", "-") else at + 1
        at = max(at, _digits_end(source, mark)) if source[mark : mark + 1] in _DIGITS else at
    digits = source[start:at]
    follows = source[at : at + 1]
    if follows == "_" or follows.isalnum() or (whole - start > 1 and digits[0] == "0"):
        raise ExpressionSyntaxError(f"not a number: {source[start : at + 1][:40]}", start)
    if at == whole:
        return _whole(digits, start), at
    number = float(digits)
    if not math.isfinite(number):
        raise ExpressionSyntaxError(f"the number {digits[:40]} is too large", start)
    return number, at


def _digits_end(source: str, at: int) -> int:
    while at < len(source) and source[at] in _DIGITS:
        at += 1
    return at


def _whole(digits: str, start: int) -> int:
    if len(digits) > MAX_INT_DIGITS:
        raise ExpressionSyntaxError(f"the number is too large (limit: {MAX_INT_BITS} bits)", start)
    return int(digits)
