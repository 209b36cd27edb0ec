"""What a run shows of an execution that another process works on."""

from __future__ import annotations

import asyncio
import pathlib

from rune.bootstrap import open_reader
from rune.cli.follow import ExecutionPoller
from rune.cli.progress import NodeProgress, ProgressCounter, state_of
from rune.settings import Settings
from rune.testing.clock import VirtualClock
from rune.testing.harness import harness
from tests.unit.core.documents import document, node

DOCUMENT = document(
    [
        node("start", "input"),
        node("pick", "conditional", parameters={"expression": "true"}),
        node("no", "noop"),
        node("behind", "noop"),
        node("parts", "split", parameters={"input_array": "{{ [1, 2, 3] }}"}),
        node("inner", "noop"),
        node("all", "aggregator"),
        node("ask", "wait", parameters={"resume": "signal"}),
        node("nap", "wait", parameters={"amount": 1, "unit": "minutes"}),
    ],
    "start>pick",
    "pick>no:false",
    "no>behind",
    "start>parts",
    "parts>inner",
    "inner>all",
    "start>ask",
    "start>nap",
)


def test_the_file_alone_tells_how_far_it_is(tmp_path: pathlib.Path) -> None:
    async def work() -> tuple[dict[str, NodeProgress], int]:
        clock = VirtualClock()
        async with harness(tmp_path, clock=clock) as engine:
            run = await engine.start(DOCUMENT)
            await engine.settle()
            tally = ProgressCounter(run.id)
            tally.begin(run.plan, run.id)
            lookout = ExecutionPoller(run.accepted, run.plan, tally)
            async with open_reader(Settings(home=str(tmp_path))) as opened:
                assert await lookout.poll(opened)
                assert not await lookout.poll(opened), "nobody has written since"
                lines = {each.node: each for each in tally.lines()}
                await engine.engine.services.executions.cancel(run.id)
                assert await lookout.poll(opened)
                assert lookout.end is not None
                assert lookout.end.status == "cancelled"
            return lines, clock.now()

    lines, now = asyncio.run(work())

    assert {name: each.status for name, each in lines.items()} == {
        "start": "success",
        "pick": "success",
        "no": "skipped",
        "behind": "skipped",
        "parts": "success",
        "inner": "success",
        "all": "success",
        "ask": "waiting",
        "nap": "waiting",
    }
    assert (lines["parts"].done, lines["parts"].total) == (3, 3)
    assert state_of(lines["ask"], now) == "waiting for a signal"
    assert state_of(lines["nap"], now).startswith("waiting, in 1 min")


def test_what_runs_is_told_from_what_has_not_begun(tmp_path: pathlib.Path) -> None:
    """A node that has no fact yet, behind one that has: somebody is at it."""

    async def work() -> dict[str, str]:
        async with harness(tmp_path, clock=VirtualClock()) as engine:
            run = await engine.start(DOCUMENT)
            await engine.settle()
            tally = ProgressCounter(run.id)
            tally.begin(run.plan, run.id)
            async with open_reader(Settings(home=str(tmp_path))) as opened:
                facts = await opened.facts(run.id)
                inner = run.plan.index["inner"]
                gone = {inner, run.plan.index["all"], run.plan.index["nap"]}
                lookout = ExecutionPoller(run.accepted, run.plan, tally)
                lookout.count(each for each in facts if getattr(each.fact, "node", -1) not in gone)
                lookout.seen = facts[-1].number  # the rest was never written
                await lookout.poll(opened)
                return {each.node: each.status for each in tally.lines()}

    found = asyncio.run(work())

    assert (found["inner"], found["nap"], found["all"]) == ("running", "running", "pending")
