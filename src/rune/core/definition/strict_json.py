"""Decode untrusted JSON to plain data within limits, strictly, and report all problems together."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from itertools import accumulate, islice
from typing import Any, TypeGuard

import msgspec

from rune.core.definition import problems as codes
from rune.core.definition.problems import Problem
from rune.core.json_decoder import JsonDecoder
from rune.core.limits import LIMITS, Limits

_BRACKET_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NO_BRACKETS = bytes(each for each in range(256) if each not in _BRACKET_STEPS)
_BOM = b"\xef\xbb\xbf"
_CHUNK_BYTES = 128 * 1024
_SAME_DIGITS = bytes.maketrans(b"123456789E", b"000000000e")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
MIN_INT, MAX_INT = -(2**63), 2**64 - 1
"""The integers that can be stored: those of 64 bits, with or without sign."""

MAX_INT_DIGITS = 4_000
MAX_SCANNED_PROBLEMS = 100
MAX_DECODED_BYTES = 256 * 1024
"""A larger payload is checked as a text first."""

_PIECE_BRACKETS = 64 * 1024
_SYNTAX = JsonDecoder(msgspec.Raw)
_VALUE = JsonDecoder()
_MEMBERS = JsonDecoder(dict[str, msgspec.Raw])
_BYTE = re.compile(r"\(byte (\d+)\)")
_LONE_ESCAPE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F]"
)
# Possessive, so that a text of only escapes takes no memory for ways to go back.
_TEXT = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_STRINGS = re.compile(b"(" + _TEXT + rb")(\s*+:)?", re.DOTALL)
_BEFORE_MEMBER = re.compile(rb"\s*+,?\s*+(" + _TEXT + rb")\s*+:\s*+", re.DOTALL)
_FLAT_OBJECT = rb'\{(?:[^{}"]++|' + _TEXT + rb"){0,400}\}"
_LONG_NUMBER = rb"(-?[0-9.]{19}[0-9.eE+-]*+|-?[0-9.]++[eE][+-]?[0-9]{3}[0-9]*+)"
_SHORT_NUMBER = rb"-?[0-9.]{1,18}(?![0-9.eE])"
_TOKENS = {
    False: _TEXT + rb'(\s*+:)?|[{}]|[^"{}]{1,65536}+',
    True: _TEXT + rb"(\s*+:)?|[{}]|" + _LONG_NUMBER + rb'|(?:[^"{}0-9-]+|' + _SHORT_NUMBER + rb"){1,4096}",
}
"""Without and with numbers. What is between the tokens is matched as well, in bounded pieces: a single search through
megabytes would keep all other threads waiting."""


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
        return _too_large(len(data), max_bytes, root)
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
    """Read a start payload: JSON within the limits. A large one is decoded once it is known to be."""
    if not _is_scanned(data):
        return decode_json(data, max_bytes=limits.payload_bytes, max_depth=limits.json_depth, root="input")
    problems = text_problems(data, limits=limits)
    return Decoded(None, problems) if problems else Decoded(_VALUE.decode(data.removeprefix(_BOM)))


def text_problems(data: bytes | str, *, limits: Limits = LIMITS) -> tuple[Problem, ...]:
    """Return the problems of a start payload as text. No value is built of a large one."""
    if not _is_scanned(data):
        return parse_input(data, limits=limits).problems
    if len(data) > limits.payload_bytes:
        return _too_large(len(data), limits.payload_bytes, "input").problems
    return check_json(
        data, max_depth=limits.json_depth, max_containers=limits.payload_containers, root="input"
    )


def _is_scanned(data: bytes | str) -> TypeGuard[bytes]:
    return isinstance(data, bytes) and len(data) > MAX_DECODED_BYTES


def _too_large(size: int, limit: int, root: str) -> Decoded:
    message = f"{size:,} bytes, at most {limit:,} are allowed"
    return _rejection(root, codes.TOO_LARGE, message, "keep large values elsewhere and pass a reference")


class JsonShape(msgspec.Struct, frozen=True):
    """How deep the lists and objects of a JSON text are nested, and how many there are."""

    depth: int
    containers: int


def json_depth(data: bytes) -> int:
    """Return the nesting depth of the brackets outside of strings, by scanning the text without recursion."""
    return json_shape(data).depth


def json_shape(data: bytes, max_containers: int | None = None) -> JsonShape:
    """Count the brackets outside of strings, or those up to some above `max_containers`. In pieces, so that a thread
    that counts lets other threads run."""
    if data.count(b"[") + data.count(b"{") == 0:
        return JsonShape(0, 0)
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    depth = deepest = containers = 0
    for brackets in _outside_strings(data):
        for start in range(0, len(brackets), _PIECE_BRACKETS):
            piece = brackets[start : start + _PIECE_BRACKETS]
            levels = list(accumulate(map(_BRACKET_STEPS.__getitem__, piece), initial=depth))
            depth = levels[-1]
            levels.append(deepest)
            deepest = max(levels)
            containers += piece.count(b"[") + piece.count(b"{")
            if max_containers is not None and containers > max_containers:
                return JsonShape(deepest, containers)
    return JsonShape(deepest, containers)


def check_json(data: bytes, *, max_depth: int, max_containers: int, root: str = "") -> tuple[Problem, ...]:
    """Return the problems that `decode_json` would find in a text within its size limit, with line and column instead
    of a path, without building the value: that of a text of 20 MB may take gigabytes. Meant for a thread."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return (not_text(data, error, root),)
    data = data.removeprefix(_BOM)
    shape = json_shape(data, max_containers)
    if shape.depth > max_depth:
        return _rejection(root, codes.TOO_DEEP, f"nested deeper than {max_depth} levels", "").problems
    if shape.containers > max_containers:
        message = f"more than {max_containers:,} lists and objects"
        hint = "keep large values elsewhere and pass a reference"
        return _rejection(root, codes.TOO_LARGE, message, hint).problems
    surrogates = lone_escapes(data, root)
    if surrogates:
        return surrogates
    try:
        _SYNTAX.decode(data)
    except msgspec.DecodeError as error:
        return (syntax_problem(error, data, root),)
    return tuple(islice(_scan(data, root), MAX_SCANNED_PROBLEMS))


def syntax_problem(error: msgspec.DecodeError, data: bytes, root: str) -> Problem:
    """Return the problem of a text that is not JSON, at the byte that the error names."""
    found = _BYTE.search(str(error))
    line, column = _place(data, int(found[1]) if found else len(data))
    message = str(error).removeprefix("JSON is malformed: ").partition(" (byte")[0].lower()
    return Problem(root, codes.NOT_JSON, f"not JSON: {message}", line=line, column=column)


def split_object(data: bytes, root: str) -> tuple[dict[str, msgspec.Raw], tuple[Problem, ...]]:
    """Return the members of a JSON object as text, without decoding them, and the problems of the object itself: those
    inside of members are not looked for."""
    data = data.removeprefix(_BOM)
    try:
        members = _MEMBERS.decode(data)
    except msgspec.ValidationError:
        return {}, (Problem(root, codes.WRONG_TYPE, "must be an object"),)
    except msgspec.DecodeError as error:
        return {}, (syntax_problem(error, data, root),)
    except RecursionError:
        return {}, _rejection(root, codes.TOO_DEEP, "nested too deeply", "").problems
    repeated = _repeated_member(data, members)
    if repeated is None:
        return members, ()
    message = f"the key `{printable(repeated)[:80]}` appears twice"
    return {}, (Problem(join(root, repeated[:80]), codes.DUPLICATE_KEY, message, "keep one"),)


def _repeated_member(data: bytes, members: Mapping[str, msgspec.Raw]) -> str | None:
    """Return a key that an object has twice. Its text differs from that of its members then: each key has one."""
    seen: set[str] = set()
    at = data.index(b"{") + 1
    while (before := _BEFORE_MEMBER.match(data, at)) is not None:
        key = json.loads(before[1])
        text = memoryview(members[key])
        at = before.end() + len(text)
        if key in seen or data[before.end() : at] != text:
            return str(key)
        seen.add(key)
    return None


def lone_escapes(data: bytes, root: str) -> tuple[Problem, ...]:
    if _SURROGATE.search(data) is None:
        return ()
    # Escaped backslashes are no escapes of what follows; the replacement keeps all places.
    lone = _LONE_ESCAPE.search(data.replace(b"\\\\", b"__"))
    if lone is None:
        return ()
    line, column = _place(data, lone.start())
    return (msgspec.structs.replace(lone_surrogate(root), line=line, column=column),)


def _scan(data: bytes, root: str) -> Iterator[Problem]:
    """Yield the keys that an object of a valid text has twice, and the numbers that cannot be stored."""
    numbers = _may_hold_long_numbers(data)
    if numbers or b"{" in data:
        tokens = re.compile(_FLAT_OBJECT + b"|" + _TOKENS[numbers], re.DOTALL)
        yield from _scan_tokens(data, root, tokens, numbers=numbers)


def _may_hold_long_numbers(data: bytes) -> bool:
    """Return whether a text has 19 digits in a row or an exponent of three digits, in a number or elsewhere."""
    mapped = data.translate(_SAME_DIGITS)
    return b"0" * 19 in mapped or b"e000" in mapped or b"e+000" in mapped


def _scan_tokens(
    data: bytes,
    root: str,
    tokens: re.Pattern[bytes],
    start: int = 0,
    end: int = sys.maxsize,
    *,
    numbers: bool = True,
) -> Iterator[Problem]:
    opened: list[set[bytes]] = []
    for token in tokens.finditer(data, start, end):
        text = token[0]
        if text == b"{":
            opened.append(set())
        elif text == b"}":
            opened.pop()
        elif text.startswith(b"{"):
            # Nearly always nothing is wrong with an object without others inside, and one look is enough.
            names = [name for name, colon in _STRINGS.findall(text) if colon]
            doubtful = len(set(names)) < len(names) or b"\\" in text
            if doubtful or (numbers and _may_hold_long_numbers(text)):
                exact = re.compile(_TOKENS[True], re.DOTALL)
                yield from _scan_tokens(data, root, exact, token.start(), token.end())
        elif token.lastindex == 1:
            yield from _repeated(data, token, opened[-1], root)
        elif token.lastindex == 2 and not _is_storable(text):
            line, column = _place(data, token.start())
            shown = text.decode() if len(text) <= 30 else f"{text[:27].decode()}…"
            message = f"`{shown}` is not a number that can be stored"
            hint = "write it as text, or as a number within 64 bits"
            yield Problem(root, codes.BAD_NUMBER, message, hint, line=line, column=column)


def _repeated(data: bytes, token: re.Match[bytes], keys: set[bytes], root: str) -> Iterator[Problem]:
    key = token[0][: token[0].rindex(b'"') + 1]
    if b"\\" in key:
        key = json.dumps(json.loads(key), ensure_ascii=False).encode()
    if key in keys:
        line, column = _place(data, token.start())
        shown = printable(json.loads(key))
        message = f"the key `{shown[:80]}` appears twice"
        yield Problem(root, codes.DUPLICATE_KEY, message, "keep one", line=line, column=column)
    keys.add(key)


def _is_storable(number: bytes) -> bool:
    if number.lstrip(b"-").isdigit():
        return len(number) <= 20 and MIN_INT <= int(number) <= MAX_INT
    return float(number) not in {float("inf"), float("-inf")}


def _place(data: bytes, at: int) -> tuple[int, int]:
    """Return line and column of a byte, both from 1."""
    first = data.rfind(b"\n", 0, at) + 1
    return data.count(b"\n", 0, at) + 1, len(data[first:at].decode(errors="replace")) + 1


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
        return int(text) if len(text) <= 20 and MIN_INT <= int(text) <= MAX_INT else reject(text)

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
