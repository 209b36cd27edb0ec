"""When the joins of an execution are reported: the newest figures within a period, of each execution."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from rune.runtime.messaging import waiting_joins
from rune.runtime.messaging.waiting_joins import JoinReporter
from tests.support.async_test import async_test

PERIOD_S = 0.05


class Record:
    def __init__(self, id: str) -> None:
        self.id = id


class Data:
    """An execution with a number of arrivals."""

    def __init__(self, id: str) -> None:
        self.accepted = Record(id)
        self.count = 0


class Reports:
    """The counts that were reported, by execution. `refusals`: so many reports are left to another process first."""

    def __init__(self, refusals: int = 0) -> None:
        self.counts: dict[str, list[int]] = {}
        self.times: list[float] = []
        self.reported = asyncio.Event()
        self.refusals = refusals
        self.reporter = JoinReporter(cast(Any, self.report))

    async def report(self, data: Data) -> bool:
        if self.refusals:
            self.refusals -= 1
            return False
        self.times.append(asyncio.get_running_loop().time())
        self.counts.setdefault(data.accepted.id, []).append(data.count)
        self.reported.set()
        return True

    def arrive(self, data: Data) -> None:
        data.count += 1
        self.reporter.arrived(cast(Any, data))

    async def wait_for(self, id: str, count: int) -> None:
        async with asyncio.timeout(30):
            while self.counts.get(id, [0])[-1] < count:
                self.reported.clear()
                await self.reported.wait()


@pytest.fixture(autouse=True)
def short_periods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_joins, "PERIOD_S", PERIOD_S)
    monkeypatch.setattr(waiting_joins, "FIRST_LOOK_S", 0.0)


@async_test
async def test_arrival_within_the_period_is_reported_at_its_end() -> None:
    reports, data = Reports(), Data("x")
    reports.arrive(data)
    await reports.wait_for("x", 1)
    reports.arrive(data)
    reports.arrive(data)
    await reports.wait_for("x", 3)
    assert reports.counts == {"x": [1, 3]}
    assert reports.times[1] - reports.times[0] >= PERIOD_S * 0.9
    await reports.reporter.close()


@async_test
async def test_report_that_another_process_prevents_is_repeated() -> None:
    reports, data = Reports(refusals=3), Data("x")
    reports.arrive(data)
    await reports.wait_for("x", 1)
    assert reports.counts == {"x": [1]}
    await reports.reporter.close()


@async_test
async def test_executions_that_arrive_together_are_all_reported() -> None:
    reports = Reports()
    executions = [Data(f"x{number}") for number in range(50)]
    for data in executions:
        reports.arrive(data)
    for data in executions:
        await reports.wait_for(data.accepted.id, 1)
    await reports.reporter.close()


@async_test
async def test_execution_that_is_not_reported_any_more_takes_no_memory() -> None:
    reports, data = Reports(), Data("x")
    reports.arrive(data)
    await reports.wait_for("x", 1)
    async with asyncio.timeout(30):
        await asyncio.gather(*reports.reporter._reports.values())
    assert not reports.reporter._reports
    assert not reports.reporter._changed
    reports.arrive(data)
    await reports.wait_for("x", 2)
    reports.reporter.forget("x")
    await reports.reporter.close()


@async_test
async def test_number_of_reported_executions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_joins, "MAX_REPORTED", 3)
    reports = Reports()
    for number in range(5):
        reports.arrive(Data(f"x{number}"))
    assert len(reports.reporter._reports) == len(reports.reporter._changed) == 3
    await reports.reporter.close()
