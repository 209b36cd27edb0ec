"""Names of Redis keys. All keys of a partition share a hash tag, because one Lua function changes them together."""

from __future__ import annotations

from functools import lru_cache
from zlib import crc32

PARTITIONS = 16
MAX_CACHED_NAMES = 4_096


class KeySpace:
    """Key names. Different prefixes separate independent installations on one server."""

    def __init__(self, prefix: str = "rune", partitions: int = PARTITIONS) -> None:
        self.prefix = prefix
        self.partitions = partitions
        self.settings = f"{prefix}:settings"
        self.run_number = f"{prefix}:incarnation"
        self.of = lru_cache(MAX_CACHED_NAMES)(self._of)
        self.partition = lru_cache(MAX_CACHED_NAMES)(self._partition)
        self.stream = lru_cache(MAX_CACHED_NAMES)(self._stream)
        self._tags = [f"{prefix}:{{p{number:02d}}}" for number in range(partitions)]

    def _partition(self, execution: str) -> int:
        return crc32(execution.encode()) % self.partitions

    def due(self, partition: int) -> str:
        """Sorted set of executions by their next timer."""
        return f"{self._tags[partition]}:due"

    def held(self, partition: int) -> str:
        """Sorted set of claimed or just sent tokens by the time at which the sweeper resends them."""
        return f"{self._tags[partition]}:held"

    def _stream(self, partition: int, queue: str, lane: str) -> str:
        return f"{self._tags[partition]}:stream:{queue}:{lane}"

    def later(self, partition: int, queue: str = "default") -> str:
        """Sorted set of delayed deliveries by due time. One per queue, so that only its workers move them back."""
        return f"{self._tags[partition]}:later:{queue}"

    def dead(self, partition: int) -> str:
        """Stream of dead letters: entries that no worker could process."""
        return f"{self._tags[partition]}:dead"

    def _of(self, execution: str) -> tuple[str, ...]:
        """Return the keys of the functions that change one execution, in order; the last two are for rebuilding."""
        tag = self._tags[self.partition(execution)]
        own = f"{tag}:x:{execution}"
        return own, f"{own}:t", f"{own}:n", f"{tag}:due", f"{tag}:held", f"{own}:fold", f"{own}:new"
