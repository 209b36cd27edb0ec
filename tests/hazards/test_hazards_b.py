"""Hazards B: completion."""

from __future__ import annotations

import asyncio
import pathlib
from typing import Any

import pytest

from rune.core.execution.fact import ExecutionEnded, NodeResult
from rune.testing.clock import VirtualClock
from rune.testing.harness import harness
from tests.hazards.building import kind, ran, runs, sets, splits, waits, workflow

LEAVES = workflow("start>b start>c", b=sets(x=1), c=sets(x=2))
LOGS = workflow("start>s s>l", s=splits(), l=kind("log", message="{{ $item }}"))


@pytest.mark.parametrize(
    ("document", "leaf", "runs"), [(LEAVES, "c", 1), (LOGS, "l", 100)], ids=["leaves", "items"]
)
def test_h_b1_one_completion_whatever_the_shape(
    document: dict[str, Any], leaf: str, runs: int, tmp_path: pathlib.Path
) -> None:
    # fault: b1: every leaf ends the execution
    async def go() -> tuple[list[str], int]:
        async with harness(tmp_path, slots=1) as engine:
            run = await engine.start(document, {"items": list(range(100))})
            await run.end()
            facts = [row.fact for row in await run.facts() if not row.late]
            ends: list[str] = [each.status for each in facts if isinstance(each, ExecutionEnded)]
            leaves = [
                each for each in facts if isinstance(each, NodeResult) and run.plan.ids[each.node] == leaf
            ]
            return ends, len(leaves)

    assert asyncio.run(go()) == (["completed"], runs)


def test_h_b2_completed_means_that_no_branch_runs() -> None:
    # fault: b2: the execution ends when nothing of it is active
    told = ran(workflow("start>a start>w w>b", a=sets(x=1), w=waits(1), b=sets(x=2)))
    assert runs(told, "b") == 1
    assert told["total_duration_ms"] >= 3_600_000


def test_h_b3_the_final_context_holds_every_branch() -> None:
    # fault: b3: the context is that of the last result alone
    told = ran(workflow("start>a start>b", a=sets(x=1), b=sets(x=2)))
    assert (told["context"].get("$a"), told["context"].get("$b")) == ({"x": 1}, {"x": 2})


def test_h_b4_a_dead_end_inside_a_split_completes_nothing() -> None:
    # fault: b4: a dead edge into the aggregator ends the execution
    document = workflow(
        "start>s s>i i>g:true g>out",
        s=splits(),
        i=kind("conditional", expression="$item > 0"),
        g=kind("aggregator"),
        out=kind("output", value="$g"),
    )
    assert ran(document, {"items": [0, 1, 0]})["output"] == [None, 1, None]


def test_h_b5_waiting_at_a_join_is_told_apart_from_dead(tmp_path: pathlib.Path) -> None:
    # fault: b5: `explain` leaves out the parties that are missing
    document = workflow("start>a start>w a>m w>m", a=sets(x=1), w=waits(1), m=kind("merge"))

    async def go() -> tuple[Any, str]:
        clock = VirtualClock()
        async with harness(tmp_path, clock=clock) as engine:
            run = await engine.start(document)
            await engine.settle()
            told = {each.node: each for each in await engine.engine.backend.state.explain(run.id)}
            return told, (await run.end()).status

    waiting, ended = asyncio.run(go())
    assert len(waiting["m"].arrived) == 1
    assert len(waiting["m"].missing) == 1
    assert waiting["w"].due is not None
    assert ended == "completed"
