"""Virtual time of an engine under test: mocked nodes that take time, and the clock that moves from timer to timer."""

from __future__ import annotations

import asyncio

from rune.core.plan.model import Plan
from rune.testing.harness import Harness, VirtualClock

_WAIT_S = 30.0
_STEP_MS = 5_000  # less than a lease lasts
_MAX_TURNS = 1_000  # of the scheduler without a change of time
_NEVER_MS = 200 * 366 * 86_400_000  # no timer of a workflow is armed for later


class MockTimers:
    """Mocked nodes that take virtual time: they occupy a slot and wait for the clock of the test."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._waiting: dict[asyncio.Future[None], int] = {}
        self.timeouts: dict[str, float] = {}

    def include(self, plan: Plan) -> None:
        """Take over the timeouts of the nodes of a workflow."""
        for node in plan.definition.nodes:
            if node.timeout is not None:
                self.timeouts[node.id] = node.timeout

    async def sleep(self, node: str, ms: int) -> bool:
        """Wait for virtual milliseconds; return whether the timeout of the node came first."""
        timeout = self.timeouts.get(node)
        timed_out = timeout is not None and timeout * 1000 < ms
        when = self._clock.now() + (round(timeout * 1000) if timed_out and timeout is not None else ms)
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[waiting] = when
        try:
            await waiting
        finally:
            self._waiting.pop(waiting, None)
        return timed_out

    @property
    def count(self) -> int:
        """The number of mocked nodes that wait for a time that has not come."""
        return sum(not each.done() for each in self._waiting)

    @property
    def next(self) -> int | None:
        return min((when for each, when in self._waiting.items() if not each.done()), default=None)

    def fire(self) -> None:
        """Let the nodes go on whose time has come."""
        for each, when in self._waiting.items():
            if when <= self._clock.now() and not each.done():
                each.set_result(None)


class VirtualTime:
    """Moves the clock of an engine to the next time at which something happens."""

    def __init__(self, harness: Harness, clock: VirtualClock, timers: MockTimers) -> None:
        self._harness = harness
        self._clock = clock
        self._timers = timers

    async def settle(self) -> None:
        """Wait until only time or a signal can make an execution continue."""

        def idle() -> bool:
            busy = self._harness.engine.busy
            return busy == self._timers.count and not self._harness.queued and self._clock.asleep

        await self._harness.wait_for(idle, _WAIT_S)

    async def next(self) -> int | None:
        """Return the nearest time at which something happens: a timer, or the end of a mocked node. What is due
        already, such as a start that the scheduler has not looked at, hides later times: it happens first."""
        now = self._clock.now()
        state = self._harness.engine.backend.state
        due = await state.next_due()
        for _ in range(_MAX_TURNS):
            if due is None or due > now:
                break
            self._clock.wake()
            await self.settle()
            due = await state.next_due()
        times = [
            each for each in (due, self._timers.next) if each is not None and now < each < now + _NEVER_MS
        ]
        return min(times, default=None)

    async def advance(self, ms: int) -> None:
        """Advance the time, stopping at each timer, and wait until the engine is idle."""
        end = self._clock.now() + ms
        await self.settle()
        while True:
            due = await self.next()
            if due is None or due > end:
                break
            await self.move_to(due)
            await self.settle()
        await self.move_to(end)
        await self.settle()

    async def move_to(self, when: int) -> None:
        """Advance the clock to a time, and let the mocked nodes go on whose time has come."""
        # Mocked nodes that run hold leases, which would expire if the time jumped past them.
        while self._timers.count and when - self._clock.now() > _STEP_MS:
            self._clock.advance(_STEP_MS)
            await self._harness.engine.renew_leases()
        self._clock.advance(max(0, when - self._clock.now()))
        self._timers.fire()
