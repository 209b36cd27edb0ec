"""Decode untrusted JSON to plain data within limits, strictly, and report all problems together."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import msgspec

from rune.core.definition import problems as codes
from rune.core.definition.problems import Problem
from rune.core.limits import LIMITS, Limits

_BRACKET_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NO_BRACKETS = bytes(each for each in range(256) if each not in _BRACKET_STEPS)
_BOM = b"\xef\xbb\xbf"
_CHUNK_BYTES = 1024 * 1024
_SAME_DIGITS = bytes.maketrans(b"123456789E", b"000000000e")
_SURROGATE = re.compile(rb"\\u[dD][89abAB]")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_MIN_INT, _MAX_INT = -(2**63), 2**64 - 1
MAX_INT_DIGITS = 4_000


class Decoded(msgspec.Struct, frozen=True):
    """A decoded value. With problems it holds the parts that could be read; None if no part could."""

    value: Any
    problems: tuple[Problem, ...] = ()


class _RejectedNumber:
    """Placeholder for a rejected number, so that its path can be found."""

    def __init__(self, text: str) -> None:
        self.text = text


def rejected_number(text: str) -> int | float:
    """Return a number that cannot be stored, for the value of a text that is rejected: checked again, it is rejected
    again. Python limits the digits of an integer."""
    digits = text.lstrip("+-")
    return int(text) if digits.isdecimal() and len(digits) <= MAX_INT_DIGITS else float(text)


def decode_json(data: bytes | str, *, max_bytes: int, max_depth: int, root: str = "") -> Decoded:
    """Decode JSON. `root` is the path of problems that concern the whole text."""
    if isinstance(data, str):
        try:
            data = data.encode()
        except UnicodeEncodeError:
            return _rejection(root, codes.BAD_TEXT, "the text holds half of a surrogate pair", "")
    if len(data) > max_bytes:
        message = f"{len(data):,} bytes, at most {max_bytes:,} are allowed"
        return _rejection(root, codes.TOO_LARGE, message, "keep large values elsewhere and pass a reference")
    data = data.removeprefix(_BOM)
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return Decoded(None, (not_text(data, error, root),))
    if json_depth(data) > max_depth:
        return _rejection(root, codes.TOO_DEEP, f"nested deeper than {max_depth} levels", "")
    return _decode(data, root)


def decode_plain(value: Any, *, limits: Limits = LIMITS) -> Decoded:
    """Return plain data that was made in Python as if it had been decoded: a copy, with the problems of values that
    JSON does not have or that cannot be stored."""
    try:
        text = json.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        return _rejection("", codes.NOT_JSON, f"not JSON: {error}", "")
    return decode_json(text, max_bytes=limits.definition_bytes, max_depth=limits.json_depth)


def parse_input(data: bytes | str, *, limits: Limits = LIMITS) -> Decoded:
    """Read a start payload: JSON within the limits."""
    return decode_json(data, max_bytes=limits.payload_bytes, max_depth=limits.json_depth, root="input")


def json_depth(data: bytes) -> int:
    """Return the nesting depth of the brackets outside of strings, by scanning the text without recursion."""
    if data.count(b"[") + data.count(b"{") == 0:
        return 0
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    steps = map(_BRACKET_STEPS.__getitem__, b"".join(_outside_strings(data)))
    return max(accumulate(steps), default=0)


def _outside_strings(data: bytes) -> Iterator[bytes]:
    """Yield the brackets outside of strings. Chunks bound the memory that a text of only quotes would take."""
    inside = 0
    for start in range(0, len(data), _CHUNK_BYTES):
        parts = data[start : start + _CHUNK_BYTES].split(b'"')
        yield b"".join(parts[inside::2]).translate(None, _NO_BRACKETS)
        inside = (inside + len(parts) - 1) % 2


def _decode(data: bytes, root: str) -> Decoded:
    bad_numbers: list[_RejectedNumber] = []
    duplicates: list[tuple[dict[str, Any], str]] = []

    def reject(text: str) -> _RejectedNumber:
        bad_numbers.append(_RejectedNumber(text))
        return bad_numbers[-1]

    def whole(text: str) -> int | _RejectedNumber:
        return int(text) if len(text) <= 20 and _MIN_INT <= int(text) <= _MAX_INT else reject(text)

    def real(text: str) -> float | _RejectedNumber:
        number = float(text)
        return reject(text) if number in {float("inf"), float("-inf")} else number

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(items)
        if len(found) < len(items):
            left = set(found)
            for key, _ in items:
                if key in left:
                    left.remove(key)
                else:
                    duplicates.append((found, key))
        return found

    hooks: dict[str, Any] = {"object_pairs_hook": pairs, "parse_constant": reject}
    # A call per number is expensive, so it is made only if a search with all digits mapped to 0 finds a candidate.
    digits_mapped = data.translate(_SAME_DIGITS)
    if b"0" * 19 in digits_mapped:
        hooks["parse_int"] = whole
    if b"e000" in digits_mapped or b"e+000" in digits_mapped or b"0" * 300 in digits_mapped:
        hooks["parse_float"] = real
    try:
        value = json.loads(data.decode(), **hooks)
    except json.JSONDecodeError as error:
        message = f"not JSON: {error.msg.lower()}"
        found = Problem(root, codes.NOT_JSON, message, line=error.lineno, column=error.colno)
        return Decoded(None, (found,))
    if not bad_numbers and not duplicates and not _SURROGATE.search(data):
        return Decoded(value)
    problems = tuple(_find_problems(value, duplicates, root))
    return Decoded(_without_placeholders(value) if bad_numbers else value, problems)


def _without_placeholders(value: Any) -> Any:
    """Return the value with its rejected numbers in place of their placeholders."""
    for _, part in walk(value):
        items = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
        for key, each in items:
            if isinstance(each, _RejectedNumber):
                part[key] = rejected_number(each.text)
    return rejected_number(value.text) if isinstance(value, _RejectedNumber) else value


def _find_problems(value: Any, duplicates: list[tuple[dict[str, Any], str]], root: str) -> Iterator[Problem]:
    twice: dict[int, list[str]] = {}
    for found, key in duplicates:
        twice.setdefault(id(found), []).append(key)
    for path, part in walk(value, root):
        if isinstance(part, _RejectedNumber):
            shown = part.text if len(part.text) <= 30 else part.text[:27] + "…"
            hint = "write it as text, or as a number within 64 bits"
            yield Problem(path, codes.BAD_NUMBER, f"`{shown}` is not a number that can be stored", hint)
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
    """Yield every part of plain data with its path, outer parts first, without recursion."""
    open_parts: list[tuple[str, Any]] = [(root, value)]
    while open_parts:
        path, part = open_parts.pop()
        yield path, part
        if isinstance(part, dict):
            open_parts.extend((join(path, key), part[key]) for key in reversed(part))
        elif isinstance(part, list):
            open_parts.extend((f"{path}[{at}]", part[at]) for at in reversed(range(len(part))))


def join(path: str, key: str) -> str:
    key = printable(key)
    return f"{path}.{key}" if path else key


def printable(text: str) -> str:
    """Replace characters that cannot be encoded."""
    return text.encode("utf-8", "replace").decode()


def lone_surrogate(path: str) -> Problem:
    return Problem(
        path, codes.BAD_TEXT, "the text holds half of a surrogate pair", "remove the `\\ud…` escape"
    )


def not_text(data: bytes, error: UnicodeDecodeError, path: str = "") -> Problem:
    """Report the byte at which a text is not UTF-8."""
    before = data[: error.start]
    return Problem(
        path,
        codes.NOT_TEXT,
        f"byte {error.start} is not UTF-8",
        "save the text as UTF-8",
        line=before.count(b"\n") + 1,
        column=len(before.rpartition(b"\n")[2].decode()) + 1,
    )


def has_lone_surrogate(text: str) -> bool:
    return _LONE_SURROGATE.search(text) is not None


def _rejection(path: str, code: str, message: str, hint: str) -> Decoded:
    return Decoded(None, (Problem(path, code, message, hint),))
