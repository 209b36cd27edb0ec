"""The cleaner: removes old executions once an hour, as the retention rules say."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from rune.ports.clock import Clock
from rune.ports.journal import StoreUnavailableError
from rune.ports.retention import Retention, RetentionResult, Rule

log = logging.getLogger("rune.cleaner")

FIRST_CLEANING_MS = 60_000
"""Delay of the first run after the start of the process: a short-lived process removes nothing."""

PERIOD_MS = 3_600_000


class Cleaner:
    """Applies the retention rules. Needs a clock of its own: sharing one would take the wake-ups of the scheduler."""

    def __init__(self, retention: Retention, rules: Sequence[Rule], clock: Clock) -> None:
        self._retention = retention
        self._rules = tuple(rules)
        self._clock = clock

    async def run(self) -> None:
        """Collect once an hour until cancelled; return at once if there are no rules."""
        when = self._clock.now() + FIRST_CLEANING_MS
        while self._rules:
            while self._clock.now() < when:
                await self._clock.sleep_until(when)
            await self._collect()
            when = self._clock.now() + PERIOD_MS

    async def _collect(self) -> None:
        try:
            _log_result(await self._retention.collect(self._rules, self._clock.now()))
        except StoreUnavailableError as error:
            log.warning("store unavailable: %s", error.message)
        except Exception:
            log.exception("removing old executions failed; the next run retries")


def _log_result(result: RetentionResult) -> None:
    if result.executions:
        log.info(
            "removed %d executions in %d ms: %d bytes before, %d after",
            result.executions,
            result.duration_ms,
            result.bytes_before,
            result.bytes_after,
        )
    if not result.shrinks:
        log.warning(
            "the file was created by an earlier version and does not shrink; see `rune prune --vacuum`"
        )
