"""Functions on lists and objects."""

from __future__ import annotations

from typing import Any

from rune.core.expr.budget import SLOT_BYTES, Evaluation, ExpressionError, MissingError
from rune.core.expr.functions.table import Table, list_of, object_of, text_of, whole_of
from rune.core.expr.operators import comparable
from rune.core.expr.values import kind_name, look_up

LISTS = Table("lists and objects")


@LISTS.add("len(value)", "How many characters, elements or keys.", "len([1, 2])", "2")
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
    if type(reverse) is not bool:
        raise ExpressionError(f"sorted() takes true or false for reverse, not {kind_name(reverse)}")
    keys = items if key is None else [_dig(each, text_of(key, "sorted")) for each in items]
    for each in keys:
        if not comparable(keys[0], each):
            raise ExpressionError(f"sorted() cannot order {kind_name(keys[0])} and {kind_name(each)}")
    if key is None:
        return run.new_list(sorted(items, reverse=reverse))
    order = sorted(range(len(items)), key=keys.__getitem__, reverse=reverse)
    return run.new_list([items[at] for at in order])


@LISTS.add("reversed(list)", "The elements, last first.", "reversed([1, 2])", "[2, 1]")
def reverse_(run: Evaluation, items: Any, /) -> list[Any]:
    run.iterate(len(list_of(items, "reversed")))
    return run.new_list(items[::-1])


@LISTS.add(
    "unique(list)", "Each different element once, where it first stands.", "unique([3, 1, 3])", "[3, 1]"
)
def unique(run: Evaluation, items: Any, /) -> list[Any]:
    run.iterate(len(list_of(items, "unique")))
    seen: dict[Any, Any] = {}
    for each in items:
        seen.setdefault(_identity(each, run), each)
    return run.new_list(list(seen.values()))


def _identity(value: Any, run: Evaluation) -> Any:
    """Something hashable that is equal where the values are equal as JSON."""
    kind = type(value)
    if kind is bool:
        return (bool, value)
    if kind is list:
        run.iterate(len(value))
        return (list, tuple([_identity(each, run) for each in value]))
    if kind is dict:
        run.iterate(len(value))
        return (dict, frozenset([(key, _identity(each, run)) for key, each in value.items()]))
    return value


@LISTS.add("flatten(list)", "One level of inner lists dissolved.", "flatten([[1], [2, 3]])", "[1, 2, 3]")
def flatten(run: Evaluation, items: Any, /) -> list[Any]:
    run.iterate(len(list_of(items, "flatten")))
    flat: list[Any] = []
    for each in items:
        if type(each) is list:
            run.iterate(len(each))
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
    # The length of a range is not limited to what len() can tell.
    count = max(0, (numbers.stop - numbers.start + step - (1 if step > 0 else -1)) // step)
    run.build(count * SLOT_BYTES)
    run.iterate(count)
    return run.own(list(numbers))


@LISTS.add("first(list)", "The first element; missing where there is none.", "first([1, 2])", "1")
def first(run: Evaluation, items: Any, /) -> Any:
    return _end(items, 0, "first")


@LISTS.add("last(list)", "The last element; missing where there is none.", "last([1, 2])", "2")
def last(run: Evaluation, items: Any, /) -> Any:
    return _end(items, -1, "last")


def _end(items: Any, at: int, name: str) -> Any:
    if not list_of(items, name):
        raise MissingError(f"{name}() finds nothing in an empty list")
    return items[at]


@LISTS.add(
    "zip(list, …)",
    "Lists of the elements that stand at the same place.",
    'zip([1, 2], ["a", "b"])',
    '[[1, "a"], [2, "b"]]',
)
def zip_(run: Evaluation, items: Any, /, *others: Any) -> list[Any]:
    lists = [list_of(each, "zip") for each in (items, *others)]
    run.iterate(min(map(len, lists)) * len(lists))
    return run.new_list([run.new_list(list(row)) for row in zip(*lists, strict=False)])


@LISTS.add("keys(object)", "The keys.", 'keys({"x": 1, "y": 2})', '["x", "y"]')
def keys(run: Evaluation, value: Any, /) -> list[Any]:
    run.iterate(len(object_of(value, "keys")))
    return run.new_list(list(value))


@LISTS.add("values(object)", "The values.", 'values({"x": 1, "y": 2})', "[1, 2]")
def values(run: Evaluation, value: Any, /) -> list[Any]:
    run.iterate(len(object_of(value, "values")))
    return run.new_list(list(value.values()))


@LISTS.add("items(object)", "Lists of key and value.", 'items({"x": 1})', '[["x", 1]]')
def items_(run: Evaluation, value: Any, /) -> list[Any]:
    run.iterate(len(object_of(value, "items")))
    return run.new_list([run.new_list([key, each]) for key, each in value.items()])


@LISTS.add(
    "merge(object, …)",
    "One object with the keys of all; the last one wins.",
    'merge({"x": 1, "y": 1}, {"y": 2})',
    '{"x": 1, "y": 2}',
)
def merge(run: Evaluation, value: Any, /, *others: Any) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for each in (value, *others):
        run.iterate(len(object_of(each, "merge")))
        merged.update(each)
    return run.new_object(merged)


@LISTS.add(
    "get(value, path, default)",
    'What stands at a path such as "a.b.0"; the default (null) where nothing does.',
    'get({"a": {"b": 1}}, "a.c", 7)',
    "7",
)
def get(run: Evaluation, value: Any, path: Any, default: Any = None, /) -> Any:
    try:
        return look_up(value, path, "the value") if type(path) is int else _dig(value, text_of(path, "get"))
    except MissingError:
        return default


def _dig(value: Any, path: str) -> Any:
    """What stands at a dotted path. A number is an index where it meets a list."""
    for part in path.split("."):
        digits = part.removeprefix("-")
        index = type(value) is list and digits.isascii() and digits.isdigit() and len(digits) < 10
        value = look_up(value, int(part) if index else part, "the value")
    return value


@LISTS.add("exists(reference)", "Whether it is there, be it null.", "exists(null)", "true")
def exists(run: Evaluation, value: Any, /) -> bool:
    # Reached only with a value: the compiler answers for a missing one.
    return True


@LISTS.add(
    "default(value, other)",
    "The other where the value is missing or null, as `??`.",
    'default(null, "d")',
    '"d"',
)
def default_(run: Evaluation, value: Any, other: Any, /) -> Any:
    return other if value is None else value
