"""How custom node types are placed in a workflow: `rune.build` registers itself here when it is imported.

The node types cannot import the builder, which is above them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Placer = Callable[[Any, str, Mapping[str, Any]], Any]
"""Add a node to the open workflow, given its type, id and keywords."""

_placers: list[tuple[Placer, Callable[[], bool]]] = []


def register_placer(placer: Placer, is_open: Callable[[], bool]) -> None:
    """Set what places custom nodes, and what tells whether a workflow is open."""
    _placers[:] = [(placer, is_open)]


def is_workflow_open() -> bool:
    """Return whether the caller is inside of `with flow:`."""
    return bool(_placers) and _placers[0][1]()


def place_custom(kind: Any, id: str, keywords: Mapping[str, Any]) -> Any:
    """Add a node of a custom type to the open workflow."""
    if not _placers:
        raise RuntimeError(
            f"node `{id}` is placed in a workflow: import rune.build and write `with flow:` around it"
        )
    return _placers[0][0](kind, id, keywords)
