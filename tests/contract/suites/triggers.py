"""What every store of triggers promises: changes to what was seen or none, one hook a path, write-once deliveries."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from msgspec.structs import replace

from rune.core.triggers import Schedule, ScheduleState, WebhookConfig
from rune.ports.triggers import PathTakenError, Trigger, TriggerStore, trigger_id
from tests.contract.suites.scenario import scenario

AT_ONCE = 20


def hook(workflow: str = "orders", path: str = "p1") -> Trigger:
    """A hook that is not stored."""
    return Trigger(
        id=trigger_id(workflow, "in"),
        workflow=workflow,
        node="in",
        version=1,
        hash="h",
        at=5,
        hook=WebhookConfig(method="PUT", auth="hmac"),
        path=path,
    )


def schedule(workflow: str = "report", due: int | None = 100) -> Trigger:
    """A schedule that is not stored."""
    return Trigger(
        id=trigger_id(workflow, "clock"),
        workflow=workflow,
        node="clock",
        version=2,
        hash="h",
        at=5,
        schedule=Schedule(cron="* * * * *", timezone="Europe/Berlin", catch_up="all", overlap="queue"),
        standing=ScheduleState(due, (1, 2), 3, "x1"),
        due=due,
    )


async def stored(triggers: TriggerStore, trigger: Trigger) -> Trigger:
    """Stored, and as it is then."""
    found = await triggers.put(trigger)
    assert found is not None
    return found


class TriggerContract:
    """Subclass it and open a store in a folder; opened again there, it holds what it held."""

    def make_triggers(self, folder: Path) -> AbstractAsyncContextManager[TriggerStore]:
        raise NotImplementedError

    def crashed(self, folder: Path) -> Path:
        """A folder with what a crash at this instant would leave on disk; the store stays open."""
        raise NotImplementedError

    @scenario
    async def test_what_is_stored_is_found_whole_and_survives_a_crash(self, folder: Path) -> None:
        async with self.make_triggers(folder) as triggers:
            one = await stored(triggers, hook())
            two = await stored(triggers, schedule())
            assert (one.revision, two.revision) == (1, 1)
            left = self.crashed(folder)
        async with self.make_triggers(left) as triggers:
            assert list(await triggers.list()) == [one, two]
            assert list(await triggers.list("report")) == [two]
            assert await triggers.find(one.id) == one
            assert await triggers.find("nobody") is None
            assert await triggers.at_path("p1") == one
            assert await triggers.at_path("p\0") is None

    @scenario
    async def test_of_many_who_change_what_they_saw_one_does(self, folder: Path) -> None:
        async with self.make_triggers(folder) as triggers:
            made = await asyncio.gather(*(triggers.put(schedule()) for _ in range(AT_ONCE)))
            assert sum(each is not None for each in made) == 1
            seen = await triggers.find(schedule().id)
            assert seen is not None
            moved = await asyncio.gather(
                *(triggers.put(replace(seen, due=number, version=number)) for number in range(AT_ONCE))
            )
            (winner,) = [each for each in moved if each is not None]
            assert await triggers.find(seen.id) == winner
            assert winner.revision == 2
            assert await triggers.put(seen) is None
            assert not await triggers.remove(seen)
            assert await triggers.remove(winner)
            assert not await triggers.remove(winner)
            assert await triggers.put(winner) is None
            assert await triggers.list() == []

    @scenario
    async def test_a_path_leads_to_one_hook(self, folder: Path) -> None:
        async with self.make_triggers(folder) as triggers:
            one = await stored(triggers, hook("a"))
            with pytest.raises(PathTakenError):
                await triggers.put(hook("b"))
            two = await stored(triggers, hook("b", "p2"))
            with pytest.raises(PathTakenError):
                await triggers.put(replace(two, path="p1"))
            assert await triggers.at_path("p2") == two
            moved = await stored(triggers, replace(one, path="p3"))
            assert await triggers.at_path("p1") is None
            assert await triggers.at_path("p3") == moved
            await stored(triggers, replace(two, path="p1"))
            await stored(triggers, schedule("c"))
            await stored(triggers, schedule("d"))  # those without a path are in nobody's way

    @scenario
    async def test_what_is_due_comes_in_the_order_of_its_time(self, folder: Path) -> None:
        async with self.make_triggers(folder) as triggers:
            assert await triggers.next_due() is None
            for number, due in enumerate((300, 100, None, 200)):
                await stored(triggers, schedule(f"w{number}", due))
            await stored(triggers, hook())
            assert await triggers.next_due() == 100
            assert [each.due for each in await triggers.due(99, 10)] == []
            assert [each.due for each in await triggers.due(200, 10)] == [100, 200]
            assert [each.due for each in await triggers.due(1_000, 2)] == [100, 200]

    @scenario
    async def test_what_was_signed_comes_under_one_delivery_until_it_is_old(self, folder: Path) -> None:
        async with self.make_triggers(folder) as triggers:
            first = await asyncio.gather(
                *(triggers.remember_delivery("t1", "mark", f"d{number}", 50) for number in range(AT_ONCE))
            )
            assert len(set(first)) == 1
            assert await triggers.remember_delivery("t2", "mark", "other", 90) == "other"
            left = self.crashed(folder)
        async with self.make_triggers(left) as triggers:
            assert await triggers.remember_delivery("t1", "mark", "late", 70) == first[0]
            assert await triggers.forget_deliveries(51) == 1
            assert await triggers.remember_delivery("t1", "mark", "anew", 70) == "anew"
            assert await triggers.remember_delivery("t2", "mark", "anew", 70) == "other"
