"""Comprehensions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from rune.core.expr.codes import key_text
from rune.core.expr.errors import ExpressionError
from rune.core.expr.paths import Code
from rune.core.expr.values import spoken

# What a loop does with each element: append it to, or set it in, the result.
Body = Callable[[Mapping[str, Any], Any, Any], None]


class Loop(msgspec.Struct, frozen=True):
    """One `for … in … if …`. `slots` are its variables; `cost` is what each element takes in steps."""

    slots: tuple[int, ...]
    unpacks: bool
    source: Code
    conditions: list[Code]
    cost: int


def list_loop(loops: list[Loop], element: Code) -> Code:
    """`[element for …]`"""

    def append(scope: Mapping[str, Any], run: Any, result: list[Any]) -> None:
        value = element(scope, run)
        run.include(value)
        result.append(value)

    return _looping(loops, append, list)


def object_loop(loops: list[Loop], key: Code, element: Code) -> Code:
    """`{key: element for …}`"""

    def put(scope: Mapping[str, Any], run: Any, result: dict[str, Any]) -> None:
        name = key_text(key(scope, run))
        value = element(scope, run)
        run.build(len(name))
        run.include(value)
        result[name] = value

    return _looping(loops, put, dict)


def _looping(loops: list[Loop], body: Body, kind: Callable[[], Any]) -> Code:
    for loop in reversed(loops):
        body = _around(loop, body)

    def code(scope: Mapping[str, Any], run: Any) -> Any:
        result = kind()
        body(scope, run, result)
        return run.own(result)

    return code


def _around(loop: Loop, body: Body) -> Body:
    source, conditions, cost = loop.source, loop.conditions, loop.cost

    def each_element(scope: Mapping[str, Any], run: Any, result: Any) -> None:
        elements = _elements(source(scope, run))
        run.iterate(len(elements))
        # Loops inside this one run once per element, and so are granted nothing for their own.
        run.depth += 1
        try:
            for element in elements:
                run.spend(cost)
                _bind(loop, element, run.slots)
                for condition in conditions:
                    if not condition(scope, run):
                        break
                else:
                    body(scope, run, result)
        finally:
            run.depth -= 1

    return each_element


def _elements(value: Any) -> Any:
    if type(value) is list or type(value) is dict:
        return value
    raise ExpressionError(f"cannot loop over {spoken(value)}")


def _bind(loop: Loop, element: Any, slots: list[Any]) -> None:
    if not loop.unpacks:
        slots[loop.slots[0]] = element
        return
    if type(element) is not list or len(element) != len(loop.slots):
        raise ExpressionError(f"cannot take {len(loop.slots)} parts from {spoken(element)}")
    for slot, part in zip(loop.slots, element, strict=True):
        slots[slot] = part
