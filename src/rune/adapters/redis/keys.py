"""Keys: everything of a partition shares its tag, because it changes in one script."""

from __future__ import annotations

from functools import lru_cache
from zlib import crc32

PARTITIONS = 16
REMEMBERED = 4_096  # executions whose names are made once, not with every act


class Keys:
    """The names of what is kept. `prefix` sets apart what has nothing to do with each other on one server."""

    def __init__(self, prefix: str = "rune", partitions: int = PARTITIONS) -> None:
        self.prefix = prefix
        self.partitions = partitions
        self.settings = f"{prefix}:settings"
        self.incarnation = f"{prefix}:incarnation"
        self.of = lru_cache(REMEMBERED)(self._of)
        self.partition = lru_cache(REMEMBERED)(self._partition)
        self.stream = lru_cache(REMEMBERED)(self._stream)
        self._tags = [f"{prefix}:{{p{number:02d}}}" for number in range(partitions)]

    def _partition(self, execution: str) -> int:
        return crc32(execution.encode()) % self.partitions

    def due(self, partition: int) -> str:
        """When each execution has to be looked at: its nearest timer."""
        return f"{self._tags[partition]}:due"

    def held(self, partition: int) -> str:
        """When each token that somebody holds has to be looked after."""
        return f"{self._tags[partition]}:held"

    def _stream(self, partition: int, queue: str, lane: str) -> str:
        return f"{self._tags[partition]}:stream:{queue}:{lane}"

    def later(self, partition: int, queue: str = "default") -> str:
        """What was given back for later, for each queue apart: whoever brings it back serves that queue."""
        return f"{self._tags[partition]}:later:{queue}"

    def _of(self, execution: str) -> tuple[str, ...]:
        """The keys of the scripts that act on one execution, in their order; the last two are for folding."""
        tag = self._tags[self.partition(execution)]
        mine = f"{tag}:x:{execution}"
        return mine, f"{mine}:t", f"{mine}:n", f"{tag}:due", f"{tag}:held", f"{mine}:fold", f"{mine}:new"
