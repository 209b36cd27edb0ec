"""How custom node types are placed in a workflow: `rune.build` registers itself here when it is imported.

The node types cannot import the builder, which is above them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Placer = Callable[[Any, str, Mapping[str, Any]], Any]
"""Add a node to the open workflow, given its type, id and keywords."""

_placers: list[Placer] = []


def register_placer(placer: Placer) -> None:
    """Set what places custom nodes."""
    _placers[:] = [placer]


def place_custom(kind: Any, id: str, keywords: Mapping[str, Any]) -> Any:
    """Add a node of a custom type to the open workflow."""
    if not _placers:
        raise RuntimeError(
            f"node `{id}` is placed in a workflow: import rune.build and write `with flow:` around it"
        )
    return _placers[0](kind, id, keywords)
