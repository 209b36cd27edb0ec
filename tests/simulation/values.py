"""Values of the simulated world: effects leave the number of their call in them."""

from __future__ import annotations

from typing import Any


def plain(value: Any) -> Any:
    """Without the numbers of physical calls, which the oracle cannot know."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items() if key != "call"}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return value


def calls(value: Any, found: set[int]) -> None:
    """The numbers of the calls that a value comes from."""
    if isinstance(value, dict):
        if "call" in value:
            found.add(value["call"])
        for each in value.values():
            calls(each, found)
    elif isinstance(value, list):
        for each in value:
            calls(each, found)
