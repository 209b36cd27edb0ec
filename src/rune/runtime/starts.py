"""Starts by triggers: each tick and each delivery under a name of its own, so that it starts one execution."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime

import msgspec

from rune.documents import check_input
from rune.errors import InvalidDocument
from rune.ports.journal import Journal, KeyConflict, KeySpent
from rune.ports.trigger import Trigger
from rune.runtime.launcher import Launcher, Options, new_execution_id
from rune.runtime.limiter import Limiter
from rune.runtime.planbook import Planbook


class Started(msgspec.Struct, frozen=True):
    """An execution that a trigger started, now or before."""

    execution: str
    again: bool = False


class Starts:
    """Starts executions on behalf of triggers."""

    def __init__(self, journal: Journal, plans: Planbook, launcher: Launcher, limiter: Limiter) -> None:
        self._journal = journal
        self._plans = plans
        self._launcher = launcher
        self._limiter = limiter

    async def tick(self, trigger: Trigger, tick: int) -> Started:
        """Start what was due at a moment."""
        at = datetime.fromtimestamp(tick / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        input = msgspec.json.encode({"scheduled_at": at})
        name = f"x{tick:012x}{_digest(trigger.id, str(tick), 7)}"
        return await self._start(trigger, input, name, f"tick:{trigger.id}:{tick}", limited=False)

    async def delivery(self, trigger: Trigger, delivery: str | None, input: bytes) -> Started:
        """Start what a request asked for; one without a name is always another."""
        if delivery is None:
            return await self._start(trigger, input, new_execution_id(), None)
        name = named_by(trigger, delivery)
        return await self._start(trigger, input, name, f"hook:{trigger.id}:{name}")

    async def has_started(self, trigger: Trigger, delivery: str) -> bool:
        """Whether there is an execution of this delivery."""
        return await self._journal.accepted(named_by(trigger, delivery)) is not None

    async def _start(
        self, trigger: Trigger, input: bytes, execution: str, key: str | None, *, limited: bool = True
    ) -> Started:
        """A tick is held to no limit: whoever wrote the schedule has said how often."""
        if key is not None and await self._journal.accepted(execution) is not None:
            return Started(execution, again=True)
        plan = await self._plans.plan(trigger.hash)
        _, problems = check_input(plan.definition, input)
        if problems:
            raise InvalidDocument(tuple(problems))
        try:
            accepted = await self._launcher.start(
                plan,
                input,
                Options(key=key, labels={"trigger": trigger.id}),
                execution=execution,
                principal=f"trigger:{trigger.id}",
                held=await self._limiter.held(plan) if limited else None,
            )
        except KeySpent as spent:
            return Started(spent.execution, again=True)
        except KeyConflict:  # the same one once more, with other headers, or of another version
            return Started(execution, again=True)
        return Started(accepted.id)


def named_by(trigger: Trigger, delivery: str) -> str:
    """The id of the execution that a delivery starts."""
    return "h" + _digest(trigger.id, delivery, 15)


def _digest(trigger: str, what: str, size: int) -> str:
    return hashlib.blake2b(f"{trigger}\x1f{what}".encode(), digest_size=size).hexdigest()
