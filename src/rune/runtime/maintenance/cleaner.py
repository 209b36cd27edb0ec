"""The janitor: removes what the configured rules select, once an hour, while everything else goes on."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from rune.ports.clock import Clock
from rune.ports.journal import StoreUnavailableError
from rune.ports.retention import Retention, RetentionResult, Rule

log = logging.getLogger("rune.janitor")

FIRST_RUN_MS = 60_000
"""How long after its start it collects for the first time, in ms: a process that lives for a moment does not."""

PERIOD_MS = 3_600_000


class Cleaner:
    """Needs a clock that nobody else sleeps by: a wake that is meant for the scheduler would be lost on it."""

    def __init__(self, retention: Retention, rules: Sequence[Rule], clock: Clock) -> None:
        self._retention = retention
        self._rules = tuple(rules)
        self._clock = clock

    async def run(self) -> None:
        """Until cancelled; without rules there is nothing to do."""
        when = self._clock.now() + FIRST_RUN_MS
        while self._rules:
            while self._clock.now() < when:
                await self._clock.sleep_until(when)
            await self._collect()
            when = self._clock.now() + PERIOD_MS

    async def _collect(self) -> None:
        try:
            self._say(await self._retention.collect(self._rules, self._clock.now()))
        except StoreUnavailableError as away:
            log.warning("the store is away: %s", away.message)
        except Exception:
            log.exception("the janitor stumbled")  # what could not be removed now can be in an hour

    @staticmethod
    def _say(done: RetentionResult) -> None:
        if done.executions:
            log.info(
                "removed %d executions in %d ms: %d bytes before, %d after",
                done.executions,
                done.duration_ms,
                done.bytes_before,
                done.bytes_after,
            )
        if not done.shrinks:
            log.warning("the file was made by an earlier version and does not shrink; see `rune gc --vacuum`")
