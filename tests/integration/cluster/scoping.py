"""Cases that share one database: each gets names of its own for its workflows and its keys."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from tests.acceptance.conformance.case import Case


def scoped(case: Case) -> Case:
    """The same case under names that no other case uses."""
    names = frozenset(_names((case.document, case.workflows, case.steps)))
    return dataclasses.replace(
        case,
        document=_renamed(case.document, names, case.name),
        workflows=tuple(_renamed(each, names, case.name) for each in case.workflows),
        steps=tuple(_step(each, names, case.name) for each in case.steps),
    )


def _names(value: Any) -> Iterator[str]:
    """The ids of the workflows in it."""
    if isinstance(value, Mapping):
        if "nodes" in value and isinstance(value.get("id"), str):
            yield value["id"]
        for key, inner in value.items():
            if key != "expect":
                yield from _names(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _names(inner)


def _step(step: Mapping[str, Any], names: frozenset[str], mark: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, inner in step.items():
        found[key] = inner if key == "expect" else _renamed(inner, names, mark)
        if key != "expect" and isinstance(inner, Mapping) and isinstance(inner.get("key"), str):
            found[key]["key"] = f"{inner['key']}-{mark}"
    return found


def _renamed(value: Any, names: frozenset[str], mark: str) -> Any:
    if isinstance(value, list | tuple):
        return [_renamed(inner, names, mark) for inner in value]
    if not isinstance(value, Mapping):
        return value
    found = {key: _renamed(inner, names, mark) for key, inner in value.items()}
    if "nodes" in value or "workflow" in value:
        for key in ("id", "workflow"):
            found[key] = _own(found.get(key), names, mark)
    if isinstance(value.get("input"), Mapping):
        found["input"] = {key: _own(inner, names, mark) for key, inner in value["input"].items()}
    return {key: inner for key, inner in found.items() if key in value}


def _own(name: Any, names: frozenset[str], mark: str) -> Any:
    if not isinstance(name, str):
        return name
    bare, at, which = name.partition("@")
    return f"{bare}-{mark}{at}{which}" if bare in names else name
