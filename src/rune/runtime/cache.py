"""A cache that counts bytes, not entries: what it holds does not grow with the number of items or nodes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

OVERHEAD = 200


class Cache:
    """Least recently used goes first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()

    def get(self, key: Hashable) -> Any:
        """What is kept under a key, or None."""
        found = self._entries.get(key)
        if found is None:
            return None
        self._entries.move_to_end(key)
        return found[0]

    def put(self, key: Hashable, value: Any, size: int) -> None:
        """Keep a value of about this many bytes. One that is larger than the cache is not kept."""
        before = self._entries.pop(key, None)
        if before is not None:
            self._size -= before[1]
        size += OVERHEAD
        if size > self._limit:
            return
        self._entries[key] = (value, size)
        self._size += size
        while self._size > self._limit:
            _, (_, freed) = self._entries.popitem(last=False)
            self._size -= freed

    def drop(self, key: Hashable) -> None:
        """Nobody will ask for it again."""
        found = self._entries.pop(key, None)
        if found is not None:
            self._size -= found[1]
