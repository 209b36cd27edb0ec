"""Blobs: values too large to be carried. A key begins with its execution; a blob is written before its row."""

from __future__ import annotations

from typing import Protocol


class BlobStore(Protocol):
    """Bytes by key."""

    async def put(self, key: str, data: bytes) -> None:
        """Keep bytes; durable when this returns, so that a row may name them."""

    async def get(self, key: str) -> bytes | None:
        """The bytes, or None."""

    async def delete(self, execution: str) -> int:
        """Drop every blob of an execution; answers how many."""
