"""Rune: a durable workflow engine."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rune.client import AsyncClient as AsyncClient
    from rune.client import Client as Client
    from rune.errors import NodeFailure as NodeFailure
    from rune.nodes.custom import NodeContext as NodeContext
    from rune.nodes.custom import node as node

__version__ = "0.1.0"

_MODULES = {
    "AsyncClient": "rune.client",
    "Client": "rune.client",
    "NodeContext": "rune.nodes.custom",
    "NodeFailure": "rune.errors",
    "node": "rune.nodes.custom",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use: importing `rune` loads neither the client nor the node types."""
    if name not in _MODULES:
        raise AttributeError(f"module 'rune' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
