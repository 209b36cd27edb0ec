"""Start limits of workflows and API keys.

The limiter caches which limits exist, so that a start without limits reads nothing. The journal counts how far a limit
is used up, in the transaction that accepts a start.
"""

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
from rune.runtime.services.audit_log import AuditLog, audited
from rune.runtime.services.principal import current_principal

log = logging.getLogger("rune.limits")

CACHE_S = 1.0
"""How long limits and queue depths are cached, in seconds."""

EVICT_AFTER_S = 10.0
"""Age after which a cached depth is ignored, in seconds."""

MAX_WAITING = 100_000
DEFAULT = "default"


class Limiter:
    """Determines the limits that apply to a start over HTTP, by a webhook or by a command."""

    def __init__(self, backend: Backend, max_waiting: int = MAX_WAITING) -> None:
        self._limits = backend.limits
        # Without a process registry the queue is in this process, so its depth is read for free.
        self._depths = QueueDepths(backend.queue, near=backend.processes is None)
        self._max_waiting = max_waiting
        self._known: dict[str, Limits] = {}
        self._known_until = 0.0
        self._changes = 0
        self._refreshing = asyncio.Lock()

    async def held(self, plan: Plan) -> AppliedLimits | None:
        """Return the limits that apply to a start; None if there are none."""
        subjects: tuple[str, ...] = ()
        own: Limits | None = None
        if known := await self._all():
            workflow = of_workflow(plan.definition.id)
            subjects = tuple(each for each in (current_principal(), workflow) if each in known)
            own = known.get(workflow)
        full = await self._full(plan, own)
        return AppliedLimits(subjects, full) if subjects or full else None

    def forget(self) -> None:
        """Drop the cached limits after this process has changed them."""
        self._changes += 1
        self._known_until = 0.0

    async def _all(self) -> dict[str, Limits]:
        if time.monotonic() < self._known_until:
            return self._known
        async with self._refreshing:  # concurrent callers share one query
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
    """Caches the depth of each queue."""

    def __init__(self, queue: Queue, *, near: bool) -> None:
        self._queue = queue
        self._near = near
        self._known: dict[str, int] = {}
        self._read_at = -EVICT_AFTER_S
        self._reading: asyncio.Task[None] | None = None

    def of(self, plan: Plan, depths: dict[str, int]) -> int:
        """Return the depth of the queues that the first nodes of an execution are sent to. A single process has one
        queue for all nodes."""
        wanted = depths if self._near else first_queues(plan)
        return max((depths.get(each, 0) for each in wanted), default=0)

    async def read(self, *, wait: bool) -> dict[str, int]:
        """Return the depth of each queue. Without `wait` a stale cache is refreshed in the background and its depths
        are returned, unless they are older than EVICT_AFTER_S."""
        age = time.monotonic() - self._read_at
        if self._near:
            await self._refresh()
        elif age >= CACHE_S:
            if self._reading is None or self._reading.done():
                self._reading = asyncio.create_task(self._refresh())
            if wait:  # briefly: a start requires only the journal
                await asyncio.wait({self._reading}, timeout=CACHE_S)
            elif age >= EVICT_AFTER_S:
                return {}
        return self._known

    async def _refresh(self) -> None:
        try:
            if isinstance(self._queue, ReportsDepth):
                self._known = {each.queue: each.waiting for each in await self._queue.depths()}
        except Exception as error:  # if the depth cannot be read, no start is refused
            log.info("the depth of the queues cannot be read: %s: %s", type(error).__name__, error)
            self._known = {}
        self._read_at = time.monotonic()


def first_queues(plan: Plan) -> set[str]:
    """Return the queues that the first nodes of an execution are sent to."""
    return {plan.nodes[each].node.queue or DEFAULT for each in plan.first}


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
