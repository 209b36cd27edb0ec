"""Values converted to a type that an author names."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal

from rune.core.expr import to_text
from rune.core.jsontext import decode_json
from rune.core.limits import LIMITS
from rune.errors import NodeFailure
from rune.nodes.fit import describe_value

Target = Literal["string", "number", "boolean", "json", "array", "object"]

_WHOLE = re.compile(r"[+-]?[0-9]{1,1000}")
_REAL = re.compile(r"[+-]?(?:[0-9]{1,400}(?:\.[0-9]{0,400})?|\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,4})?")
_TRUTH = {"true": True, "false": False, "1": True, "0": False}


class _Refused(Exception):
    """The value has no counterpart in the type."""


def converted(value: Any, target: Target, place: str) -> Any:
    """The value as that type. What has no clear counterpart is refused, never guessed."""
    try:
        return _CONVERSIONS[target](value)
    except _Refused:
        message = f"{place}.value: {describe_value(value)} does not convert to {target}"
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
    raise _Refused


def _boolean(value: Any) -> bool:
    if type(value) is bool:
        return value
    if type(value) in (str, int):
        found = _TRUTH.get(str(value).strip().lower())
        if found is not None:
            return found
    raise _Refused


def _json(value: Any) -> Any:
    if type(value) is not str:
        return value
    decoded = decode_json(value, max_bytes=LIMITS.payload_bytes, max_depth=LIMITS.json_depth)
    if decoded.problems:
        raise _Refused
    return decoded.value


def _array(value: Any) -> list[Any]:
    found = _json(value)
    if type(found) is list:
        return found
    raise _Refused


def _object(value: Any) -> dict[str, Any]:
    found = _json(value)
    if type(found) is dict:
        return found
    raise _Refused


_CONVERSIONS: Mapping[Target, Callable[[Any], Any]] = {
    "string": to_text,
    "number": _number,
    "boolean": _boolean,
    "json": _json,
    "array": _array,
    "object": _object,
}
