"""Limits of workflows and keys over HTTP and on the command line."""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from rune.client import ApiError
from rune.client.models import Limits
from rune.core.execution.fact import Fact
from rune.ports.access import AppliedLimits
from rune.ports.inspection import QueueDepth
from rune.ports.journal import ExecutionRecord
from tests.support.api_clients import BOOTSTRAP, RoleClients
from tests.support.api_server import API, DEADLINE, HELLO, WAITS, RunningServer, run
from tests.support.in_process_cli import InProcessCli

HOOKED: dict[str, Any] = {
    "id": "hooked",
    "nodes": [
        {"id": "in", "type": "webhook", "parameters": {"auth": "none"}},
        {"id": "w", "type": "wait", "parameters": {"resume": "signal", "name": "go"}},
    ],
    "edges": [{"src": "in", "dst": "w"}],
}
TICKS: dict[str, Any] = {
    "id": "ticks",
    "nodes": [
        {"id": "clock", "type": "schedule", "parameters": {"cron": "0 0 1 1 *"}},
        {"id": "out", "type": "output", "parameters": {"value": 1}},
    ],
    "edges": [{"src": "clock", "dst": "out"}],
}


class ShiftedClock:
    """A clock for accepting starts that the test can set ahead."""

    def __init__(self, server: RunningServer) -> None:
        self._clock = server.engine.backend.clock
        self.ahead = 0
        server.engine.launcher._clock = self  # type: ignore[assignment]

    def now(self) -> int:
        return self._clock.now() + self.ahead


async def limit(server: RunningServer, workflow: str, **limits: Any) -> Any:
    return await server.ask("PUT", f"/workflows/{workflow}/limits", 200, json=limits)


async def start(server: RunningServer, workflow: str, key: str | None = None) -> httpx.Response:
    headers = {} if key is None else {"Idempotency-Key": key}
    return await server.http.post(f"{API}/workflows/{workflow}/executions", json={}, headers=headers)


async def count(server: RunningServer, workflow: str) -> int:
    return len([each async for each in server.client.executions(workflow=workflow)])


def check_rejected(answer: httpx.Response, name: str) -> int:
    """Check a rejection by a limit and return its Retry-After in seconds."""
    assert answer.status_code == 429, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    output = answer.json()
    assert (output["code"], output["limit"], output["status"]) == ("TOO_MANY", name, 429)
    assert f"`{name}`" in output["detail"]
    return int(answer.headers["retry-after"])


def test_limits_are_set_shown_and_cleared(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(HELLO)
        none = {"rate": None, "burst": None, "running": None, "waiting": None}
        assert await server.get("/workflows/hello/limits") == none
        wanted: dict[str, Any] = {"rate": "10/s", "burst": 5, "running": 20, "waiting": 1000}
        assert await limit(server, "hello", **wanted) == wanted
        assert await server.get("/workflows/hello/limits") == wanted
        assert await server.client.limits("hello") == Limits(**wanted)
        for bad in ({"rate": "10/d"}, {"rate": "0/s"}, {"running": 0}, {"burst": 3}, {"other": 1}):
            await server.ask("PUT", "/workflows/hello/limits", 422, json=bad)
        assert await server.get("/workflows/hello/limits") == wanted
        assert await limit(server, "hello") == none
        await server.ask("PUT", "/workflows/nothing/limits", 404, json=wanted)
        await server.get("/workflows/nothing/limits", 404)
        entries = (await server.get("/audit-log", params={"action": "workflow.limit"}))["entries"]
        assert "rate 10/s" in entries[-1]["details"]["limits"]

    run(tmp_path, work)


def test_rate_limit_rejects_with_retry_after(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        clock = ShiftedClock(server)
        await server.deploy(HELLO)
        await limit(server, "hello", rate="2/h")
        assert [(await start(server, "hello", key)).status_code for key in ("a", "b")] == [202, 202]
        pause = check_rejected(await start(server, "hello", "c"), "rate")
        assert 0 < pause <= 1_800
        assert await count(server, "hello") == 2
        assert (await start(server, "hello", "a")).status_code == 200
        clock.ahead += pause * 1_000
        assert (await start(server, "hello", "c")).status_code == 202
        check_rejected(await start(server, "hello", "d"), "rate")
        with pytest.raises(ApiError) as result:
            await server.client.start("hello")
        assert (result.value.status, result.value.code) == (429, "TOO_MANY")
        await limit(server, "hello")
        assert (await start(server, "hello", "d")).status_code == 202

    run(tmp_path, work)


def test_running_limit_covers_starts_hooks_and_retries(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(HOOKED)
        await limit(server, "hooked", running=2)
        (found,) = (await server.get("/triggers", params={"workflow": "hooked"}))["triggers"]
        path = found["webhook"]["path"]

        async def send(name: str) -> httpx.Response:
            return await server.http.post(path, json={}, headers={"X-Delivery-Id": name})

        answers = await asyncio.gather(*(send(f"d{number}") for number in range(20)))
        through = [each.json()["execution_id"] for each in answers if each.status_code == 202]
        assert len(through) == 2
        for each in answers:
            if each.status_code != 202:
                assert check_rejected(each, "running") >= 1
        again = next(number for number, each in enumerate(answers) if each.status_code == 202)
        assert (await send(f"d{again}")).status_code == 200
        check_rejected(await start(server, "hooked"), "running")
        await server.post(f"/executions/{through[0]}/cancel")
        late = next(number for number, each in enumerate(answers) if each.status_code != 202)
        assert (await send(f"d{late}")).status_code == 202
        check_rejected(await server.http.post(f"{API}/executions/{through[0]}/retry", json={}), "running")
        await server.post(f"/executions/{through[1]}/cancel")
        assert (await server.http.post(f"{API}/executions/{through[0]}/retry", json={})).status_code == 202
        assert await count(server, "hooked") == 4

    run(tmp_path, work)


def test_schedule_ticks_bypass_limits(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(TICKS)
        await limit(server, "ticks", rate="1/h", running=1)
        (trigger,) = await server.engine.services.triggers.list("ticks")
        await server.client.wait((await server.client.start("ticks")).execution_id, DEADLINE)
        check_rejected(await start(server, "ticks"), "rate")
        for tick in range(1, 4):
            assert not (await server.engine.starts.tick(trigger, tick * 60_000)).again
        assert await count(server, "ticks") == 4

    run(tmp_path, work)


def test_start_is_rejected_while_queue_is_too_long(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        depth = 0

        async def depths() -> list[QueueDepth]:
            return [QueueDepth(queue="default", waiting=depth)]

        await server.deploy(HELLO, WAITS)
        await limit(server, "waits", waiting=10)
        server.engine.backend.queue.depths = depths  # type: ignore[attr-defined]
        assert (await start(server, "waits", "a")).status_code == 202
        depth = 11
        assert check_rejected(await start(server, "waits", "b"), "waiting") >= 1
        assert (await start(server, "waits", "a")).status_code == 200
        assert (await start(server, "hello")).status_code == 202
        depth = 51
        output = await start(server, "hello")
        check_rejected(output, "waiting")
        assert "server" in output.json()["detail"]
        depth = 10
        assert (await start(server, "waits", "b")).status_code == 202
        assert await count(server, "waits") == 2

    run(tmp_path, work, max_waiting=50)


def test_key_limits_apply_to_one_key(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(HELLO, WAITS)
        async with AsyncExitStack() as stack:
            clients = RoleClients(server, stack)
            ada = await clients.connect("ada", "runner", limits=Limits(rate="100/h", running=2))
            bob = await clients.connect("bob", "runner")
            path = f"{API}/workflows/{{}}/executions".format
            wanted = [ada.post(path(each), json={}) for each in ("hello", "waits") * 5]
            through = [each for each in await asyncio.gather(*wanted) if each.status_code == 202]
            running = [each.json() for each in through if each.json()["workflow_id"] == "waits"]
            assert len(running) <= 2
            for each in through:
                if each.json()["workflow_id"] == "hello":
                    await server.client.wait(each.json()["execution_id"], DEADLINE)
            for _ in range(2 - len(running)):
                running.append((await ada.post(path("waits"), json={})).json())
            output = await ada.post(path("hello"), json={})
            check_rejected(output, "running")
            assert clients.keys["ada"].id in output.json()["detail"]
            assert (await bob.post(path("waits"), json={})).status_code == 202
            await server.post(f"/executions/{running[0]['execution_id']}/cancel")
            assert (await ada.post(path("waits"), json={})).status_code == 202
        shown = {each.name: each.limits for each in await server.client.keys()}
        assert shown == {"ada": Limits(rate="100/h", running=2), "bob": Limits()}
        await server.post("/keys", {"name": "c", "role": "runner", "limits": {"waiting": 1}}, 422)

    run(tmp_path, work, key=BOOTSTRAP)


def test_key_limits_change_takes_effect_immediately(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(WAITS)
        async with AsyncExitStack() as stack:
            clients = RoleClients(server, stack)
            ada = await clients.connect("ada", "runner", limits=Limits(running=1))
            id = clients.keys["ada"].id
            path = f"{API}/workflows/waits/executions"
            assert (await ada.post(path, json={})).status_code == 202
            check_rejected(await ada.post(path, json={}), "running")
            assert await server.client.limit_key(id, Limits(running=2)) == Limits(running=2)
            assert (await ada.post(path, json={})).status_code == 202
            check_rejected(await ada.post(path, json={}), "running")
            await server.client.limit_key(id, Limits(rate="1/h"))
            assert (await ada.post(path, json={})).status_code == 202
            check_rejected(await ada.post(path, json={}), "rate")
            await server.client.limit_key(
                id, Limits(rate="1/h", running=9)
            )  # an unchanged rate does not refill the bucket
            check_rejected(await ada.post(path, json={}), "rate")
            assert await server.client.limit_key(id, Limits()) == Limits()
            assert (await ada.post(path, json={})).status_code == 202
            assert (await ada.put(f"{API}/keys/{id}/limits", json={})).status_code == 403
        for bad in ({"waiting": 1}, {"rate": "often"}, {"burst": 2}, {"running": 0}):
            await server.ask("PUT", f"/keys/{id}/limits", 422, json=bad)
        await server.ask("PUT", f"/keys/k{'0' * 16}/limits", 404, json={"running": 1})
        assert [each.limits for each in await server.client.keys()] == [Limits()]
        entries = (await server.get("/audit-log", params={"action": "key.limit", "target": id}))["entries"]
        output = [
            (each["actor"], each["details"].get("limits")) for each in entries if each["outcome"] == "asked"
        ]
        assert output[::-1][:4] == [
            ("bootstrap", "running 2"),
            ("bootstrap", "rate 1/h"),
            ("bootstrap", "rate 1/h, running 9"),
            ("bootstrap", None),
        ]

    run(tmp_path, work, key=BOOTSTRAP)


def test_start_without_limits_rarely_reads_limit_store(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(HELLO, WAITS)
        await limit(server, "waits", running=1)
        stored: Any = server.engine.backend.limits
        journal: Any = server.engine.backend.journal
        everything, accept = stored.all, journal.accept
        asked = 0
        held: list[AppliedLimits | None] = []

        async def all_of_them() -> Any:
            nonlocal asked
            asked += 1
            return await everything()

        async def accepting(
            wanted: ExecutionRecord,
            kept: tuple[Fact, ...] = (),
            by: AppliedLimits | None = None,
            digest: bytes | None = None,
        ) -> Any:
            held.append(by)
            return await accept(wanted, kept, by, digest)

        stored.all, journal.accept = all_of_them, accepting
        began = time.monotonic()
        for _ in range(50):
            assert (await start(server, "hello")).status_code == 202
        assert held == [None] * 50
        assert asked <= time.monotonic() - began + 2

    run(tmp_path, work)


def test_limit_commands_on_local_file(tmp_path: Path) -> None:
    rune = InProcessCli(tmp_path)
    (tmp_path / "hello.json").write_text(httpx.Request("POST", "http://x", json=HELLO).content.decode())
    rune.output("deploy", str(tmp_path / "hello.json"))
    assert rune.output("workflows", "limit", "hello") == "hello: no limits\n"
    assert rune.output("workflows", "limit", "hello", "--rate", "10/s", "--running", "20") == (
        "hello: rate 10/s, running 20\n"
    )
    assert rune.json("workflows", "limit", "hello")["running"] == 20
    assert rune("workflows", "limit", "hello", "--rate", "often").exit_code == 2
    assert rune("workflows", "limit", "nothing", "--rate", "1/s").exit_code == 2
    rune.output("workflows", "limit", "hello", "--rate", "1/h")
    started = [rune("start", "hello", "--key", key) for key in ("a", "b")]
    assert [each.exit_code for each in started] == [0, 2]
    assert re.search(
        r"the limit `rate` of the workflow `hello` is reached: .* in \d+ s$", started[1].stderr.strip()
    )
    assert rune.output("workflows", "limit", "hello", "--none") == "hello: no limits\n"
    made = rune.json("keys", "create", "ada", "--role", "runner", "--rate", "100/m", "--running", "50")
    assert (made["limits"]["rate"], made["limits"]["running"]) == ("100/m", 50)
    assert "rate 100/m, running 50" in rune.output("keys", "list")
    check_key_limit_commands(rune, made["id"])


def check_key_limit_commands(rune: InProcessCli, id: str) -> None:
    """Show, change and clear the limits of a key."""
    shown = rune.output("keys", "limit", id)
    assert rune.output("keys", "limit", id, "--rate", "9/m", "--burst", "3") == f"{id}: rate 9/m, burst 3\n"
    assert shown != rune.output("keys", "limit", id) == f"{id}: rate 9/m, burst 3\n"
    assert rune.json("keys", "limit", id)["burst"] == 3
    assert rune.output("keys", "limit", id, "--none") == f"{id}: no limits\n"
    assert rune("keys", "limit", id, "--none", "--rate", "1/s").exit_code == 2
    assert rune("keys", "limit", id, "--rate", "often").exit_code == 2
    for unknown in ((), ("--rate", "1/s")):
        assert rune("keys", "limit", "k0000000000000000", *unknown).exit_code == 2
    done = rune.json("audit-log", "--action", "key.limit", "--of", id)["entries"]
    assert [each["details"].get("limits") for each in done][-2:] == [None, "rate 9/m, burst 3"]


def test_limit_commands_against_server(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(HELLO)
        await asyncio.to_thread(run_commands, server.url)

    def run_commands(url: str) -> None:
        rune = InProcessCli(tmp_path / "elsewhere", RUNE_URL=url, RUNE_API_KEY=BOOTSTRAP)
        output = rune.output("workflows", "limit", "hello", "--running", "3", "--waiting", "9")
        assert output == "hello: running 3, waiting 9\n"
        assert rune.output("workflows", "limit", "hello") == output
        made = rune.json("keys", "create", "ada", "--role", "runner", "--rate", "5/h")
        assert made["limits"]["rate"] == "5/h"
        assert "rate 5/h" in rune.output("keys", "list")
        check_key_limit_commands(rune, made["id"])

    run(tmp_path, work, key=BOOTSTRAP)
