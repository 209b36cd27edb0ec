"""The limiter: what a start is held to. Which limits there are is remembered for a moment, so that a start without any
asks nobody; how far they are used up is known to the journal alone."""

from __future__ import annotations

import asyncio
import logging
import time

from rune.core.plan.model import Plan
from rune.ports.access import (
    AppliedLimits,
    InvalidLimitsError,
    Limits,
    check_limits,
    key_not_found,
    of_key,
    of_workflow,
)
from rune.ports.inspection import ReportsDepth
from rune.ports.queue import Queue
from rune.ports.workflows import LATEST, workflow_not_found
from rune.runtime.backend import Backend
from rune.runtime.services.audit_log import AuditLog, audited, current_principal

log = logging.getLogger("rune.limits")

CACHE_S = 1.0
"""How long limits, and the depth of queues elsewhere, are believed, in seconds."""

EVICT_AFTER_S = 10.0
"""After how long an old depth says nothing any more, in seconds."""

MAX_WAITING = 100_000
DEFAULT = "default"


class Limiter:
    """What is asked before every start that somebody asks for over HTTP, by a hook or by a command."""

    def __init__(self, backend: Backend, max_waiting: int = MAX_WAITING) -> None:
        self._limits = backend.limits
        # Without a fleet the queue is in this process: looking costs nothing.
        self._depths = QueueDepths(backend.queue, near=backend.processes is None)
        self._max_waiting = max_waiting
        self._known: dict[str, Limits] = {}
        self._known_until = 0.0
        self._changes = 0
        self._asking = asyncio.Lock()

    async def held(self, plan: Plan) -> AppliedLimits | None:
        """What a start is held to; None: nothing."""
        subjects: tuple[str, ...] = ()
        own: Limits | None = None
        if known := await self._all():
            workflow = of_workflow(plan.definition.id)
            subjects = tuple(each for each in (current_principal(), workflow) if each in known)
            own = known.get(workflow)
        full = await self._full(plan, own)
        return AppliedLimits(subjects, full) if subjects or full else None

    def forget(self) -> None:
        """Somebody here has changed them."""
        self._changes += 1
        self._known_until = 0.0

    async def _all(self) -> dict[str, Limits]:
        if time.monotonic() < self._known_until:
            return self._known
        async with self._asking:  # one for all who come meanwhile
            if time.monotonic() >= self._known_until:
                changes, until = self._changes, time.monotonic() + CACHE_S
                self._known = await self._limits.all()
                self._known_until = until if changes == self._changes else 0.0
        return self._known

    async def _full(self, plan: Plan, own: Limits | None) -> str:
        limited = own.waiting if own is not None else None
        if limited is None and not self._max_waiting:
            return ""
        depth = self._depths.of(plan, await self._depths.read(wait=limited is not None))
        if limited is not None and depth > limited:
            return f"the limit `waiting` of the workflow `{plan.definition.id}`: the queue is too long"
        if self._max_waiting and depth > self._max_waiting:
            return "the limit `waiting` of this server: the queue is too long"
        return ""


class QueueDepths:
    """How long the queues are, as far as it is known here."""

    def __init__(self, queue: Queue, *, near: bool) -> None:
        self._queue = queue
        self._near = near
        self._known: dict[str, int] = {}
        self._read_at = -EVICT_AFTER_S
        self._reading: asyncio.Task[None] | None = None

    def of(self, plan: Plan, depths: dict[str, int]) -> int:
        """The depth of the queues that the first nodes of an execution go to. One process has one for all nodes."""
        wanted = depths if self._near else first_queues(plan)
        return max((depths.get(each, 0) for each in wanted), default=0)

    async def read(self, *, wait: bool) -> dict[str, int]:
        """The depths by queue. Unless somebody waits for it, the store is asked beside the start, which goes by what
        was known before; what is too old for that is not known."""
        age = time.monotonic() - self._read_at
        if self._near:
            await self._ask()
        elif age >= CACHE_S:
            if self._reading is None or self._reading.done():
                self._reading = asyncio.create_task(self._ask())
            if wait:  # briefly: a start needs the journal alone
                await asyncio.wait({self._reading}, timeout=CACHE_S)
            elif age >= EVICT_AFTER_S:
                return {}
        return self._known

    async def _ask(self) -> None:
        try:
            if isinstance(self._queue, ReportsDepth):
                self._known = {each.queue: each.waiting for each in await self._queue.depths()}
        except Exception as error:  # a queue that cannot say how long it is refuses nobody
            log.info("a queue does not say how long it is: %s: %s", type(error).__name__, error)
            self._known = {}
        self._read_at = time.monotonic()


def first_queues(plan: Plan) -> set[str]:
    """The queues that the first nodes of an execution go to."""
    behind = {node for each in plan.triggers for node in plan.graph.successors(each)}
    return {plan.nodes[each].node.queue or DEFAULT for each in behind or plan.entries}


class LimitService:
    """Sets the start limits of workflows and API keys."""

    def __init__(self, backend: Backend, limiter: Limiter, audit_log: AuditLog) -> None:
        self.audit_log = audit_log
        self._workflows = backend.workflows
        self._keys = backend.keys
        self._limits = backend.limits
        self._clock = backend.clock
        self._limiter = limiter

    @audited("workflow.limit", "workflow", ("limits",))
    async def limit_workflow(self, workflow: str, limits: Limits) -> Limits:
        """Replace all limits of a workflow, from its next start on."""
        check_limits(limits)
        if not await self._workflows.aliases(workflow):
            raise workflow_not_found(workflow, (), LATEST)
        await self._put(of_workflow(workflow), limits)
        return limits

    @audited("key.limit", "id", ("limits",))
    async def limit_key(self, id: str, limits: Limits) -> Limits:
        """Replace all limits of a key, from its next start on."""
        _check_key_limits(limits)
        if await self._keys.find(id) is None:
            raise key_not_found(id)
        await self._put(of_key(id), limits)
        return limits

    async def limit_new_key(self, id: str, limits: Limits) -> None:
        """Set the limits of a key before it is created, so that it never exists without them."""
        _check_key_limits(limits)
        if limits:
            await self._put(of_key(id), limits)

    async def _put(self, subject: str, limits: Limits) -> None:
        await self._limits.put(subject, limits, self._clock.now())
        self._limiter.forget()


def _check_key_limits(limits: Limits) -> None:
    check_limits(limits)
    if limits.waiting is not None:
        raise InvalidLimitsError("`waiting` limits a queue: set it for a workflow, not for a key")
