"""Live streams tell which nodes run now, in events without a number."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from websockets.asyncio.client import connect

from rune.bootstrap import running_engine
from rune.client import models
from rune.settings import Settings
from tests.support.api_server import RunningServer, run
from tests.support.backends import stores
from tests.support.gated_nodes import close_gates, gate
from tests.support.services.rabbitmq import broker
from tests.support.waiting import until
from tests.support.workflows import of_type, workflow

NODES = ("tests.support.gated_nodes",)
GATED = {**workflow("start>w", w=of_type("gated.wait", name="g")), "id": "gated"}


@pytest.fixture(autouse=True)
def closed_gates() -> None:
    close_gates()


async def read_until_running(server: RunningServer, id: str) -> dict[str, Any]:
    """Return the first event that tells that a node runs."""
    opened = await server.stream(f"/executions/{id}/events")
    async for each in opened.events():
        if each.get("event") == "now" and each["running"] and each["running"][0]["progress"]:
            opened.break_off()
            return each
    raise AssertionError("the stream ended before a node ran")


def check_running(shown: dict[str, Any], worker: str) -> None:
    (node,) = shown["running"]
    assert (node["node_id"], node["lineage"], node["attempt"]) == ("w", [], 1)
    assert (node["worker"], node["progress"]) == (worker, "40%")
    assert node["since"] <= shown["at"]
    assert "number" not in shown


def test_stream_tells_running_node_without_number(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(GATED)
        id = (await server.client.start("gated")).execution_id
        opened = await server.stream(f"/executions/{id}/events")
        numbers: list[int] = []
        told: list[dict[str, Any]] = []
        async for each in opened.events():
            if each.get("event") == "now":
                told.append(each)
                gate("g").set()
            else:
                numbers.append(each["number"])
        assert told[0]["running"][0]["node_id"] == "w"
        assert told[0]["running"][0]["worker"] == server.engine.name
        assert numbers == list(range(1, len(numbers) + 1))
        page = await server.get(f"/executions/{id}/history")
        assert [each["number"] for each in page["events"]] == numbers

    run(tmp_path, work, nodes=NODES)


def test_stream_tells_logged_lines(tmp_path: Path) -> None:
    two = workflow("start>w start>v", w=of_type("gated.wait", name="g"), v=of_type("gated.wait", name="h"))

    async def work(server: RunningServer) -> None:
        await server.deploy({**two, "id": "gated"})
        id = (await server.client.start("gated")).execution_id
        told: list[tuple[str, int, str, str]] = []
        async for each in server.client.follow(id):
            if not isinstance(each, models.Now):
                continue
            # The first lines may have been logged before the stream was opened.
            told += [(line.node_id, line.attempt, line.level, line.message) for line in each.lines]
            if len(each.running) == 2:
                gate("g").set()
            if ("w", 1, "warning", "behind the gate") in told:
                gate("h").set()
        assert ("w", 1, "warning", "behind the gate") in told

    run(tmp_path, work, nodes=NODES)


def test_websocket_tells_running_node(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(GATED)
        id = (await server.client.start("gated")).execution_id
        address = server.url.replace("http", "ws") + f"/api/v1/executions/{id}/events"
        async with connect(address) as socket:
            async for text in socket:
                each = json.loads(text)
                if each.get("event") == "now":
                    assert each["running"][0]["node_id"] == "w"
                    break
            gate("g").set()
            rest = [json.loads(text) async for text in socket]
        assert rest[-1]["kind"] == "execution.completed"

    run(tmp_path, work, nodes=NODES)


def test_explain_tells_worker_and_attempt_of_running_node(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(GATED)
        id = (await server.client.start("gated")).execution_id

        async def running() -> bool:
            (found,) = (await server.client.explain(id)).waiting
            return found.worker is not None

        await until(running, "the node runs", 60.0)
        (found,) = (await server.client.explain(id)).waiting
        assert found.reason.startswith(f"is running on worker {server.engine.name} for ")
        assert "(attempt 1)" in found.reason
        assert found.worker == server.engine.name
        assert found.attempt == 1
        gate("g").set()
        await server.client.wait(id)
        assert (await server.client.explain(id)).waiting == []

    run(tmp_path, work, nodes=NODES)


def test_explain_tells_queued_node(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(GATED)
        first = (await server.client.start("gated")).execution_id
        await read_until_running(server, first)
        second = (await server.client.start("gated")).execution_id

        async def queued() -> bool:
            return [each.reason for each in (await server.client.explain(second)).waiting] == ["is queued"]

        await until(queued, "the second execution is queued", 60.0)
        gate("g").set()
        await server.client.wait(second)

    run(tmp_path, work, nodes=NODES, slots=1)


EACH: dict[str, Any] = {
    "id": "each",
    "nodes": [
        {"id": "in", "type": "input"},
        {"id": "s", "type": "split", "parameters": {"input_array": "{{ $trigger.items }}"}},
        {"id": "w", "type": "gated.wait", "parameters": {"name": "{{ $item }}"}},
        {"id": "all", "type": "aggregator"},
    ],
    "edges": [{"src": "in", "dst": "s"}, {"src": "s", "dst": "w"}, {"src": "w", "dst": "all"}],
}


async def _check_running_graph(server: RunningServer, worker: str) -> None:
    """Check the graph of a node outside of items and of one inside items, while they run."""
    await server.deploy(GATED, EACH)
    id = (await server.client.start("gated")).execution_id

    async def runs() -> bool:
        return (await server.client.graph(id)).nodes["w"].progress == "40%"

    await until(runs, "the graph shows the running node", 60.0)
    shown = (await server.client.graph(id)).nodes["w"]
    assert (shown.state, shown.worker, shown.attempts) == ("running", worker, 1)
    assert shown.started_at is not None
    replayed = await server.client.graph(id, at=2)
    assert replayed.nodes["w"].state != "running"
    gate("g").set()
    await server.client.wait(id)
    assert (await server.client.graph(id)).nodes["w"].worker == ""

    id = (await server.client.start("each", {"items": ["a", "b", "c"]})).execution_id
    gate("b").set()

    async def two_run() -> bool:
        return (await server.client.graph(id)).nodes["w"].counts == {"running": 2, "success": 1}

    await until(two_run, "the graph counts the running items", 60.0)
    graph = await server.client.graph(id, lineage="s:2")
    assert (graph.nodes["w"].state, graph.nodes["w"].worker) == ("running", worker)
    assert (await server.client.graph(id, lineage="s:1")).nodes["w"].state == "success"
    for name in ("a", "c"):
        gate(name).set()
    await server.client.wait(id)
    assert (await server.client.graph(id)).nodes["w"].counts == {"success": 3}


def test_running_nodes_are_cancelled_in_graph_nodes_and_last_event_after_the_end(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(GATED, EACH)
        id = (await server.client.start("gated")).execution_id
        await read_until_running(server, id)
        await server.client.cancel(id, "no longer needed")
        shown = (await server.client.graph(id)).nodes["w"]
        assert (shown.state, shown.attempts) == ("cancelled", 1)
        assert shown.started_at is not None
        (run,) = [each async for each in server.client.nodes(id, status="cancelled")]
        assert (run.node_id, run.started_at) == ("w", shown.started_at)
        last = [each async for each in server.client.watch(id)][-1]
        assert last.details["cancelled"] == [{"node_id": "w", "lineage": [], "attempt": 1}]

        id = (await server.client.start("each", {"items": ["a", "b", "c"]})).execution_id
        gate("b").set()

        async def two_run() -> bool:
            return (await server.client.graph(id)).nodes["w"].counts == {"running": 2, "success": 1}

        await until(two_run, "two items run", 60.0)
        await server.client.cancel(id)
        assert (await server.client.graph(id)).nodes["w"].counts == {"success": 1, "cancelled": 2}
        graph = await server.client.graph(id, lineage="s:2")
        assert graph.nodes["w"].state == "cancelled"
        assert graph.splits["s"].counts == {"success": 1, "cancelled": 2}
        items = await server.get(f"/executions/{id}/splits/s/items?status=cancelled")
        assert [each["item"] for each in items["items"]] == ["s:0", "s:2"]

    run(tmp_path, work, nodes=NODES)


def test_graph_shows_running_nodes(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await _check_running_graph(server, server.engine.name)

    run(tmp_path, work, nodes=NODES)


def test_graph_shows_nodes_that_another_process_runs(tmp_path: Path) -> None:
    settings = replace(stores(tmp_path), nodes=NODES, grace=1.0)

    async def work(server: RunningServer) -> None:
        async with running_engine(settings, roles=frozenset({"worker"})) as worker:
            await _check_running_graph(server, worker.name)

    run(tmp_path, work, on=replace(settings, queues=("other",)))


@pytest.mark.parametrize("queue", ["redis", "rabbitmq"])
def test_stream_tells_node_that_another_process_runs(queue: str, tmp_path: Path) -> None:
    settings = replace(stores(tmp_path), nodes=NODES, grace=1.0)
    if queue == "rabbitmq":
        with broker().vhost() as vhost:
            _stream_of_other_process(replace(settings, queue=broker().url(vhost)), tmp_path)
    else:
        _stream_of_other_process(settings, tmp_path)


def _stream_of_other_process(settings: Settings, folder: Path) -> None:
    async def work(server: RunningServer) -> None:
        async with running_engine(settings, roles=frozenset({"worker"})) as worker:
            await server.deploy(GATED)
            id = (await server.client.start("gated")).execution_id
            check_running(await read_until_running(server, id), worker.name)
            gate("g").set()
            await server.client.wait(id)

    # The engine of the server serves another queue, so that it runs no node of this workflow.
    run(folder, work, on=replace(settings, queues=("other",)))
