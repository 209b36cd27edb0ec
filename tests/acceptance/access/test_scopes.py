"""Workflows outside the scope of a key are invisible to it."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx

from tests.support.api_clients import API, BOOTSTRAP, RoleClients, populate
from tests.support.api_server import HELLO, ITEMS, RunningServer, run
from tests.support.documents import document, node
from tests.support.waiting import until


def test_h_i8_scope_allows_only_its_workflows(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        ids = await populate(server)
        async with AsyncExitStack() as stack:
            ada = await RoleClients(server, stack).connect("ada", "editor", "hel*", "items")
            listed = (await ada.get(f"{API}/executions")).json()["executions"]
            assert {each["execution_id"] for each in listed} == {ids["hello"], ids["items"]}
            assert (await ada.get(f"{API}/executions?workflow=waits")).json()["executions"] == []
            flows = (await ada.get(f"{API}/workflows")).json()["workflows"]
            assert [each["workflow_id"] for each in flows] == ["hello", "items"]
            for path in _outside(server, ids["waits"]):
                answer = await ada.get(f"{API}{path}")
                assert answer.status_code == 404, path
            assert (await ada.get(f"{API}/executions/{ids['hello']}/output")).status_code == 200
            other = f"{API}/executions/{ids['hello']}/diff/{ids['waits']}"
            assert (await ada.get(other)).status_code == 404

    run(tmp_path, work, key=BOOTSTRAP)


def _outside(server: RunningServer, execution: str) -> list[str]:
    whole = f"/executions/{execution}"
    return [
        whole,
        *(f"{whole}/{each}" for each in ("output", "input", "document", "nodes", "events", "history")),
        *(f"{whole}/{each}" for each in ("rollups", "explain", "timers", "nodes/w/output", "blobs/x")),
        "/workflows/waits",
        "/workflows/waits/versions",
        "/workflows/waits/versions/1",
        "/workflows/waits/aliases",
        "/workflows/waits/diff?before=1",
    ]


def test_out_of_scope_resource_looks_nonexistent(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        ids = await populate(server)
        async with AsyncExitStack() as stack:
            ada = await RoleClients(server, stack).connect("ada", "editor", "hello")
            pairs = [
                ("GET", f"/executions/{ids['waits']}", "/executions/xnothing"),
                ("POST", f"/executions/{ids['waits']}/cancel", "/executions/xnothing/cancel"),
                ("POST", f"/executions/{ids['items']}/retry", "/executions/xnothing/retry"),
                ("POST", f"/dead-letters/{ids['items']}/requeue", "/dead-letters/xnothing/requeue"),
                ("DELETE", f"/dead-letters/{ids['items']}", "/dead-letters/xnothing"),
                ("GET", "/workflows/items", "/workflows/nothing"),
                ("POST", "/workflows/items/executions", "/workflows/nothing/executions"),
                ("DELETE", "/workflows/items", "/workflows/nothing"),
            ]
            for method, there, absent in pairs:
                one, other = await _said(ada, method, there), await _said(ada, method, absent)
                assert one == other, there
            started = await ada.post(f"{API}/executions", json={"workflow": "items"})
            assert (started.status_code, started.json()["code"]) == (404, "UNKNOWN_WORKFLOW")
            assert (await server.client.execution(ids["waits"])).status == "running"

    run(tmp_path, work, key=BOOTSTRAP)


async def _said(asks: httpx.AsyncClient, method: str, path: str) -> dict[str, Any]:
    answer = await asks.request(method, f"{API}{path}")
    output: dict[str, Any] = answer.json()
    assert output.pop("request_id") == answer.headers["x-request-id"]
    name = path.split("/")[2]
    return {**output, "detail": output["detail"].replace(name, "ID"), "status": answer.status_code}


def test_out_of_scope_workflow_cannot_be_stored_or_run(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(HELLO)
        async with AsyncExitStack() as stack:
            ada = await RoleClients(server, stack).connect("ada", "editor", "hello")
            assert (await ada.post(f"{API}/workflows", json=ITEMS)).status_code == 403
            assert (await ada.put(f"{API}/workflows/items", json=ITEMS)).status_code == 404
            assert (await ada.put(f"{API}/workflows/hello", json=ITEMS)).status_code == 422
            assert (await ada.post(f"{API}/executions", json={"definition": ITEMS})).status_code == 403
            assert (await ada.post(f"{API}/executions", json={"definition": HELLO})).status_code == 202
            assert (await ada.put(f"{API}/workflows/hello", json=HELLO)).status_code == 200
            found = await server.http.get(f"{API}/workflows")
            assert [each["workflow_id"] for each in found.json()["workflows"]] == ["hello"]

    run(tmp_path, work, key=BOOTSTRAP)


def test_definition_by_hash_respects_scope(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(HELLO, ITEMS)
        hashes = {name: (await server.client.workflow(name)).hash for name in ("hello", "items")}
        async with AsyncExitStack() as stack:
            ada = await RoleClients(server, stack).connect("ada", "viewer", "hello")
            assert (await ada.get(f"{API}/definitions/{hashes['hello']}")).status_code == 200
            tagged = {"If-None-Match": f'"{hashes["items"]}"'}
            assert (await ada.get(f"{API}/definitions/{hashes['items']}", headers=tagged)).status_code == 404

    run(tmp_path, work, key=BOOTSTRAP)


def test_fleet_stream_respects_scope(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(HELLO, ITEMS)
        async with AsyncExitStack() as stack:
            ada = await RoleClients(server, stack).connect("ada", "viewer", "hello")
            answer = await stack.enter_async_context(ada.stream("GET", f"{API}/events"))
            lines = answer.aiter_lines()
            await until(lambda: server.master.fleet.following)
            outside = await server.ended("items", {"items": [0]})
            inside = await server.ended("hello", {"name": "x"})
            result: list[str] = []
            async for line in lines:
                result.append(line)
                if inside in line and '"completed"' in line:
                    break
            assert outside not in "".join(result)

    run(tmp_path, work, key=BOOTSTRAP)


def test_runner_starts_stored_workflows_only(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(HELLO)
        async with AsyncExitStack() as stack:
            clients = RoleClients(server, stack)
            runner, editor = await clients.connect("r", "runner"), await clients.connect("e", "editor")
            started = await runner.post(f"{API}/executions", json={"workflow": "hello"})
            assert started.status_code == 202
            found = await server.client.execution(started.json()["execution_id"])
            assert found.principal == f"key:{clients.keys['r'].id}"
            brought = {"definition": {**HELLO, "id": "mine"}}
            refused = await runner.post(f"{API}/executions", json=brought)
            assert (refused.status_code, refused.json()["code"]) == (403, "FORBIDDEN")
            assert (await editor.post(f"{API}/executions", json=brought)).status_code == 202

    run(tmp_path, work, key=BOOTSTRAP)


def test_uses_of_a_credential_are_listed_within_the_scope(tmp_path: Path) -> None:
    def calling(id: str) -> dict[str, Any]:
        ask = node("ask", "http", {"url": "https://api.shop.example/"}, credentials={"name": "shop"})
        return document([node("in", "input"), ask], "in>ask", id=id)

    async def work(server: RunningServer) -> None:
        async with AsyncExitStack() as stack:
            roles = RoleClients(server, stack)
            admin, ada = await roles.connect("root", "admin"), await roles.connect("ada", "editor", "orders*")
            body = {
                "name": "shop",
                "type": "bearer",
                "values": {"token": "secret"},
                "hosts": ["api.shop.example"],
            }
            assert (await admin.post(f"{API}/credentials", json=body)).status_code == 201
            for id in ("orders", "returns"):
                assert (await admin.post(f"{API}/workflows", json=calling(id))).status_code == 201

            async def seen(client: httpx.AsyncClient) -> list[tuple[str, int, list[str]]]:
                answer = await client.get(f"{API}/credentials/shop/uses")
                return [
                    (each["workflow_id"], each["version"], each["nodes"]) for each in answer.json()["uses"]
                ]

            assert await seen(admin) == [("orders", 1, ["ask"]), ("returns", 1, ["ask"])]
            assert await seen(ada) == [("orders", 1, ["ask"])]
            unknown = await admin.get(f"{API}/credentials/nobody/uses")
            assert unknown.status_code == 404
            assert unknown.json()["request_id"] == unknown.headers["x-request-id"]

    run(tmp_path, work, key=BOOTSTRAP)
