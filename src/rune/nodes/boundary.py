"""The boundary of a node: what leaves it is JSON, or it does not leave."""

from __future__ import annotations

import math
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
    # An element takes two bytes at least, which bounds the walk over a value that shares its parts.
    left = limits.output_bytes // 2
    level: list[Any] = [[value]]
    for _ in range(limits.json_depth + 1):
        below: list[Any] = []
        for container in level:
            left -= len(container)
            if left < 0:
                raise LimitExceeded("bytes of the output", limits.output_bytes)
            values = container
            if type(container) is dict:
                _check_keys(container)
                values = container.values()
            for each in values:
                kind = type(each)
                if kind is str:
                    if not each.isascii():
                        _check_text(each)
                elif kind is dict or kind is list:
                    below.append(each)
                elif kind not in _PLAIN:
                    _check_number(each, kind)
        if not below:
            return
        level = below
    raise LimitExceeded("nesting of the output", limits.json_depth)


def _check_text(value: str) -> None:
    if has_lone_surrogate(value):
        raise _refused("text with half of a surrogate pair")


def _check_number(value: Any, kind: type) -> None:
    if kind is not float:
        raise _refused(f"a value of type {kind.__name__}")
    if not math.isfinite(value):
        raise _refused(str(value))


def _check_keys(value: dict[Any, Any]) -> None:
    try:
        if "".join(value).isascii():
            return
    except TypeError:
        kinds = sorted({type(key).__name__ for key in value if not isinstance(key, str)})
        raise _refused(f"a key of type {kinds[0]}") from None
    if any(has_lone_surrogate(key) for key in value):
        raise _refused("a key with half of a surrogate pair")


def _refused(what: str) -> NodeFailure:
    return NodeFailure(f"the output holds {what}, which is not JSON", code=NOT_JSON)
