"""A spread: how often something took how long, in buckets that double."""

from __future__ import annotations

WIDTH = 64
"""2 ** 63 nanoseconds are three centuries: nothing that is measured lasts longer."""

EDGES = tuple(range(16, 46, 2))
"""The powers of two, in nanoseconds, that are shown: from 66 µs to almost five hours, each four times the last."""


class Spread:
    """Counts by the number of bits of a duration: to add one is an index and two sums."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * WIDTH
        self.total = 0  # ns

    def add(self, nanos: int) -> None:
        """One more that took so many nanoseconds."""
        nanos = max(nanos, 0)
        self.counts[min(nanos.bit_length(), WIDTH - 1)] += 1
        self.total += nanos

    @property
    def count(self) -> int:
        """How many there were."""
        return sum(self.counts)

    @property
    def seconds(self) -> float:
        """How long all of them took together."""
        return self.total / 1e9

    def buckets(self) -> list[tuple[float, int]]:
        """Upper edges in seconds, and how many were shorter."""
        return [(2**bits / 1e9, sum(self.counts[: bits + 1])) for bits in EDGES]
