"""EndPredictingState: the last decisions of an execution are not applied when the journal already holds its end."""

from __future__ import annotations

import asyncio
from typing import Any

from rune.core.execution.decision import Decision, FinishExecution
from rune.core.execution.fact import ExecutionEnded, NodeResult
from rune.core.execution.token import Path
from rune.ports.state import Applied
from rune.runtime.state_wrapper import EndPredictingState

LAST = [Decision(3, (), 7, NodeResult(3, (), 7, "ok"))]
OTHER = [Decision(2, (), 6, NodeResult(2, (), 6, "ok"))]
DONE = FinishExecution("completed")


class _FakeState:
    """Predicts the end for `LAST` and records its calls."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def predict_end(self, execution: str, decisions: Any) -> tuple[FinishExecution, int] | None:
        return (DONE, 8) if decisions is LAST else None

    async def apply(self, execution: str, decisions: Any) -> Applied:
        self.calls.append(decisions)
        return Applied(now=9)

    async def end(self, execution: str, fact: ExecutionEnded) -> None:
        self.calls.append("end")


def _run(predicted: Any, applied: Any) -> tuple[Applied, list[Any]]:
    """Predict the end for some decisions, apply others, end the execution twice; return the answer and the calls."""
    state = _FakeState()

    async def release(execution: str, node: int, path: Path) -> None:
        state.calls.append((execution, node, path))

    async def go() -> Applied:
        wrapped = EndPredictingState(state, release)  # type: ignore[arg-type]
        wrapped.predict_end("x", predicted)
        answer = await wrapped.apply("x", applied)
        await wrapped.end("x", ExecutionEnded(8, "completed"))
        await wrapped.end("x", ExecutionEnded(8, "completed"))
        return answer

    return asyncio.run(go()), state.calls


def test_predicted_last_decisions_are_not_applied_and_token_is_released() -> None:
    assert _run(LAST, LAST) == (Applied((), DONE, 8), ["end", ("x", 3, ()), "end"])


def test_decisions_without_predicted_end_are_applied() -> None:
    assert _run(OTHER, OTHER) == (Applied(now=9), [OTHER, "end", "end"])


def test_decisions_other_than_predicted_are_applied() -> None:
    answer, calls = _run(LAST, OTHER)
    assert answer == Applied(now=9)
    assert calls[0] is OTHER
