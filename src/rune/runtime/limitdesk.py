"""The part of the desk that says how many starts there may be."""

from __future__ import annotations

from rune.ports.keys import unknown_key
from rune.ports.library import LATEST, unknown
from rune.ports.limits import BadLimits, Limits, check_limits, of_key, of_workflow
from rune.runtime.backend import Backend
from rune.runtime.limiter import Limiter
from rune.runtime.logbook import Logbook, written_down


@written_down
class LimitDesk:
    """What people ask of limits."""

    def __init__(self, backend: Backend, limiter: Limiter) -> None:
        self._access = backend
        self._limiter = limiter
        self.logbook = Logbook(backend.log, backend.clock)

    async def limit_workflow(self, workflow: str, limits: Limits) -> Limits:
        """Set all limits of a workflow, from the next start on; those that are not given are lifted."""
        check_limits(limits)
        if not await self._access.library.aliases(workflow):
            raise unknown(workflow, (), LATEST)
        await self._limit(of_workflow(workflow), limits)
        return limits

    async def limit_key(self, id: str, limits: Limits) -> Limits:
        """Set all limits of a key, from its next start on; those that are not given are lifted."""
        _check_key_limits(limits)
        if await self._access.keys.find(id) is None:
            raise unknown_key(id)
        await self._limit(of_key(id), limits)
        return limits

    async def _limit_new_key(self, id: str, limits: Limits) -> None:
        """Set the limits of a key that is about to be made: there is no moment at which it has none."""
        _check_key_limits(limits)
        if limits:
            await self._limit(of_key(id), limits)

    async def _limit(self, subject: str, limits: Limits) -> None:
        await self._access.limits.put(subject, limits, self._access.clock.now())
        self._limiter.forget()


def _check_key_limits(limits: Limits) -> None:
    check_limits(limits)
    if limits.waiting is not None:
        raise BadLimits("a queue is not a key's: `waiting` is set with a workflow")
