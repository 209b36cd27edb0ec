"""Values in the simulator. Each effect adds the number of its physical call to its output."""

from __future__ import annotations

from typing import Any

from tests.simulation.journal import ViolationError


def without_call_numbers(value: Any) -> Any:
    """Remove call numbers, which the oracle cannot predict."""
    if isinstance(value, dict):
        return {key: without_call_numbers(each) for key, each in value.items() if key != "call"}
    if isinstance(value, list):
        return [without_call_numbers(each) for each in value]
    return value


def collect_call_numbers(value: Any, found: set[int]) -> None:
    """Add the call numbers in a value to `found`."""
    if isinstance(value, dict):
        if "call" in value:
            found.add(value["call"])
        for each in value.values():
            collect_call_numbers(each, found)
    elif isinstance(value, list):
        for each in value:
            collect_call_numbers(each, found)


def check_shared(value: Any, most: int) -> None:
    """A value consists of at most so many objects: what it passes on is shared, not copied."""
    pending, seen = [value], {id(value)}
    while pending:
        each = pending.pop()
        inner = each.values() if isinstance(each, dict) else each if isinstance(each, list) else ()
        for part in inner:
            if isinstance(part, dict | list) and id(part) not in seen:
                seen.add(id(part))
                pending.append(part)
        if len(seen) > most:
            raise ViolationError(f"a value that is passed on consists of more than {most} objects")
