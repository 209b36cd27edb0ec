"""Grants: who may use a credential."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol


class Grants(Protocol):
    """Grants by the id of a credential; they go with it."""

    async def of(self, credential: str) -> frozenset[str]:
        """Who may use it; the default where nothing else was said."""

    async def change(self, credential: str, add: Collection[str], remove: Collection[str]) -> frozenset[str]:
        """Grant and withdraw in one act; what holds afterwards. Durable when this returns."""
