"""Retention beside a running engine: the janitor collects by the clock, and executions go on meanwhile."""

from __future__ import annotations

import asyncio
import pathlib
import time
from collections.abc import Sequence

import pytest

from rune.bench.baseline import fill
from rune.ports.journal import IdempotencyKeyExpiredError, StoreUnavailableError
from rune.ports.retention import Progress, Retention, RetentionResult, Rule
from rune.runtime.maintenance.cleaner import FIRST_RUN_MS, PERIOD_MS, Cleaner
from rune.testing.clock import VirtualClock
from rune.testing.harness import Harness, harness
from tests.unit.core.documents import document, node

HELLO = document([node("start", "input"), node("send", "noop", parameters={"effectful": True})], "start>send")
RULES = (Rule(keep=0),)


def retention(running: Harness) -> Retention:
    return running.engine.backend.retention


def test_executions_go_on_while_a_file_is_cleared(tmp_path: pathlib.Path) -> None:
    """Each needs a few commits, and waits for at most one act at each: many must end before the collection does."""
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


def test_what_was_removed_is_gone_for_the_engine_and_its_key_is_spent(tmp_path: pathlib.Path) -> None:
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


class Tried:
    """A retention that notes when it is asked, and fails at first."""

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


async def _settled(working: asyncio.Task[None]) -> None:
    for _ in range(10):
        await asyncio.wait([working], timeout=0)


def test_the_janitor_collects_once_an_hour_whatever_happens() -> None:
    async def go() -> list[int]:
        clock, tried = VirtualClock(0), Tried()
        working = asyncio.create_task(Cleaner(tried, RULES, clock).run())
        await _settled(working)
        clock.wake()
        await _settled(working)
        for ms in (FIRST_RUN_MS - 1, 1, PERIOD_MS - 1, 1, PERIOD_MS, PERIOD_MS):
            clock.advance(ms)
            await _settled(working)
        working.cancel()
        await asyncio.wait([working])
        return tried.at

    assert asyncio.run(go()) == [FIRST_RUN_MS + PERIOD_MS * number for number in range(4)]


def test_without_rules_the_janitor_has_nothing_to_do() -> None:
    async def go() -> None:
        tried = Tried()
        await Cleaner(tried, (), VirtualClock(0)).run()
        assert tried.at == []

    asyncio.run(go())
