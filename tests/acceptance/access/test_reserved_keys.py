"""Idempotency keys of Rune itself are refused from clients, so that nobody takes the place of a tick, a delivery, a
handler or the end of a child."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from rune.client import ApiError, models
from rune.core.start_keys import RESERVED
from rune.errors import RuneError
from rune.runtime.lifecycle.launcher import StartOptions
from rune.runtime.services.triggered_starts import start_key
from tests.integration.triggers import scheduler_harness
from tests.integration.triggers.scheduler_harness import MINUTE, SchedulerHarness, moment
from tests.support.api_clients import API, BOOTSTRAP, RoleClients
from tests.support.api_server import DEADLINE, HELLO, RunningServer, run
from tests.support.documents import document, node
from tests.support.in_process_cli import InProcessCli
from tests.support.trigger_workflows import schedule_workflow, webhook_workflow
from tests.support.waiting import until

NOON = moment("2026-05-01T12:00:00")
START = f"{API}/workflows/hello/executions"


async def runner(server: RunningServer, stack: AsyncExitStack) -> httpx.AsyncClient:
    """Return the client of a runner that may start nothing but `hello`."""
    return await RoleClients(server, stack).connect("r", "runner", "hello", "alarm")


async def executions(server: RunningServer, workflow: str) -> list[models.ListedExecution]:
    return [each async for each in server.client.executions(workflow=workflow)]


@pytest.mark.parametrize("prefix", RESERVED)
def test_every_route_refuses_reserved_key(tmp_path: Path, prefix: str) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(HELLO)
        id = await server.ended("hello", {"name": "x"})
        ended = f"/executions/{id}"
        requests: list[tuple[str, Any]] = [
            ("/workflows/hello/executions", {}),
            ("/executions", {"workflow": "hello"}),
            ("/executions", {"definition": HELLO}),
            (f"{ended}/retry", {}),
            (f"{ended}/rerun", {"node": "out"}),
            (f"{ended}/signals", {"name": "go"}),
            ("/bulk", {"action": "retry", "ids": [id]}),
        ]
        for path, body in requests:
            answer = await server.post(path, body, 400, headers={"Idempotency-Key": f"{prefix}x"})
            assert (answer["code"], f"`{prefix}`" in answer["detail"]) == ("RESERVED_KEY", True), path
        with pytest.raises(ApiError, match=prefix):
            await server.client.start("hello", {"name": "x"}, key=f"{prefix}x")
        assert [each.execution_id for each in await executions(server, "hello")] == [id]

    run(tmp_path, work)


def test_commands_refuse_reserved_key(tmp_path: Path) -> None:
    rune = InProcessCli(tmp_path / "home")
    path = tmp_path / "hello.json"
    path.write_text(json.dumps(HELLO))
    rune("deploy", str(path))
    id = rune.json("run", str(path), "--input", '{"name": "x"}')["execution_id"]
    for command in (
        ["run", str(path)],
        ["start", "hello"],
        ["retry", id],
        ["rerun", id, "--from", "out"],
        ["signal", id, "go"],
    ):
        done = rune(*command, "--idempotency-key", "tick:x", "--json")
        assert (done.exit_code, "RESERVED_KEY" in done.stdout) == (2, True), command
    assert len(rune.json("list")["executions"]) == 1


def test_client_cannot_take_the_place_of_a_tick(tmp_path: Path) -> None:
    async def work(harness: SchedulerHarness) -> None:
        await harness.deploy(schedule_workflow(amount=10, unit="minutes"))
        await harness.deploy(HELLO)
        key = f"tick:{(await harness.trigger()).id}:{NOON + 10 * MINUTE}"
        with suppress(RuneError):
            await harness.services.executions.start("hello", None, b"{}", StartOptions(key=key))
        assert await harness.run_at(NOON + 10 * MINUTE) == ["2026-05-01T12:10:00Z"]

    scheduler_harness.run(tmp_path, NOON, work)


def test_client_cannot_take_the_place_of_a_delivery(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(HELLO, webhook_workflow())
        assert server.engine.backend.triggers is not None
        (trigger,) = await server.engine.backend.triggers.list("orders")
        assert trigger.hook is not None
        key = f"hook:{trigger.id}:{start_key(trigger, 'evt-100')}"
        async with AsyncExitStack() as stack:
            client = await runner(server, stack)
            await client.post(START, json={}, headers={"Idempotency-Key": key})
        path = (await server.get(f"/triggers/{trigger.id}"))["webhook"]["path"]
        await server.http.post(path, json={"order": 7}, headers={"X-Delivery-Id": "evt-100"})
        (started,) = await executions(server, "orders")
        ended = await server.client.wait(started.execution_id, DEADLINE)
        assert ended.status == "completed"

    run(tmp_path, work, key=BOOTSTRAP)


def test_client_cannot_take_the_place_of_a_handler(tmp_path: Path) -> None:
    steps = [
        node("in", "input"),
        node("w", "wait", {"resume": "signal", "name": "go"}),
        node("bad", "fail", {"message": "no stock"}),
    ]
    fails = document(steps, "in>w", "w>bad", id="orders", settings={"on_failure": "alarm"})

    async def work(server: RunningServer) -> None:
        await server.deploy(HELLO, document([node("in", "input")], id="alarm"), fails)
        started = await server.client.start("orders")
        async with AsyncExitStack() as stack:
            key = {"Idempotency-Key": f"hook:failure:{started.execution_id}"}
            client = await runner(server, stack)
            await client.post(START, json={"input": {"name": "x"}}, headers=key)
        await server.client.signal(started.execution_id, "go")

        async def handled() -> bool:
            return len(await executions(server, "alarm")) == 1

        await until(handled, "the handler was started")

    run(tmp_path, work, key=BOOTSTRAP)


def test_signal_cannot_take_the_place_of_the_end_of_a_child(tmp_path: Path) -> None:
    waits = node("w", "wait", {"resume": "signal", "name": "go"})
    child = document([node("in", "input"), waits], "in>w", id="child")
    calls = node("call", "workflow", {"workflow": "child"})
    parent = document([node("in", "input"), calls, waits], "in>call", "in>w", id="parent")

    async def work(server: RunningServer) -> None:
        await server.deploy(child, parent)
        whole = (await server.client.start("parent")).execution_id

        async def launched() -> bool:
            return len(await executions(server, "child")) == 1

        await until(launched, "the child was started")
        (started,) = await executions(server, "child")
        taken = {"Idempotency-Key": started.execution_id}
        answer = await server.http.post(
            f"{API}/executions/{whole}/signals", json={"name": "go"}, headers=taken
        )
        assert answer.json()["code"] == "RESERVED_KEY"
        await server.client.signal(whole, "go")
        await server.client.signal(started.execution_id, "go")
        assert (await server.client.wait(whole, DEADLINE)).status == "completed"

    run(tmp_path, work)
