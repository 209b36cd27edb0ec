"""`ExecutionPoller` reads the progress of an execution that another process runs."""

from __future__ import annotations

import asyncio
import pathlib

from rune.bootstrap import open_reader
from rune.cli.live import ExecutionPoller
from rune.cli.progress import NodeProgress, ProgressCounter, state_of
from rune.settings import Settings
from rune.testing.harness import VirtualClock, harness
from tests.support.documents import document, node
from tests.support.waiting import until

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


def test_poller_reads_progress_from_file(tmp_path: pathlib.Path) -> None:
    async def work() -> tuple[dict[str, NodeProgress], int]:
        clock = VirtualClock()
        async with harness(tmp_path, clock=clock) as engine:
            run = await engine.start(DOCUMENT)
            await engine.settle()
            counter = ProgressCounter(run.id)
            counter.begin(run.plan, run.id)
            poller = ExecutionPoller(run.accepted, run.plan, counter)
            async with open_reader(Settings(home=str(tmp_path))) as opened:
                assert await poller.poll(opened)

                async def rests() -> bool:  # claims are written up to a second later
                    return not await poller.poll(opened)

                await until(rests, "the file does not change")
                lines = {each.node: each for each in counter.lines()}
                await engine.engine.services.executions.cancel(run.id)
                assert await poller.poll(opened)
                assert poller.end is not None
                assert poller.end.status == "cancelled"
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


def test_poller_distinguishes_running_from_pending(tmp_path: pathlib.Path) -> None:
    """A node without a fact after a node that has ended is running."""

    async def work() -> dict[str, str]:
        async with harness(tmp_path, clock=VirtualClock()) as engine:
            run = await engine.start(DOCUMENT)
            await engine.settle()
            counter = ProgressCounter(run.id)
            counter.begin(run.plan, run.id)
            async with open_reader(Settings(home=str(tmp_path))) as opened:
                facts = await opened.facts(run.id)
                inner = run.plan.index["inner"]
                removed = {inner, run.plan.index["all"], run.plan.index["nap"]}
                poller = ExecutionPoller(run.accepted, run.plan, counter)
                poller.count(each for each in facts if getattr(each.fact, "node", -1) not in removed)
                poller.seen = facts[-1].number  # the removed facts are not read again
                await poller.poll(opened)
                return {each.node: each.status for each in counter.lines()}

    found = asyncio.run(work())

    assert (found["inner"], found["nap"], found["all"]) == ("running", "running", "pending")
