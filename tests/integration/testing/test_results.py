"""Every object that tells what an execution has done has the same properties, with the same values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rune
from rune.build import Workflow, aggregator, edit, input, split, wait
from rune.build.results import Result
from rune.testing.crash import CrashRun
from rune.testing.engine import EmbeddedEngine, Run
from rune.testing.harness import VirtualClock, harness
from tests.support.async_test import async_test

BEGAN = ["start", "long", "short", "after"]
ENDED = ["start", "short", "after", "long"]


def overtaking() -> Workflow:
    """A branch of two nodes begins after `long` and ends before it."""
    flow = Workflow("overtaking")
    with flow:
        start = input("start")
        long = wait("long", amount=10, unit="minutes")
        short = wait("short", amount=1, unit="minutes")
        after = edit("after", mode="keep_only", assignments=[{"name": "v", "value": 1}])
    start >> [long, short]
    short >> after
    return flow


def check_order(nodes: Any, timeline: Any) -> None:
    """The branches begin in the same millisecond, so that only what follows from the other has an order."""
    began, ended = [each.node_id for each in timeline], [each.node_id for each in nodes]
    assert ended == ENDED
    assert (began[0], sorted(began[1:3]), began[3]) == ("start", ["long", "short"], "after")
    assert all(each.started_at for each in timeline)


def public(kind: type) -> set[str]:
    return {each for each in dir(kind) if not each.startswith("_")}


@pytest.mark.parametrize("kind", [Run, CrashRun])
def test_object_has_what_a_result_has(kind: type) -> None:
    own = {"document", "flow"}  # of a result, which is one document
    assert public(Result) - public(kind) <= own
    assert {"result", "normal"} <= public(kind)


def test_runs_that_began_are_listed_in_that_order(
    rune_engine: EmbeddedEngine, rune_client: rune.Client
) -> None:
    rune_client.deploy(overtaking().to_dict())
    run = rune_engine.start(overtaking())
    rune_engine.settle()
    assert [each.node_id for each in run.timeline] == ["start"], "a wait has no run before it ends"
    assert (run.ended, run.output, run.status) == (False, None, "running")
    rune_engine.advance("10m")
    assert (run.ended, run.status, run.error, run.failed_items) == (True, "completed", None, 0)
    check_order(run.nodes, run.timeline)
    check_order(run.result.nodes, run.result.timeline)

    handle = rune_client.start("overtaking", {})
    rune_engine.advance("10m")
    check_order(handle.nodes(), handle.timeline())


def test_failed_items_are_counted(rune_engine: EmbeddedEngine) -> None:
    flow = Workflow("items")
    with flow:
        start = input("start")
        each = split("each", input_array=start.out.items)
        part = edit("part", mode="keep_only", assignments=[{"name": "v", "value": "{{ 1 // $item }}"}])
        every = aggregator("every")
    start >> each >> part >> every
    run = rune_engine.run(flow, {"items": [1, 0, 2, 0]})
    assert (run.status, run.failed_items, run.result.failed_items) == ("completed", 2, 2)


@async_test
async def test_run_of_the_harness_lists_the_runs_in_that_order(tmp_path: Path) -> None:
    async with harness(tmp_path, clock=VirtualClock()) as engine:
        run = await engine.start(overtaking().to_dict())
        await run.end()
        check_order(Result(await run.document()).nodes, await run.timeline())
