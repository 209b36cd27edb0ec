"""What `$` and bare names may mean, and how they are found in a text."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping

import msgspec

from rune.core.expr.errors import ExpressionSyntaxError
from rune.core.expr.literals import read_text

_ID = re.compile(r"[A-Za-z0-9_-]+")
# `re` takes the same characters for those of a word as `is_word` does.
_WORD = re.compile(r"\w+")
_MEMBER = re.compile(r"\.(\w+)")
_DIGITS = frozenset("0123456789")
_MOST_SUGGESTED = 8

# `$input` is another word for `$trigger`.
ROOTS: Mapping[str, str] = {
    "trigger": "$trigger",
    "input": "$trigger",
    "item": "$item",
    "index": "$index",
    "json": "$json",
    "execution": "$execution",
    "error": "$error",
}


class Names(msgspec.Struct, frozen=True):
    """What a `$` or bare name may mean: the ids of nodes, and their names where these are unique."""

    nodes: frozenset[str]
    titles: Mapping[str, str]


class Reference(msgspec.Struct, frozen=True, gc=False):
    """One use of a context value: its root and the longest path known without running anything."""

    root: str
    path: tuple[str | int, ...]
    optional: bool
    offset: int


def is_word_start(char: str) -> bool:
    return char == "_" or char.isalpha()


def is_word(char: str) -> bool:
    return char == "_" or char.isalnum()


def word_end(text: str, start: int) -> int:
    """Where the word that begins at `start` ends."""
    found = _WORD.match(text, start)
    return found.end() if found else start


def refuse_dunder(word: str, offset: int) -> None:
    """Names that begin with two underscores are refused. No other character of a word folds into one."""
    if word.startswith("__"):
        raise ExpressionSyntaxError(
            f"names that begin with two underscores are not allowed: {word[:40]}",
            offset,
            'a key of that name is written in quotes: x["__name"]',
        )


def id_ends(text: str, start: int) -> list[int]:
    """Where an id beginning at `start` could end, longest first: never in the middle of a word."""
    found = _ID.match(text, start)
    if found is None:
        return []
    end = found.end()
    ends = [end] if end == len(text) or not is_word(text[end]) else []
    # Inside an id only a dash ends a word.
    while (end := text.rfind("-", start + 1, end)) > 0:
        ends.append(end)
    return ends


def root_at(text: str, start: int, names: Names) -> tuple[str, int] | None:
    """The root that the `$` at `start` begins, with its end; None if it names nothing known."""
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
    """The node named after `$node`: `.id`, `.name` or `["name"]`."""
    if text.startswith(".", start):
        for end in id_ends(text, start + 1):
            found = _node_called(text[start + 1 : end], names)
            if found is not None:
                return found, end
    key = _key_at(text, start)
    if key is not None and type(key[0]) is str:
        found = _node_called(key[0], names)
        if found is not None:
            return found, key[1]
    return None


def _node_called(name: str, names: Names) -> str | None:
    if name in names.nodes:
        return "$" + name
    return "$" + names.titles[name] if name in names.titles else None


def path_at(text: str, start: int) -> tuple[tuple[str | int, ...], int]:
    """The static path that begins at `start` in plain text, and its end."""
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
    """A constant key in brackets: `[0]`, `[-1]` or `["odd key"]`."""
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


def unknown(word: str, offset: int, known: Iterable[str]) -> ExpressionSyntaxError:
    """The error for a name that means nothing, with the nearest names that do."""
    every = sorted(known)
    near = difflib.get_close_matches(word, every, n=3, cutoff=0.6)
    if near:
        hint = f"did you mean {' or '.join(near)}?"
    else:
        more = ", …" if len(every) > _MOST_SUGGESTED else ""
        hint = f"known here: {', '.join(every[:_MOST_SUGGESTED])}{more}"
    return ExpressionSyntaxError(f"unknown name {word[:80]}", offset, hint)


def known_references(names: Names) -> list[str]:
    """Every root a `$` may name."""
    return ["$" + each for each in (*names.nodes, *ROOTS)]
