"""Rune: a durable workflow engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rune.client import AsyncClient as AsyncClient
    from rune.client import Client as Client

__version__ = "0.1.0"

_CLIENT = frozenset({"AsyncClient", "Client"})


def __getattr__(name: str) -> Any:
    """The clients, imported when somebody wants one: the engine needs none of what they need."""
    if name not in _CLIENT:
        raise AttributeError(f"module 'rune' has no attribute {name!r}")
    from rune import client  # noqa: PLC0415

    return getattr(client, name)
