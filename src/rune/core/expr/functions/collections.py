"""Functions on lists and objects."""

from __future__ import annotations

from typing import Any

from rune.core.expr.budget import SLOT_BYTES, Evaluation, ExpressionError, MissingError
from rune.core.expr.functions.table import Table, list_of, object_of, text_of, whole_of
from rune.core.expr.operators import comparable
from rune.core.expr.values import kind_name, look_up

LISTS = Table("lists and objects")


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
    if type(reverse) is not bool:
        raise ExpressionError(f"sorted() takes true or false for reverse, not {kind_name(reverse)}")
    keys = items if key is None else [_value_at(each, text_of(key, "sorted")) for each in items]
    for each in keys:
        if not comparable(keys[0], each):
            raise ExpressionError(f"sorted() cannot order {kind_name(keys[0])} and {kind_name(each)}")
    if key is None:
        return run.new_list(sorted(items, reverse=reverse))
    order = sorted(range(len(items)), key=keys.__getitem__, reverse=reverse)
    return run.new_list([items[at] for at in order])


@LISTS.add("reversed(list)", "The elements in reverse order.", "reversed([1, 2])", "[2, 1]")
def reverse_(run: Evaluation, items: Any, /) -> list[Any]:
    run.iterate(len(list_of(items, "reversed")))
    return run.new_list(items[::-1])


@LISTS.add(
    "unique(list)", "Each distinct element once, in order of first occurrence.", "unique([3, 1, 3])", "[3, 1]"
)
def unique(run: Evaluation, items: Any, /) -> list[Any]:
    run.iterate(len(list_of(items, "unique")))
    seen: dict[Any, Any] = {}
    for each in items:
        seen.setdefault(_equality_key(each, run), each)
    return run.new_list(list(seen.values()))


def _equality_key(value: Any, run: Evaluation) -> Any:
    """Return a hashable key that is equal if the values are equal as JSON."""
    kind = type(value)
    if kind is bool:
        return (bool, value)
    if kind is list:
        run.iterate(len(value))
        return (list, tuple([_equality_key(each, run) for each in value]))
    if kind is dict:
        run.iterate(len(value))
        return (dict, frozenset([(key, _equality_key(each, run)) for key, each in value.items()]))
    return value


@LISTS.add(
    "flatten(list)", "The list with one level of inner lists expanded.", "flatten([[1], [2, 3]])", "[1, 2, 3]"
)
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
    # len() fails for ranges that are longer than sys.maxsize.
    count = max(0, (numbers.stop - numbers.start + step - (1 if step > 0 else -1)) // step)
    run.build(count * SLOT_BYTES)
    run.iterate(count)
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
    "One object with the keys of all; later objects take precedence.",
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
    'The value at a path such as "a.b.0"; the default (null) if there is none.',
    'get({"a": {"b": 1}}, "a.c", 7)',
    "7",
)
def get(run: Evaluation, value: Any, path: Any, default: Any = None, /) -> Any:
    try:
        return (
            look_up(value, path, "the value") if type(path) is int else _value_at(value, text_of(path, "get"))
        )
    except MissingError:
        return default


def _value_at(value: Any, path: str) -> Any:
    """Return the value at a dotted path. A number is an index if the value is a list."""
    for part in path.split("."):
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
