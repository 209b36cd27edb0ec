"""Decisions of one execution that come while others of it are being applied are applied together."""

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
from rune.runtime.messaging.state_middleware import MAX_BATCH, BatchingState

DONE = FinishExecution("completed")


def act(item: int, fact: TokenFact | None = None) -> list[Decision]:
    """What an item has decided: its first node, and in place the one behind it."""
    path = (1, item)
    return [Decision(node, path, 5, fact or NodeResult(node, path, 5, "ok")) for node in (2, 3)]


class _State:
    """Emits what it is told to, one act at a time, each when it is let."""

    def __init__(self, *emitted: Token, breaks: bool = False) -> None:
        self.acts: list[Sequence[Decision]] = []
        self.begun, self.go = asyncio.Event(), asyncio.Event()
        self._emitted = emitted
        self._breaks = breaks

    async def apply(self, execution: str, decisions: Sequence[Decision]) -> Applied:
        self.acts.append(list(decisions))
        self.begun.set()
        await self.go.wait()
        if self._breaks and len(self.acts) > 1:
            raise StoreUnavailableError("gone")
        return Applied(self._emitted, DONE, 9) if len(self.acts) > 1 else Applied(now=8)


def _gathered(
    acts: Sequence[list[Decision]], *emitted: Token, executions: Sequence[str] = (), breaks: bool = False
) -> tuple[list[Any], list[Sequence[Decision]]]:
    """The answers to acts that come all at once, and what the state has heard."""

    async def go() -> tuple[list[Any], list[Sequence[Decision]]]:
        state = _State(*emitted, breaks=breaks)
        around = BatchingState(state)  # type: ignore[arg-type]
        names = executions or ["x"] * len(acts)
        asked = [
            asyncio.create_task(around.apply(name, each)) for name, each in zip(names, acts, strict=True)
        ]
        await state.begun.wait()  # and all others have asked too
        state.go.set()
        return await asyncio.gather(*asked, return_exceptions=True), state.acts

    return asyncio.run(go())


def test_whoever_comes_meanwhile_is_served_in_one_act() -> None:
    acts = [act(item) for item in range(4)]
    answers, heard = _gathered(acts)
    assert heard == [acts[0], [*acts[1], *acts[2], *acts[3]]]
    assert [each.finish for each in answers] == [None, None, None, DONE], "one of them ends the execution"


def test_one_of_them_sends_what_nobody_has_decided() -> None:
    again = Token(2, (1, 3), attempt=2)
    left = (Token(4, ()), Token(1, (), fate=TokenPurpose.DISPATCH), again)
    failed = act(3, AttemptFailed(2, (1, 3), 5, 1, Error("E", "no")))[:1]
    answers, _ = _gathered([act(0), act(1), act(2), failed], Token(3, (1, 1)), Token(3, (1, 2)), *left)
    assert [each.emitted for each in answers] == [(), (), (), left]


def test_an_act_is_not_longer_than_a_script_may_take() -> None:
    answers, heard = _gathered([act(item) for item in range(2 * MAX_BATCH + 2)])
    assert [len(each) for each in heard] == [2, 2 * MAX_BATCH, 2 * MAX_BATCH, 2]
    assert len(answers) == 2 * MAX_BATCH + 2


def test_executions_have_nothing_to_do_with_each_other() -> None:
    acts = [act(item) for item in range(3)]
    assert _gathered(acts, executions=["x", "y", "z"])[1] == acts


def test_a_choice_is_applied_for_who_made_it() -> None:
    chosen = [Decision(2, (), 5, RaceWinner(2, (), 5, (), START))]
    acts = [act(0), act(1), chosen]
    assert _gathered(acts)[1] == [act(0), chosen, act(1)]


def test_an_outage_is_everybodys() -> None:
    answers, _ = _gathered([act(item) for item in range(3)], breaks=True)
    assert [type(each) for each in answers] == [Applied, StoreUnavailableError, StoreUnavailableError]


@pytest.mark.parametrize("gone", [1, 2])
def test_who_goes_meanwhile_takes_nothing_along(gone: int) -> None:
    left = Token(4, ())

    async def go() -> list[Any]:
        state = _State(left)
        around = BatchingState(state)  # type: ignore[arg-type]
        asked = [asyncio.create_task(around.apply("x", act(item))) for item in range(3)]
        await state.begun.wait()  # and all others have asked too
        asked[gone].cancel()
        state.go.set()
        return await asyncio.gather(*asked, return_exceptions=True)

    answers = asyncio.run(go())
    assert isinstance(answers.pop(gone), asyncio.CancelledError)
    assert [each.emitted for each in answers] == [(), (left,)]
