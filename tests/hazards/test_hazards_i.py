"""Hazards I1 and I3–I5: what a master knows of its executions, and what it says of them."""

from __future__ import annotations

import asyncio
import pathlib
from typing import Any

import pytest
from msgspec.structs import replace

from rune.adapters.postgres import journal_writes
from rune.testing.harness import compiled, harness
from tests.acceptance.api.running import DEADLINE, Served, run, served
from tests.hazards.building import counting, fails, gated, kind, sets, workflow
from tests.hazards.clustered import accepted, engines, fresh, status_of

SIGNALLED = kind("wait", resume="signal", name="go")


def test_h_i1_what_was_accepted_and_never_opened_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    # fault: i1: the relay opens nothing
    monkeypatch.setattr(journal_writes, "ACTIVATION_MS", 0)  # ms; nobody is about to open it
    settings = fresh()
    calls: list[str] = []
    plan = compiled(workflow("start>a", a=kind("t.call")), counting(calls))

    async def die_after_the_row() -> str:
        """Somebody writes the row, and is never heard of again."""
        async with engines(settings, registry=counting(calls), roles=frozenset()) as cluster:
            return (await accepted(cluster, plan)).id

    async def go() -> str:
        async with engines(settings, registry=counting(calls)) as cluster:
            execution = await die_after_the_row()
            return await status_of(cluster, execution)

    assert asyncio.run(go()) == "completed"
    assert calls == ["a@/"]


async def last_event(server: Served, execution: str) -> str:
    """The last word of a stream that is listened to from the first on."""
    opened = await server.stream(f"/executions/{execution}/events")
    assert await opened.status() == 200
    kinds: list[str] = [event["kind"] async for event in opened.events()]
    return kinds[-1]


def test_h_i3_a_stream_ends_with_what_happened(tmp_path: pathlib.Path) -> None:
    # fault: i3: every end is told as a completion
    halts = {**workflow("start>a", a=fails()), "id": "halts"}
    late = {**workflow("start>w", {"timeout": 0.2}, w=SIGNALLED), "id": "late"}
    waits = {**workflow("start>w", w=SIGNALLED), "id": "waits"}

    async def work(server: Served) -> dict[str, str]:
        await server.deploy(halts, late, waits)
        found = {name: (await server.client.start(name)).execution_id for name in ("halts", "late")}
        found["cancelled"] = (await server.client.start("waits")).execution_id
        found["completed"] = (await server.client.start("waits")).execution_id
        listening = {name: asyncio.create_task(last_event(server, id)) for name, id in found.items()}
        await server.client.cancel(found["cancelled"])
        await server.client.signal(found["completed"], "go")
        return {name: await each for name, each in listening.items()}

    assert run(tmp_path, work) == {
        "halts": "execution.halted",
        "late": "execution.failed",
        "cancelled": "execution.cancelled",
        "completed": "execution.completed",
    }


def test_h_i4_who_never_saw_the_definition_is_told_everything(tmp_path: pathlib.Path) -> None:
    # fault: i4: a server knows the definitions that came through itself
    settings = replace(fresh(), grace=1.0)
    document = {**workflow("start>a a>w w>b", a=sets(x=1), w=SIGNALLED, b=sets(y=2)), "id": "told"}

    async def go() -> list[dict[str, Any]]:
        async with served(tmp_path, on=settings) as one, served(tmp_path, on=settings) as two:
            execution = (await one.client.run(document)).execution_id
            opened = await two.stream(f"/executions/{execution}/events")
            assert await opened.status() == 200
            found = []
            async for event in opened.events():
                found.append(event)
                if event["kind"] == "node.waiting":
                    await one.client.signal(execution, "go")
            return found

    events = asyncio.run(go())
    assert [each["number"] for each in events] == list(range(1, len(events) + 1))
    succeeded = [each["node_id"] for each in events if each["kind"] == "node.success"]
    assert succeeded == ["a", "w", "b"]


def test_h_i5_a_start_that_comes_again_wipes_nothing(tmp_path: pathlib.Path) -> None:
    # fault: i5: whoever opens an execution begins it
    calls: list[str] = []

    async def go() -> dict[str, Any]:
        gate = asyncio.Event()
        document = workflow("start>a a>b b>c", a=kind("t.call"), b=kind("t.gate"), c=kind("t.call"))
        async with harness(tmp_path, registry=gated(calls, lambda: gate)) as embedded:
            started = await embedded.start(document)
            await embedded.wait_for(lambda: len(calls) == 2, DEADLINE)
            for _ in range(3):
                await embedded.engine.launcher.activate(started.accepted)
            gate.set()
            await started.end()
            return await started.document()

    told = asyncio.run(go())
    assert told["status"] == "completed"
    assert calls == ["a@/", "b@/", "c@/"]
    assert [each["node_id"] for each in told["nodes"]] == ["start", "a", "b", "c"]
