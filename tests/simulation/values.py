"""Call numbers in simulated values: each effect adds the number of its physical call to its output."""

from __future__ import annotations

from typing import Any


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
