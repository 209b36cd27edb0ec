"""Reruns with another input, other parameters or another version, over HTTP, on both backends."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rune.client import ApiError
from tests.support.api_clients import BOOTSTRAP, RoleClients
from tests.support.api_server import ITEMS, RunningServer, run
from tests.support.backends import stores


def price(factor: int, **more: Any) -> dict[str, Any]:
    """A workflow whose output shows what each node received."""
    return {
        "id": "price",
        "inputs": {"type": "object", "properties": {"n": {"type": "integer"}}},
        "nodes": [
            {"id": "in", "type": "input"},
            {
                "id": "base",
                "type": "edit",
                "parameters": {
                    "mode": "keep_only",
                    "assignments": [{"name": "v", "value": "{{ $trigger.n }}"}],
                },
            },
            {"id": "big", "type": "conditional", "parameters": {"expression": "$base.v > 0"}},
            {
                "id": "times",
                "type": "edit",
                "parameters": {
                    "mode": "keep_only",
                    "assignments": [{"name": "v", "value": f"{{{{ $json.v * {factor} }}}}"}],
                },
            },
            {"id": "side", "type": "noop"},
            {"id": "both", "type": "merge"},
            {
                "id": "out",
                "type": "output",
                "parameters": {"value": ["{{ $base.v }}", "{{ $times.v }}", "{{ $both }}"]},
            },
        ],
        "edges": [
            {"src": "in", "dst": "base"},
            {"src": "base", "dst": "big"},
            {"src": "big", "dst": "times", "label": "true"},
            {"src": "base", "dst": "side"},
            {"src": "times", "dst": "both"},
            {"src": "side", "dst": "both"},
            {"src": "both", "dst": "out"},
        ],
        **more,
    }


async def refused(server: RunningServer, id: str, node: str, **changes: Any) -> str:
    with pytest.raises(ApiError) as error:
        await server.client.rerun(id, node, **changes)
    return error.value.code


async def check_changes(server: RunningServer) -> None:
    client = server.client
    await server.deploy(price(2), ITEMS)
    first = await client.start("price", {"n": 1})
    id = first.execution_id
    assert await first.result(60) == [1, 2, [{"v": 2}, {"v": 1}]]

    # The conditional passes on what `base` sent, so the input of `times` is the output of `base`.
    edited = await client.rerun(id, "times", input={"v": 5})
    assert (await edited.result(60))[:2] == [5, 10]
    assert edited.retry_of == id
    joined = await client.rerun(id, "both", input={"side": "changed"})
    assert (await joined.result(60))[2] == [{"v": 2}, "changed"]
    large = await client.rerun(id, "times", input={"v": 3, "text": "x" * 200_000})
    assert (await large.result(60))[1] == 6
    started = await client.rerun(id, "in", input={"n": 4})
    assert (await started.result(60))[:2] == [4, 8]
    assert await client.output(id) == [1, 2, [{"v": 2}, {"v": 1}]]

    other = await client.rerun(
        id, "times", parameters={"assignments": [{"name": "v", "value": "{{ $json.v + 100 }}"}]}
    )
    assert (await other.result(60))[:2] == [1, 101]
    assert other.version is None

    await server.deploy(price(3))
    newer = await client.rerun(id, "times", version=2)
    assert (await newer.result(60))[:2] == [1, 3]
    assert newer.version == 2
    both = await client.rerun(id, "times", version="latest", input={"v": 7})
    assert (await both.result(60))[:2] == [7, 21]

    assert await refused(server, id, "in", input={"n": "text"}) == "INVALID"
    long = {"assignments": [{"name": "v", "value": "x" * 3_000_000}]}
    assert await refused(server, id, "times", parameters=long) == "INVALID"
    assert await refused(server, id, "both", input={"nobody": 1}) == "REFUSED"
    assert await refused(server, id, "times", version=9) == "UNKNOWN_WORKFLOW"
    longer = price(3)
    longer["nodes"].append({"id": "more", "type": "noop"})
    await server.deploy(longer)
    grown = await client.rerun(id, "times", version=3)
    assert [(await client.wait(grown.execution_id, 60)).status, grown.version] == ["completed", 3]
    items = await server.ended("items", {"items": [0, 1, 2]})
    assert await refused(server, items, "odd", item="s:1", input=4) == "REFUSED"
    assert await refused(server, items, "all", input=[]) == "REFUSED"
    assert await refused(server, items, "twice", input=4) == "BAD_ITEM"
    again = await client.rerun(items, "twice", item="s:2", input=20)
    await again.wait(60)
    graph = await client.graph(again.execution_id)
    assert graph.status == "completed"


def test_rerun_with_changes(tmp_path: Path) -> None:
    run(tmp_path, check_changes)


def test_rerun_with_changes_on_a_cluster(tmp_path: Path) -> None:
    run(tmp_path, check_changes, on=replace(stores(tmp_path), nodes=(), grace=1.0))


def test_rerun_with_changes_belongs_to_its_caller_and_parameters_need_edit(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(price(2))
        id = await server.ended("price", {"n": 1})
        async with AsyncExitStack() as stack:
            clients = RoleClients(server, stack)
            ada = await clients.connect("ada", "runner")
            path = f"/api/v1/executions/{id}/rerun"
            plain = await ada.post(path, json={"node": "times"})
            edited = await ada.post(path, json={"node": "times", "input": {"v": 2}})
            denied = await ada.post(path, json={"node": "times", "parameters": {}})
            assert (plain.status_code, edited.status_code, denied.status_code) == (202, 202, 403)
            mine = [
                each.execution_id
                async for each in server.client.executions(principal=f"key:{clients.keys['ada'].id}")
            ]
            assert mine == [edited.json()["execution_id"]]
            for each in (plain, edited):
                await server.client.wait(each.json()["execution_id"], 60)

    run(tmp_path, work, key=BOOTSTRAP)
