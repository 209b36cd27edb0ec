"""Rules compared, and fields looked up by dotted path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from rune.core.expr import MISSING, OPERATORS, ExpressionError, MissingError
from rune.core.expr.values import look_up
from rune.core.parameters import Rules, located


class Compared(msgspec.Struct, frozen=True):
    """A rule that was evaluated: its sides, and whether it holds."""

    left: Any
    right: Any
    holds: bool


def compare(
    rules: Rules, index: int, operator: str, sides: tuple[str, str], scope: Mapping[str, Any]
) -> Compared:
    """Evaluate one rule; `sides` names its fields. A left side that is missing is what `exists` asks about,
    and an error to every other operator."""
    left_field, right_field = sides
    left: Any = MISSING
    try:
        left = rules.value(index, left_field, scope)
    except MissingError:
        if operator != "exists":
            raise
    right = rules.value(index, right_field, scope)
    return Compared(left, right, apply(operator, left, right, f"{rules.name}[{index}]"))


def apply(operator: str, left: Any, right: Any, place: str) -> bool:
    """Whether the sides compare as the operator says; `place` is the parameter that errors name."""
    try:
        return OPERATORS[operator](left, right)
    except ExpressionError as error:
        raise located(place, error) from error


def field_of(item: Any, path: str) -> Any:
    """What stands at a dotted path of an element; a number is an index where it meets a list."""
    place = "$item"
    value = item
    for part in path.split("."):
        key: str | int = part
        if type(value) is list and part.isascii() and part.isdigit() and len(part) < 10:
            key = int(part)
        value = look_up(value, key, place)
        place = f"{place}.{part}"
    return value
