"""The closures that an expression compiles to, one for each kind of syntax."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from rune.core.expr.budget import Evaluation, ExpressionError
from rune.core.expr.operators import MISSING, Code, Operation
from rune.core.expr.values import is_short, json_equal, kind_name

_SCALARS = frozenset({int, float, bool, type(None)})
Scope = Mapping[str, Any]
# Adds one element of a comprehension to its result.
Body = Callable[[Scope, Any, Any], None]


def constant(value: Any) -> Code:
    def code(scope: Scope, run: Any) -> Any:
        return value

    return code


def variable(slot: int) -> Code:
    def code(scope: Scope, run: Any) -> Any:
        return run.slots[slot]

    return code


def arithmetic(first: Code, rest: list[tuple[Operation, Code]]) -> Code:
    """Evaluate a chain of operations from left to right, without recursion along the chain."""
    if len(rest) == 1:
        operation, second = rest[0]

        def pair(scope: Scope, run: Any) -> Any:
            return operation(first(scope, run), second(scope, run), run)

        return pair

    def row(scope: Scope, run: Any) -> Any:
        value = first(scope, run)
        for operation, operand in rest:
            value = operation(value, operand(scope, run), run)
        return value

    return row


def arithmetic_with(first: Code, operation: Operation, second: Any) -> Code:
    """Evaluate one operation with a constant as its right operand."""

    def code(scope: Scope, run: Any) -> Any:
        return operation(first(scope, run), second, run)

    return code


def unary(operation: Callable[[Any], Any], operand: Code) -> Code:
    def code(scope: Scope, run: Any) -> Any:
        return operation(operand(scope, run))

    return code


def negation(operand: Code) -> Code:
    def code(scope: Scope, run: Any) -> Any:
        return not operand(scope, run)

    return code


def coalesce(optional: list[Code], last: Code) -> Code:
    """Return the first value that is neither missing nor null, else the last."""

    def code(scope: Scope, run: Any) -> Any:
        for each in optional:
            value = each(scope, run)
            if value is not MISSING and value is not None:
                return value
        return last(scope, run)

    return code


def existence(optional: Code) -> Code:
    def code(scope: Scope, run: Any) -> Any:
        return optional(scope, run) is not MISSING

    return code


def both(operands: list[Code]) -> Code:
    """Evaluate `and`: the first false operand, or the last one."""

    def code(scope: Scope, run: Any) -> Any:
        value = None
        for each in operands:
            value = each(scope, run)
            if not value:
                break
        return value

    return code


def either(operands: list[Code]) -> Code:
    """Evaluate `or`: the first true operand, or the last one."""

    def code(scope: Scope, run: Any) -> Any:
        value = None
        for each in operands:
            value = each(scope, run)
            if value:
                break
        return value

    return code


def equality(left: Code, value: Any) -> Code:
    """Evaluate `==` with a constant, a fast path for the most common comparison."""
    kind = type(value)

    def code(scope: Scope, run: Any) -> Any:
        found = left(scope, run)
        return found == value if type(found) is kind else json_equal(found, value)

    return code


def comparison(left: Code, compare: Callable[..., bool], right: Code) -> Code:
    def code(scope: Scope, run: Any) -> Any:
        return compare(left(scope, run), right(scope, run), run)

    return code


def long_comparison(left: Code, compare: Callable[..., bool], right: Code) -> Code:
    """Evaluate a comparison whose cost depends on the data. Only large values need an evaluation to account for it."""

    def code(scope: Scope, run: Any) -> Any:
        a, b = left(scope, run), right(scope, run)
        if run is None and not (
            (type(a) in _SCALARS and type(b) in _SCALARS) or (is_short(a) and is_short(b))
        ):
            return compare(a, b, Evaluation(scope))
        return compare(a, b, run)

    return code


def comparisons(left: Code, rest: list[tuple[Callable[..., bool], Code]]) -> Code:
    """Evaluate a chain such as `1 < x < 5`. Each operand is evaluated once, and none after the first false pair."""

    def code(scope: Scope, run: Any) -> Any:
        value = left(scope, run)
        for compare, operand in rest:
            following = operand(scope, run)
            if not compare(value, following, run):
                return False
            value = following
        return True

    return code


def choice(condition: Code, chosen: Code, otherwise: Code) -> Code:
    def code(scope: Scope, run: Any) -> Any:
        return chosen(scope, run) if condition(scope, run) else otherwise(scope, run)

    return code


def new_list(elements: list[Code]) -> Code:
    def code(scope: Scope, run: Any) -> Any:
        return run.new_list([each(scope, run) for each in elements])

    return code


def key_text(value: Any) -> str:
    if type(value) is str:
        return value
    raise ExpressionError(f"the keys of an object are text, not {kind_name(value)}")


def new_object(entries: list[tuple[Code, Code]]) -> Code:
    def code(scope: Scope, run: Any) -> Any:
        return run.new_object({key_text(key(scope, run)): value(scope, run) for key, value in entries})

    return code


def call(function: Callable[..., Any], operands: list[Code], named: dict[str, Code]) -> Code:
    if named:

        def with_names(scope: Scope, run: Any) -> Any:
            arguments = [each(scope, run) for each in operands]
            return function(run, *arguments, **{name: each(scope, run) for name, each in named.items()})

        return with_names
    if len(operands) == 1:
        only = operands[0]

        def with_one(scope: Scope, run: Any) -> Any:
            return function(run, only(scope, run))

        return with_one

    def with_any(scope: Scope, run: Any) -> Any:
        return function(run, *[each(scope, run) for each in operands])

    return with_any


class Loop(msgspec.Struct, frozen=True):
    """One `for … in … if …`. `slots` are its variables; `cost` is the number of steps per element."""

    slots: tuple[int, ...]
    unpacks: bool
    source: Code
    conditions: list[Code]
    cost: int


def list_loop(loops: list[Loop], element: Code) -> Code:
    """Evaluate `[element for …]`."""

    def append(scope: Mapping[str, Any], run: Any, result: list[Any]) -> None:
        value = element(scope, run)
        run.include(value)
        result.append(value)

    return _comprehension(loops, append, list)


def object_loop(loops: list[Loop], key: Code, element: Code) -> Code:
    """Evaluate `{key: element for …}`."""

    def put(scope: Mapping[str, Any], run: Any, result: dict[str, Any]) -> None:
        name = key_text(key(scope, run))
        value = element(scope, run)
        run.build(len(name))
        run.include(value)
        result[name] = value

    return _comprehension(loops, put, dict)


def _comprehension(loops: list[Loop], body: Body, kind: Callable[[], Any]) -> Code:
    for loop in reversed(loops):
        body = _wrap_loop(loop, body)

    def code(scope: Mapping[str, Any], run: Any) -> Any:
        result = kind()
        body(scope, run, result)
        return run.own(result)

    return code


def _wrap_loop(loop: Loop, body: Body) -> Body:
    source, conditions, cost = loop.source, loop.conditions, loop.cost

    def each_element(scope: Mapping[str, Any], run: Any, result: Any) -> None:
        elements = _elements(source(scope, run))
        run.iterate(len(elements))
        # Inner loops run once per element and are granted no steps for their elements.
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
    raise ExpressionError(f"cannot loop over {kind_name(value)}")


def _bind(loop: Loop, element: Any, slots: list[Any]) -> None:
    if not loop.unpacks:
        slots[loop.slots[0]] = element
        return
    if type(element) is not list or len(element) != len(loop.slots):
        raise ExpressionError(f"cannot take {len(loop.slots)} parts from {kind_name(element)}")
    for slot, part in zip(loop.slots, element, strict=True):
        slots[slot] = part
