"""Contract of journals for start limits: they are exact, and rejected starts leave nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec
import pytest

from rune.core.execution.fact import ExecutionEnded
from rune.core.execution.stored_value import Inline
from rune.ports.access import AppliedLimits, Limits, StartLimitError, StartLimitStore
from rune.ports.journal import ExecutionRecord, IdempotencyConflictError, Journal
from tests.contract.suites.records import execution_record, result
from tests.support.async_test import async_test

MANY = 30
ORDERS = AppliedLimits(("workflow:orders",))
BOTH = AppliedLimits(("key:k1", "workflow:orders"))
KEY = AppliedLimits(("key:k1",))
MINUTE = 60_000


class LimitDriver(msgspec.Struct):
    """The stores under test. `advance` moves the clock of the limits by the given ms."""

    journal: Journal
    limits: StartLimitStore
    now: Callable[[], int]
    advance: Callable[[int], None]

    async def start(
        self, name: str, held: AppliedLimits | None = ORDERS, **overrides: object
    ) -> ExecutionRecord:
        given = {"workflow": "orders", "at": self.now(), **overrides}
        return await self.journal.accept(execution_record(name, **given), held=held)

    async def start_rejected(
        self, name: str, held: AppliedLimits = ORDERS, **overrides: object
    ) -> StartLimitError:
        with pytest.raises(StartLimitError) as raised:
            await self.start(name, held, **overrides)
        assert await self.journal.accepted(name) is None
        return raised.value

    async def end(self, name: str) -> None:
        await self.journal.record(name, [ExecutionEnded(self.now(), "completed")])

    async def start_many(self, held: AppliedLimits = ORDERS) -> tuple[list[str], list[StartLimitError]]:
        """Start many at once; return the accepted ids and the errors."""
        wanted = [self.start(f"c{number}", held) for number in range(MANY)]
        answers = await asyncio.gather(*wanted, return_exceptions=True)
        assert all(isinstance(each, ExecutionRecord | StartLimitError) for each in answers), answers
        accepted = [each.id for each in answers if isinstance(each, ExecutionRecord)]
        return accepted, [each for each in answers if isinstance(each, StartLimitError)]


class StartLimitContract:
    """Subclasses open the stores in a folder; opened again there, they have the same content."""

    def make_driver(self, folder: Path) -> AbstractAsyncContextManager[LimitDriver]:
        raise NotImplementedError

    @async_test
    async def test_limits_are_stored_and_removed(self, tmp_path: Path) -> None:
        whole = Limits(rate="10/s", burst=3, running=20, waiting=1_000)
        async with self.make_driver(tmp_path) as driver:
            await driver.limits.put("workflow:orders", whole, 1)
            await driver.limits.put("key:k1", Limits(running=2), 1)
        async with self.make_driver(tmp_path) as driver:
            assert await driver.limits.all() == {"key:k1": Limits(running=2), "workflow:orders": whole}
            await driver.limits.put("key:k1", Limits(), 1)
            assert await driver.limits.all() == {"workflow:orders": whole}

    @async_test
    async def test_running_limit_is_exact(self, tmp_path: Path) -> None:
        async with self.make_driver(tmp_path) as driver:
            await driver.limits.put("workflow:orders", Limits(running=7), driver.now())
            accepted, rejected = await driver.start_many()
            assert (len(accepted), len(rejected)) == (7, MANY - 7)
            assert {each.limit for each in rejected} == {"running"}
            assert "`orders`" in rejected[0].message
            await driver.end(accepted[0])
            await driver.start("next")
            await driver.start_rejected("last")

    @async_test
    async def test_running_limit_ignores_other_workflows(self, tmp_path: Path) -> None:
        async with self.make_driver(tmp_path) as driver:
            await driver.limits.put("workflow:orders", Limits(running=1), driver.now())
            await driver.start("x", None, workflow="other")
            await driver.start("y")
            await driver.start("z", None, workflow="other")
            await driver.start_rejected("w")

    @async_test
    async def test_exempt_starts_pass_and_are_counted(self, tmp_path: Path) -> None:
        async with self.make_driver(tmp_path) as driver:
            await driver.limits.put("workflow:orders", Limits(running=1), driver.now())
            await driver.start("first", None)
            await driver.start("second", None)
            await driver.start_rejected("x")

    @async_test
    async def test_key_limit_counts_all_workflows(self, tmp_path: Path) -> None:
        async with self.make_driver(tmp_path) as driver:
            await driver.limits.put("key:k1", Limits(running=2), driver.now())
            await driver.start("x", KEY)
            await driver.start("y", KEY, workflow="other")
            rejected = await driver.start_rejected("z", KEY)
            assert rejected.limit == "running"
            assert "`k1`" in rejected.message
            await driver.start("w", AppliedLimits(("key:k2",)))
            await driver.end("y")
            await driver.start("z", KEY)
            await driver.start_rejected("v", KEY)

    @async_test
    async def test_rate_limit_allows_burst_then_refills(self, tmp_path: Path) -> None:
        async with self.make_driver(tmp_path) as driver:
            await driver.limits.put("workflow:orders", Limits(rate="6/h", burst=4), driver.now())
            accepted, rejected = await driver.start_many()
            assert (len(accepted), len(rejected)) == (4, MANY - 4)
            assert {each.limit for each in rejected} == {"rate"}
            assert all(9 * 60 < each.retry_after <= 10 * 60 for each in rejected)
            driver.advance(rejected[0].retry_after * 1_000)
            await driver.start("after")
            assert 0 < (await driver.start_rejected("again")).retry_after <= 10 * 60
            driver.advance(24 * 60 * MINUTE)
            assert len((await _start_others(driver))[0]) == 4

    @async_test
    async def test_rate_count_survives_new_limits(self, tmp_path: Path) -> None:
        async with self.make_driver(tmp_path) as driver:
            await driver.limits.put("workflow:orders", Limits(rate="1/h"), driver.now())
            await driver.start("x")
            await driver.limits.put("workflow:orders", Limits(rate="1/h", running=9), driver.now())
            assert (await driver.start_rejected("y")).limit == "rate"
            await driver.limits.put("workflow:orders", Limits(rate="2/h"), driver.now())
            await driver.start("y")

    @async_test
    async def test_start_rejected_by_one_limit_consumes_no_other(self, tmp_path: Path) -> None:
        async with self.make_driver(tmp_path) as driver:
            await driver.limits.put("key:k1", Limits(rate="2/h"), driver.now())
            await driver.limits.put("workflow:orders", Limits(running=1), driver.now())
            await driver.start("x", BOTH)
            for number in range(5):
                assert (await driver.start_rejected(f"r{number}", BOTH)).limit == "running"
            await driver.end("x")
            await driver.start("y", BOTH)
            await driver.end("y")
            assert (await driver.start_rejected("z", BOTH)).limit == "rate"

    @async_test
    async def test_repeated_start_is_answered_despite_limits(self, tmp_path: Path) -> None:
        async with self.make_driver(tmp_path) as driver:
            await driver.limits.put("workflow:orders", Limits(rate="2/h", running=1), driver.now())
            first = await driver.start("x", key="k")
            for held in (ORDERS, AppliedLimits(("workflow:orders",), "full")):
                assert await driver.start("y", held, key="k") == first
                assert await driver.start("x", held) == first
                with pytest.raises(IdempotencyConflictError):
                    await driver.start("y", held, key="k", input=Inline(b"[]"))
            await driver.end("x")
            await driver.start("z")

    @async_test
    async def test_concurrent_starts_with_one_key_count_once(self, tmp_path: Path) -> None:
        async with self.make_driver(tmp_path) as driver:
            await driver.limits.put("workflow:orders", Limits(rate="1/h", running=1), driver.now())
            wanted = [driver.start(f"x{number}", key="k", at=driver.now()) for number in range(MANY)]
            assert len({each.id for each in await asyncio.gather(*wanted)}) == 1

    @async_test
    async def test_key_of_rejected_start_is_free(self, tmp_path: Path) -> None:
        async with self.make_driver(tmp_path) as driver:
            await driver.limits.put("workflow:orders", Limits(running=1), driver.now())
            await driver.start("x")
            await driver.start_rejected("y", key="k")
            assert (
                await driver.start_rejected("y", AppliedLimits((), "the queue is full"), key="k")
            ).limit == "waiting"
            await driver.end("x")
            await driver.start("z", key="k", input=Inline(b"[]"))
            await driver.journal.record("z", [result(1)])

    @async_test
    async def test_starts_without_limit_all_pass(self, tmp_path: Path) -> None:
        async with self.make_driver(tmp_path) as driver:
            accepted, rejected = await driver.start_many()
            assert (len(accepted), rejected) == (MANY, [])


async def _start_others(driver: LimitDriver) -> tuple[list[str], list[StartLimitError]]:
    answers = await asyncio.gather(*(driver.start(f"o{n}") for n in range(MANY)), return_exceptions=True)
    accepted = [each.id for each in answers if isinstance(each, ExecutionRecord)]
    return accepted, [each for each in answers if isinstance(each, StartLimitError)]
