"""Hazards F: wait and timers."""

from __future__ import annotations

import asyncio
import pathlib
from functools import partial
from typing import Any

import pytest

from rune.core.execution.fact import NodeResult
from rune.runtime.maintenance import scheduler
from rune.testing.clock import VirtualClock
from rune.testing.harness import harness
from tests.hazards import waiting
from tests.hazards.building import counting, entry, fails, kind, ran, sets, splits, waits, workflow
from tests.hazards.waiting import HOUR


def test_h_f1_a_timer_survives_the_process(tmp_path: pathlib.Path) -> None:
    # fault: f1: a fold arms no timers
    async def go() -> str:
        clock = VirtualClock()
        document = workflow("start>w w>a", w=waits(1), a=sets(x=1))
        for _ in range(3):
            async with harness(tmp_path, clock=clock) as engine:
                run = await engine.start(document, key="k")
                await engine.settle()
        async with harness(tmp_path, clock=clock) as engine:
            ending = await engine.engine.wait_for(run.id)
            clock.advance(HOUR)
            return (await engine.until(ending)).status

    assert asyncio.run(go()) == "completed"


def test_h_f3_timers_have_names_and_a_wait_resumes_once(tmp_path: pathlib.Path) -> None:
    # fault: f3: the id of a timer is random
    calls: list[str] = []

    async def go() -> dict[str, Any]:
        clock = VirtualClock()
        async with harness(tmp_path, clock=clock, registry=counting(calls)) as engine:
            run = await engine.start(workflow("start>w w>c", w=waits(1), c=kind("t.call")))
            await engine.settle()
            clock.advance(HOUR)
            await run.end()
            await engine.settle()
            return await run.document()

    told = asyncio.run(go())
    assert entry(told, "w")["output"]["timer_id"] == "wait:w@/"
    assert calls == ["c@/"]


def test_h_f4_waits_that_end_a_split_complete_once(tmp_path: pathlib.Path) -> None:
    # fault: f4: the end of an item ends the execution
    waiting.waits_that_end_a_split_complete_once(partial(harness, tmp_path))


def test_h_f5_timers_of_an_ended_execution_do_nothing(tmp_path: pathlib.Path) -> None:
    # fault: f5: neither the state nor `touch` heeds the end
    calls: list[str] = []

    async def go() -> tuple[str, int, int]:
        clock = VirtualClock()
        async with harness(tmp_path, clock=clock, registry=counting(calls)) as engine:
            run = await engine.start(workflow("start>w w>c start>a", w=waits(1), c=kind("t.call"), a=fails()))
            end = await run.end()
            before = len(await run.facts())
            clock.advance(2 * HOUR)
            await engine.settle()
            return end.status, before, len(await run.facts())

    ended, before, after = asyncio.run(go())
    assert (ended, calls) == ("halted", [])
    assert before == after


@pytest.mark.parametrize(("amount", "ms"), [(1.5, 1_500), (0.25, 250), (0, 0)])
def test_h_f8_fractions_of_a_unit_count(amount: float, ms: int) -> None:
    # fault: f8-fractions: the amount is made an int
    assert ms <= ran(workflow("start>w", w=waits(amount, "seconds")))["total_duration_ms"] < ms + 1_000


def test_h_f8_an_amount_beyond_all_dates_fails_its_node() -> None:
    # fault: f8-overflow: an amount beyond all dates resumes at once
    waiting.an_amount_beyond_all_dates_fails_its_node(ran)


def test_h_f9_more_timers_than_a_batch_all_fire(tmp_path: pathlib.Path) -> None:
    # fault: f9: what is due beyond the limit of one batch is dropped
    async def go() -> int:
        clock = VirtualClock()
        async with harness(tmp_path, clock=clock) as engine:
            document = workflow("start>s s>w", s=splits("{{ range(800) }}"), w=waits(1))
            run = await engine.start(document)
            await engine.settle()
            clock.advance(HOUR)
            await engine.settle()
            return sum(
                each["status"] == "success" and each["node_id"] == "w"
                for each in (await run.document())["nodes"]
            )

    assert asyncio.run(go()) == 800


def test_h_f11_many_due_timers_do_not_starve_fresh_work(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # fault: f11: the scheduler takes batch after batch without letting the loop run, and items ride with everybody else
    monkeypatch.setattr(scheduler, "BATCH", 20)

    async def go() -> tuple[int, str]:
        clock = VirtualClock()
        async with harness(tmp_path, clock=clock) as engine:
            many = await engine.start(
                workflow("start>s s>w w>e", s=splits("{{ range(1000) }}"), w=waits(1), e=sets(x=1))
            )
            await engine.settle()
            clock.advance(HOUR)
            fresh = await engine.start(workflow("start>a", a=sets(x=1)))
            async with asyncio.timeout(60):
                await fresh.ending
            before = sum(isinstance(row.fact, NodeResult) for row in await many.facts())
            return before, (await many.end(60)).status

    before, ended = asyncio.run(go())
    assert ended == "completed"
    assert before < 1_800, "fresh work came behind everything that was due"
