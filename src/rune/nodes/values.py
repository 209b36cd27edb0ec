"""Values of data nodes: rule comparison, field lookup, type conversion, time zones and per-element evaluation."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from msgspec import UNSET

from rune.core.definition.strict_json import decode_json
from rune.core.expr import MISSING, OPERATORS, ExpressionError, Meter, MissingError
from rune.core.expr.budget import METER, SHORT_TEXT, Evaluation
from rune.core.expr.functions.collections import MAX_PATH_PARTS
from rune.core.expr.values import is_short, look_up, write_text
from rune.core.limits import LIMITS
from rune.core.plan.model import Rules, located
from rune.errors import NodeFailure
from rune.nodes.base import NodeCall
from rune.nodes.schema import describe_value

Target = Literal["string", "number", "boolean", "json", "array", "object"]

_CONVERT_NS = 100
# The estimated cost of evaluating a parameter for an element and using its value.
_ELEMENT_NS = 4_000
_WHOLE = re.compile(r"[+-]?[0-9]{1,1000}")
_REAL = re.compile(r"[+-]?(?:[0-9]{1,400}(?:\.[0-9]{0,400})?|\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,4})?")
_TRUTH = {"true": True, "false": False, "1": True, "0": False}


class Comparison(msgspec.Struct, frozen=True):
    """An evaluated rule: its operands and whether it holds."""

    left: Any
    right: Any
    holds: bool


def compare(
    rules: Rules, index: int, operator: str, sides: tuple[str, str], scope: Mapping[str, Any]
) -> Comparison:
    """Evaluate one rule; `sides` names the fields of its operands.

    A missing left operand is an error for every operator but `exists`.
    """
    left_field, right_field = sides
    left: Any = MISSING
    try:
        left = rules.value(index, left_field, scope)
    except MissingError:
        if operator != "exists":
            raise
    right = rules.value(index, right_field, scope)
    return Comparison(left, right, apply(operator, left, right, f"{rules.name}[{index}]", scope))


def apply(operator: str, left: Any, right: Any, place: str, scope: Mapping[str, Any]) -> bool:
    """Apply a comparison operator; `place` is the parameter named in errors."""
    try:
        short = operator != "matches" and is_short(left) and is_short(right)
        return OPERATORS[operator](left, right, None if short else Evaluation(scope))
    except RecursionError:
        raise located(place, ExpressionError("a value is nested too deeply")) from None
    except ExpressionError as error:
        raise located(place, error) from error


def path_parts(path: str) -> list[str]:
    """Return the parts of a dotted path."""
    return path.split(".", MAX_PATH_PARTS)


def field_of(item: Any, parts: list[str]) -> Any:
    """Return the value at a path of an element; a number indexes a list."""
    place = "$item"
    value = item
    for part in parts:
        key: str | int = part
        if type(value) is list and part.isascii() and part.isdigit() and len(part) < 10:
            key = int(part)
        value = look_up(value, key, place)
        place = f"{place}.{part[:80]}"
    return value


class _ConversionError(Exception):
    """The value has no equivalent in the target type."""


def convert(value: Any, target: Target, place: str, meter: Meter) -> Any:
    """Convert a value to a type; a value without a clear equivalent is an error."""
    if type(value) is str and len(value) > SHORT_TEXT:
        meter.charge(len(value) * _CONVERT_NS)
    try:
        return write_text(value, meter) if target == "string" else _CONVERSIONS[target](value)
    except _ConversionError:
        message = f"{place}.value: {describe_value(value)} cannot be converted to {target}"
        raise NodeFailure(message, code="CONVERSION_FAILED") from None


def _number(value: Any) -> int | float:
    if type(value) is int or type(value) is float:
        return value
    if type(value) is str:
        text = value.strip()
        if _WHOLE.fullmatch(text):
            return int(text)
        if _REAL.fullmatch(text) and math.isfinite(float(text)):
            return float(text)
    raise _ConversionError


def _boolean(value: Any) -> bool:
    if type(value) is bool:
        return value
    if type(value) in (str, int):
        found = _TRUTH.get(str(value).strip().lower())
        if found is not None:
            return found
    raise _ConversionError


def _json(value: Any) -> Any:
    if type(value) is not str:
        return value
    decoded = decode_json(value, max_bytes=LIMITS.output_bytes, max_depth=LIMITS.json_depth)
    if decoded.problems:
        raise _ConversionError
    return decoded.value


def _array(value: Any) -> list[Any]:
    found = _json(value)
    if type(found) is list:
        return found
    raise _ConversionError


def _object(value: Any) -> dict[str, Any]:
    found = _json(value)
    if type(found) is dict:
        return found
    raise _ConversionError


_CONVERSIONS: Mapping[str, Callable[[Any], Any]] = {
    "number": _number,
    "boolean": _boolean,
    "json": _json,
    "array": _array,
    "object": _object,
}


class Bound(dict[str, Any]):
    """A scope with the current element on top of an outer scope, whose values are loaded on demand."""

    __slots__ = ("_outer",)

    def __init__(self, outer: Mapping[str, Any]) -> None:
        super().__init__()
        self._outer = outer
        meter = outer.get(METER)
        if meter is not None:
            self[METER] = meter

    def at(self, index: int, item: Any) -> Bound:
        """Move the scope to an element. The seed changes too, so generated identifiers differ per element."""
        self["$item"] = item
        self["$index"] = index
        self.pop("@seed", None)
        return self

    def __missing__(self, key: str) -> Any:
        value = self._outer[key]
        if key == "@seed" and "$index" in self.keys():
            value = f"{value}[{self['$index']}]"
        self[key] = value
        return value

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or key in self._outer

    def __iter__(self) -> Iterator[str]:
        return iter({**dict.fromkeys(self._outer), **dict.fromkeys(super().__iter__())})

    def get(self, key: str, default: Any = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default


def each_value(call: NodeCall[Any], items: list[Any], name: str) -> Iterator[Any]:
    """Yield the value of a parameter for each element, bound as `$item` and `$index`."""
    scope = Bound(call.scope)
    meter = call.meter
    for index, item in enumerate(items):
        meter.charge(_ELEMENT_NS)
        try:
            yield call.evaluate(name, scope.at(index, item))
        except ExpressionError as error:
            raise type(error)(f"{error.message} (element {index})") from error


def input_items(call: NodeCall[Any]) -> list[Any]:
    """Return the list to work on: `input_array`, by default the payload."""
    given = call.parameters.input_array
    items = call.payload if given is UNSET else given
    if type(items) is not list:
        message = (
            f"parameters.input_array: not given, so the payload must be a list, found {describe_value(items)}"
        )
        raise NodeFailure(message, code="BAD_PARAMETER")
    return items


def listing(items: list[Any], original: list[Any]) -> dict[str, Any]:
    """Return the output of a node that transforms a list."""
    return {"items": items, "count": len(items), "original_count": len(original)}


_MAX_ZONE_CHARS = 64


def time_zone(name: str) -> ZoneInfo:
    """Return the time zone of an IANA name. The names there are have at most 32 characters; one of thousands of
    slashes would be taken for packages inside each other, and end in a RecursionError."""
    if len(name) <= _MAX_ZONE_CHARS:
        with suppress(ValueError, OSError):
            return ZoneInfo(name)
    raise ZoneInfoNotFoundError(f"no time zone `{name[:60]}`")
