"""The last decisions of an execution are not applied where the journal has its end with them."""

from __future__ import annotations

import asyncio
from typing import Any

from rune.core.execution.decision import Decision, FinishExecution
from rune.core.execution.fact import ExecutionEnded, NodeResult
from rune.core.execution.token import Path
from rune.ports.state import Applied
from rune.runtime.messaging.state_middleware import EndPredictingState

LAST = [Decision(3, (), 7, NodeResult(3, (), 7, "ok"))]
OTHERS = [Decision(2, (), 6, NodeResult(2, (), 6, "ok"))]
DONE = FinishExecution("completed")


class _State:
    """Knows of the end that some decisions bring."""

    def __init__(self) -> None:
        self.acts: list[Any] = []

    def predict_end(self, execution: str, decisions: Any) -> tuple[FinishExecution, int] | None:
        return (DONE, 8) if decisions is LAST else None

    async def apply(self, execution: str, decisions: Any) -> Applied:
        self.acts.append(decisions)
        return Applied(now=9)

    async def end(self, execution: str, fact: ExecutionEnded) -> None:
        self.acts.append("end")


def _after(asked: Any, applied: Any) -> tuple[Applied, list[Any]]:
    """What applying answers and what the state and whoever looks after tokens hear, until the execution has ended."""
    state = _State()

    async def release(execution: str, node: int, path: Path) -> None:
        state.acts.append((execution, node, path))

    async def go() -> Applied:
        around = EndPredictingState(state, release)  # type: ignore[arg-type]
        around.predict_end("x", asked)
        answer = await around.apply("x", applied)
        await around.end("x", ExecutionEnded(8, "completed"))
        await around.end("x", ExecutionEnded(8, "completed"))
        return answer

    return asyncio.run(go()), state.acts


def test_what_is_certain_to_be_the_last_is_not_applied_and_nobody_looks_after_its_token() -> None:
    assert _after(LAST, LAST) == (Applied((), DONE, 8), ["end", ("x", 3, ()), "end"])


def test_anything_else_is_applied() -> None:
    assert _after(OTHERS, OTHERS) == (Applied(now=9), [OTHERS, "end", "end"])


def test_what_somebody_else_has_written_instead_is_applied() -> None:
    answer, acts = _after(LAST, OTHERS)
    assert answer == Applied(now=9)
    assert acts[0] is OTHERS
