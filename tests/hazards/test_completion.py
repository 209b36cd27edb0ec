"""Hazards B: completion."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rune.core.execution.fact import ExecutionEnded, NodeResult
from rune.testing.harness import VirtualClock
from tests.support.backends import Backend, backends
from tests.support.workflows import edit, of_type, split, success_count, wait, workflow

pytestmark = backends("embedded")

LEAVES = workflow("start>b start>c", b=edit(x=1), c=edit(x=2))
LOGS = workflow("start>s s>l", s=split(), l=of_type("log", message="{{ $item }}"))


@pytest.mark.parametrize(
    ("document", "leaf", "runs"), [(LEAVES, "c", 1), (LOGS, "l", 1_000)], ids=["leaves", "items"]
)
def test_h_b1_execution_completes_once(
    document: dict[str, Any], leaf: str, runs: int, backend: Backend
) -> None:
    # fault: b1: every leaf ends the execution
    async def go() -> tuple[list[str], int]:
        async with backend.open(slots=1) as engine:
            run = await engine.start(document, {"items": list(range(runs))})
            await run.end()
            facts = [row.fact for row in await run.facts() if not row.late]
            ends: list[str] = [each.status for each in facts if isinstance(each, ExecutionEnded)]
            leaves = [
                each for each in facts if isinstance(each, NodeResult) and run.plan.ids[each.node] == leaf
            ]
            return ends, len(leaves)

    assert asyncio.run(go()) == (["completed"], runs)


def test_h_b2_execution_does_not_complete_while_branch_runs(backend: Backend) -> None:
    # fault: b2: the execution ends when nothing of it is active
    result = backend.run(workflow("start>a start>w w>b", a=edit(x=1), w=wait(1), b=edit(x=2)))
    assert success_count(result, "b") == 1
    assert result["total_duration_ms"] >= 3_600_000


def test_h_b3_final_context_holds_every_branch(backend: Backend) -> None:
    # fault: b3: the context is that of the last result alone
    result = backend.run(workflow("start>a start>b", a=edit(x=1), b=edit(x=2)))
    assert (result["context"].get("$a"), result["context"].get("$b")) == ({"x": 1}, {"x": 2})


def test_h_b4_dead_end_inside_split_does_not_complete_execution(backend: Backend) -> None:
    # fault: b4: a dead edge into the aggregator ends the execution
    document = workflow(
        "start>s s>i i>g:true g>out",
        s=split(),
        i=of_type("conditional", expression="$item > 0"),
        g=of_type("aggregator"),
        out=of_type("output", value="$g"),
    )
    assert backend.run(document, {"items": [0, 1, 0]})["output"] == [None, 1, None]


def test_h_b5_explain_lists_missing_arrivals_of_join(backend: Backend) -> None:
    # fault: b5: `explain` leaves out the arrivals that are missing
    document = workflow("start>a start>w a>m w>m", a=edit(x=1), w=wait(1), m=of_type("merge"))

    async def go() -> tuple[Any, str]:
        clock = VirtualClock()
        async with backend.open(clock=clock) as engine:
            run = await engine.start(document)
            await engine.settle()
            waiting = {each.node: each for each in await engine.engine.backend.state.explain(run.id)}
            return waiting, (await run.end()).status

    waiting, status = asyncio.run(go())
    assert len(waiting["m"].arrived) == 1
    assert len(waiting["m"].missing) == 1
    assert waiting["w"].due is not None
    assert status == "completed"
