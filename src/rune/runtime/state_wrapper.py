"""Wrappers around the state port: a base class, a state with an observer, and those that only RabbitMQ needs.

On RabbitMQ the state does not send the tokens that it emits. `BatchingState` applies decisions of one execution
together, `EndPredictingState` skips the last decisions of an execution whose end is already recorded, and
`LostTokensFilter` resends only tokens whose last message is certainly lost.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from typing import Any, Protocol

import msgspec

from rune.batcher import KeyedBatcher, SharedAnswer
from rune.core.execution import state as folded
from rune.core.execution.decision import Decision, FinishExecution
from rune.core.execution.fact import ExecutionEnded, ExecutionLate, PauseChanged, RaceWinner, SignalReceived
from rune.core.execution.inline_run import undecided
from rune.core.execution.reasons import Waiting
from rune.core.execution.token import Path, Token
from rune.ports.processes import LoggedLine, ProcessRegistry
from rune.ports.queue import SentCallback, ignore_sent
from rune.ports.state import Applied, Claim, DueTimer, Fence, Listener, State

# One script must not block the other clients of Redis for milliseconds.
MAX_BATCH = 32

MAX_PREDICTED = 10_000

ApplyRequest = tuple[Sequence[Decision], tuple[int, str] | None]
"""Decisions of a run, and the node and the owner of the successor to claim, if there is one."""

Release = Callable[[str, int, Path], Awaitable[None]]
"""Stop tracking a token whose execution has ended."""


class StateWrapper:
    """Passes every call on. Subclasses override what they change.

    Methods return the awaitable of the wrapped state, so that a wrapper costs one call and no coroutine per token.
    """

    def __init__(self, state: State) -> None:
        self._state = state

    @property
    def rebuilds(self) -> int:
        """How often the state of an execution was rebuilt from the journal; 0 for a state that does not count."""
        count: int = getattr(self._state, "rebuilds", 0)
        return count

    def begin(self, execution: str) -> Coroutine[Any, Any, Applied]:
        return self._state.begin(execution)

    def claim(self, execution: str, token: Token, owner: str, *, leased: bool) -> Coroutine[Any, Any, Claim]:
        return self._state.claim(execution, token, owner, leased=leased)

    def claim_all(
        self, execution: str, tokens: Sequence[Token], owner: str
    ) -> Coroutine[Any, Any, list[Claim]]:
        return self._state.claim_all(execution, tokens, owner)

    def renew(self, execution: str, node: int, path: Path, fence: Fence) -> Coroutine[Any, Any, bool]:
        return self._state.renew(execution, node, path, fence)

    def requeue(
        self, execution: str, token: Token, owner: str, delays: Sequence[int] = ()
    ) -> Coroutine[Any, Any, int]:
        return self._state.requeue(execution, token, owner, delays)

    def predict_end(
        self, execution: str, decisions: Sequence[Decision]
    ) -> tuple[FinishExecution, int] | None:
        return self._state.predict_end(execution, decisions)

    def apply(self, execution: str, decisions: Sequence[Decision]) -> Coroutine[Any, Any, Applied]:
        return self._state.apply(execution, decisions)

    def apply_all(self, execution: str, runs: Sequence[Sequence[Decision]]) -> Coroutine[Any, Any, Applied]:
        return self._state.apply_all(execution, runs)

    def apply_and_claim(
        self, execution: str, decisions: Sequence[Decision], successor: int, owner: str
    ) -> Coroutine[Any, Any, Applied]:
        return self._state.apply_and_claim(execution, decisions, successor, owner)

    def control(self, execution: str, fact: PauseChanged | ExecutionLate) -> Coroutine[Any, Any, Applied]:
        return self._state.control(execution, fact)

    def pause_state(self, execution: str) -> Coroutine[Any, Any, tuple[int, bool]]:
        return self._state.pause_state(execution)

    def signal(self, execution: str, fact: SignalReceived) -> Coroutine[Any, Any, Applied]:
        return self._state.signal(execution, fact)

    def waiting_for_signal(self, execution: str) -> Coroutine[Any, Any, list[Listener]]:
        return self._state.waiting_for_signal(execution)

    def recorded(self, execution: str) -> Coroutine[Any, Any, folded.State]:
        return self._state.recorded(execution)

    def end(self, execution: str, fact: ExecutionEnded) -> Coroutine[Any, Any, None]:
        return self._state.end(execution, fact)

    def due_timers(self, limit: int) -> Coroutine[Any, Any, list[DueTimer]]:
        return self._state.due_timers(limit)

    def next_due(self) -> Coroutine[Any, Any, int | None]:
        return self._state.next_due()

    def unclaimed_tokens(self, limit: int) -> Coroutine[Any, Any, list[tuple[str, Token, int]]]:
        return self._state.unclaimed_tokens(limit)

    def explain(self, execution: str) -> Coroutine[Any, Any, list[Waiting]]:
        return self._state.explain(execution)

    def peek(self, execution: str) -> Coroutine[Any, Any, folded.State | None]:
        return self._state.peek(execution)


class ExecutionObserver(Protocol):
    """Is called on every step of every execution of this process; it must only count."""

    def claimed(self, execution: str, token: Token) -> None:
        """A token starts to run."""

    def applied(self, execution: str, decisions: Sequence[Decision]) -> None:
        """Decisions were applied to the state."""

    def progressed(self, execution: str, token: Token, text: str) -> None:
        """A running node reported its progress."""

    def logged(self, execution: str, line: LoggedLine) -> None:
        """A node logged a line. Called in any thread."""


class ObservedState(StateWrapper):
    """Calls an observer after each claim and each apply."""

    def __init__(self, state: State, observer: ExecutionObserver) -> None:
        super().__init__(state)
        self._observer = observer

    async def claim(self, execution: str, token: Token, owner: str, *, leased: bool) -> Claim:
        claim = await self._state.claim(execution, token, owner, leased=leased)
        if claim.verdict == "run":
            self._observer.claimed(execution, claim.token)
        return claim

    async def claim_all(self, execution: str, tokens: Sequence[Token], owner: str) -> list[Claim]:
        claims = await self._state.claim_all(execution, tokens, owner)
        for claim in claims:
            if claim.verdict == "run":
                self._observer.claimed(execution, claim.token)
        return claims

    async def apply_all(self, execution: str, runs: Sequence[Sequence[Decision]]) -> Applied:
        applied = await self._state.apply_all(execution, runs)
        for decisions in runs:
            self._observer.applied(execution, decisions)
        return applied

    async def apply(self, execution: str, decisions: Sequence[Decision]) -> Applied:
        applied = await self._state.apply(execution, decisions)
        self._observer.applied(execution, decisions)
        return applied

    async def apply_and_claim(
        self, execution: str, decisions: Sequence[Decision], successor: int, owner: str
    ) -> Applied:
        applied = await self._state.apply_and_claim(execution, decisions, successor, owner)
        self._observer.applied(execution, decisions)
        if applied.kept is not None:
            self._observer.claimed(execution, applied.kept.claim.token)
        return applied


class BatchingState(StateWrapper):
    """Applies decisions that arrive while others of the same execution are being applied in one call.

    The last caller of a batch receives all emitted tokens and sends them; the others have nothing left to do. If its
    process dies, the tokens are in the state and in no queue, and the scheduler resends them. A single caller bypasses
    the batch.
    """

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self._batches: KeyedBatcher[str, ApplyRequest, Applied] = KeyedBatcher(
            self._apply_batch, max_requests=MAX_BATCH
        )

    async def apply(self, execution: str, decisions: Sequence[Decision]) -> Applied:
        # The winner of a race is recorded before its token runs: its caller alone needs what it emits.
        if type(decisions[0].fact) is RaceWinner:
            return await self._state.apply(execution, decisions)
        return await self._batches.call(execution, (decisions, None))

    async def apply_and_claim(
        self, execution: str, decisions: Sequence[Decision], successor: int, owner: str
    ) -> Applied:
        """The successor is claimed only if no other decisions are applied with these."""
        return await self._batches.call(execution, (decisions, (successor, owner)))

    async def _apply_batch(self, execution: str, batch: Sequence[ApplyRequest]) -> SharedAnswer[Applied]:
        applied = await self._apply_together(execution, batch)
        # The last one sends: deliveries of the others are acknowledged meanwhile, in one frame.
        return SharedAnswer(applied, Applied(now=applied.now))

    async def _apply_together(self, execution: str, batch: Sequence[ApplyRequest]) -> Applied:
        """Apply several runs in one call. Tokens that one run emitted and another decided in place are not sent."""
        if len(batch) == 1:
            run, claim = batch[0]
            if claim is None:
                return await self._state.apply(execution, run)
            return await self._state.apply_and_claim(execution, run, *claim)
        decisions = [each for run, _ in batch for each in run]
        applied = await self._state.apply(execution, decisions)
        return Applied(tuple(undecided(decisions, applied.emitted)), applied.finish, applied.now)


class EndPredictingState(StateWrapper):
    """Skips the last decisions of an execution when the journal has them together with its end.

    The state they would change is about to be dropped. Until then the delivery of the token is not acknowledged, so a
    crash redelivers it and leads to the recorded facts; the outbox row of the end leads there too.
    """

    def __init__(self, state: State, release: Release) -> None:
        super().__init__(state)
        self._release = release
        self._predicted: OrderedDict[str, tuple[Sequence[Decision], tuple[FinishExecution, int]]] = (
            OrderedDict()
        )

    def predict_end(
        self, execution: str, decisions: Sequence[Decision]
    ) -> tuple[FinishExecution, int] | None:
        """Return the end that these decisions bring; the caller records it with their facts."""
        found = self._state.predict_end(execution, decisions)
        if found is not None:
            self._predicted[execution] = (decisions, found)
            if len(self._predicted) > MAX_PREDICTED:
                self._predicted.popitem(last=False)
        return found

    async def apply(self, execution: str, decisions: Sequence[Decision]) -> Applied:
        predicted = self._predicted.get(execution)
        if predicted is None or predicted[0] is not decisions:
            return await self._state.apply(execution, decisions)
        return Applied((), *predicted[1])

    async def end(self, execution: str, fact: ExecutionEnded) -> None:
        predicted = self._predicted.get(execution)
        if predicted is None:
            await self._state.end(execution, fact)
            return
        first = predicted[0][0]
        # Together, because both are calls to the same server.
        release = asyncio.ensure_future(self._release(execution, first.node, first.path))
        try:
            await self._state.end(execution, fact)
        finally:
            await release
        self._predicted.pop(execution, None)


class Lanes(Protocol):
    """The lanes of a queue whose messages are delivered in the order in which they were sent."""

    async def lane_of(self, execution: str, token: Token, priority: int) -> tuple[str, str]:
        """Return the queue that serves a token, and the name of its lane."""

    async def empty_lanes(self, lanes: Collection[str]) -> set[str]:
        """Return those of the lanes in which no message waits. StoreUnavailableError if that is unknown."""


class SearchTimes(Protocol):
    """Since when tokens are searched for in their lanes; shared by all schedulers."""

    async def since(self, lane: str, tokens: Sequence[tuple[str, Token]]) -> list[int]:
        """Return for each token since when (epoch ms) it is searched for: now, unless that was noted before."""

    async def resume(self, lane: str) -> bool:
        """Let the tokens that are searched for in a lane come up again now. Return whether there are any."""

    async def found(self, lane: str, tokens: Sequence[tuple[str, Token]], delivered: int) -> None:
        """Forget tokens that are sent again, and those whose search began long before the time `delivered`."""


MAX_CLOCK_SKEW_MS = 6_000
"""By how much the clocks of two processes may differ. Messages carry the second in which they were sent."""


class LostTokensFilter(StateWrapper):
    """Leaves tokens out of a resend whose last message is still in the queue.

    A token that no worker has claimed may wait behind others for hours. A copy per minute would let a backlog grow
    faster than it is served, and after each loss of the state all of its tokens would be sent again. A lane delivers
    its messages in order: as long as it holds older ones, the message of the token may be among them. It is lost only
    if everything that was in the lane when the search for it began has been delivered: if the lane is empty, or if a
    worker has received a message that was sent later. `postpone` is called with the tokens that are left out, as if
    they had been sent; they come up again a minute later, or as soon as their lane stays empty. Without a worker that
    reads the queue nothing is sent.
    """

    def __init__(
        self,
        state: State,
        lanes: Lanes,
        processes: ProcessRegistry,
        times: SearchTimes,
        postpone: SentCallback = ignore_sent,
    ) -> None:
        super().__init__(state)
        self._lanes = lanes
        self._processes = processes
        self._times = times
        self._postpone = postpone
        self._searched: set[str] = set()
        self._was_empty: set[str] = set()

    async def due_timers(self, limit: int) -> list[DueTimer]:
        """Without the tokens of executions that were rebuilt: their messages may still be in the queue. They come up
        as unclaimed tokens after some seconds."""
        fired = await self._state.due_timers(limit)
        return [msgspec.structs.replace(each, emitted=()) if each.due is None else each for each in fired]

    async def unclaimed_tokens(self, limit: int) -> list[tuple[str, Token, int]]:
        """Return tokens whose last message is certainly lost."""
        if self._searched:
            await self._resume_searches()
        tokens = await self._state.unclaimed_tokens(limit)
        if not tokens:
            return tokens
        workers = [each for each in await self._processes.list() if "worker" in each.roles]
        served = {queue for each in workers for queue in each.queues}
        by_lane: dict[str, list[tuple[str, Token, int]]] = {}
        for execution, token, priority in tokens:
            queue, lane = await self._lanes.lane_of(execution, token, priority)
            if queue in served:
                by_lane.setdefault(lane, []).append((execution, token, priority))
            else:
                self._postpone(execution, [token])
        empty = await self._lanes.empty_lanes(by_lane) if by_lane else set()
        lost: list[tuple[str, Token, int]] = []
        for lane, candidates in by_lane.items():
            delivered = max((each.delivered.get(lane, 0) for each in workers), default=0)
            lost += await self._lost(lane, candidates, delivered - MAX_CLOCK_SKEW_MS, is_empty=lane in empty)
        return lost

    async def _resume_searches(self) -> None:
        """Let tokens come up again whose lane was empty in two turns: workers have claimed what it delivered last."""
        empty = await self._lanes.empty_lanes(self._searched)
        for lane in empty & self._was_empty:
            if not await self._times.resume(lane):
                self._searched.discard(lane)
        self._was_empty = empty

    async def _lost(
        self, lane: str, candidates: Sequence[tuple[str, Token, int]], delivered: int, *, is_empty: bool
    ) -> list[tuple[str, Token, int]]:
        """Return the candidates whose messages are not in a lane from which one of the time `delivered` was taken."""
        since = [0] * len(candidates)
        if not is_empty:
            since = await self._times.since(lane, [(name, token) for name, token, _ in candidates])
        lost: list[tuple[str, Token, int]] = []
        for candidate, begin in zip(candidates, since, strict=True):
            if is_empty or begin <= delivered:
                lost.append(candidate)
            else:
                self._searched.add(lane)
                self._postpone(candidate[0], [candidate[1]])
        await self._times.found(lane, [(name, token) for name, token, _ in lost], delivered)
        return lost
