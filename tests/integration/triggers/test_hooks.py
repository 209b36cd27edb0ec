"""A failed execution starts its handler once, on every backend."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rune.client import NotFound, models
from tests.support.api_server import RunningServer, run
from tests.support.backends import stores
from tests.support.documents import document, node
from tests.support.services.rabbitmq import broker
from tests.support.waiting import until

pytestmark = pytest.mark.long

HANDLER = "tell-ops"
MANY = 60


@pytest.fixture(params=["embedded", "redis", "rabbitmq"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """The settings of a server over each backend."""
    if request.param == "embedded":
        yield {}
    elif request.param == "redis":
        yield {"on": stores(tmp_path)}
    else:
        with broker().vhost() as vhost:
            yield {"on": replace(stores(tmp_path), queue=broker().url(vhost))}


def fails(id: str = "orders", **settings: Any) -> dict[str, Any]:
    """Return a workflow that fails if its input says so."""
    return document(
        [
            node("in", "input"),
            node("bad", "conditional", {"expression": "$trigger.bad"}),
            node("stop", "fail", {"message": "no stock for {{ $trigger.n }}", "code": "NO_STOCK"}),
        ],
        "in>bad",
        "bad>stop:true",
        id=id,
        settings=settings,
    )


def tells(id: str = HANDLER, **settings: Any) -> dict[str, Any]:
    """Return a handler whose output is its input."""
    return document(
        [node("in", "input"), node("out", "output", {"value": "{{ $trigger }}"})],
        "in>out",
        id=id,
        settings=settings,
    )


async def handlers(server: RunningServer, workflow: str = HANDLER) -> list[str]:
    return [each.execution_id async for each in server.client.executions(workflow=workflow)]


async def handled(server: RunningServer, count: int, workflow: str = HANDLER) -> list[dict[str, Any]]:
    """Wait until so many handlers have ended, and return their outputs."""

    async def reached() -> bool:
        return len(await handlers(server, workflow)) >= count

    await until(reached, f"{count} handlers of {workflow}")
    found = await handlers(server, workflow)
    assert len(found) == count
    for each in found:
        await server.client.wait(each, 60)
    return [await server.client.output(each) for each in found]


def test_failed_execution_starts_its_handler_once(tmp_path: Path, settings: dict[str, Any]) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(tells(), fails(on_failure=HANDLER))
        await server.ended("orders", {"bad": False, "n": 1})
        failed = await server.ended("orders", {"bad": True, "n": 7}, labels={"customer": "7"})
        (told,) = await handled(server, 1)
        shown = await server.client.execution(failed)
        assert told["kind"] == "failure"
        assert told["execution"] == {
            "id": failed,
            "workflow": "orders",
            "version": 1,
            "status": "halted",
            "labels": {"customer": "7"},
            "url": None,
            "started_at": shown.started_at,
            "ended_at": shown.completed_at,
        }
        assert told["error"] == {"code": "NO_STOCK", "message": "no stock for 7"}
        assert (told["node"]["id"], told["node"]["type"], told["failed_items"]) == ("stop", "fail", 0)
        (handler,) = await handlers(server)
        assert (await server.client.execution(handler)).principal == "handler:orders"
        # A retry is another execution, which fails again.
        again = await server.post(f"/executions/{failed}/retry", {}, 202)
        await server.client.wait(again["execution_id"], 60)
        assert {each["execution"]["id"] for each in await handled(server, 2)} == {
            failed,
            again["execution_id"],
        }

    run(tmp_path, work, **settings)


def test_each_of_many_failures_is_handled_once(tmp_path: Path, settings: dict[str, Any]) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(tells(), fails(on_failure=HANDLER))
        failed = {
            (await server.client.start("orders", {"bad": True, "n": number})).execution_id
            for number in range(MANY)
        }
        told = await handled(server, MANY)
        assert {each["execution"]["id"] for each in told} == failed

    run(tmp_path, work, **settings)


def test_handler_that_fails_and_names_itself_runs_once(tmp_path: Path, settings: dict[str, Any]) -> None:
    async def work(server: RunningServer) -> None:
        failing = document(
            [node("in", "input"), node("stop", "fail", {"message": "the mail server is away"})],
            "in>stop",
            id=HANDLER,
            settings={"on_failure": HANDLER},
        )
        await server.deploy(
            failing, tells("last"), fails(on_failure=HANDLER), fails("end", on_failure="last")
        )
        await server.ended("orders", {"bad": True, "n": 1})

        async def reached() -> bool:
            return bool(await handlers(server))

        await until(reached, "the handler")
        (first,) = await handlers(server)
        assert (await server.client.wait(first, 60)).status == "halted"
        # Retries of it have no handler either.
        again = (await server.post(f"/executions/{first}/retry", {}, 202))["execution_id"]
        await server.client.wait(again, 60)
        # The rows are served in order: behind the one of this failure none is left.
        await server.ended("end", {"bad": True, "n": 2})
        await handled(server, 1, "last")
        assert set(await handlers(server)) == {first, again}

    run(tmp_path, work, **settings)


def test_failed_items_are_handled_however_the_end_is_recorded(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    async def work(server: RunningServer) -> None:
        split = [
            node("in", "input"),
            node("each", "split", {"input_array": "{{ [1, 2] }}"}),
            node("bad", "conditional", {"expression": "$item == 2"}),
            node("stop", "fail", {"message": "no"}),
            node("all", "aggregator"),
        ]
        edges = ["in>each", "each>bad", "bad>stop:true", "bad>all:false", "stop>all"]
        named = {"on_failure": {"workflow": HANDLER, "statuses": ["failed_items"]}}
        # The end follows from the last result alone, from one in the middle of other work, and after a wait.
        alone = document(split, *edges, id="alone", settings=named)
        behind = document([*split, node("out", "output")], *edges, "all>out", id="behind", settings=named)
        forked = document([*split, node("log", "log")], *edges, "in>log", id="forked", settings=named)
        pause = node("w", "wait", {"resume": "time_interval", "amount": 1, "unit": "seconds"})
        waiting = document([*split, pause], *edges, "all>w", id="waiting", settings=named)
        await server.deploy(tells(), alone, behind, forked, waiting)
        ended = {await server.ended(each, {}) for each in ("alone", "behind", "forked", "waiting")}
        told = await handled(server, len(ended))
        assert {each["execution"]["id"] for each in told} == ended
        assert {(each["execution"]["status"], each["failed_items"]) for each in told} == {("completed", 1)}

    run(tmp_path, work, **settings)


def waits(id: str, **settings: Any) -> dict[str, Any]:
    """Return a workflow that waits for a signal."""
    nodes = [node("in", "input"), node("w", "wait", {"resume": "signal", "name": "go"})]
    return document(nodes, "in>w", id=id, settings={"on_late": HANDLER, **settings})


def test_late_execution_starts_its_handler_once_and_goes_on(tmp_path: Path, settings: dict[str, Any]) -> None:
    async def work(server: RunningServer) -> None:
        client = server.client
        await server.deploy(
            tells(),
            fails("quick", on_failure="none", expect_within=3600, on_late=HANDLER),
            waits("waits", expect_within=1),
            waits("paused", expect_within=1),
            waits("patient", expect_within=3600),
            waits("silent", expect_within=1, on_late="none"),
        )
        await server.ended("quick", {"bad": True, "n": 1})
        started = {
            each: (await client.start(each, labels={"of": each})).execution_id
            for each in ("paused", "waits", "silent", "patient")
        }
        await client.pause(started["paused"])
        told = {each["execution"]["workflow"]: each for each in await handled(server, 2)}
        assert told.keys() == {"waits", "paused"}
        for name, each in told.items():
            shown = await client.execution(started[name])
            assert each["kind"] == "late"
            assert (each["node"], each["error"], each["failed_items"]) == (None, None, 0)
            assert each["execution"] == {
                "id": started[name],
                "workflow": name,
                "version": 1,
                "status": "running",
                "labels": {"of": name},
                "url": None,
                "started_at": shown.started_at,
                "ended_at": None,
            }

        async def late(name: str) -> list[str]:
            return [each.kind async for each in client.history(started[name], kind="execution.late")]

        async def is_late() -> bool:
            return bool(await late("silent"))

        await until(is_late, "the execution without a handler is late too")
        due = (await client.explain(started["patient"])).expected_by
        assert due is not None
        since = datetime.fromisoformat((await client.execution(started["patient"])).started_at)
        assert due == round(since.timestamp() * 1000) + 3_600_000
        await client.resume(started["paused"])
        for name in ("waits", "paused", "silent", "patient"):
            await client.signal(started[name], "go")
            assert (await client.wait(started[name], 60)).status == "completed"
            assert await late(name) == ([] if name == "patient" else ["execution.late"])
        assert len(await handlers(server)) == 2

    run(tmp_path, work, **settings)


def test_handler_is_chosen_by_status_version_and_scope(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        waits = document([node("in", "input"), node("w", "wait", {"resume": "signal", "name": "go"})], "in>w")
        cancelled = {"workflow": HANDLER, "version": 1, "statuses": ["cancelled"]}
        await server.deploy(
            tells(),
            tells(join_timeout=5),
            {**waits, "id": "stopped", "settings": {"on_failure": cancelled}},
            {**waits, "id": "silent", "settings": {"on_failure": HANDLER}},
            fails("none", on_failure="none"),
            fails("failing", on_failure=cancelled),
        )
        for workflow in ("silent", "stopped"):
            started = (await server.client.start(workflow)).execution_id
            await server.client.cancel(started)
        for workflow in ("none", "failing"):
            await server.ended(workflow, {"bad": True, "n": 1})
        (told,) = await handled(server, 1)
        assert (told["execution"]["workflow"], told["execution"]["status"]) == ("stopped", "cancelled")
        (handler,) = await handlers(server)
        assert (await server.client.execution(handler)).version == 1

    run(tmp_path, work)


def test_missing_handler_is_started_when_it_is_deployed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rune.adapters.sqlite.stores.HOOK_HOLD_MS", 500)

    async def work(server: RunningServer) -> None:
        await server.deploy(fails(on_failure=HANDLER))
        failed = await server.ended("orders", {"bad": True, "n": 1})
        await server.deploy(tells())
        (told,) = await handled(server, 1)
        assert told["execution"]["id"] == failed

    run(tmp_path, work)


def test_handler_that_cannot_be_started_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("rune.adapters.sqlite.stores.HOOK_HOLD_MS", 0)
    monkeypatch.setattr("rune.runtime.maintenance.hook_runner.MAX_TRIES", 2)

    async def work(server: RunningServer) -> None:
        await server.deploy(fails(on_failure=HANDLER))
        failed = await server.ended("orders", {"bad": True, "n": 1})

        async def given_up() -> bool:
            return any(each.given_up for each in await server.engine.backend.hooks.failed(10))

        await until(given_up, "the handler is given up")
        (row,) = await server.engine.backend.hooks.failed(10)
        assert (row.execution, row.tries) == (failed, 2)
        assert "no workflow `tell-ops` was deployed" in row.error
        assert f"no handler is started for {failed} after 2 tries" in caplog.text
        assert 'rune_handlers_total{result="given_up"} 1.0' in (await server.http.get("/metrics")).text
        # It stays given up, and others are started.
        await server.deploy(tells())
        again = await server.ended("orders", {"bad": True, "n": 2})
        (told,) = await handled(server, 1)
        assert told["execution"]["id"] == again

    run(tmp_path, work)


def test_default_handler_is_started_for_workflows_that_name_none(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    async def work(server: RunningServer) -> None:
        client = server.client
        await server.deploy(tells(), tells("own"), tells("late"), fails(), waits("waits"))
        assert await client.handlers() == models.Handlers()
        named = models.Handler(workflow=HANDLER, version=1, statuses=("halted", "failed_items", "cancelled"))
        wanted = models.Handlers(
            on_failure=named,
            on_late=models.LateHandler(workflow="late"),
            on_missing=models.LateHandler(workflow="own"),
        )
        given = {"workflow": HANDLER, "version": 1, "statuses": list(named.statuses)}
        assert (
            await client.set_handlers(
                on_failure=given, on_late={"workflow": "late"}, on_missing={"workflow": "own"}
            )
            == wanted
        )
        assert await client.handlers() == wanted
        calls = document(
            [
                node("in", "input"),
                node("call", "workflow", {"workflow": "orders", "input": "{{ $trigger }}"}),
            ],
            "in>call",
            id="calls",
        )
        slow = waits("slow", expect_within=1)
        del slow["settings"]["on_late"]
        await server.deploy(
            calls, slow, fails("opted-out", on_failure="none"), fails("named", on_failure="own")
        )
        bad = {"bad": True, "n": 1}
        # Its child has a parent that waits, and fails with it.
        parent = await server.ended("calls", bad)
        cancelled = (await client.start("waits")).execution_id
        await client.cancel(cancelled)
        late = (await client.start("slow")).execution_id
        await server.ended("opted-out", bad)
        await server.ended("named", bad)
        await server.ended("orders", {"bad": False, "n": 1})
        unstored = await client.start_definition(fails("unstored"), bad)
        await client.wait(unstored.execution_id, 60)
        simulated = await client.start("orders", bad, fake_time=True)
        await client.wait(simulated.execution_id, 60)
        failed = await server.ended("orders", bad)
        (own,) = await handled(server, 1, "own")
        assert own["execution"]["workflow"] == "named"
        told = {each["execution"]["id"]: each for each in await handled(server, 3)}
        assert told.keys() == {parent, cancelled, failed}
        (told_late,) = await handled(server, 1, "late")
        assert (told_late["kind"], told_late["execution"]["id"]) == ("late", late)
        # Without defaults, nothing is started for the next one.
        assert await client.set_handlers() == models.Handlers()
        await server.ended("orders", bad)
        await server.ended("named", bad)
        await handled(server, 2, "own")
        assert len(await handlers(server)) == 3

    run(tmp_path, work, **settings)


def test_default_handler_must_be_deployed_and_is_audited(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        with pytest.raises(NotFound):
            await server.client.set_handlers(on_failure={"workflow": "missing"})
        await server.deploy(tells())
        await server.client.set_handlers(on_failure={"workflow": HANDLER, "version": 1})
        entries = (await server.get("/audit-log?action=handlers.set"))["entries"]
        assert entries[0]["details"] == {"on_failure": "tell-ops@1"}
        await server.deploy(fails())
        failed = await server.ended("orders", {"bad": True, "n": 1})
        (told,) = await handled(server, 1)
        assert told["execution"]["url"] == f"https://rune.example.com/executions/{failed}"
        refused = {"on_late": {"workflow": HANDLER, "statuses": ["failed"]}}
        await server.ask("PUT", "/handlers", 422, json=refused)
        assert await server.client.failed_handlers() == []

    run(tmp_path, work, public_url="https://rune.example.com/")
