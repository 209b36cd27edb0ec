"""The cache of decoded values, bounded by bytes. All executions of a process share one."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

import msgspec

from rune.codec.facts import (
    RESULT_BYTES,
    PackedResults,
)
from rune.core.execution.fact import NodeResult
from rune.core.execution.token import Path

CACHE_BYTES = 64 * 1024 * 1024
CACHE_ENTRY_BYTES = 400  # counted for each entry on top of its value


class CacheEntry(msgspec.Struct):
    """A cached value, its approximate bytes, and the execution it belongs to."""

    value: Any
    size: int
    owner: str


class Cache:
    """A cache bounded by bytes that evicts the least recently used entry first. Every entry has an owner, whose entries
    can be dropped together. Evaluations in threads use it too."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self.size = 0
        """The size of all entries."""
        self._entries: OrderedDict[Hashable, CacheEntry] = OrderedDict()
        self._keys: dict[str, set[Hashable]] = {}

    def get(self, key: Hashable) -> Any:
        with self._lock:
            found = self._entries.get(key)
            if found is None:
                return None
            self._entries.move_to_end(key)
            return found.value

    def put(self, owner: str, key: Hashable, value: Any, size: int) -> None:
        """Cache a value of about this many bytes, unless it is larger than the whole cache."""
        size += CACHE_ENTRY_BYTES
        with self._lock:
            if key in self._entries:
                self._drop(key)
            if size <= self._limit:
                self._add(owner, key, CacheEntry(value, size, owner))

    def pack(self, owner: str, key: Hashable, result: NodeResult, size: int) -> bool:
        """Add the result of an item, with a value of this many bytes, to the pack under this key. Return False if it
        cannot be packed."""
        with self._lock:
            entry = self._entries.get(key)
            pack = PackedResults() if entry is None else entry.value
            count = len(pack)
            if not pack.add(result):
                return False
            if entry is None:
                self._add(owner, key, CacheEntry(pack, CACHE_ENTRY_BYTES + RESULT_BYTES + size, owner))
            elif len(pack) > count:
                entry.size += RESULT_BYTES + size
                self.size += RESULT_BYTES + size
                self._evict()
            return True

    def unpack(self, key: Hashable, path: Path) -> NodeResult | None:
        """Return the result of an item from the pack under this key."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            pack: PackedResults = entry.value
            return pack.get(path)

    def _add(self, owner: str, key: Hashable, entry: CacheEntry) -> None:
        self._entries[key] = entry
        keys = self._keys.get(owner)
        if keys is None:
            self._keys[owner] = {key}
        else:
            keys.add(key)
        self.size += entry.size
        if self.size > self._limit:
            self._evict()

    def _evict(self) -> None:
        while self.size > self._limit:
            self._drop(next(iter(self._entries)))

    def drop(self, key: Hashable) -> None:
        """Drop an entry, if it is cached."""
        with self._lock:
            if key in self._entries:
                self._drop(key)

    def drop_all(self, owner: str) -> None:
        """Drop the entries of an owner."""
        with self._lock:
            for key in self._keys.pop(owner, ()):
                self.size -= self._entries.pop(key).size

    def _drop(self, key: Hashable) -> None:
        entry = self._entries.pop(key)
        self.size -= entry.size
        keys = self._keys[entry.owner]
        keys.remove(key)
        if not keys:
            del self._keys[entry.owner]
