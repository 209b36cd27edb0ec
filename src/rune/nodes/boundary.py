"""The boundary of a node: what leaves it is JSON, or it does not leave."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from rune.core.jsontext import has_lone_surrogate
from rune.core.limits import LIMITS, Limits
from rune.errors import LimitExceeded, NodeFailure

NOT_JSON = "NOT_JSON"

_PLAIN = frozenset({int, bool, type(None)})


def check_json(value: Any, limits: Limits = LIMITS) -> None:
    """Refuse what is not JSON, is nested too deep, or could not be written within the output limit.

    Goes level by level, so that depth costs no stack; a value that holds itself ends at the depth limit.
    """
    depth = 0
    # An element takes two bytes at least, which bounds the walk over a value that shares its parts.
    left = limits.output_bytes // 2
    level = _containers((value,))
    while level:
        depth += 1
        if depth > limits.json_depth:
            raise LimitExceeded("nesting of the output", limits.json_depth)
        below: list[Any] = []
        for each in level:
            left -= len(each)
            if left < 0:
                raise LimitExceeded("bytes of the output", limits.output_bytes)
            if type(each) is dict:
                _check_keys(each)
                below += _containers(each.values())
            else:
                below += _containers(each)
        level = below


def _containers(values: Iterable[Any]) -> list[Any]:
    """The lists and objects among the values, the others having been checked."""
    found: list[Any] = []
    for each in values:
        kind = type(each)
        if kind is str:
            if not each.isascii() and has_lone_surrogate(each):
                raise _refused("text with half of a surrogate pair")
        elif kind in _PLAIN:
            continue
        elif kind is float:
            if not math.isfinite(each):
                raise _refused(str(each))
        elif kind is dict or kind is list:
            found.append(each)
        else:
            raise _refused(f"a value of type {kind.__name__}")
    return found


def _check_keys(value: dict[Any, Any]) -> None:
    for key in value:
        if type(key) is not str:
            raise _refused(f"a key of type {type(key).__name__}")
        if not key.isascii() and has_lone_surrogate(key):
            raise _refused("a key with half of a surrogate pair")


def _refused(what: str) -> NodeFailure:
    return NodeFailure(f"the output holds {what}, which is not JSON", code=NOT_JSON)
