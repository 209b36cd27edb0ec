"""A workflow of which no execution completes in time starts its handler once for each period."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from rune.core.definition.model import HookHandler
from rune.core.execution.fact import ExecutionEnded
from rune.core.execution.outcome import Error
from rune.ports.retention import Rule
from rune.runtime.maintenance.expectation_watch import ExpectationWatch
from rune.runtime.maintenance.hook_runner import HookRunner
from tests.contract.suites.records import execution_record
from tests.integration.triggers.scheduler_harness import (
    DEADLINE,
    HOUR,
    MINUTE,
    SchedulerHarness,
    moment,
    open_harness,
    run,
)
from tests.support.backends import stores
from tests.support.documents import document, node
from tests.support.trigger_workflows import schedule_workflow

ERROR = Error("E", "no")
NOON = moment("2026-05-01T12:00:00")
HANDLER = "tell-ops"


@pytest.fixture(params=["embedded", "cluster"])
def options(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """The options of a harness over each backend."""
    if request.param == "embedded":
        return {}
    return {"settings": msgspec.structs.replace(stores(tmp_path), nodes=())}


def import_workflow(**settings: Any) -> dict[str, Any]:
    """Return a workflow that fails if its input says so."""
    return document(
        [
            node("in", "input"),
            node("bad", "conditional", {"expression": "$trigger.bad"}),
            node("stop", "fail", {"message": "no"}),
        ],
        "in>bad",
        "bad>stop:true",
        id="import",
        settings={"on_missing": HANDLER, **settings},
    )


def handler(id: str = HANDLER) -> dict[str, Any]:
    """Return a handler whose output is its input."""
    return document(
        [node("in", "input"), node("out", "output", {"value": "{{ $trigger }}"})], "in>out", id=id
    )


class Watcher:
    """The processes that look for missing executions and start handlers, run on demand."""

    def __init__(self, harness: SchedulerHarness, public_url: str = "") -> None:
        engine = harness.engine
        self.harness = harness
        self.watch = ExpectationWatch(engine.backend)
        self.hooks = HookRunner(
            engine.backend, engine.plans, engine.launcher, engine.instrumentation.counters, public_url
        )
        self._known: set[str] = set()

    async def told(self, when: int) -> list[dict[str, Any]]:
        """Look at a time, and return the inputs of the handlers that this starts, in the order of their messages."""
        self.harness.clock.set(when)
        await self.watch.turn()
        return await self.started()

    async def started(self) -> list[dict[str, Any]]:
        """Start what is missing, and return the inputs of the handlers."""
        await self.hooks.turn()
        found = []
        for each in await self.harness.executions():
            if each.id.startswith("f") and each.id not in self._known:
                self._known.add(each.id)
                accepted = await self.harness.engine.backend.journal.accepted(each.id)
                assert accepted is not None
                found.append(msgspec.json.decode(accepted.input.data))  # type: ignore[union-attr]
                await (await self.harness.engine.wait_for(each.id))
        return sorted(found, key=lambda each: str(each["error"]["message"]))

    async def complete(self, when: int, *, bad: bool = False) -> None:
        """Run an execution that ends at a time; on a cluster, whose state has a clock of its own, only record it."""
        self.harness.clock.set(when)
        if self.harness.settings.journal:
            journal = self.harness.engine.backend.journal
            id, end = (
                f"x{when}",
                ExecutionEnded(when, "failed" if bad else "completed", ERROR if bad else None),
            )
            await journal.accept(execution_record(id, workflow="import", version=1))
            await journal.record(id, [end])
            return
        started = await self.harness.services.executions.start(
            "import", None, msgspec.json.encode({"bad": bad})
        )
        await (await self.harness.engine.wait_for(started.id))


def watched(
    folder: Path, work: Callable[[SchedulerHarness, Watcher], Awaitable[None]], **options: Any
) -> None:
    async def with_watcher(harness: SchedulerHarness) -> None:
        await harness.deploy(handler())
        await work(harness, Watcher(harness, "https://rune.example.com"))

    run(folder, NOON, with_watcher, **options)


def since(told: list[dict[str, Any]]) -> list[str]:
    """Return the times since when nothing has completed."""
    return [each["error"]["message"].partition(" since ")[2].partition(";")[0][11:16] for each in told]


def test_handler_starts_once_for_each_period_without_completion(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    async def work(harness: SchedulerHarness, watcher: Watcher) -> None:
        await harness.deploy(import_workflow(expect_every=3600))
        assert await watcher.told(NOON + 59 * MINUTE) == []
        await watcher.complete(NOON + 50 * MINUTE)
        await watcher.complete(NOON + 55 * MINUTE, bad=True)
        assert await watcher.told(NOON + HOUR) == []
        assert await watcher.told(NOON + 110 * MINUTE - 1) == []
        (told,) = await watcher.told(NOON + 110 * MINUTE)
        assert told == {
            "kind": "missing",
            "execution": {
                "id": None,
                "workflow": "import",
                "version": 1,
                "status": "missing",
                "labels": {},
                "started_at": None,
                "url": "https://rune.example.com/workflows/import",
                "ended_at": None,
            },
            "node": None,
            "error": {
                "code": "MISSING",
                "message": "no execution of `import` has completed since 2026-05-01T12:50:00.000Z; one is expected"
                " every 3600 s",
            },
            "failed_items": 0,
        }
        assert await watcher.told(NOON + 169 * MINUTE) == []
        assert since(await watcher.told(NOON + 170 * MINUTE)) == ["13:50"]
        # While nobody looked, four periods passed.
        assert since(await watcher.told(NOON + 415 * MINUTE)) == ["14:50"]
        assert await watcher.told(NOON + 469 * MINUTE) == []
        # It completes after its period, and is expected again from then on.
        await watcher.complete(NOON + 465 * MINUTE)
        assert await watcher.told(NOON + 470 * MINUTE) == []
        assert since(await watcher.told(NOON + 525 * MINUTE)) == ["19:45"]
        (started, *_) = [each for each in await harness.executions() if each.workflow == HANDLER]
        accepted = await harness.engine.backend.journal.accepted(started.id)
        assert accepted is not None
        assert accepted.principal == "handler:import"

    watched(tmp_path, work, **options)


def test_expectation_follows_the_deployed_version(tmp_path: Path, options: dict[str, Any]) -> None:
    async def work(harness: SchedulerHarness, watcher: Watcher) -> None:
        service = harness.services.workflows
        await harness.deploy(import_workflow(expect_every=3600))
        harness.clock.set(NOON + 30 * MINUTE)
        # Another period, from the same begin; another handler.
        await harness.deploy(handler("other"))
        await harness.deploy(import_workflow(expect_every=7200, on_missing="other"))
        assert await watcher.told(NOON + 119 * MINUTE) == []
        (told,) = await watcher.told(NOON + 120 * MINUTE)
        assert told["execution"]["version"] == 2
        assert [each.workflow for each in await harness.executions()] == ["other"]
        # `stable` decides, as for triggers.
        await service.set_alias("import", "stable", 1)
        assert since(await watcher.told(NOON + 180 * MINUTE)) == ["14:00"]
        await service.set_alias("import", "stable", 2)
        assert await watcher.told(NOON + 240 * MINUTE) == []
        # It ends with the workflow, and begins again with it.
        await service.archive("import")
        assert await watcher.told(NOON + 20 * HOUR) == []
        await harness.deploy(import_workflow(expect_every=7200, on_missing="other"))
        assert await watcher.told(NOON + 22 * HOUR - 1) == []
        assert since(await watcher.told(NOON + 22 * HOUR)) == ["08:00"]
        # A version without the setting ends it.
        await harness.deploy(import_workflow())
        await service.set_alias("import", "stable", 3)
        assert await watcher.told(NOON + 100 * HOUR) == []
        assert await harness.engine.backend.expectations.list() == []

    watched(tmp_path, work, **options)


def test_expectation_that_a_crash_left_unpublished_is_reconciled(tmp_path: Path) -> None:
    async def work(harness: SchedulerHarness, watcher: Watcher) -> None:
        store, triggers = harness.engine.backend.expectations, harness.services.triggers
        await harness.deploy(import_workflow(expect_every=3600))
        (first,) = await store.list()
        assert await store.remove(first)
        await triggers.reconcile()
        assert await store.list() == [first]
        await harness.deploy(import_workflow(expect_every=60))
        # As if the process had died between the deploy and its expectation.
        (second,) = await store.list()
        assert await store.put(replace(first, revision=second.revision)) is not None
        await triggers.reconcile()
        (stored,) = await store.list()
        assert (stored.version, stored.every) == (2, 60_000)
        await harness.services.workflows.archive("import")
        assert await store.put(first_again := replace(first, revision=0)) is not None
        await triggers.reconcile()
        assert await store.list() == []
        assert first_again.workflow == "import"

    watched(tmp_path, work)


def test_default_handler_is_for_workflows_that_name_none(tmp_path: Path) -> None:
    async def work(harness: SchedulerHarness, watcher: Watcher) -> None:
        await harness.deploy(handler("default"))
        await harness.services.handlers.set_defaults(on_missing=HookHandler(workflow="default"))
        unnamed = {**import_workflow(), "id": "unnamed", "settings": {"expect_every": 60}}
        silent = {**import_workflow(expect_every=60, on_missing="none"), "id": "silent"}
        await harness.deploy(unnamed)
        await harness.deploy(silent)
        await harness.deploy(import_workflow(expect_every=60))
        told = await watcher.told(NOON + MINUTE)
        assert [each["execution"]["workflow"] for each in told] == ["import", "unnamed"]
        assert sorted(each.workflow for each in await harness.executions()) == ["default", HANDLER]
        # Without a default, nothing is started, and the period goes on.
        await harness.services.handlers.set_defaults()
        assert since(await watcher.told(NOON + 2 * MINUTE)) == ["12:01"]
        assert {each.due for each in await harness.engine.backend.expectations.list()} == {NOON + 3 * MINUTE}

    watched(tmp_path, work)


def test_tick_that_starts_nothing_is_missing(tmp_path: Path, options: dict[str, Any]) -> None:
    async def work(harness: SchedulerHarness, watcher: Watcher) -> None:
        report = schedule_workflow(cron="0 * * * *")
        refused = {
            **report,
            "inputs": {"type": "object", "required": ["customer"]},
            "settings": {"on_missing": HANDLER},
        }
        await harness.deploy(refused)
        assert await harness.run_at(NOON + HOUR) == []
        (told,) = await watcher.started()
        assert told["kind"] == "missing"
        assert told["execution"]["workflow"] == "report"
        assert told["node"] == {"id": "clock", "type": "schedule", "lineage": [], "attempt": None}
        assert told["error"]["message"].startswith("not started at 2026-05-01T13:00:00.000Z: ")
        assert "customer" in told["error"]["message"]
        await harness.scheduler.turn()
        assert await watcher.started() == []
        await harness.run_at(NOON + 2 * HOUR)
        assert len(await watcher.started()) == 1
        await harness.deploy({**report, "settings": {"on_missing": HANDLER}})
        assert await harness.run_at(NOON + 3 * HOUR) == ["2026-05-01T15:00:00Z"]
        assert await watcher.started() == []

    watched(tmp_path, work, **options)


def test_removed_completion_is_no_missing_one(tmp_path: Path, options: dict[str, Any]) -> None:
    async def work(harness: SchedulerHarness, watcher: Watcher) -> None:
        await harness.deploy(import_workflow(expect_every=3600))
        await watcher.complete(NOON + 50 * MINUTE)
        retention = harness.engine.backend.retention
        removed = await retention.collect([Rule(keep=0)], NOON + 51 * MINUTE)
        assert removed.executions == 1
        assert await watcher.told(NOON + 109 * MINUTE) == []
        assert since(await watcher.told(NOON + 110 * MINUTE)) == ["12:50"]

    watched(tmp_path, work, **options)


def test_several_schedulers_start_one_handler_for_each_period(tmp_path: Path) -> None:
    settings = msgspec.structs.replace(stores(tmp_path), nodes=())
    periods = 8

    async def work() -> None:
        async with (
            asyncio.timeout(DEADLINE),
            open_harness(tmp_path, NOON, settings=settings) as one,
            open_harness(tmp_path, NOON, settings=settings, roles=frozenset()) as two,
        ):
            await one.deploy(handler())
            await one.deploy(import_workflow(expect_every=60))
            watchers = [Watcher(each) for each in (one, two, two, one)]
            for number in range(1, periods + 1):
                one.clock.set(NOON + number * MINUTE)
                # Clocks differ by up to seconds.
                two.clock.set(NOON + number * MINUTE + 900 - 3_000 * (number % 2))
                await asyncio.gather(*(each.watch.turn() for each in watchers))
            await asyncio.gather(*(each.hooks.turn() for each in watchers))
            told = await watchers[0].started()
            assert since(told) == [f"12:0{number}" for number in range(periods)]

    asyncio.run(work())
