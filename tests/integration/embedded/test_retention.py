"""Collection of ended executions beside a running engine."""

from __future__ import annotations

import asyncio
import pathlib
import time
from collections.abc import Sequence

import pytest

from rune.cli.bench.workloads import fill
from rune.ports.journal import IdempotencyKeyExpiredError, StoreUnavailableError
from rune.ports.retention import Progress, Retention, RetentionResult, Rule
from rune.runtime.maintenance.cleaner import FIRST_CLEANING_MS, PERIOD_MS, Cleaner
from rune.testing.harness import Harness, VirtualClock, harness
from tests.support.documents import document, node

HELLO = document([node("start", "input"), node("send", "noop", parameters={"effectful": True})], "start>send")
RULES = (Rule(keep=0),)


def retention(running: Harness) -> Retention:
    return running.engine.backend.retention


def test_executions_complete_during_collection(tmp_path: pathlib.Path) -> None:
    """Each commit waits for at most one step of the collection, so that many executions end before it does."""
    now = time.time_ns() // 1_000_000
    fill(tmp_path / "rune.db", 20_000, ended_by=now - 3_600_000)

    async def go() -> None:
        async with harness(tmp_path) as running:
            collecting = asyncio.create_task(
                retention(running).collect([Rule(workflow="full", keep=10)], now)
            )
            ended = 0
            while not collecting.done():
                assert (await running.run(HELLO))["status"] == "completed"
                ended += 1
            assert (await collecting).executions == 19_990
            assert ended >= 10

    asyncio.run(go())


def test_collected_execution_is_gone_and_its_key_expired(tmp_path: pathlib.Path) -> None:
    async def go() -> None:
        async with harness(tmp_path) as running:
            run = await running.start(HELLO, key="k")
            await run.end()
            done = await retention(running).collect(RULES, time.time_ns() // 1_000_000)
            assert (done.executions, done.definitions) == (1, 0)
            assert await running.engine.backend.journal.accepted(run.id) is None
            with pytest.raises(IdempotencyKeyExpiredError, match=run.id):
                await running.start(HELLO, key="k")
            again = await running.start(HELLO, key="l")
            await again.end()
        async with harness(tmp_path) as running:
            assert len(await running.engine.backend.journal.facts(again.id)) > 0
            assert (await running.engine.plans.plan(again.plan.hash)).hash == again.plan.hash

    asyncio.run(go())


class FailingRetention:
    """Records the time of each call; the first two calls fail."""

    def __init__(self) -> None:
        self.at: list[int] = []

    async def collect(
        self, rules: Sequence[Rule], now: int, *, progress: Progress | None = None
    ) -> RetentionResult:
        self.at.append(now)
        if len(self.at) == 1:
            raise StoreUnavailableError("not now")
        if len(self.at) == 2:
            raise RuntimeError("a mistake")
        return RetentionResult(executions=1, shrinks=False)

    async def vacuum(self) -> tuple[int, int]:
        return 0, 0


async def _settle(working: asyncio.Task[None]) -> None:
    for _ in range(10):
        await asyncio.wait([working], timeout=0)


def test_cleaner_collects_hourly_despite_errors() -> None:
    async def go() -> list[int]:
        clock, failing = VirtualClock(0), FailingRetention()
        working = asyncio.create_task(Cleaner(failing, RULES, clock).run())
        await _settle(working)
        clock.wake()
        await _settle(working)
        for ms in (
            FIRST_CLEANING_MS - 1,
            1,
            PERIOD_MS - 1,
            1,
            PERIOD_MS,
            PERIOD_MS,
        ):
            clock.advance(ms)
            await _settle(working)
        working.cancel()
        await asyncio.wait([working])
        return failing.at

    assert asyncio.run(go()) == [FIRST_CLEANING_MS + PERIOD_MS * number for number in range(4)]


def test_cleaner_without_rules_returns() -> None:
    async def go() -> None:
        failing = FailingRetention()
        await Cleaner(failing, (), VirtualClock(0)).run()
        assert failing.at == []

    asyncio.run(go())
