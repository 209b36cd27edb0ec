"""Store for values that are too large for a journal row."""

from __future__ import annotations

from typing import Protocol


class BlobStore(Protocol):
    """Bytes by key. A key starts with the id of its execution and a slash.

    The runtime stores a blob before it records the fact that refers to it.
    """

    async def put(self, key: str, data: bytes) -> None:
        """Store bytes under a key, replacing earlier ones. Durable when this returns."""

    async def get(self, key: str) -> bytes | None:
        """Return the bytes, or None if no blob has this key."""

    async def delete(self, execution: str) -> int:
        """Delete every blob of an execution and return how many there were."""
