"""Failures of the engine itself, counted per message."""

from __future__ import annotations

from rune.core.lineage import Path
from rune.ports.queue import Delivery

DELAYS = (5.0, 25.0, 125.0)


class Failures:
    """How often a message made the engine fail, and when it is tried again."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, int, Path], int] = {}

    def delay(self, delivery: Delivery) -> float | None:
        """Seconds until the next try; None when there were enough."""
        key = (delivery.execution, *delivery.token.key)
        count = self._counts.get(key, 0)
        if count >= len(DELAYS):
            del self._counts[key]
            return None
        self._counts[key] = count + 1
        return DELAYS[count]

    def forget(self, delivery: Delivery) -> None:
        """It went well."""
        if self._counts:
            self._counts.pop((delivery.execution, *delivery.token.key), None)
