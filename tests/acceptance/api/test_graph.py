"""The graph of an execution and the items of its splits: states that agree with the node runs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rune.server.views import overviews
from tests.support.api_server import ITEMS, WAITS, RunningServer, run

RACE: dict[str, Any] = {
    "id": "branches",
    "nodes": [
        {"id": "in", "type": "input"},
        {"id": "if", "type": "conditional", "parameters": {"expression": "$trigger.n > 0"}},
        {"id": "yes", "type": "noop"},
        {"id": "no", "type": "noop"},
        {"id": "bad", "type": "fail", "error": {"type": "branch", "error_edge": "rescue"}},
        {"id": "saved", "type": "noop"},
        {"id": "lost", "type": "noop"},
        {"id": "all", "type": "merge"},
    ],
    "edges": [
        {"id": "start", "src": "in", "dst": "if"},
        {"id": "to-yes", "src": "if", "dst": "yes", "label": "true"},
        {"id": "to-no", "src": "if", "dst": "no", "label": "false"},
        {"id": "to-bad", "src": "yes", "dst": "bad"},
        {"id": "rescue", "src": "bad", "dst": "saved"},
        {"id": "fine", "src": "bad", "dst": "lost"},
        {"id": "a", "src": "saved", "dst": "all"},
        {"id": "b", "src": "lost", "dst": "all"},
        {"id": "c", "src": "no", "dst": "all"},
    ],
}
NESTED: dict[str, Any] = {
    "id": "nested",
    "nodes": [
        {"id": "in", "type": "input"},
        {"id": "users", "type": "split", "parameters": {"input_array": "{{ $trigger.users }}"}},
        {"id": "orders", "type": "split", "parameters": {"input_array": "{{ $item }}"}},
        {"id": "price", "type": "log", "parameters": {"message": "{{ 1 / $item }}"}},
        {"id": "sum", "type": "aggregator"},
        {"id": "all", "type": "aggregator"},
    ],
    "edges": [
        {"src": "in", "dst": "users"},
        {"src": "users", "dst": "orders"},
        {"src": "orders", "dst": "price"},
        {"src": "price", "dst": "sum"},
        {"src": "sum", "dst": "all"},
    ],
}


async def states(server: RunningServer, id: str, query: str = "") -> dict[str, str]:
    graph = await server.get(f"/executions/{id}/graph{query}")
    return {name: each["state"] for name, each in graph["nodes"].items()}


async def run_states(server: RunningServer, id: str) -> dict[tuple[str, tuple[int, ...]], str]:
    """The statuses of all node runs, by node and items."""
    return {
        (each.node_id, tuple(frame.item_index for frame in each.lineage)): each.status
        async for each in server.client.nodes(id)
    }


def test_graph_shows_dead_edges_error_edges_and_skipped_nodes(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(RACE)
        id = await server.ended("branches", {"n": 1})
        graph = await server.client.graph(id)
        assert graph.edges == {
            "start": "alive",
            "to-yes": "alive",
            "to-no": "dead",
            "to-bad": "alive",
            "rescue": "error",
            "fine": "dead",
            "a": "alive",
            "b": "dead",
            "c": "dead",
        }
        assert graph.status == "completed"
        expected = {name: status for (name, _), status in (await run_states(server, id)).items()}
        assert {name: each.state for name, each in graph.nodes.items()} == expected
        assert graph.nodes["bad"].attempts == 1
        assert graph.nodes["bad"].code == "FAILED"
        assert graph.nodes["yes"].started_at is not None

    run(tmp_path, work)


def test_graph_of_waiting_execution_shows_due_and_pending(tmp_path: Path) -> None:
    waits = {
        **WAITS,
        "nodes": [
            WAITS["nodes"][0],
            {"id": "w", "type": "wait", "parameters": {"amount": 1, "unit": "hours"}},
            WAITS["nodes"][2],
        ],
    }

    async def work(server: RunningServer) -> None:
        await server.deploy(waits)
        id = (await server.client.start("waits")).execution_id
        while (await states(server, id))["w"] != "waiting":
            await server.client.explain(id)
        graph = await server.client.graph(id)
        assert {name: each.state for name, each in graph.nodes.items()} == {
            "in": "success",
            "w": "waiting",
            "out": "pending",
        }
        assert list(graph.edges.values()) == ["alive", "pending"]
        assert graph.nodes["w"].due is not None
        await server.client.pause(id)
        assert (await server.client.graph(id)).status == "paused"
        await server.client.cancel(id)
        assert await states(server, id) == {"in": "success", "w": "cancelled", "out": "not_reached"}

    run(tmp_path, work)


def test_graph_counts_items_and_shows_one_by_lineage(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(ITEMS)
        id = await server.ended("items", {"items": [0, 1, 2, 3, 4]})
        graph = await server.client.graph(id)
        assert graph.nodes["odd"].counts == {"success": 5}
        assert graph.nodes["bad"].counts == {"failed": 2, "skipped": 3}
        assert graph.nodes["twice"].counts == {"success": 3, "skipped": 2}
        assert graph.nodes["bad"].state == "failed"
        assert graph.splits["s"].counts == {"success": 3, "failed": 2}
        assert graph.splits["s"].done == graph.splits["s"].items == 5
        assert (await states(server, id, "?lineage=s:1")) == {
            "in": "success",
            "s": "success",
            "odd": "success",
            "bad": "failed",
            "twice": "skipped",
            "all": "success",
        }
        one = await server.client.graph(id, lineage="s:1")
        assert one.nodes["bad"].code == "FAILED"
        assert (await server.get(f"/executions/{id}/graph?lineage=nothing", 422))["code"] == "BAD_ITEM"
        await server.get("/executions/unknown/graph", 404)

    run(tmp_path, work)


def test_graph_agrees_with_node_runs_in_every_item(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(NESTED)
        id = await server.ended("nested", {"users": [[1, 2], [], [0, 3], [0]]})
        runs = await run_states(server, id)
        root = await states(server, id)
        for (node, items), status in runs.items():
            if not items:
                assert root[node] == status, node
            else:
                names = ("users", "orders")[: len(items)]
                lineage = "/".join(f"{name}:{item}" for name, item in zip(names, items, strict=True))
                assert (await states(server, id, f"?lineage={lineage}"))[node] == status, (node, items)
        graph = await server.client.graph(id)
        assert graph.splits["orders"].counts == {"success": 3, "failed": 2}
        assert graph.splits["users"].counts == {"success": 2, "failed": 2}
        inside = await server.client.graph(id, lineage="users:2")
        assert inside.nodes["price"].counts == {"success": 1, "failed": 1}

    run(tmp_path, work)


def test_graph_at_event_replays_execution(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(RACE)
        id = await server.ended("branches", {"n": 1})
        events = [each async for each in server.client.watch(id)]
        ended: set[str] = {"in"}
        for event in events:
            graph = await server.client.graph(id, at=event.number)
            assert graph.number == event.number
            if event.node_id is not None:
                ended.add(event.node_id)
            shown = {
                name for name, each in graph.nodes.items() if each.state in ("success", "failed", "cancelled")
            }
            assert shown == ended
        assert (await server.client.graph(id, at=2)).status == "running"
        assert (await server.client.graph(id, at=10_000)).number == events[-1].number

    run(tmp_path, work)


def test_items_are_packed_listed_and_counted(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(ITEMS)
        id = await server.ended("items", {"items": list(range(10))})
        counts = await server.client.item_counts(id, "s")
        assert counts.states == {"success": 5, "failed": 5}
        (code,) = counts.codes
        assert (code.code, code.count) == ("FAILED", 5)
        assert counts.times is None
        times = (await server.client.item_counts(id, "s", times=True)).times
        assert times is not None
        assert times.items == 10
        assert times.began_at <= times.ended_at
        assert times.min_ms <= times.median_ms <= times.p95_ms <= times.max_ms
        assert len(times.density) == 60
        assert 1 <= max(times.density) <= 10
        packed = await server.client.packed_items(id, "s")
        assert [counts.legend[each] for each in packed] == ["success", "failed"] * 5
        assert list(await server.client.packed_items(id, "s", by="code")) == [0, code.byte] * 5
        assert set(await server.client.packed_items(id, "s", by="attempts")) == {1}
        assert all(await server.client.packed_items(id, "s", by="duration"))
        of_node = await server.client.packed_items(id, "s", node="twice")
        assert [counts.legend[each] for each in of_node] == ["success", "skipped"] * 5
        part = await server.http.get(f"/api/v1/executions/{id}/splits/s/items/packed?offset=3&limit=2")
        assert part.content == packed[3:5]
        assert part.headers["rune-items"] == "10"
        listed = [each async for each in server.client.items(id, "s", status="failed", page=2)]
        assert [each.index for each in listed] == [1, 3, 5, 7, 9]
        assert listed[0].item == "s:1"
        assert listed[0].nodes == {"odd": "success", "bad": "failed", "twice": "skipped"}
        assert (listed[0].code, listed[0].attempts) == ("FAILED", 1)
        assert [each.index async for each in server.client.items(id, "s", code="FAILED")] == [1, 3, 5, 7, 9]
        assert [each async for each in server.client.items(id, "s", code="OTHER")] == []
        await server.get(f"/executions/{id}/splits/odd/items", 404)
        await server.get(f"/executions/{id}/splits/s/items?node=in", 422)
        assert (await server.get(f"/executions/{id}/splits/s/items?cursor=x", 422))["code"] == "BAD_CURSOR"

    run(tmp_path, work)


def test_nested_items_are_selected_by_lineage(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(NESTED)
        id = await server.ended("nested", {"users": [[1, 2], [0, 3, 0]]})
        outer = [(each.item, each.state) async for each in server.client.items(id, "users")]
        assert outer == [("users:0", "success"), ("users:1", "failed")]
        inner = [
            (each.item, each.state) async for each in server.client.items(id, "orders", lineage="users:1")
        ]
        assert inner == [
            ("users:1/orders:0", "failed"),
            ("users:1/orders:1", "success"),
            ("users:1/orders:2", "failed"),
        ]
        await server.get(f"/executions/{id}/splits/orders/items", 404)

    run(tmp_path, work)


def test_overview_of_ended_execution_is_stored_and_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overviews, "MIN_STORED_FACTS", 10)

    async def first(server: RunningServer) -> tuple[str, Any, Any, bytes]:
        await server.deploy(NESTED)
        id = await server.ended("nested", {"users": [[1, 2], [0, 3, 0]]})
        graph, rollups = (
            await server.get(f"/executions/{id}/graph"),
            await server.get(f"/executions/{id}/rollups"),
        )
        return id, graph, rollups, await server.client.packed_items(id, "users", by="duration")

    id, graph, rollups, packed = run(tmp_path, first)

    async def again(server: RunningServer) -> None:
        read: Counter[str] = Counter()
        facts = server.master.reader.facts

        async def counted(execution: str, after: int = 0, limit: int | None = None) -> Any:
            found = await facts(execution, after, limit)
            read[execution] += len(found)
            return found

        monkeypatch.setattr(server.master.reader, "facts", counted)
        assert await server.get(f"/executions/{id}/graph") == graph
        assert await server.get(f"/executions/{id}/rollups") == rollups
        assert await server.client.packed_items(id, "users", by="duration") == packed
        assert read[id] == 0

    run(tmp_path, again)
