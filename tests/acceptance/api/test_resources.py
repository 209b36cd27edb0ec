"""Credentials, node types, workers, queues, dead letters, blobs, health and the page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import rune
from rune.client import NotFound
from rune.core.execution.decision import FinishExecution
from rune.core.execution.outcome import Error
from rune.ports.journal import StoreUnavailableError
from tests.support.api_server import HELLO, WAITS, RunningServer, run
from tests.support.waiting import until


def test_credential_values_are_never_returned(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        body = {"name": "shop", "type": "bearer", "values": {"token": "hunter2"}, "hosts": ["api.example"]}
        made = await server.http.post("/api/v1/credentials", json=body)
        assert made.status_code == 201
        again = await server.http.post("/api/v1/credentials", json=body)
        assert (again.status_code, again.json()["code"]) == (409, "CREDENTIAL_EXISTS")
        rotated = await server.http.patch("/api/v1/credentials/shop", json={"values": {"token": "hunter3"}})
        assert rotated.json()["version"] == 2
        wrong = await server.http.post(
            "/api/v1/credentials", json={"name": "x", "type": "bearer", "values": {"tokn": "hunter4"}}
        )
        assert wrong.status_code == 422
        one = await server.http.get("/api/v1/credentials/shop")
        everything = await server.http.get("/api/v1/credentials")
        output = "".join(each.text for each in (made, again, rotated, wrong, one, everything))
        assert "hunter" not in output
        assert one.json()["fields"] == ["token"]
        assert (await server.http.delete("/api/v1/credentials/shop")).status_code == 204
        assert (await server.get("/credentials/shop", 404))["code"] == "CREDENTIAL_MISSING"
        assert (await server.get("/credentials"))["credentials"] == []

    run(tmp_path, work)


def test_credential_types_describe_their_fields(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        found = {each.type: each for each in await server.client.credential_types()}
        assert set(found) == {"basic", "bearer", "header", "api_key", "oauth2", "smtp", "custom"}
        assert found["basic"].secrets == ["password"]
        assert found["basic"].fields["required"] == ["username", "password"]
        assert found["smtp"].node_types == ["smtp"]
        assert {"http", "llm_service"} <= set(found["oauth2"].node_types)
        http = await server.get("/nodes/http")
        assert (http["category"], http["icon"]) == ("integration", "globe")
        assert set(http["output_schema"]["properties"]) == {"status", "body", "headers", "duration_ms"}

    run(tmp_path, work)


def test_node_types_include_schemas(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        names = [each["type"] for each in (await server.get("/nodes"))["nodes"]]
        assert {"input", "http", "merge", "wait"} <= set(names)
        assert len(names) == len(set(names))
        found = await server.get("/nodes/wait")
        assert "signal" in found["parameters"]["properties"]["resume"]["enum"]
        assert (await server.get("/nodes/wiat", 404))["code"] == "UNKNOWN_TYPE"

    run(tmp_path, work)


def test_workers_queues_and_timers_are_listed(tmp_path: Path) -> None:
    wait = {"id": "w", "type": "wait", "parameters": {"amount": 1, "unit": "hours"}}
    waits = {
        "id": "later",
        "nodes": [{"id": "in", "type": "input"}, wait],
        "edges": [{"src": "in", "dst": "w"}],
    }

    async def work(server: RunningServer) -> None:
        assert len((await server.get("/workers"))["workers"]) == 1
        queue = {"name": "default", "depth": 0, "held": None, "oldest_ms": 0}
        assert (await server.get("/queues"))["queues"] == [queue]
        await server.deploy(waits)
        id = (await server.client.start("later")).execution_id
        stream = await server.stream(f"/executions/{id}/events")
        async for event in stream.events():
            if event["kind"] == "node.waiting":
                break
        timers = (await server.get(f"/executions/{id}/timers"))["timers"]
        assert [each["node"] for each in timers] == ["w"]
        assert (await server.get("/timers"))["next_due_at"] is not None

    run(tmp_path, work)


def test_dead_letters_are_listed_requeued_and_dropped(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(WAITS)
        ids = [(await server.client.start("waits")).execution_id for _ in range(2)]
        for id in ids:
            finish = FinishExecution("failed", Error("DEAD_LETTERED", "given up"))
            await server.engine.finisher.finish(id, finish, server.engine.backend.clock.now())
        letters = (await server.get("/dead-letters"))["dead_letters"]
        assert {each["execution_id"] for each in letters} == set(ids)
        assert len((await server.get("/dead-letters?limit=1"))["dead_letters"]) == 1
        again = await server.post(f"/dead-letters/{ids[0]}/requeue", status=202)
        assert again["retry_of"] == ids[0]
        await server.ask("DELETE", f"/dead-letters/{ids[1]}", 204)
        assert (await server.get("/dead-letters"))["dead_letters"] == []
        gone = await server.ask("DELETE", f"/dead-letters/{ids[1]}", 404)
        assert gone["code"] == "UNKNOWN_DEAD_LETTER"

    run(tmp_path, work)


def test_blobs_are_served_per_execution(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(HELLO)
        id = await server.ended("hello", {"name": "x" * 100_000})
        await server.engine.backend.blob.put(f"{id}/mine/a", b"\x00bytes")
        answer = await server.http.get(f"/api/v1/executions/{id}/blobs/mine/a")
        assert (answer.content, answer.headers["content-type"]) == (b"\x00bytes", "application/octet-stream")
        assert (await server.get(f"/executions/{id}/blobs/nothing", 404))["code"] == "UNKNOWN_BLOB"
        other = await server.ended("hello", {"name": "y"})
        escape = await server.http.get(f"/api/v1/executions/{other}/blobs/../{id}/mine/a")
        assert escape.status_code == 404

    run(tmp_path, work)


def test_client_streams_blobs_and_values(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(HELLO)
        id = await server.ended("hello", {"name": "x" * 300_000})
        await server.engine.backend.blob.put(f"{id}/mine/a", bytes(1_000_000))

        chunks = [chunk async for chunk in server.client.blob(id, "mine/a")]
        output = [chunk async for chunk in server.client.download(id)]
        given = b"".join([chunk async for chunk in server.client.download(id, "input")])

        assert len(chunks) > 1
        assert b"".join(chunks) == bytes(1_000_000)
        assert json.loads(b"".join(output)) == await server.client.output(id)
        assert json.loads(given) == {"name": "x" * 300_000}
        with pytest.raises(NotFound, match="has no blob"):
            [chunk async for chunk in server.client.blob(id, "nothing")]

    run(tmp_path, work)


def test_client_reads_single_resources(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        client = server.client
        await server.deploy(HELLO, WAITS)
        await client.deploy({**HELLO, "notes": "b", "settings": {"timeout": 9}})
        waiting = await client.start("waits")

        assert (await client.alias("hello", "latest")).version == 2
        compared = await client.compare_versions("hello", 1)
        assert [(each.what, each.kind) for each in compared.changes] == [("settings", "changed")]
        await client.delete("hello")
        assert (await client.restore("hello")).version == 2
        assert (await client.node_type("http"))["effectful"] is True
        assert [each.name for each in await client.queues()] == ["default"]
        assert await client.timers(waiting.id) == []
        assert await client.next_timer() is None

    run(tmp_path, work)


def test_readiness_reflects_store_availability(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(server: RunningServer) -> None:
        assert (await server.http.get("/healthz")).json() == {"status": "ok"}
        await until(lambda: server.master.probe.ready)
        assert (await server.http.get("/readyz")).status_code == 200
        assert (await server.client.version()).version == rune.__version__

        async def away(*_: object, **__: object) -> None:
            raise StoreUnavailableError("gone")

        monkeypatch.setattr(server.master.reader, "executions", away)
        monkeypatch.setattr(server.master.reader, "search", away)
        monkeypatch.setattr("rune.server.health.PROBE_PERIOD_S", 0.0)
        await server.master.probe.touch()
        unready = await server.http.get("/readyz")
        assert (unready.status_code, unready.json()["code"]) == (503, "NOT_READY")
        listed = await server.http.get("/api/v1/executions")
        assert (listed.status_code, listed.json()["code"]) == (503, "STORE_AWAY")
        assert listed.headers["retry-after"] == "1"
        assert (await server.http.get("/healthz")).status_code == 200

    run(tmp_path, work)


def test_page_loads_only_own_files(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        page = await server.http.get("/")
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "onclick" not in page.text
        assert "style=" not in page.text
        paths = re.findall(r'(?:src|href)="([^"]+)"', page.text)
        assert {Path(each).suffix for each in paths} >= {".js", ".css", ".svg"}
        for path in paths:
            assert path.startswith("/assets/")
            file = await server.http.get(path)
            assert (file.status_code, file.headers["x-content-type-options"]) == (200, "nosniff")

    run(tmp_path, work)


def test_internal_error_hides_details(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(server: RunningServer) -> None:
        async def broken(*_: object, **__: object) -> None:
            raise ZeroDivisionError("secret inside")

        monkeypatch.setattr(server.master.reader, "search", broken)
        answer = await server.http.get("/api/v1/executions")
        assert (answer.status_code, answer.headers["content-type"]) == (500, "application/problem+json")
        assert "secret" not in answer.text

    run(tmp_path, work)


def test_rejected_method_names_all_methods_of_the_path(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        for path, allowed in (
            ("/api/v1/workflows/hello", "DELETE, GET, PUT"),
            ("/api/v1/executions", "GET, POST"),
            ("/healthz", "GET"),
        ):
            answer = await server.http.patch(path, json={})
            assert (answer.status_code, answer.json()["code"]) == (405, "NOT_ALLOWED")
            assert set(answer.headers["allow"].split(", ")) - {"HEAD"} == set(allowed.split(", ")), path

    run(tmp_path, work)
