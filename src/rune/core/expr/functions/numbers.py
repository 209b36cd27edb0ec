"""Functions on numbers."""

from __future__ import annotations

from typing import Any

from rune.core.expr.budget import (
    MAX_INT_DIGITS,
    SHORT_TEXT,
    Evaluation,
    ExpressionError,
    MissingError,
)
from rune.core.expr.functions.table import Table, list_of, number_of, whole_of
from rune.core.expr.operators import checked, comparable
from rune.core.expr.values import charge_comparison, kind_name, truthy

NUMBERS = Table("numbers")
_MAX_DIGITS = 300
_FLOAT_CHARS = frozenset("0123456789+-.eE")


def _stripped(text: str, run: Evaluation) -> str:
    if len(text) > SHORT_TEXT:
        run.charge(len(text) << 2)
    return text.strip()


@NUMBERS.add("int(value)", "A whole number from text or a number; decimals are truncated.", 'int("42")', "42")
def int_(run: Evaluation, value: Any, /) -> int:
    kind = type(value)
    if kind is int or kind is float or kind is bool:
        return int(value)
    if kind is str:
        text = _stripped(value, run)
        if len(text) <= MAX_INT_DIGITS + 1:
            digits = text[1:] if text.startswith(("+", "-")) else text
            if digits.isascii() and digits.isdigit() and len(digits) <= MAX_INT_DIGITS:
                return int(text)
        raise ExpressionError(f'int() cannot read "{value[:40]}"')
    raise ExpressionError(f"int() takes text or a number, not {kind_name(value)}")


@NUMBERS.add("float(value)", "A number with decimals from text or a number.", 'float("1.5")', "1.5")
def float_(run: Evaluation, value: Any, /) -> float:
    kind = type(value)
    if kind is int or kind is float or kind is bool:
        return float(value)
    if kind is str:
        text = _stripped(value, run)
        if len(text) <= MAX_INT_DIGITS and _FLOAT_CHARS.issuperset(text):
            try:
                return float(checked(float(text)))
            except ValueError:
                pass
        raise ExpressionError(f'float() cannot read "{value[:40]}"')
    raise ExpressionError(f"float() takes text or a number, not {kind_name(value)}")


@NUMBERS.add("bool(value)", "Whether the value counts as true.", "bool([0])", "true")
def bool_(run: Evaluation, value: Any, /) -> bool:
    return truthy(value)


@NUMBERS.add(
    "round(number, digits)", "The rounded number; a half is rounded to even.", "round(2.345, 1)", "2.3"
)
def round_(run: Evaluation, number: Any, digits: Any = None, /) -> int | float:
    value = number_of(number, "round")
    if digits is None:
        return round(value)
    # Rounding to -1,000,000,000 digits would compute 10 ** 1,000,000,000.
    if abs(whole_of(digits, "round")) > _MAX_DIGITS:
        raise ExpressionError(f"round() takes at most {_MAX_DIGITS} digits")
    rounded: int | float = checked(round(value, digits))
    return rounded


@NUMBERS.add("abs(number)", "The absolute value.", "abs(-3)", "3")
def abs_(run: Evaluation, number: Any, /) -> int | float:
    return abs(number_of(number, "abs"))


@NUMBERS.add("min(list) or min(a, b, …)", "The least of numbers or texts.", "min([3, 1])", "1")
def min_(run: Evaluation, value: Any, /, *others: Any) -> Any:
    items = _ordered(run, value, others, "min")
    least = items[0]
    for each in run.over(items, len(items)):
        if type(each) is str:
            charge_comparison(each, least, run)
        least = min(least, each)
    return least


@NUMBERS.add("max(list) or max(a, b, …)", "The greatest of numbers or texts.", "max([3, 1])", "3")
def max_(run: Evaluation, value: Any, /, *others: Any) -> Any:
    items = _ordered(run, value, others, "max")
    greatest = items[0]
    for each in run.over(items, len(items)):
        if type(each) is str:
            charge_comparison(each, greatest, run)
        greatest = max(greatest, each)
    return greatest


def _ordered(run: Evaluation, value: Any, others: tuple[Any, ...], name: str) -> list[Any]:
    items = [value, *others] if others else list_of(value, name)
    run.iterate(len(items))
    if not items:
        raise MissingError(f"{name}() needs a list that is not empty")
    for each in run.over(items, len(items)):
        if not comparable(items[0], each):
            raise ExpressionError(f"{name}() cannot order {kind_name(items[0])} and {kind_name(each)}")
    return items


@NUMBERS.add("sum(list)", "The sum of all numbers.", "sum([1, 2])", "3")
def sum_(run: Evaluation, items: Any, /) -> int | float:
    run.iterate(len(list_of(items, "sum")))
    numbers = run.over(items, len(items))
    total: int | float = checked(sum(number_of(each, "sum") for each in numbers))
    return total


@NUMBERS.add("avg(list)", "The mean of numbers; missing if the list is empty.", "avg([1, 2, 6])", "3.0")
def avg(run: Evaluation, items: Any, /) -> float:
    if not list_of(items, "avg"):
        raise MissingError("avg() needs a list that is not empty")
    mean: float = checked(sum_(run, items) / len(items))
    return mean
