"""Lists, element by element: what the list nodes share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import UNSET

from rune.core.expr import ExpressionError
from rune.errors import NodeFailure
from rune.nodes.base import Call
from rune.nodes.fit import describe_value


class Bound(dict[str, Any]):
    """A scope with the current element in front of an outer one, which is asked for nothing unneeded."""

    __slots__ = ("_outer", "_seed")

    def __init__(self, outer: Mapping[str, Any]) -> None:
        super().__init__()
        self._outer = outer
        self._seed = outer.get("@seed")

    def at(self, index: int, item: Any) -> Bound:
        """The same scope at an element. New identifiers differ from element to element."""
        self["$item"] = item
        self["$index"] = index
        if self._seed is not None:
            self["@seed"] = f"{self._seed}[{index}]"
        return self

    def __missing__(self, key: str) -> Any:
        value = self[key] = self._outer[key]
        return value

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or key in self._outer

    def __iter__(self) -> Iterator[str]:
        return iter({**dict.fromkeys(self._outer), **dict.fromkeys(super().__iter__())})

    def get(self, key: str, default: Any = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default


def each_value(call: Call[Any], items: list[Any], name: str) -> Iterator[Any]:
    """The value of a parameter for each element, as `$item` at `$index`."""
    scope = Bound(call.scope)
    for index, item in enumerate(items):
        try:
            yield call.evaluate(name, scope.at(index, item))
        except ExpressionError as error:
            raise type(error)(f"{error.message} (element {index})") from error


def input_items(call: Call[Any]) -> list[Any]:
    """The list to work on: `input_array`, or else the payload."""
    given = call.parameters.input_array
    items = call.payload if given is UNSET else given
    if type(items) is not list:
        message = f"parameters.input_array: without it the payload is a list, found {describe_value(items)}"
        raise NodeFailure(message, code="BAD_PARAMETER")
    return items


def listing(items: list[Any], original: list[Any]) -> dict[str, Any]:
    """The output of a node that makes a list of a list."""
    return {"items": items, "count": len(items), "original_count": len(original)}
