"""JSON values: kinds, truth, equality, text form and lookups.

Kinds are distinguished by `type(v) is …` only. An object that merely behaves like a JSON value has no kind, and every
operation rejects it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from rune.core.expr.budget import (
    ELEMENT_NS,
    MAX_BUILT_BYTES,
    SHORT_TEXT,
    BudgetError,
    Evaluation,
    ExpressionError,
    Meter,
    MissingError,
)

_KINDS = {
    type(None): "null",
    bool: "boolean",
    int: "number",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}
_KIND_NAMES = {
    "boolean": "a boolean",
    "number": "a number",
    "string": "text",
    "array": "a list",
    "object": "an object",
}
_MAX_LISTED = 10
_MAX_LISTED_CHARS = 40
_MAX_KEY_CHARS = 80
# JSON of at most about this size is written by one call.
_PIECE_BYTES = 16 * 1024
_LARGE_INT = 1 << 63
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _make_writer() -> Callable[[Any, int], Iterable[str]]:
    """Return the C encoder that `_ENCODER` would create for each value, without a check for circular references."""
    make = getattr(json.encoder, "c_make_encoder", None)
    quoted = json.encoder.encode_basestring
    parts = (None, _ENCODER.default, quoted, None, ":", ",", False, False, False)
    return make(*parts) if make else lambda value, level: _ENCODER.iterencode(value)


_WRITE = _make_writer()


def kind_of(value: Any) -> str:
    """Return the JSON name of a value's type."""
    kind = _KINDS.get(type(value))
    if kind is None:
        raise ExpressionError("the value is not JSON")
    return kind


def kind_name(value: Any) -> str:
    """Return the kind of a value as messages name it."""
    kind = kind_of(value)
    return _KIND_NAMES.get(kind, kind)


def truthy(value: Any) -> bool:
    """Return false for null, false, 0, and empty text, lists and objects."""
    return bool(value)


def is_number(value: Any) -> bool:
    """Return whether a value is a number; booleans are not."""
    return type(value) is int or type(value) is float


def json_equal(a: Any, b: Any, run: Evaluation | None = None) -> bool:
    """Compare JSON values: int and float are one kind, and values of different kinds are never equal."""
    kind = type(a)
    if kind is list and type(b) is list:
        if len(a) != len(b):
            return False
        pairs: Iterable[tuple[Any, Any]] = zip(a, b, strict=True)
        if run is not None:
            run.iterate(len(a))
            pairs = run.over(pairs, len(a))
        return all(json_equal(x, y, run) for x, y in pairs)
    if kind is dict and type(b) is dict:
        if len(a) != len(b):
            return False
        entries: Iterable[tuple[str, Any]] = a.items()
        if run is not None:
            run.iterate(len(a))
            entries = run.over(entries, len(a))
        return all(key in b and json_equal(each, b[key], run) for key, each in entries)
    if kind is type(b) or (is_number(a) and is_number(b)):
        if kind is str and run is not None:
            charge_comparison(a, b, run)
        return bool(a == b)
    return False


def is_short(value: Any) -> bool:
    """Return whether comparing a value costs next to nothing."""
    kind = type(value)
    return len(value) <= SHORT_TEXT if kind is str else kind is not list and kind is not dict


def charge_comparison(a: str, b: str, run: Evaluation) -> None:
    """Account for comparing two texts, if it costs more than a step."""
    size = min(len(a), len(b))
    if size > SHORT_TEXT:
        run.charge(size >> 1)


def to_text(value: Any) -> str:
    """Return a value as it appears inside text: null as nothing, text unchanged, others as compact JSON."""
    kind = type(value)
    if kind is str:
        return str(value)
    if kind is int:
        return int.__repr__(value)
    if kind is dict or kind is list:
        return to_json(value)
    if value is None:
        return ""
    if kind is bool:
        return "true" if value else "false"
    if kind is float and math.isfinite(value):
        return float.__repr__(value)
    return to_json(value)


def to_json(value: Any) -> str:
    try:
        return "".join(_WRITE(value, 0))
    except (TypeError, ValueError, RecursionError):
        return _to_json_or_raise(value)


def write_text(value: Any, meter: Meter, room: int | None = None) -> str:
    """Return what `to_text` returns. A large value is written in pieces, and none that is longer than `room`."""
    kind = type(value)
    return write_json(value, meter, room) if kind is list or kind is dict else to_text(value)


def write_json(value: Any, meter: Meter, room: int | None = None) -> str:
    """Return what `to_json` returns, written in pieces if it is large.

    With `room`, a value whose JSON is certainly longer raises BudgetError instead of being written.
    """
    size = json_size(value, meter, _PIECE_BYTES if room is None else max(room, 0))
    if room is not None and size > room:
        raise BudgetError(f"the text is too long (limit: {MAX_BUILT_BYTES:,} bytes)")
    if size <= _PIECE_BYTES:
        meter.charge(size * 50)
        return to_json(value)
    try:
        return "".join(_pieces(value, meter))
    except RecursionError:
        raise ExpressionError("the value is nested too deeply to be written as JSON") from None


def json_size(value: Any, meter: Meter, most: int) -> int:
    """Return a lower bound of the length of a value's JSON, between a quarter and all of it for most values.

    The search stops when the bound exceeds `most`.
    """
    size = 0
    waiting = [value]
    while waiting and size <= most:
        each = waiting.pop()
        kind = type(each)
        if kind is str:
            size += len(each)
        elif kind is list:
            # At least a character and a comma for each element.
            size += 2 * len(each) + 1
            if size <= most:
                meter.charge(len(each) * ELEMENT_NS)
                waiting += each
        elif kind is dict:
            size += 5 * len(each) + 1
            if size <= most:
                meter.charge(len(each) * ELEMENT_NS)
                size += sum(map(len, each))
                waiting += each.values()
        elif kind is int and not -_LARGE_INT < each < _LARGE_INT:
            size += each.bit_length() >> 2
    return size


def _pieces(value: Any, meter: Meter) -> Iterator[str]:
    """Write a value in pieces of about `_PIECE_BYTES`."""
    if type(value) is not list and type(value) is not dict:
        meter.charge(len(value) * 10 if type(value) is str else ELEMENT_NS)
        yield to_json(value)
        return
    listed = type(value) is list
    yield "[" if listed else "{"
    comma = ""
    batch: Any = [] if listed else {}
    room = _PIECE_BYTES
    for each in value:
        member = each if listed else value[each]
        size = json_size(member, meter, _PIECE_BYTES) + (0 if listed else len(each))
        if size > room and batch:
            yield comma + _members(batch, meter)
            comma, batch, room = ",", [] if listed else {}, _PIECE_BYTES
        if size > _PIECE_BYTES:
            yield comma if listed else f"{comma}{to_json(each)}:"
            yield from _pieces(member, meter)
            comma = ","
            continue
        room -= size + 2
        if listed:
            batch.append(member)
        else:
            batch[each] = member
    if batch:
        yield comma + _members(batch, meter)
    yield "]" if listed else "}"


def _members(batch: Any, meter: Meter) -> str:
    meter.charge(_PIECE_BYTES * 100)
    return to_json(batch)[1:-1]


def _to_json_or_raise(value: Any) -> str:
    try:
        return _ENCODER.encode(value)
    except (TypeError, ValueError):
        raise ExpressionError("the value cannot be written as JSON") from None
    except RecursionError:
        raise ExpressionError("the value is nested too deeply to be written as JSON") from None


def listed(names: Iterable[str]) -> str:
    """Format a bounded list of names for a message."""
    shown: list[str] = []
    for name in names:
        if len(shown) == _MAX_LISTED:
            shown.append("…")
            break
        shown.append(name if len(name) <= _MAX_LISTED_CHARS else name[:_MAX_LISTED_CHARS] + "…")
    return ", ".join(shown) if shown else "nothing"


def describe(place: str, key: str | int) -> str:
    """Return the place of a member: `$a.b` and "c" give `$a.b.c`."""
    if type(key) is int:
        return f"{place}[{key}]"
    text = str(key)
    if len(text) <= _MAX_KEY_CHARS and text.isidentifier():
        return f"{place}.{text}"
    return f'{place}["{text[:_MAX_KEY_CHARS]}"]'


def look_up(value: Any, key: Any, place: str) -> Any:
    """Return a member of an object, a list or text. `place` names the value in messages."""
    key_kind = type(key)
    if key_kind is not str and key_kind is not int:
        raise ExpressionError(f"a key is text or a whole number, not {kind_name(key)} (in {place})")
    kind = type(value)
    if kind is dict and key_kind is str:
        if key in value:
            return value[key]
        raise MissingError(f"{describe(place, key)} is missing; {place} has: {listed(value)}")
    if (kind is list or kind is str) and key_kind is int:
        if -len(value) <= key < len(value):
            return value[key]
        raise MissingError(f"{describe(place, key)} is missing; {place} has {len(value)} elements")
    raise MissingError(f"{describe(place, key)} is missing; {place} is {kind_name(value)}")
