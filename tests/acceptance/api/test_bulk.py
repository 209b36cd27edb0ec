"""Bulk jobs over HTTP: selection, progress, outcomes, abort, rights, and the continuation after a crash."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rune.client import ApiError, models
from rune.ports.queries import BulkJob
from rune.runtime.services import bulk
from tests.support.api_clients import BOOTSTRAP, RoleClients
from tests.support.api_server import HELLO, ITEMS, WAITS, RunningServer, run
from tests.support.backends import stores
from tests.support.waiting import until

FAILING: dict[str, Any] = {
    "id": "failing",
    "nodes": [{"id": "f", "type": "fail", "parameters": {"code": "{{ $trigger.code }}"}}],
}


async def over(server: RunningServer, job: models.BulkJob) -> models.BulkJob:
    """Wait until a job has ended."""

    async def ended() -> bool:
        return (await server.client.bulk_job(job.id)).status != "running"

    await until(ended, "the bulk job has ended", 60.0)
    return await server.client.bulk_job(job.id)


async def check_bulk(server: RunningServer) -> None:
    client = server.client
    await server.deploy(WAITS, FAILING, HELLO, ITEMS)
    waiting = [(await client.start("waits", labels={"customer": "7"})).execution_id for _ in range(70)]
    other = (await client.start("waits")).execution_id
    hello = await server.ended("hello", {"name": "x"})

    preview = await client.bulk_preview("pause", filter={"labels": {"customer": "7"}})
    assert (preview.total, preview.eligible, preview.by_status) == (70, 70, {"running": 70})
    paused = await over(server, await client.bulk("pause", filter={"labels": {"customer": "7"}}))
    assert (paused.status, paused.total, paused.done, paused.pending) == ("completed", 70, 70, 0)
    assert {each.execution_id async for each in client.executions(status="paused")} == set(waiting)

    job = await client.bulk("cancel", ids=[*waiting[:2], hello], reason="ordered twice", key="k")
    again = await client.bulk("cancel", ids=[*waiting[:2], hello], reason="ordered twice", key="k")
    assert again.id == job.id
    filtered = {"labels": {"customer": "8"}}
    one = await client.bulk("pause", filter=filtered, key="f")
    assert (await client.bulk("pause", filter=filtered, key="f")).id == one.id
    for others in (
        client.bulk("cancel", ids=waiting[:1], reason="ordered twice", key="k"),
        client.bulk("cancel", ids=[*waiting[:2], hello], reason="another", key="k"),
        client.bulk("pause", filter={"labels": {"customer": "7"}}, key="f"),
        client.bulk("pause", filter=filtered, limit=1, key="f"),
    ):
        with pytest.raises(ApiError) as refused:
            await others
        assert (refused.value.status, refused.value.code) == (409, "KEY_CONFLICT")
    job = await over(server, job)
    assert (job.done, job.refused) == (2, 1)
    outcomes = {each.execution_id: each async for each in client.bulk_outcomes(job.id, page=2)}
    assert outcomes[waiting[0]].outcome == "done"
    assert (outcomes[hello].outcome, outcomes[hello].code) == ("refused", "ENDED")
    assert [each.execution_id async for each in client.bulk_outcomes(job.id, outcome="refused")] == [hello]
    error = (await client.execution(waiting[0])).error
    assert error is not None
    assert error.message == "ordered twice"
    assert (await client.execution(other)).status == "running"

    failed = [await server.ended("failing", {"code": code}) for code in ("NO", "NO", "OTHER")]
    again = await over(server, await client.bulk("retry", filter={"code": "NO", "workflow": "failing"}))
    assert (again.total, again.done) == (2, 2)
    started = {each.execution_id: each.started async for each in client.bulk_outcomes(again.id)}
    assert started.keys() == set(failed[:2])
    for old, new in started.items():
        assert new is not None
        assert (await client.execution(new)).retry_of == old
    items = await server.ended("items", {"items": [0, 1, 2]})
    again = await over(server, await client.bulk("retry_failed_items", filter={"failed_items": True}))
    assert [each.execution_id async for each in client.bulk_outcomes(again.id)] == [items]
    assert next(each.id for each in await client.bulk_jobs()) == again.id


def test_bulk_jobs_act_on_filters_and_ids(tmp_path: Path) -> None:
    run(tmp_path, check_bulk)


def test_bulk_jobs_act_on_filters_and_ids_on_a_cluster(tmp_path: Path) -> None:
    run(tmp_path, check_bulk, on=replace(stores(tmp_path), nodes=(), grace=1.0))


def test_bulk_job_without_selection_is_refused(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        for body in (
            {"action": "cancel", "filter": {}},
            {"action": "cancel", "filter": {"status": []}},
            {"action": "cancel"},
            {"action": "cancel", "ids": ["x1"], "filter": {"workflow": "hello"}},
            {"action": "cancel", "ids": []},
            {"action": "delete", "ids": ["x1"]},
        ):
            assert (await server.post("/bulk", body, 422))["code"] == "BAD_BODY"
        refused = await server.post("/bulk", {"action": "cancel", "ids": ["x1"]}, 404)
        assert refused["code"] == "UNKNOWN_EXECUTION"
        assert (await server.get(f"/bulk/b{'0' * 24}", 404))["code"] == "UNKNOWN_BULK_JOB"
        assert await server.client.bulk_jobs() == []

    run(tmp_path, work)


def test_bulk_job_of_crashed_process_is_continued_for_its_principal(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(WAITS)
        ids = [(await server.client.start("waits")).execution_id for _ in range(3)]
        # As left by a process that crashed: nothing is recorded, and its reservation is over.
        job = BulkJob(id=f"b{'1' * 24}", at=1, principal="key:k1", action="cancel", total=3)
        await server.engine.backend.bulk.create(job, ids)
        found = await over(server, await server.client.bulk_job(job.id))
        assert found.done == 3
        entries = [each async for each in server.client.log(action="execution.cancel")]
        assert {each.target: each.actor for each in entries} == dict.fromkeys(ids, "key:k1")

    run(tmp_path, work)


def test_aborted_bulk_job_leaves_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "BATCH_SIZE", 1)

    async def work(server: RunningServer) -> None:
        await server.deploy(WAITS)
        ids = [(await server.client.start("waits")).execution_id for _ in range(4)]
        service = server.engine.services.executions
        original, first = service.cancel, asyncio.Event()

        async def cancel_slowly(execution: str, reason: str = "") -> str:
            status = await original(execution, reason)
            job = (await server.client.bulk_jobs())[0]
            await server.client.abort_bulk(job.id)
            first.set()
            return status

        monkeypatch.setattr(service, "cancel", cancel_slowly)
        job = await over(server, await server.client.bulk("cancel", ids=ids))
        await first.wait()

        async def recorded() -> bool:
            return (await server.client.bulk_job(job.id)).done == 1

        await until(recorded, "the outcome is recorded", 60.0)
        job = await server.client.bulk_job(job.id)
        assert (job.status, job.done, job.pending) == ("aborted", 1, 3)
        assert (await server.client.execution(ids[-1])).status == "running"

    run(tmp_path, work)


def test_bulk_job_of_scoped_key_reaches_its_workflows_only(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(HELLO, WAITS)
        theirs = (await server.client.start("waits")).execution_id
        async with AsyncExitStack() as stack:
            clients = RoleClients(server, stack)
            ada = await clients.connect("ada", "runner", "hel*")
            viewer = await clients.connect("vic", "viewer")
            denied = await viewer.post("/api/v1/bulk", json={"action": "cancel", "ids": [theirs]})
            assert denied.status_code == 403
            hidden = await ada.post("/api/v1/bulk", json={"action": "cancel", "ids": [theirs]})
            assert hidden.status_code == 404
            body = {"action": "cancel", "filter": {"status": ["running"]}}
            made = (await ada.post("/api/v1/bulk", json=body)).json()
            assert (made["total"], made["status"]) == (0, "completed")
            job = await server.client.bulk("pause", filter={"status": "running"})
            assert (await ada.get(f"/api/v1/bulk/{job.id}")).status_code == 404
            assert [each["id"] for each in (await ada.get("/api/v1/bulk")).json()["jobs"]] == [made["id"]]
            await over(server, job)

    run(tmp_path, work, key=BOOTSTRAP)
