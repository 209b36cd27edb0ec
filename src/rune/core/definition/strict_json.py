"""JSON text to plain data, for text that nobody vouches for: bounded, strict, every objection at once."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import msgspec

from rune.core.definition import problems as codes
from rune.core.definition.problems import Problem

_OPENING = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NO_BRACKETS = bytes(each for each in range(256) if each not in _OPENING)
_BOM = b"\xef\xbb\xbf"
_CHUNK = 1024 * 1024
_ALIKE = bytes.maketrans(b"123456789E", b"000000000e")
_SURROGATE = re.compile(rb"\\u[dD][89abAB]")
_LONE = re.compile("[\ud800-\udfff]")
_MIN_INT, _MAX_INT = -(2**63), 2**64 - 1


class Decoded(msgspec.Struct, frozen=True):
    """A value, or why there is none. With problems the value is what could be read, None if nothing could."""

    value: Any
    problems: tuple[Problem, ...] = ()


class _RefusedError:
    """Stands in the value where a number was refused, so that its path can be found."""

    def __init__(self, text: str) -> None:
        self.text = text


def decode_json(data: bytes | str, *, max_bytes: int, max_depth: int, root: str = "") -> Decoded:
    """Read JSON. `root` is the path that problems of the whole text are given."""
    if isinstance(data, str):
        try:
            data = data.encode()
        except UnicodeEncodeError:
            return _refusal(root, codes.BAD_TEXT, "the text holds half of a surrogate pair", "")
    if len(data) > max_bytes:
        message = f"{len(data):,} bytes, at most {max_bytes:,} are allowed"
        return _refusal(root, codes.TOO_LARGE, message, "keep large values elsewhere and pass a reference")
    data = data.removeprefix(_BOM)
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return _refusal(root, codes.NOT_TEXT, f"byte {error.start} is not UTF-8", "save the text as UTF-8")
    if json_depth(data) > max_depth:
        return _refusal(root, codes.TOO_DEEP, f"nested deeper than {max_depth} levels", "")
    return _decode(data, root)


def json_depth(data: bytes) -> int:
    """How deep the brackets outside of strings nest. Looks at the text only, so nothing recurses."""
    if data.count(b"[") + data.count(b"{") == 0:
        return 0
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    steps = map(_OPENING.__getitem__, b"".join(_outside_strings(data)))
    return max(accumulate(steps), default=0)


def _outside_strings(data: bytes) -> Iterator[bytes]:
    """The brackets that stand outside of strings. In chunks: a text of nothing but quotes must not fill
    memory."""
    inside = 0
    for start in range(0, len(data), _CHUNK):
        parts = data[start : start + _CHUNK].split(b'"')
        yield b"".join(parts[inside::2]).translate(None, _NO_BRACKETS)
        inside = (inside + len(parts) - 1) % 2


def _decode(data: bytes, root: str) -> Decoded:
    refused: list[_RefusedError] = []
    doubled: list[tuple[dict[str, Any], str]] = []

    def refuse(text: str) -> _RefusedError:
        refused.append(_RefusedError(text))
        return refused[-1]

    def whole(text: str) -> int | _RefusedError:
        return int(text) if len(text) <= 20 and _MIN_INT <= int(text) <= _MAX_INT else refuse(text)

    def real(text: str) -> float | _RefusedError:
        number = float(text)
        return refuse(text) if number in {float("inf"), float("-inf")} else number

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(items)
        if len(found) < len(items):
            left = set(found)
            for key, _ in items:
                if key in left:
                    left.remove(key)
                else:
                    doubled.append((found, key))
        return found

    hooks: dict[str, Any] = {"object_pairs_hook": pairs, "parse_constant": refuse}
    # A call per number is dear: only where the text could hold one that needs it, all digits made alike.
    alike = data.translate(_ALIKE)
    if b"0" * 19 in alike:
        hooks["parse_int"] = whole
    if b"e000" in alike or b"e+000" in alike or b"0" * 300 in alike:
        hooks["parse_float"] = real
    try:
        value = json.loads(data.decode(), **hooks)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        return _refusal(root, codes.NOT_JSON, f"not JSON: {error.msg.lower()} ({where})", "")
    if not refused and not doubled and not _SURROGATE.search(data):
        return Decoded(value)
    return Decoded(value, tuple(_objections(value, doubled, root)))


def _objections(value: Any, doubled: list[tuple[dict[str, Any], str]], root: str) -> Iterator[Problem]:
    twice: dict[int, list[str]] = {}
    for found, key in doubled:
        twice.setdefault(id(found), []).append(key)
    for path, part in walk(value, root):
        if isinstance(part, _RefusedError):
            shown = part.text if len(part.text) <= 30 else part.text[:27] + "…"
            hint = "write it as text, or as a number within 64 bits"
            yield Problem(path, codes.BAD_NUMBER, f"`{shown}` is not a number that can be kept", hint)
        elif isinstance(part, dict):
            for key in twice.get(id(part), ()):
                yield Problem(
                    join(path, key),
                    codes.DUPLICATE_KEY,
                    f"the key `{printable(key)}` appears twice",
                    "keep one",
                )
            for key in part:
                if has_lone_surrogate(key):
                    yield lone_surrogate(path)
        elif isinstance(part, str) and has_lone_surrogate(part):
            yield lone_surrogate(path)


def walk(value: Any, root: str = "") -> Iterator[tuple[str, Any]]:
    """Every part of plain data with its path, outer ones first, without recursion."""
    open_parts: list[tuple[str, Any]] = [(root, value)]
    while open_parts:
        path, part = open_parts.pop()
        yield path, part
        if isinstance(part, dict):
            open_parts.extend((join(path, key), part[key]) for key in reversed(part))
        elif isinstance(part, list):
            open_parts.extend((f"{path}[{at}]", part[at]) for at in reversed(range(len(part))))


def join(path: str, key: str) -> str:
    """The path of a key."""
    key = printable(key)
    return f"{path}.{key}" if path else key


def printable(text: str) -> str:
    """Text that can be encoded, whatever was in it."""
    return text.encode("utf-8", "replace").decode()


def lone_surrogate(path: str) -> Problem:
    """The problem of text that no encoding can carry."""
    return Problem(
        path, codes.BAD_TEXT, "the text holds half of a surrogate pair", "remove the `\\ud…` escape"
    )


def has_lone_surrogate(text: str) -> bool:
    """Does the text hold half of a surrogate pair?"""
    return _LONE.search(text) is not None


def _refusal(path: str, code: str, message: str, hint: str) -> Decoded:
    return Decoded(None, (Problem(path, code, message, hint),))
