"""Gathering: decisions of one execution that come while others of it are being applied are applied in one act.

What follows from all of them is told to one of those who wait, who sends it; the others have nothing left to do. If
that one dies, what was emitted is in the state and in no queue, and the sweeper sends it.

Closing: where the journal has the last decisions of an execution together with its end, they are not applied.

What they would change is about to be dropped. Until then the delivery that brought the token is not acknowledged, so if
its holder dies somebody is led to the rows; the outbox leads there too.

Unserved queues: as long as nobody reads a queue, nothing is sent to it again.

What nobody has claimed for a minute is taken for lost and sent again. Where no worker is there it is not lost but
waits, and a copy a minute would let the queue grow for as long as nobody comes.

An observed state tells somebody what is claimed and decided, as it happens.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, cast

from rune.core.execution.decision import Decision, FinishExecution
from rune.core.execution.fact import ExecutionEnded, RaceWinner
from rune.core.execution.inline_run import undecided
from rune.core.execution.token import Path, Token
from rune.ports.processes import ProcessRegistry
from rune.ports.state import Applied, Claim, State

MAX_BATCH = 32  # acts in one: a script must not keep others waiting for milliseconds

Waiting = list[tuple[Sequence[Decision], "asyncio.Future[Applied]"]]


class BatchingState:
    """Around a state that does not send what it emits. Whoever is alone is served at once."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._waiting: dict[str, Waiting] = {}
        self._serving: set[asyncio.Task[None]] = set()
        self.claim = state.claim  # asked for every token: nothing stands in between
        self.certain_end = state.predict_end
        self.renew = state.renew

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._state, verb)

    async def apply(self, execution: str, decisions: Sequence[Decision]) -> Applied:
        # A choice comes before its token runs: what it emits is told to nobody but who made it.
        if type(decisions[0].fact) is RaceWinner:
            return await self._state.apply(execution, decisions)
        waiting = self._waiting.get(execution)
        if waiting is not None:
            future: asyncio.Future[Applied] = asyncio.get_running_loop().create_future()
            waiting.append((decisions, future))
            return await future
        self._waiting[execution] = []
        try:
            return await self._state.apply(execution, decisions)
        finally:
            self._next(execution)

    def _next(self, execution: str) -> None:
        """Who has come meanwhile is served together, and who comes meanwhile is served next."""
        waiting = self._waiting.pop(execution)
        if waiting:
            self._waiting[execution] = []
            serving = asyncio.create_task(self._serve(execution, waiting))
            self._serving.add(serving)
            serving.add_done_callback(self._serving.discard)

    async def _serve(self, execution: str, waiting: Waiting) -> None:
        try:
            for start in range(0, len(waiting), MAX_BATCH):
                await self._serve_some(execution, waiting[start : start + MAX_BATCH])
        finally:
            for _, future in waiting:
                future.cancel()  # only if we were cancelled: those who were served have their answer
            self._next(execution)

    async def _serve_some(self, execution: str, waiting: Waiting) -> None:
        try:
            applied = await self._together(execution, [decisions for decisions, _ in waiting])
        except Exception as error:
            for _, future in waiting:
                if not future.done():
                    future.set_exception(error)
            return
        heirs = [future for _, future in waiting if not future.done()]
        for future in heirs[:-1]:
            future.set_result(Applied(now=applied.now))
        if heirs:  # the last: what came before it is acknowledged meanwhile, in one frame
            heirs[-1].set_result(applied)

    async def _together(self, execution: str, acts: Sequence[Sequence[Decision]]) -> Applied:
        """One act of several. What one of them emitted and has decided in place is nothing to be sent by another."""
        if len(acts) == 1:
            return await self._state.apply(execution, acts[0])
        decisions = [each for act in acts for each in act]
        applied = await self._state.apply(execution, decisions)
        return Applied(tuple(undecided(decisions, applied.emitted)), applied.finish, applied.now)


def batch_state(around: BatchingState) -> State:
    """The state that it stands around."""
    return cast(State, around)


MAX_PREDICTED = 10_000

Release = Callable[[str, int, Path], Awaitable[None]]
"""Nobody has to look after this token any longer."""


class PredictingState:
    """Around a state that does not send what it emits."""

    def __init__(self, state: State, release: Release) -> None:
        self._state = state
        self._release = release
        self._certain: OrderedDict[str, tuple[Sequence[Decision], tuple[FinishExecution, int]]] = (
            OrderedDict()
        )
        self._foresee = state.predict_end
        self.claim = state.claim  # asked for every token: nothing stands in between
        self.renew = state.renew

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._state, verb)

    def predict_end(
        self, execution: str, decisions: Sequence[Decision]
    ) -> tuple[FinishExecution, int] | None:
        """Whoever asks writes the end with the facts of these decisions, if there is one."""
        found = self._foresee(execution, decisions)
        if found is not None:
            self._certain[execution] = (decisions, found)
            if len(self._certain) > MAX_PREDICTED:
                self._certain.popitem(last=False)
        return found

    async def apply(self, execution: str, decisions: Sequence[Decision]) -> Applied:
        certain = self._certain.get(execution)
        if certain is None or certain[0] is not decisions:
            return await self._state.apply(execution, decisions)
        return Applied((), *certain[1])

    async def end(self, execution: str, fact: ExecutionEnded) -> None:
        await self._state.end(execution, fact)
        certain = self._certain.pop(execution, None)
        if certain is not None:
            first = certain[0][0]
            await self._release(execution, first.node, first.path)


def predict_state_end(around: PredictingState) -> State:
    """The state that it stands around."""
    return cast(State, around)


Route = Callable[[str, Token], Awaitable[str]]


class ServedQueuesFilter:
    """Around a state. Before `follows` everything is sent again."""

    def __init__(self, state: State, route: Route) -> None:
        self._state = state
        self._route = route
        self._fleet: ProcessRegistry | None = None
        self.claim = state.claim  # asked for every token: nothing stands in between
        self.apply = state.apply

    def follows(self, fleet: ProcessRegistry | None) -> None:
        """Where it sees who is there."""
        self._fleet = fleet

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._state, verb)

    async def unclaimed_tokens(self, limit: int) -> list[tuple[str, Token, int]]:
        """What is left out is looked at again a minute later."""
        found = await self._state.unclaimed_tokens(limit)
        if not found or self._fleet is None:
            return found
        members = await self._fleet.list()
        served = {queue for each in members if "worker" in each.roles for queue in each.queues}
        return [each for each in found if await self._route(each[0], each[1]) in served]


def skip_unserved_queues(around: ServedQueuesFilter) -> State:
    """The state that it stands around."""
    return cast(State, around)


class ExecutionObserver(Protocol):
    """Somebody who looks on. What is told costs the engine time, so it is only counted."""

    def claimed(self, execution: str, token: Token) -> None:
        """A token begins to run."""

    def applied(self, execution: str, decisions: Sequence[Decision]) -> None:
        """Decisions have become true."""

    def progressed(self, execution: str, token: Token, text: str) -> None:
        """A node that runs says how far it is."""


class _ObservedState:
    def __init__(self, state: State, observer: ExecutionObserver) -> None:
        self._state = state
        self._observer = observer

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._state, verb)

    async def claim(self, execution: str, token: Token, owner: str, *, leased: bool) -> Claim:
        claim = await self._state.claim(execution, token, owner, leased=leased)
        if claim.verdict == "run":
            self._observer.claimed(execution, claim.token)
        return claim

    async def apply(self, execution: str, decisions: Sequence[Decision]) -> Applied:
        applied = await self._state.apply(execution, decisions)
        self._observer.applied(execution, decisions)
        return applied


def observe_state(state: State, observer: ExecutionObserver) -> State:
    """The state, with an observer."""
    return cast(State, _ObservedState(state, observer))
