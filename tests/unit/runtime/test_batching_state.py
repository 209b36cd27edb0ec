"""BatchingState: decisions of one execution that arrive during an apply are applied together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from rune.core.execution.decision import Decision, FinishExecution
from rune.core.execution.fact import AttemptFailed, NodeResult, RaceWinner, TokenFact
from rune.core.execution.outcome import Error
from rune.core.execution.token import START, Token, TokenPurpose
from rune.ports.journal import StoreUnavailableError
from rune.ports.state import Applied
from rune.runtime.state_wrapper import MAX_BATCH, BatchingState

DONE = FinishExecution("completed")


def item_decisions(item: int, fact: TokenFact | None = None) -> list[Decision]:
    """Decisions of one item: its first node, and the next one run inline."""
    path = (1, item)
    return [Decision(node, path, 5, fact or NodeResult(node, path, 5, "ok")) for node in (2, 3)]


class _FakeState:
    """Records each apply, and answers it once `go` is set."""

    def __init__(self, *emitted: Token, fails: bool = False) -> None:
        self.applied: list[Sequence[Decision]] = []
        self.entered, self.go = asyncio.Event(), asyncio.Event()
        self._emitted = emitted
        self._fails = fails

    async def apply(self, execution: str, decisions: Sequence[Decision]) -> Applied:
        self.applied.append(list(decisions))
        self.entered.set()
        await self.go.wait()
        if self._fails and len(self.applied) > 1:
            raise StoreUnavailableError("gone")
        return Applied(self._emitted, DONE, 9) if len(self.applied) > 1 else Applied(now=8)


def _apply_all(
    batches: Sequence[list[Decision]], *emitted: Token, executions: Sequence[str] = (), fails: bool = False
) -> tuple[list[Any], list[Sequence[Decision]]]:
    """Apply several batches of decisions concurrently; return the answers and the applies of the state."""

    async def go() -> tuple[list[Any], list[Sequence[Decision]]]:
        state = _FakeState(*emitted, fails=fails)
        batching = BatchingState(state)  # type: ignore[arg-type]
        names = executions or ["x"] * len(batches)
        tasks = [
            asyncio.create_task(batching.apply(name, each)) for name, each in zip(names, batches, strict=True)
        ]
        await state.entered.wait()  # the other calls have been made by then
        state.go.set()
        return await asyncio.gather(*tasks, return_exceptions=True), state.applied

    return asyncio.run(go())


def test_calls_during_apply_are_batched() -> None:
    batches = [item_decisions(item) for item in range(4)]
    answers, applied = _apply_all(batches)
    assert applied == [batches[0], [*batches[1], *batches[2], *batches[3]]]
    assert [each.finish for each in answers] == [None, None, None, DONE], (
        "the last caller of the batch gets the finish"
    )


def test_undecided_tokens_are_emitted_by_one_caller() -> None:
    again = Token(2, (1, 3), attempt=2)
    left = (Token(4, ()), Token(1, (), fate=TokenPurpose.DISPATCH), again)
    failed = item_decisions(3, AttemptFailed(2, (1, 3), 5, 1, Error("E", "no")))[:1]
    answers, _ = _apply_all(
        [item_decisions(0), item_decisions(1), item_decisions(2), failed],
        Token(3, (1, 1)),
        Token(3, (1, 2)),
        *left,
    )
    assert [each.emitted for each in answers] == [(), (), (), left]


def test_batch_size_is_limited_to_max_batch() -> None:
    answers, applied = _apply_all([item_decisions(item) for item in range(2 * MAX_BATCH + 2)])
    assert [len(each) for each in applied] == [2, 2 * MAX_BATCH, 2 * MAX_BATCH, 2]
    assert len(answers) == 2 * MAX_BATCH + 2


def test_executions_are_not_batched_together() -> None:
    batches = [item_decisions(item) for item in range(3)]
    assert _apply_all(batches, executions=["x", "y", "z"])[1] == batches


def test_race_winner_is_not_batched() -> None:
    chosen = [Decision(2, (), 5, RaceWinner(2, (), 5, (), START))]
    batches = [item_decisions(0), item_decisions(1), chosen]
    assert _apply_all(batches)[1] == [item_decisions(0), chosen, item_decisions(1)]


def test_store_error_is_raised_to_every_caller_of_batch() -> None:
    answers, _ = _apply_all([item_decisions(item) for item in range(3)], fails=True)
    assert [type(each) for each in answers] == [Applied, StoreUnavailableError, StoreUnavailableError]


@pytest.mark.parametrize("cancelled", [1, 2])
def test_cancelled_caller_does_not_lose_emitted_tokens(cancelled: int) -> None:
    left = Token(4, ())

    async def go() -> list[Any]:
        state = _FakeState(left)
        batching = BatchingState(state)  # type: ignore[arg-type]
        tasks = [asyncio.create_task(batching.apply("x", item_decisions(item))) for item in range(3)]
        await state.entered.wait()  # the other calls have been made by then
        tasks[cancelled].cancel()
        state.go.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    answers = asyncio.run(go())
    assert isinstance(answers.pop(cancelled), asyncio.CancelledError)
    assert [each.emitted for each in answers] == [(), (left,)]
