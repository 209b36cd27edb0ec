"""The limiter: what a start is held to. Which limits there are is remembered for a moment, so that a start without any
asks nobody; how far they are used up is known to the journal alone."""

from __future__ import annotations

import asyncio
import logging
import time

from rune.core.plan import Plan
from rune.ports.limits import Held, Limits, of_workflow
from rune.ports.telemetry import Deep
from rune.runtime.actor import actor
from rune.runtime.backend import Backend

log = logging.getLogger("rune.limits")

REMEMBERED = 1.0
"""How long limits of others, and the depth of queues elsewhere, are believed, in seconds."""

MAX_WAITING = 100_000
DEFAULT = "default"


class Limiter:
    """What is asked before every start that somebody asks for over HTTP, by a hook or by a command."""

    def __init__(self, backend: Backend, max_waiting: int = MAX_WAITING) -> None:
        self._limits = backend.limits
        self._queue = backend.queue
        self._near = backend.fleet is None  # the queue is in this process: looking costs nothing
        self._max_waiting = max_waiting
        self._known: dict[str, Limits] = {}
        self._known_until = 0.0
        self._changes = 0
        self._asking = asyncio.Lock()
        self._depths: dict[str, int] = {}
        self._depths_until = 0.0

    async def held(self, plan: Plan) -> Held | None:
        """What a start is held to; None: nothing."""
        known = await self._all()
        workflow = of_workflow(plan.definition.id)
        subjects = tuple(each for each in (actor(), workflow) if each in known)
        full = await self._full(plan, known.get(workflow))
        return Held(subjects, full) if subjects or full else None

    def forget(self) -> None:
        """Somebody here has changed them."""
        self._changes += 1
        self._known_until = 0.0

    async def _all(self) -> dict[str, Limits]:
        if self._limits is None or time.monotonic() < self._known_until:
            return self._known
        async with self._asking:  # one for all who come meanwhile
            if time.monotonic() >= self._known_until:
                changes, until = self._changes, time.monotonic() + REMEMBERED
                self._known = await self._limits.all()
                self._known_until = until if changes == self._changes else 0.0
        return self._known

    async def _full(self, plan: Plan, own: Limits | None) -> str:
        depths = await self._waiting()
        depth = max((depths.get(each, 0) for each in first_queues(plan)), default=0) if depths else 0
        if self._near and depths:
            depth = max(depths.values())
        if own is not None and own.waiting is not None and depth > own.waiting:
            return f"the limit `waiting` of the workflow `{plan.definition.id}`: the queue is too long"
        if self._max_waiting and depth > self._max_waiting:
            return "the limit `waiting` of this server: the queue is too long"
        return ""

    async def _waiting(self) -> dict[str, int]:
        now = time.monotonic()
        if not isinstance(self._queue, Deep) or (not self._near and now < self._depths_until):
            return self._depths
        self._depths_until = now + REMEMBERED
        try:
            self._depths = {each.queue: each.waiting for each in await self._queue.depths()}
        except Exception as error:  # a queue that cannot say how long it is refuses nobody
            log.info("a queue does not say how long it is: %s: %s", type(error).__name__, error)
            self._depths = {}
        return self._depths


def first_queues(plan: Plan) -> set[str]:
    """The queues that the first nodes of an execution go to."""
    behind = {node for each in plan.triggers for node in plan.graph.successors(each)}
    return {plan.nodes[each].node.queue or DEFAULT for each in behind or plan.entries}
