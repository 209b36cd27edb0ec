"""What every journal promises of limits: they hold exactly, and what they refuse leaves nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec
import pytest

from rune.core.execution.fact import ExecutionEnded
from rune.ports.access import AppliedLimits, Limits, StartLimitError, StartLimitStore
from rune.ports.journal import ExecutionRecord, IdempotencyConflictError, Journal
from tests.contract.suites.records import accepted, result
from tests.contract.suites.scenario import scenario

MANY = 30
ORDERS = AppliedLimits(("workflow:orders",))
BOTH = AppliedLimits(("key:k1", "workflow:orders"))
KEY = AppliedLimits(("key:k1",))
MINUTE = 60_000


class Limited(msgspec.Struct):
    """What is opened together. `later`: let so many ms go by, as far as limits can tell."""

    journal: Journal
    limits: StartLimitStore
    moment: Callable[[], int]
    later: Callable[[int], None]

    async def start(self, name: str, held: AppliedLimits | None = ORDERS, **said: object) -> ExecutionRecord:
        given = {"workflow": "orders", "at": self.moment(), **said}
        return await self.journal.accept(accepted(name, **given), held=held)

    async def refused(self, name: str, held: AppliedLimits = ORDERS, **said: object) -> StartLimitError:
        with pytest.raises(StartLimitError) as found:
            await self.start(name, held, **said)
        assert await self.journal.accepted(name) is None
        return found.value

    async def end(self, name: str) -> None:
        await self.journal.record(name, [ExecutionEnded(self.moment(), "completed")])

    async def crowd(self, held: AppliedLimits = ORDERS) -> tuple[list[str], list[StartLimitError]]:
        """Many at once: who came through, and who was refused."""
        wanted = [self.start(f"c{number}", held) for number in range(MANY)]
        answers = await asyncio.gather(*wanted, return_exceptions=True)
        assert all(isinstance(each, ExecutionRecord | StartLimitError) for each in answers), answers
        through = [each.id for each in answers if isinstance(each, ExecutionRecord)]
        return through, [each for each in answers if isinstance(each, StartLimitError)]


class LimitContract:
    """Subclass it and open the stores in a folder; opened again there, they hold what they held."""

    def make_limited(self, folder: Path) -> AbstractAsyncContextManager[Limited]:
        raise NotImplementedError

    @scenario
    async def test_limits_are_kept_and_lifted(self, folder: Path) -> None:
        whole = Limits(rate="10/s", burst=3, running=20, waiting=1_000)
        async with self.make_limited(folder) as found:
            await found.limits.put("workflow:orders", whole, 1)
            await found.limits.put("key:k1", Limits(running=2), 1)
        async with self.make_limited(folder) as found:
            assert await found.limits.all() == {"key:k1": Limits(running=2), "workflow:orders": whole}
            await found.limits.put("key:k1", Limits(), 1)
            assert await found.limits.all() == {"workflow:orders": whole}

    @scenario
    async def test_running_holds_exactly(self, folder: Path) -> None:
        async with self.make_limited(folder) as found:
            await found.limits.put("workflow:orders", Limits(running=7), found.moment())
            through, refused = await found.crowd()
            assert (len(through), len(refused)) == (7, MANY - 7)
            assert {each.limit for each in refused} == {"running"}
            assert "`orders`" in refused[0].message
            await found.end(through[0])
            await found.start("next")
            await found.refused("last")

    @scenario
    async def test_other_workflows_are_not_counted(self, folder: Path) -> None:
        async with self.make_limited(folder) as found:
            await found.limits.put("workflow:orders", Limits(running=1), found.moment())
            await found.start("x", None, workflow="other")
            await found.start("y")
            await found.start("z", None, workflow="other")
            await found.refused("w")

    @scenario
    async def test_starts_that_are_held_to_nothing_pass_and_count(self, folder: Path) -> None:
        async with self.make_limited(folder) as found:
            await found.limits.put("workflow:orders", Limits(running=1), found.moment())
            await found.start("tick", None)
            await found.start("tock", None)
            await found.refused("x")

    @scenario
    async def test_a_key_is_counted_over_all_workflows(self, folder: Path) -> None:
        async with self.make_limited(folder) as found:
            await found.limits.put("key:k1", Limits(running=2), found.moment())
            await found.start("x", KEY)
            await found.start("y", KEY, workflow="other")
            refused = await found.refused("z", KEY)
            assert refused.limit == "running"
            assert "`k1`" in refused.message
            await found.start("w", AppliedLimits(("key:k2",)))
            await found.end("y")
            await found.start("z", KEY)
            await found.refused("v", KEY)

    @scenario
    async def test_a_rate_lets_so_many_through_at_once_and_then_in_its_time(self, folder: Path) -> None:
        async with self.make_limited(folder) as found:
            await found.limits.put("workflow:orders", Limits(rate="6/h", burst=4), found.moment())
            through, refused = await found.crowd()
            assert (len(through), len(refused)) == (4, MANY - 4)
            assert {each.limit for each in refused} == {"rate"}
            assert all(9 * 60 < each.retry_after <= 10 * 60 for each in refused)
            found.later(refused[0].retry_after * 1_000)
            await found.start("after")
            assert 0 < (await found.refused("again")).retry_after <= 10 * 60
            found.later(24 * 60 * MINUTE)
            assert len((await _others(found))[0]) == 4

    @scenario
    async def test_what_a_rate_has_counted_stays_when_it_is_set_again(self, folder: Path) -> None:
        async with self.make_limited(folder) as found:
            await found.limits.put("workflow:orders", Limits(rate="1/h"), found.moment())
            await found.start("x")
            await found.limits.put("workflow:orders", Limits(rate="1/h", running=9), found.moment())
            assert (await found.refused("y")).limit == "rate"
            await found.limits.put("workflow:orders", Limits(rate="2/h"), found.moment())
            await found.start("y")

    @scenario
    async def test_a_start_that_one_limit_refuses_uses_up_nothing_of_another(self, folder: Path) -> None:
        async with self.make_limited(folder) as found:
            await found.limits.put("key:k1", Limits(rate="2/h"), found.moment())
            await found.limits.put("workflow:orders", Limits(running=1), found.moment())
            await found.start("x", BOTH)
            for number in range(5):
                assert (await found.refused(f"r{number}", BOTH)).limit == "running"
            await found.end("x")
            await found.start("y", BOTH)
            await found.end("y")
            assert (await found.refused("z", BOTH)).limit == "rate"

    @scenario
    async def test_what_was_accepted_under_a_key_is_answered_whatever_the_limits(self, folder: Path) -> None:
        async with self.make_limited(folder) as found:
            await found.limits.put("workflow:orders", Limits(rate="2/h", running=1), found.moment())
            first = await found.start("x", key="k")
            for held in (ORDERS, AppliedLimits(("workflow:orders",), "full")):
                assert await found.start("y", held, key="k") == first
                assert await found.start("x", held) == first
                with pytest.raises(IdempotencyConflictError):
                    await found.start("y", held, key="k", input=b"[]")
            await found.end("x")
            await found.start("z")

    @scenario
    async def test_one_key_at_once_is_one_start(self, folder: Path) -> None:
        async with self.make_limited(folder) as found:
            await found.limits.put("workflow:orders", Limits(rate="1/h", running=1), found.moment())
            wanted = [found.start(f"x{number}", key="k", at=found.moment()) for number in range(MANY)]
            assert len({each.id for each in await asyncio.gather(*wanted)}) == 1

    @scenario
    async def test_a_key_that_was_refused_is_free(self, folder: Path) -> None:
        async with self.make_limited(folder) as found:
            await found.limits.put("workflow:orders", Limits(running=1), found.moment())
            await found.start("x")
            await found.refused("y", key="k")
            assert (
                await found.refused("y", AppliedLimits((), "the queue is full"), key="k")
            ).limit == "waiting"
            await found.end("x")
            await found.start("z", key="k", input=b"[]")
            await found.journal.record("z", [result(1)])

    @scenario
    async def test_those_without_a_limit_are_not_held_up(self, folder: Path) -> None:
        async with self.make_limited(folder) as found:
            through, refused = await found.crowd()
            assert (len(through), refused) == (MANY, [])


async def _others(found: Limited) -> tuple[list[str], list[StartLimitError]]:
    answers = await asyncio.gather(*(found.start(f"o{n}") for n in range(MANY)), return_exceptions=True)
    through = [each.id for each in answers if isinstance(each, ExecutionRecord)]
    return through, [each for each in answers if isinstance(each, StartLimitError)]
