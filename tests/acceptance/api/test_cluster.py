"""Two servers on one cluster share executions, events, keys and queues."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rune.adapters.redis import queue
from tests.support.api_server import DEADLINE, HELLO, WAITS, RunningServer, running_server
from tests.support.backends import stores
from tests.support.cluster_cli import command_line_for


def test_executions_of_one_server_are_visible_on_the_other(tmp_path: Path) -> None:
    settings = msgspec.structs.replace(stores(tmp_path), nodes=())

    async def watched(server: RunningServer, execution: str) -> list[int]:
        return [event.number async for event in server.client.watch(execution)]

    async def go() -> None:
        async with running_server(tmp_path, on=settings) as one, running_server(tmp_path, on=settings) as two:
            await one.deploy(HELLO, WAITS)
            started = [(await one.client.start("waits")).execution_id for _ in range(3)]
            watching = [asyncio.create_task(watched(two, each)) for each in started]
            for number in range(20):
                for each in started:
                    await (one if number % 2 else two).client.signal(each, "other", number)
            for each in started:
                assert (await two.client.explain(each)).status == "running"
                await two.client.signal(each, "go", "done")
            for each, numbers in zip(started, await asyncio.gather(*watching), strict=True):
                assert numbers == list(range(1, len(numbers) + 1))
                assert len(numbers) >= 24
                assert (await one.client.wait(each, DEADLINE)).status == "completed"
                assert await two.client.output(each) == "done"
            key = "order-7"
            first = await one.client.start("hello", {"name": "x"}, key=key)
            second = await two.client.start("hello", {"name": "x"}, key=key)
            assert (second.execution_id, second.replayed) == (first.execution_id, True)
            assert len((await two.get("/workers"))["workers"]) == 2
            listed = [each.execution_id async for each in two.client.executions()]
            assert listed == [first.execution_id, *started[::-1]]

    async def bounded() -> None:
        async with asyncio.timeout(3 * DEADLINE):
            await go()

    asyncio.run(bounded())


def test_depth_of_unserved_queue_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "DISCOVERY_PERIOD_S", 0.0)
    settings = msgspec.structs.replace(stores(tmp_path), nodes=())
    sent = {"id": "call", "type": "noop", "queue": "gpu", "parameters": {"effectful": True}}
    waits = {
        "id": "far",
        "nodes": [{"id": "in", "type": "input"}, sent],
        "edges": [{"src": "in", "dst": "call"}],
    }

    async def go() -> dict[str, Any]:
        async with running_server(tmp_path, on=settings) as server:
            await server.deploy(waits)
            for _ in range(3):
                await server.client.start("far")
            async with asyncio.timeout(DEADLINE):
                while True:
                    found = {each["name"]: each for each in (await server.get("/queues"))["queues"]}
                    if found.get("gpu", {}).get("depth") == 3 and found["gpu"]["oldest_ms"] > 0:
                        return found

    found = asyncio.run(go())
    assert (found["default"]["depth"], found["default"]["oldest_ms"], found["gpu"]["held"]) == (0, 0, 0)


GPU = {
    "id": "render",
    "nodes": [
        {"id": "in", "type": "input"},
        {"id": "draw", "type": "http", "parameters": {"url": "http://127.0.0.1:9/"}, "queue": "gpu"},
    ],
    "edges": [{"src": "in", "dst": "draw"}],
}


def test_queue_that_no_worker_serves_is_named(tmp_path: Path) -> None:
    settings = msgspec.structs.replace(stores(tmp_path), nodes=())

    async def go() -> tuple[str, str, list[str]]:
        async with running_server(tmp_path, on=settings) as server:
            await server.deploy(HELLO, GPU)
            started = (await server.client.start("render")).execution_id
            (waiting,) = (await server.client.explain(started)).waiting
            cli = command_line_for(settings)
            shown = await asyncio.to_thread(cli.output, "explain", started)
            findings = (await server.client.doctor()).checks
            return waiting.reason, shown, [each.found for each in findings if each.check == "queues"]

    reason, shown, found = asyncio.run(go())

    assert reason == "is queued: no worker serves the queue `gpu`"
    assert reason in " ".join(shown.split())
    assert found == ["no worker serves the queue `gpu`, which workflow `render` names"]
