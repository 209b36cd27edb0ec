"""State wrappers that only RabbitMQ needs, where the state does not send the tokens that it emits.

`BatchingState` applies decisions of one execution together, `EndPredictingState` skips the last decisions of an
execution whose end is already recorded, and `ServedQueuesFilter` resends tokens only to queues that a worker reads.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence

from rune.core.execution.decision import Decision, FinishExecution
from rune.core.execution.fact import ExecutionEnded, RaceWinner
from rune.core.execution.inline_run import undecided
from rune.core.execution.token import Path, Token
from rune.ports.batcher import KeyedBatcher, SharedAnswer
from rune.ports.processes import ProcessRegistry
from rune.ports.queue import Route, SentCallback, ignore_sent
from rune.ports.state import Applied, State
from rune.runtime.state_wrapper import StateWrapper

# One script must not block the other clients of Redis for milliseconds.
MAX_BATCH = 32
MAX_PREDICTED = 10_000

Release = Callable[[str, int, Path], Awaitable[None]]
"""Stop tracking a token whose execution has ended."""


class BatchingState(StateWrapper):
    """Applies decisions that arrive while others of the same execution are being applied in one call.

    The last caller of a batch receives all emitted tokens and sends them; the others have nothing left to do. If its
    process dies, the tokens are in the state and in no queue, and the scheduler resends them. A single caller bypasses
    the batch.
    """

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self._batches: KeyedBatcher[str, Sequence[Decision], Applied] = KeyedBatcher(
            self._apply_batch, max_requests=MAX_BATCH
        )

    async def apply(self, execution: str, decisions: Sequence[Decision]) -> Applied:
        # The winner of a race is recorded before its token runs: its caller alone needs what it emits.
        if type(decisions[0].fact) is RaceWinner:
            return await self._state.apply(execution, decisions)
        return await self._batches.call(execution, decisions)

    async def _apply_batch(
        self, execution: str, batch: Sequence[Sequence[Decision]]
    ) -> SharedAnswer[Applied]:
        applied = await self._apply_together(execution, batch)
        # The last one sends: deliveries of the others are acknowledged meanwhile, in one frame.
        return SharedAnswer(applied, Applied(now=applied.now))

    async def _apply_together(self, execution: str, batch: Sequence[Sequence[Decision]]) -> Applied:
        """Apply several runs in one call. Tokens that one run emitted and another decided in place are not sent."""
        if len(batch) == 1:
            return await self._state.apply(execution, batch[0])
        decisions = [each for run in batch for each in run]
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
        await self._state.end(execution, fact)
        predicted = self._predicted.pop(execution, None)
        if predicted is not None:
            first = predicted[0][0]
            await self._release(execution, first.node, first.path)


class ServedQueuesFilter(StateWrapper):
    """Leaves tokens out of a resend while no worker reads their queue.

    A token that no worker has claimed for a minute counts as lost and is resent. Without a worker it is not lost but
    waits, and a copy per minute would let the queue grow until a worker starts. `postpone` is called with the tokens
    that are left out, as if they had been sent.
    """

    def __init__(
        self,
        state: State,
        route: Route,
        processes: ProcessRegistry | None,
        postpone: SentCallback = ignore_sent,
    ) -> None:
        super().__init__(state)
        self._postpone = postpone
        self._route = route
        self._processes = processes

    async def unclaimed_tokens(self, limit: int) -> list[tuple[str, Token, int]]:
        """Tokens that are left out come up again a minute later."""
        found = await self._state.unclaimed_tokens(limit)
        if not found or self._processes is None:
            return found
        processes = await self._processes.list()
        served = {queue for each in processes if "worker" in each.roles for queue in each.queues}
        kept: list[tuple[str, Token, int]] = []
        for each in found:
            if await self._route(each[0], each[1]) in served:
                kept.append(each)
            else:
                self._postpone(each[0], [each[1]])
        return kept
