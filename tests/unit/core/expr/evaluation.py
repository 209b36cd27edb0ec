"""Names, a scope and short functions to evaluate expressions and templates in tests."""

from __future__ import annotations

from typing import Any

from rune.core.expr import Names, compile_expression, compile_template

NAMES = Names(
    nodes=frozenset({"a", "b", "a-b", "my-node", "fetch", "join", "input", "2nd", "trail-"}),
    titles={"Fetch user": "fetch", "Mail": "b"},
)

SCOPE: dict[str, Any] = {
    "$trigger": {
        "n": 42,
        "five": 5,
        "zero": 0,
        "text": "",
        "nil": None,
        "yes": True,
        "name": "Ada",
        "l": [3, 1, 3, 2],
        "o": {"k": "v"},
        "odd key": 1,
    },
    "$a": {"x": 1, "rows": [{"v": "p", "n": 2}, {"v": "q", "n": 1}]},
    "$b": {"y": 2},
    "$a-b": {"x": 7},
    "$my-node": {"k": 3},
    "$fetch": {"body": {"id": 9}, "status": 200},
    "$join": [{"v": 6}],
    "$input": {"node": True},
    "$2nd": "second",
    "$item": {"v": 1},
    "$index": 4,
    "$json": {"k": 1},
    "$execution": {"id": "e1"},
    "$error": {"code": "X"},
    "@now": 1_700_000_000.25,
    "@seed": "seed",
}


def evaluate(source: str, scope: dict[str, Any] | None = None) -> Any:
    """The value of an expression."""
    return compile_expression(source, NAMES).evaluate(SCOPE if scope is None else scope)


def trigger(source: str, payload: Any) -> Any:
    """The value of an expression over a start payload."""
    return evaluate(source, {"$trigger": payload})


def resolve(value: Any, scope: dict[str, Any] | None = None) -> Any:
    """The value of a template."""
    return compile_template(value, NAMES).resolve(SCOPE if scope is None else scope)


def same(found: Any, expected: Any) -> bool:
    """Equal, and of equal types throughout."""
    if type(found) is not type(expected):
        return False
    if type(found) is list:
        return len(found) == len(expected) and all(map(same, found, expected))
    if type(found) is dict:
        return list(found) == list(expected) and all(same(found[key], expected[key]) for key in found)
    return bool(found == expected)


def is_plain(value: Any) -> bool:
    """Whether a value consists of JSON types only."""
    if type(value) is list:
        return all(map(is_plain, value))
    if type(value) is dict:
        return all(type(key) is str and is_plain(each) for key, each in value.items())
    return value is None or type(value) in (bool, int, float, str)
