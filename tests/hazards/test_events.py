"""Hazards I3 and I4: event streams of the API."""

from __future__ import annotations

import asyncio
import pathlib
from typing import Any

from msgspec.structs import replace

from tests.support.api_server import RunningServer, run, running_server
from tests.support.backends import Backend, backends
from tests.support.workflows import edit, fail, wait_for_signal, workflow

SIGNALLED = wait_for_signal()


async def last_event(server: RunningServer, execution: str) -> str:
    """Return the kind of the last event of an execution's stream."""
    opened = await server.stream(f"/executions/{execution}/events")
    assert await opened.status() == 200
    kinds: list[str] = [event["kind"] async for event in opened.events()]
    return kinds[-1]


def test_h_i3_stream_ends_with_actual_status(tmp_path: pathlib.Path) -> None:
    # fault: i3: every end is reported as a completion
    halts = {**workflow("start>a", a=fail()), "id": "halts"}
    late = {**workflow("start>w", {"timeout": 0.2}, w=SIGNALLED), "id": "late"}
    waits = {**workflow("start>w", w=SIGNALLED), "id": "waits"}

    async def work(server: RunningServer) -> dict[str, str]:
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


@backends("redis")
def test_h_i4_server_without_definition_streams_all_events(backend: Backend, tmp_path: pathlib.Path) -> None:
    # fault: i4: a server knows only the definitions that it has received itself
    settings = replace(backend.settings, grace=1.0)
    document = {**workflow("start>a a>w w>b", a=edit(x=1), w=SIGNALLED, b=edit(y=2)), "id": "streamed"}

    async def go() -> list[dict[str, Any]]:
        async with running_server(tmp_path, on=settings) as one, running_server(tmp_path, on=settings) as two:
            execution = (await one.client.start_definition(document)).execution_id
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
