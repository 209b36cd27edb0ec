"""Filters of the list of executions, estimated counts and figures, over HTTP."""

from __future__ import annotations

from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.support.api_clients import BOOTSTRAP, RoleClients
from tests.support.api_server import HELLO, ITEMS, WAITS, RunningServer, run

FAILING: dict[str, Any] = {
    "id": "failing",
    "nodes": [{"id": "f", "type": "fail", "parameters": {"code": "{{ $trigger.code }}"}}],
}


async def listed(server: RunningServer, **filters: Any) -> list[str]:
    return [each.execution_id async for each in server.client.executions(**filters)]


def test_list_is_filtered_by_every_property(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(HELLO, FAILING, ITEMS)
        hello = await server.ended("hello", {"name": "x"}, labels={"customer": "7"})
        no = await server.ended("failing", {"code": "NO"}, labels={"customer": "7"})
        maybe = await server.ended("failing", {"code": "MAYBE"})
        items = await server.ended("items", {"items": [0, 1]})
        again = (await server.client.retry(no)).execution_id
        await server.client.wait(again)
        assert await listed(server, code="NO") == [again, no]
        assert await listed(server, code="NO", labels={"customer": "7"}, status="halted") == [again, no]
        assert await listed(server, code=["MAYBE"]) == [maybe]
        assert await listed(server, retry_of=no) == [again]
        assert await listed(server, failed_items=True) == [items]
        assert await listed(server, status=["completed", "running"], workflow="hello") == [hello]
        assert await listed(server, principal="local") == [again, items, maybe, no, hello]
        assert await listed(server, principal="key:k1") == []
        assert await listed(server, q="maybe") == [maybe]
        assert await listed(server, q=hello[:-1]) == [hello]
        assert await listed(server, labels={"customer": "7"}, page=1) == [again, no, hello]
        now = datetime.now(UTC)
        past, future = (now - timedelta(hours=1)).isoformat(), (now + timedelta(hours=1)).isoformat()
        assert len(await listed(server, since=past, until=future)) == 5
        assert await listed(server, until=past) == []
        assert await listed(server, since=future) == []
        count = await server.client.count(code="NO")
        assert (count.value, count.exact) == (2, True)
        assert (await server.get("/executions?version=1", 422))["code"] == "BAD_QUERY"
        assert (await server.get("/executions?cursor=nothing&code=NO", 422))["code"] == "BAD_CURSOR"
        await server.deploy({**HELLO, "name": "second"})
        second = await server.ended("hello", {"name": "x"})
        assert await listed(server, workflow="hello", version=2) == [second]
        assert await listed(server, workflow="hello", version="v1") == [hello]

    run(tmp_path, work)


def test_list_by_principal_and_scope(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(HELLO, WAITS)
        async with AsyncExitStack() as stack:
            clients = RoleClients(server, stack)
            ada = await clients.connect("ada", "runner", "hel*")
            started = (await ada.post("/api/v1/workflows/hello/executions", json={})).json()["execution_id"]
            other = (await server.client.start("waits")).execution_id
            found = (await ada.get("/api/v1/executions?count=estimate")).json()
            assert [each["execution_id"] for each in found["executions"]] == [started]
            assert found["count"] == {"value": 1, "exact": True}
            assert await listed(server, principal=f"key:{clients.keys['ada'].id}") == [started]
            assert await listed(server, principal="bootstrap") == [other]
            stats = (await ada.get("/api/v1/stats?by=workflow")).json()
            assert {each["workflow"] for each in stats["groups"]} <= {"hello"}

    run(tmp_path, work, key=BOOTSTRAP)


def test_stats_count_ended_and_open_executions(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(HELLO, FAILING, WAITS)
        for _ in range(3):
            await server.ended("hello", {"name": "x"})
        await server.ended("failing", {"code": "NO"})
        await server.client.start("waits")
        found = await server.client.stats(by="workflow,status", step="1m")
        assert {(each.workflow, each.status): (each.total, each.open) for each in found.groups} == {
            ("hello", "completed"): (3, 0),
            ("failing", "halted"): (1, 0),
            ("waits", "running"): (0, 1),
        }
        assert all(len(each.counts) == len(found.steps) for each in found.groups)
        by_status = await server.client.stats()
        assert {each.status: each.total for each in by_status.groups} == {
            "completed": 3,
            "halted": 1,
            "running": 0,
        }
        assert {each.workflow for each in (await server.client.stats(by="workflow")).groups} == {
            "hello",
            "failing",
            "waits",
        }
        one = await server.client.stats(by="status", workflow="failing")
        assert [(each.status, each.total) for each in one.groups] == [("halted", 1)]
        old = (datetime.now(UTC) - timedelta(days=2)).isoformat()
        assert (
            await server.http.get("/api/v1/stats", params={"since": old, "step": "1m"})
        ).status_code == 422

    run(tmp_path, work)


def test_workflow_activity_has_newest_outcomes_and_quantiles(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(FAILING, HELLO)
        ids = [await server.ended("hello", {"name": "x"}) for _ in range(22)]
        activity = await server.client.activity("hello")
        assert [each.execution_id for each in activity.outcomes] == ids[:1:-1]
        assert {each.status for each in activity.outcomes} == {"completed"}
        assert activity.measured == 22
        assert activity.p50_ms is not None
        assert activity.p95_ms is not None
        assert 0 <= activity.p50_ms <= activity.p95_ms
        views = {each.workflow_id: each async for each in server.client.workflows(activity=True)}
        assert views["hello"].activity == activity
        assert views["failing"].activity is not None
        assert views["failing"].activity.p50_ms is None
        assert [each.activity async for each in server.client.workflows()] == [None, None]

    run(tmp_path, work)


def test_count_with_text_is_that_of_what_the_text_finds(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(HELLO)
        for _ in range(2):
            started = (await server.client.start("hello")).execution_id

        async def counted(query: str) -> tuple[int, Any]:
            found = (await server.http.get(f"/api/v1/executions?count=estimate&{query}")).json()
            return len(found["executions"]), found.get("count")

        assert await counted("limit=5") == (2, {"value": 2, "exact": True})
        assert await counted("q=nothing-like-this") == (0, {"value": 0, "exact": True})
        assert await counted(f"q={started}") == (1, {"value": 1, "exact": True})

    run(tmp_path, work)
