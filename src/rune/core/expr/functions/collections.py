"""Functions on numbers, lists and objects."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Any

from rune.core.expr.budget import (
    BLOCK,
    COMPARE_NS,
    ELEMENT_NS,
    MAX_INT_DIGITS,
    PIECE_NS,
    SHORT_TEXT,
    SLOT_BYTES,
    Evaluation,
    ExpressionError,
    Meter,
    MissingError,
    meter_of,
)
from rune.core.expr.functions.table import Table, list_of, number_of, object_of, text_of, whole_of
from rune.core.expr.operators import checked, comparable
from rune.core.expr.values import charge_comparison, kind_name, look_up, truthy

NUMBERS = Table("numbers")
_MAX_DIGITS = 300
_FLOAT_CHARS = frozenset("0123456789+-.eE")


def _stripped(text: str, run: Evaluation) -> str:
    if len(text) > SHORT_TEXT:
        run.charge(len(text) << 2)
    return text.strip()


@NUMBERS.add(
    "int(value)",
    "A whole number from its text, or from a number without its decimals.",
    'int("42")',
    "42",
)
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


LISTS = Table("lists and objects")
# No value nests deeper, so that the rest of a longer path is not split.
MAX_PATH_PARTS = 10_000
_LARGE = 1 << 60


@LISTS.add("len(value)", "The number of characters, elements or keys.", "len([1, 2])", "2")
def length(run: Evaluation, value: Any, /) -> int:
    if type(value) in (str, list, dict):
        return len(value)
    raise ExpressionError(f"len() takes text, a list or an object, not {kind_name(value)}")


@LISTS.add(
    "sorted(list, key, reverse)",
    "The elements in order: all numbers or all text. `key` is a path into each element.",
    'sorted([{"n": 2}, {"n": 1}], key="n")',
    '[{"n": 1}, {"n": 2}]',
)
def sort(run: Evaluation, items: Any, /, key: Any = None, reverse: Any = False) -> list[Any]:
    run.iterate(len(list_of(items, "sorted")))
    run.reserve(len(items))
    if type(reverse) is not bool:
        raise ExpressionError(f"sorted() takes true or false for reverse, not {kind_name(reverse)}")
    keys = items
    if key is not None:
        parts = _path_parts(text_of(key, "sorted"), run)
        keys = [_value_at(each, parts) for each in run.over(items, len(items), 2 * ELEMENT_NS)]
    for each in run.over(keys, len(keys)):
        if not comparable(keys[0], each):
            raise ExpressionError(f"sorted() cannot order {kind_name(keys[0])} and {kind_name(each)}")
    order = sorted_order(range(len(items)), keys, reverse=reverse, meter=meter_of(run.scope))
    return run.new_list([items[at] for at in order])


def sorted_order(order: Sequence[int], keys: list[Any], *, reverse: bool, meter: Meter) -> list[int]:
    """Return positions sorted by their keys, which are all numbers or all text. The sort is stable.

    Sorts blocks and merges them, as one call for a long list would hold the interpreter until it ends.
    """
    longest = _longest(keys, meter) if keys and type(keys[0]) is str else 0
    compare = COMPARE_NS + (longest >> 1)
    depth = len(order).bit_length()
    block = max(2, PIECE_NS // (compare * depth)) if order else 1
    runs = []
    for start in range(0, len(order), block):
        part = order[start : start + block]
        meter.charge(len(part) * depth * compare)
        runs.append(sorted(part, key=keys.__getitem__, reverse=reverse))
    if len(runs) < 2:
        return runs[0] if runs else []
    cost = 4 * ELEMENT_NS + compare * (2 + len(runs).bit_length())
    merged: list[int] = []
    for at in heapq.merge(*runs, key=keys.__getitem__, reverse=reverse):
        meter.charge(cost)
        merged.append(at)
    return merged


def _longest(texts: list[str], meter: Meter) -> int:
    longest = 0
    for start in range(0, len(texts), BLOCK):
        meter.charge(BLOCK * 50)
        longest = max(longest, *map(len, texts[start : start + BLOCK]))
    return longest


@LISTS.add("reversed(list)", "The elements in reverse order.", "reversed([1, 2])", "[2, 1]")
def reverse_(run: Evaluation, items: Any, /) -> list[Any]:
    run.iterate(len(list_of(items, "reversed")))
    run.reserve(len(items))
    return run.new_list(items[::-1])


@LISTS.add(
    "unique(list)", "Each distinct element once, in order of first occurrence.", "unique([3, 1, 3])", "[3, 1]"
)
def unique(run: Evaluation, items: Any, /) -> list[Any]:
    run.iterate(len(list_of(items, "unique")))
    seen: dict[Any, Any] = {}
    identities = _Identities(run)
    for each in run.over(items, len(items)):
        seen.setdefault(identities.of(each), each)
    return run.new_list(list(seen.values()))


class _Identities:
    """Gives values hashable keys that are equal if the values are equal as JSON.

    Lists and objects are numbered in blocks, so that no key is long: hashing and comparing one is a single call.
    """

    def __init__(self, run: Evaluation) -> None:
        self._run = run
        self._numbers: dict[Any, int] = {}

    def of(self, value: Any) -> Any:
        kind = type(value)
        if kind is str:
            if len(value) > SHORT_TEXT:
                # Hashed once, and compared with an equal text.
                self._run.charge(len(value) << 1)
            return value
        if kind is bool:
            return (bool, value)
        if (kind is int or kind is float) and not -_LARGE <= value <= _LARGE:
            # Many large integers have the same hash, but texts that were chosen to collide do not.
            whole = int(value)
            return (int, hex(whole))
        if kind is list:
            self._run.iterate(len(value))
            return (list, self._number((len(value), *map(self._number, self._list_blocks(value)))))
        if kind is dict:
            self._run.iterate(len(value))
            return (dict, self._number((len(value), *map(self._number, self._object_blocks(value)))))
        return value

    def _number(self, key: Any) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def _list_blocks(self, value: list[Any]) -> Iterator[tuple[Any, ...]]:
        for start in range(0, len(value), BLOCK):
            part = value[start : start + BLOCK]
            self._run.charge(len(part) * 3 * ELEMENT_NS)
            yield tuple([self.of(each) for each in part])

    def _object_blocks(self, value: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
        """Yield the entries in blocks, by key."""
        keys = list(value)
        order = sorted_order(range(len(keys)), keys, reverse=False, meter=meter_of(self._run.scope))
        for start in range(0, len(keys), BLOCK):
            part = [keys[at] for at in order[start : start + BLOCK]]
            self._run.charge(len(part) * 4 * ELEMENT_NS)
            yield tuple([(self.of(key), self.of(value[key])) for key in part])


@LISTS.add(
    "flatten(list)", "The list with one level of inner lists expanded.", "flatten([[1], [2, 3]])", "[1, 2, 3]"
)
def flatten(run: Evaluation, items: Any, /) -> list[Any]:
    run.iterate(len(list_of(items, "flatten")))
    flat: list[Any] = []
    for each in run.over(items, len(items)):
        if type(each) is list:
            run.iterate(len(each))
            run.reserve(len(flat) + len(each))
            run.charge(len(each) * 10)
            flat.extend(each)
        else:
            flat.append(each)
    return run.new_list(flat)


@LISTS.add(
    "range(stop) or range(start, stop, step)", "Whole numbers, `stop` excluded.", "range(3)", "[0, 1, 2]"
)
def range_(run: Evaluation, start: Any, stop: Any = None, step: Any = 1, /) -> list[Any]:
    first, last = (0, start) if stop is None else (start, stop)
    if whole_of(step, "range") == 0:
        raise ExpressionError("range() takes a step other than 0")
    numbers = range(whole_of(first, "range"), whole_of(last, "range"), step)
    # len() fails for ranges that are longer than sys.maxsize.
    count = max(0, (numbers.stop - numbers.start + step - (1 if step > 0 else -1)) // step)
    run.build(count * SLOT_BYTES)
    run.iterate(count)
    run.charge(count * 50)
    return run.own(list(numbers))


@LISTS.add("first(list)", "The first element; missing if the list is empty.", "first([1, 2])", "1")
def first(run: Evaluation, items: Any, /) -> Any:
    return _end_element(items, 0, "first")


@LISTS.add("last(list)", "The last element; missing if the list is empty.", "last([1, 2])", "2")
def last(run: Evaluation, items: Any, /) -> Any:
    return _end_element(items, -1, "last")


def _end_element(items: Any, at: int, name: str) -> Any:
    if not list_of(items, name):
        raise MissingError(f"{name}() needs a list that is not empty")
    return items[at]


@LISTS.add(
    "zip(list, …)",
    "Lists of the elements at the same position.",
    'zip([1, 2], ["a", "b"])',
    '[[1, "a"], [2, "b"]]',
)
def zip_(run: Evaluation, items: Any, /, *others: Any) -> list[Any]:
    lists = [list_of(each, "zip") for each in (items, *others)]
    count = min(map(len, lists))
    run.iterate(count * len(lists))
    run.reserve(count * (1 + len(lists)))
    rows = run.over(zip(*lists, strict=False), count, 3 * ELEMENT_NS)
    return run.new_list([run.new_list(list(row)) for row in rows])


@LISTS.add("keys(object)", "The keys.", 'keys({"x": 1, "y": 2})', '["x", "y"]')
def keys(run: Evaluation, value: Any, /) -> list[Any]:
    run.iterate(len(object_of(value, "keys")))
    run.reserve(len(value))
    return run.new_list(list(value))


@LISTS.add("values(object)", "The values.", 'values({"x": 1, "y": 2})', "[1, 2]")
def values(run: Evaluation, value: Any, /) -> list[Any]:
    run.iterate(len(object_of(value, "values")))
    run.reserve(len(value))
    return run.new_list(list(value.values()))


@LISTS.add("items(object)", "Lists of key and value.", 'items({"x": 1})', '[["x", 1]]')
def items_(run: Evaluation, value: Any, /) -> list[Any]:
    run.iterate(len(object_of(value, "items")))
    run.reserve(3 * len(value))
    entries = run.over(value.items(), len(value), 3 * ELEMENT_NS)
    return run.new_list([run.new_list([key, each]) for key, each in entries])


@LISTS.add(
    "merge(object, …)",
    "One object with the keys of all; later objects take precedence.",
    'merge({"x": 1, "y": 1}, {"y": 2})',
    '{"x": 1, "y": 2}',
)
def merge(run: Evaluation, value: Any, /, *others: Any) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for each in (value, *others):
        run.iterate(len(object_of(each, "merge")))
        run.reserve(len(each))
        run.charge(len(each) * ELEMENT_NS)
        merged.update(each)
    return run.new_object(merged)


@LISTS.add(
    "get(value, path, default)",
    'The value at a path such as "a.b.0"; the default (null) if there is none.',
    'get({"a": {"b": 1}}, "a.c", 7)',
    "7",
)
def get(run: Evaluation, value: Any, path: Any, default: Any = None, /) -> Any:
    try:
        return (
            look_up(value, path, "the value")
            if type(path) is int
            else _value_at(value, _path_parts(text_of(path, "get"), run))
        )
    except MissingError:
        return default


def _path_parts(path: str, run: Evaluation) -> list[str]:
    if len(path) > SHORT_TEXT:
        run.charge(len(path) << 4)
    return path.split(".", MAX_PATH_PARTS)


def _value_at(value: Any, parts: list[str]) -> Any:
    """Return the value at a path. A number is an index if the value is a list."""
    for part in parts:
        digits = part.removeprefix("-")
        index = type(value) is list and digits.isascii() and digits.isdigit() and len(digits) < 10
        value = look_up(value, int(part) if index else part, "the value")
    return value


@LISTS.add("exists(reference)", "Whether the value exists, even if it is null.", "exists(null)", "true")
def exists(run: Evaluation, value: Any, /) -> bool:
    # Called only with a value: the compiler handles a missing one.
    return True


@LISTS.add(
    "default(value, other)",
    "The other value if the first is missing or null, like `??`.",
    'default(null, "d")',
    '"d"',
)
def default_(run: Evaluation, value: Any, other: Any, /) -> Any:
    return other if value is None else value
