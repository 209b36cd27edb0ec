"""Contract of trigger stores: optimistic changes, unique hook paths, write-once deliveries."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from msgspec.structs import replace

from rune.core.schedules import Schedule, ScheduleState
from rune.core.webhooks import WebhookConfig
from rune.ports.workflows import PathTakenError, Trigger, TriggerStore, trigger_id
from tests.support.async_test import async_test

CONCURRENT = 20


def hook(workflow: str = "orders", path: str = "p1") -> Trigger:
    """Return a hook that is not stored yet."""
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
    """Return a schedule that is not stored yet."""
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


async def put(triggers: TriggerStore, trigger: Trigger) -> Trigger:
    """Store the trigger and return it with its new revision."""
    found = await triggers.put(trigger)
    assert found is not None
    return found


class TriggerContract:
    """Subclasses open a store in a folder; opened again there, it has the same content."""

    def make_triggers(self, folder: Path) -> AbstractAsyncContextManager[TriggerStore]:
        raise NotImplementedError

    def make_crash_copy(self, folder: Path) -> Path:
        """Copy what a crash at this moment would leave on disk to a new folder; the store stays open."""
        raise NotImplementedError

    @async_test
    async def test_stored_trigger_survives_crash(self, tmp_path: Path) -> None:
        async with self.make_triggers(tmp_path) as triggers:
            one = await put(triggers, hook())
            two = await put(triggers, schedule())
            assert (one.revision, two.revision) == (1, 1)
            crash_copy = self.make_crash_copy(tmp_path)
        async with self.make_triggers(crash_copy) as triggers:
            assert list(await triggers.list()) == [one, two]
            assert list(await triggers.list("report")) == [two]
            assert await triggers.find(one.id) == one
            assert await triggers.find("unknown") is None
            assert await triggers.at_path("p1") == one
            assert await triggers.at_path("p\0") is None

    @async_test
    async def test_concurrent_puts_of_one_revision_have_one_winner(self, tmp_path: Path) -> None:
        async with self.make_triggers(tmp_path) as triggers:
            made = await asyncio.gather(*(triggers.put(schedule()) for _ in range(CONCURRENT)))
            assert sum(each is not None for each in made) == 1
            seen = await triggers.find(schedule().id)
            assert seen is not None
            moved = await asyncio.gather(
                *(triggers.put(replace(seen, due=number, version=number)) for number in range(CONCURRENT))
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

    @async_test
    async def test_hook_path_is_unique(self, tmp_path: Path) -> None:
        async with self.make_triggers(tmp_path) as triggers:
            one = await put(triggers, hook("a"))
            with pytest.raises(PathTakenError):
                await triggers.put(hook("b"))
            two = await put(triggers, hook("b", "p2"))
            with pytest.raises(PathTakenError):
                await triggers.put(replace(two, path="p1"))
            assert await triggers.at_path("p2") == two
            moved = await put(triggers, replace(one, path="p3"))
            assert await triggers.at_path("p1") is None
            assert await triggers.at_path("p3") == moved
            await put(triggers, replace(two, path="p1"))
            await put(triggers, schedule("c"))
            await put(triggers, schedule("d"))  # triggers without a path do not conflict

    @async_test
    async def test_due_triggers_are_ordered_by_time(self, tmp_path: Path) -> None:
        async with self.make_triggers(tmp_path) as triggers:
            assert await triggers.next_due() is None
            for number, due in enumerate((300, 100, None, 200)):
                await put(triggers, schedule(f"w{number}", due))
            await put(triggers, hook())
            assert await triggers.next_due() == 100
            assert [each.due for each in await triggers.due(99, 10)] == []
            assert [each.due for each in await triggers.due(200, 10)] == [100, 200]
            assert [each.due for each in await triggers.due(1_000, 2)] == [100, 200]

    @async_test
    async def test_delivery_id_is_stored_once_until_forgotten(self, tmp_path: Path) -> None:
        async with self.make_triggers(tmp_path) as triggers:
            first = await asyncio.gather(
                *(triggers.remember_delivery("t1", "mark", f"d{number}", 50) for number in range(CONCURRENT))
            )
            assert len(set(first)) == 1
            assert await triggers.remember_delivery("t2", "mark", "other", 90) == "other"
            crash_copy = self.make_crash_copy(tmp_path)
        async with self.make_triggers(crash_copy) as triggers:
            assert await triggers.remember_delivery("t1", "mark", "late", 70) == first[0]
            assert await triggers.forget_deliveries(51) == 1
            assert await triggers.remember_delivery("t1", "mark", "new", 70) == "new"
            assert await triggers.remember_delivery("t2", "mark", "new", 70) == "other"
