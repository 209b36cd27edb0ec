"""Node runs that an end cut short, and nodes that an execution never reached."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.backends import Backend, backends, open_engines, until_suspended
from tests.support.waiting import until
from tests.support.workflows import (
    edit,
    fail,
    gated_registry,
    node_entry,
    of_type,
    wait_for_signal,
    workflow,
)

pytestmark = pytest.mark.long

every_backend = backends("embedded", "redis", "rabbitmq")


@every_backend
def test_run_that_waited_is_cancelled_and_later_nodes_are_not_reached(backend: Backend) -> None:
    document = workflow("start>w w>after", w=wait_for_signal(), after=edit(x=1))

    async def go() -> tuple[dict[str, Any], dict[str, Any], Any]:
        async with backend.open() as engine:
            run = await engine.start(document)
            await until_suspended(run)
            await engine.engine.services.executions.cancel(run.id, "no longer needed")
            await run.end()
            history = await run.history()
            shown = await history.document(not_reached=True)
            return await history.document(), shown, history.events()[-1]

    result, shown, event = asyncio.run(go())
    entry = node_entry(result, "w")
    assert (entry["status"], entry["attempts"]) == ("cancelled", 1)
    assert entry["error"]["code"] == "EXECUTION_ENDED"
    assert "no longer needed" in entry["error"]["message"]
    assert entry["started_at"] is not None
    assert [each["node_id"] for each in result["nodes"]] == ["start", "w"]
    assert node_entry(shown, "after")["status"] == "not_reached"
    assert event.details["cancelled"] == [{"node_id": "w", "lineage": [], "attempt": 1}]
    assert event.details["cancelled_count"] == 1


@every_backend
def test_run_between_two_attempts_is_cancelled_by_a_halt(backend: Backend) -> None:
    retry = {"max_attempts": 3, "initial_delay": 3600}
    document = workflow(
        "start>again start>w w>stop", again={**fail(), "retry": retry}, w=wait_for_signal(), stop=fail("STOP")
    )

    async def go() -> dict[str, Any]:
        async with backend.open() as engine:
            run = await engine.start(document)

            async def waiting() -> bool:
                return len(await run.facts()) >= 2

            await until(waiting, "one node waits for its retry, the other for a signal", 60.0)
            await engine.engine.services.executions.signal(run.id, "go")
            await run.end()
            return await run.document()

    result = asyncio.run(go())
    assert (result["status"], node_entry(result, "stop")["status"]) == ("halted", "failed")
    assert (node_entry(result, "again")["status"], node_entry(result, "again")["attempts"]) == (
        "cancelled",
        1,
    )


@every_backend
def test_run_that_had_begun_is_cancelled(backend: Backend) -> None:
    calls: list[str] = []

    async def go() -> list[str]:
        gate = asyncio.Event()
        async with backend.open(registry=gated_registry(calls, lambda: gate)) as engine:
            run = await engine.start(workflow("start>a", a=of_type("t.gate")))

            async def begun() -> bool:
                return bool(calls)

            await until(begun, "the node runs", 60.0)
            await engine.engine.services.executions.cancel(run.id)
            gate.set()
            await run.end()

            async def late() -> bool:
                return any(row.late for row in await run.facts())

            await until(late, "the late result is recorded", 60.0)
            return [each["status"] for each in (await run.document())["nodes"] if each["node_id"] == "a"]

    assert asyncio.run(go()) == ["cancelled"]


@every_backend
def test_run_that_a_halt_interrupts_is_cancelled_from_its_begin(backend: Backend) -> None:
    document = workflow("start>a start>w w>stop", a=of_type("t.gate"), w=wait_for_signal(), stop=fail("STOP"))
    calls: list[str] = []

    async def go() -> tuple[dict[str, Any], Any]:
        gate = asyncio.Event()
        async with backend.open(registry=gated_registry(calls, lambda: gate)) as engine:
            run = await engine.start(document)
            await until(lambda: calls, "the node runs", 60.0)
            await until_suspended(run)
            await engine.engine.services.executions.signal(run.id, "go")
            await run.end()
            history = await run.history()
            return await history.document(), history.events()[-1]

    result, event = asyncio.run(go())
    entry = node_entry(result, "a")
    assert (result["status"], entry["status"], entry["attempts"]) == ("halted", "cancelled", 1)
    assert "STOP" in entry["error"]["message"]
    assert result["started_at"] <= entry["started_at"] <= result["completed_at"]
    assert event.details["cancelled"] == [{"node_id": "a", "lineage": [], "attempt": 1}]


@every_backend
def test_run_that_waited_is_cancelled_by_the_timeout_of_its_execution(backend: Backend) -> None:
    document = workflow(
        "start>before before>w w>after",
        settings={"timeout": 3},
        before=edit(x=1),
        w=wait_for_signal(),
        after=edit(x=2),
    )

    async def go() -> dict[str, Any]:
        async with backend.open() as engine:
            run = await engine.start(document)
            await run.end()
            return await (await run.history()).document(not_reached=True)

    result = asyncio.run(go())
    shown = {each["node_id"]: each["status"] for each in result["nodes"]}
    assert (result["status"], result["error"]["code"]) == ("failed", "TIMEOUT")
    assert shown == {"start": "success", "before": "success", "w": "cancelled", "after": "not_reached"}
    assert node_entry(result, "w")["attempts"] == 1
    assert node_entry(result, "w")["started_at"] is not None


@every_backend
def test_run_that_had_begun_is_cancelled_if_its_execution_fails(backend: Backend) -> None:
    document = workflow(
        "start>a start>w w>late a>after",
        a=of_type("t.gate"),
        w=wait_for_signal(),
        late={**wait_for_signal("never"), "timeout": 0.05},
        after=edit(x=1),
    )
    calls: list[str] = []

    async def go() -> dict[str, Any]:
        gate = asyncio.Event()
        async with backend.open(registry=gated_registry(calls, lambda: gate)) as engine:
            run = await engine.start(document)
            await until(lambda: calls, "the node runs", 60.0)
            await until_suspended(run)
            await engine.engine.services.executions.signal(run.id, "go")
            await run.end()
            return await (await run.history()).document(not_reached=True)

    result = asyncio.run(go())
    shown = {each["node_id"]: each["status"] for each in result["nodes"]}
    assert (result["status"], result["error"]["node_id"]) == ("failed", "late")
    assert (shown["late"], shown["a"], shown["after"]) == ("failed", "cancelled", "not_reached")


@backends("redis", "rabbitmq")
def test_run_of_process_that_did_not_end_the_execution_is_cancelled(backend: Backend) -> None:
    calls: list[str] = []

    async def go() -> list[str]:
        gate = asyncio.Event()
        registry = gated_registry(calls, lambda: gate)
        async with (
            backend.open(registry=registry) as worker,
            open_engines(backend.settings, registry=registry, roles=frozenset({"api"})) as api,
        ):
            run = await worker.start(workflow("start>a", a=of_type("t.gate")))
            await until(lambda: calls, "the node runs", 60.0)
            await api.engine.services.executions.cancel(run.id)
            await run.end()

            async def shown() -> bool:
                history = await run.history()
                return [each.status for _, each in history.cancelled()] == ["cancelled"]

            await until(shown, "the run is shown as cancelled", 60.0)
            return [node_entry(await run.document(), "a")["status"]]

    assert asyncio.run(go()) == ["cancelled"]
