"""Read names, references and literals in expressions and templates, and resolve what names refer to."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping

import msgspec

from rune.core.expr.budget import MAX_INT_BITS, MAX_INT_DIGITS, ExpressionSyntaxError

_DIGITS = frozenset("0123456789")
# A short integer that no following character can change.
_SHORT_INTEGER = re.compile(r"(?:0|[1-9][0-9]{0,15})(?![\w.])")
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
_ID = re.compile(r"[A-Za-z0-9_-]+")
# In `re`, \w matches the same characters as `is_word`.
_WORD = re.compile(r"\w+")
_MEMBER = re.compile(r"\.(\w+)")
_MAX_SUGGESTIONS = 8
_REFERENCES = "the nodes of the workflow, and the references in docs/expressions.md"

# `$input` is a synonym of `$trigger`.
ROOTS: Mapping[str, str] = {
    "trigger": "$trigger",
    "input": "$trigger",
    "item": "$item",
    "index": "$index",
    "json": "$json",
    "execution": "$execution",
    "error": "$error",
}


def read_text(source: str, start: int, *, raw: bool = False) -> tuple[str, int]:
    """Return the text literal whose opening quote is at `start`, and its end."""
    quote = source[start]
    pieces: list[str] = []
    at = start + 1
    while at < len(source):
        char = source[at]
        if char == quote:
            return _join_pieces(pieces, start), at + 1
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
    """Return the meaning of the backslash at `at`, and its end. An unknown escape is kept unchanged."""
    letter = source[at + 1 : at + 2]
    if letter in _HEX_ESCAPES:
        end = at + 2 + _HEX_ESCAPES[letter]
        digits = source[at + 2 : end]
        if len(digits) < _HEX_ESCAPES[letter] or not _HEX.issuperset(digits) or int(digits, 16) > 0x10FFFF:
            raise ExpressionSyntaxError(f"\\{letter} needs {_HEX_ESCAPES[letter]} hexadecimal digits", at)
        return chr(int(digits, 16)), end
    return _ESCAPES.get(letter, "\\" + letter), at + 2


def _join_pieces(pieces: list[str], start: int) -> str:
    """Join the pieces and combine escaped surrogate pairs as JSON does; reject half of a pair."""
    text = "".join(pieces)
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise ExpressionSyntaxError("text holds half of a surrogate pair", start) from None


def read_number(source: str, start: int) -> tuple[int | float, int]:
    """Return the number that begins at `start`, and its end."""
    short = _SHORT_INTEGER.match(source, start)
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


class Names(msgspec.Struct, frozen=True):
    """The nodes that references may name: by id, and by name (`titles`) if it is unique."""

    nodes: frozenset[str]
    titles: Mapping[str, str]


class Reference(msgspec.Struct, frozen=True, gc=False):
    """One reference: its root and the longest constant path."""

    root: str
    path: tuple[str | int, ...]
    optional: bool
    offset: int


def is_word_start(char: str) -> bool:
    return char == "_" or char.isalpha()


def is_word(char: str) -> bool:
    return char == "_" or char.isalnum()


def word_end(text: str, start: int) -> int:
    """Return the end of the word that begins at `start`."""
    found = _WORD.match(text, start)
    return found.end() if found else start


def refuse_dunder(word: str, offset: int) -> None:
    """Reject names that begin with two underscores. No other word character is normalized to an underscore."""
    if word.startswith("__"):
        raise ExpressionSyntaxError(
            f"names that begin with two underscores are not allowed: {word[:40]}",
            offset,
            'a key of that name is written in quotes: x["__name"]',
        )


def id_ends(text: str, start: int) -> list[int]:
    """Return the possible ends of an id that begins at `start`, longest first, never inside of a word."""
    found = _ID.match(text, start)
    if found is None:
        return []
    end = found.end()
    ends = [end] if end == len(text) or not is_word(text[end]) else []
    # Inside of an id, only a dash ends a word.
    while (end := text.rfind("-", start + 1, end)) > 0:
        ends.append(end)
    return ends


def root_at(text: str, start: int, names: Names) -> tuple[str, int] | None:
    """Return the root that begins with the `$` at `start`, and its end; None if the name is unknown."""
    for end in id_ends(text, start + 1):
        word = text[start + 1 : end]
        if word == "node":
            member = _member_at(text, end, names)
            if member is not None:
                return member
        if word in ROOTS:
            return ROOTS[word], end
        if word in names.nodes:
            return "$" + word, end
    return None


def _member_at(text: str, start: int, names: Names) -> tuple[str, int] | None:
    """Return the node that follows `$node`: `.id`, `.name` or `["name"]`."""
    if text.startswith(".", start):
        for end in id_ends(text, start + 1):
            found = _node_named(text[start + 1 : end], names)
            if found is not None:
                return found, end
    key = _key_at(text, start)
    if key is not None and type(key[0]) is str:
        found = _node_named(key[0], names)
        if found is not None:
            return found, key[1]
    return None


def _node_named(name: str, names: Names) -> str | None:
    if name in names.nodes:
        return "$" + name
    return "$" + names.titles[name] if name in names.titles else None


def path_at(text: str, start: int) -> tuple[tuple[str | int, ...], int]:
    """Return the constant path that begins at `start` in plain text, and its end."""
    path: list[str | int] = []
    at = start
    while text.startswith((".", "["), at):
        member = _MEMBER.match(text, at)
        if member is not None and is_word_start(member[1][0]):
            refuse_dunder(member[1], at + 1)
            path.append(member[1])
            at = member.end()
            continue
        key = _key_at(text, at)
        if key is None:
            break
        path.append(key[0])
        at = key[1]
    return tuple(path), at


def _key_at(text: str, start: int) -> tuple[str | int, int] | None:
    """Return the constant key in brackets, such as `[0]`, `[-1]` or `["a key"]`, and its end; None if there is none."""
    if not text.startswith("[", start):
        return None
    at = start + 1
    key: str | int
    if text.startswith(('"', "'"), at):
        try:
            key, at = read_text(text, at)
        except ExpressionSyntaxError:
            return None
    else:
        end = at + 1 if text.startswith("-", at) else at
        while end < len(text) and text[end] in _DIGITS and end - at < 10:
            end += 1
        if text[at:end] in ("", "-"):
            return None
        key, at = int(text[at:end]), end
    return (key, at + 1) if text.startswith("]", at) else None


def unknown(word: str, offset: int, known: Iterable[str], rest: str = _REFERENCES) -> ExpressionSyntaxError:
    """Return the error for an unknown name, with the closest known names; `rest` states where to find all of them."""
    # Nodes before `$error`.
    every = sorted(known, key=lambda name: (name.startswith("$") and name[1:] in ROOTS, name))
    near = difflib.get_close_matches(word, every, n=3, cutoff=0.6)
    if near:
        hint = f"did you mean {' or '.join(near)}?"
    else:
        left = len(every) - _MAX_SUGGESTIONS
        more = f" and {left} more: {rest}" if left > 0 else ""
        hint = f"known here: {', '.join(every[:_MAX_SUGGESTIONS])}{more}"
    return ExpressionSyntaxError(f"unknown name {word[:80]}", offset, hint)


def known_references(names: Names) -> list[str]:
    return ["$" + each for each in (*names.nodes, *ROOTS)]
