"""Secrets: values of credentials, by reference."""

from __future__ import annotations

from typing import Any, Protocol


class Secret(Protocol):
    """Credentials by name or id, resolved at run time, each time."""

    async def resolve(self, reference: str) -> dict[str, Any] | None:
        """The fields of a credential, or None."""
