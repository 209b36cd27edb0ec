"""The audit log has an entry for every change, with actor, action and target but without secrets."""

from __future__ import annotations

import asyncio
import re
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, get_type_hints

from rune.ports.journal import StoreUnavailableError
from rune.runtime.components import RPC_METHODS, Services
from rune.runtime.services.audit_log import MAX_REFUSALS, Refusal, Refusals
from tests.support.api_clients import API, BOOTSTRAP, RoleClients, populate
from tests.support.api_server import HELLO, RunningServer, run
from tests.support.trigger_workflows import webhook_workflow

QUIET = {
    "executions.start",
    "executions.running",
    "executions.wait_for_end",
    "dead_letters.list",
    "dead_messages.list",
    "dead_messages.find",
    "triggers.list",
    "triggers.find",
    "bulk.find",
    "bulk.list",
    "bulk.outcomes",
    "bulk.finish",
    "handlers.defaults",
    "handlers.failed",
}
"""Methods that change nothing, or whose executions record their principal. `bulk.finish` waits for a job whose start is
in the log."""


def test_every_service_method_is_audited_or_exempt() -> None:
    kinds = get_type_hints(Services)

    def is_audited(name: str) -> bool:
        service, _, method = name.partition(".")
        return hasattr(getattr(kinds[service], method), "audited_action")

    assert {name for name in RPC_METHODS if not is_audited(name)} == QUIET


def summaries(entries: list[dict[str, Any]]) -> list[tuple[str, str, str, str]]:
    return [(each["actor"], each["action"], each["target"], each["outcome"]) for each in entries]


def test_changes_are_logged_newest_first_without_secrets(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        ids = await populate(server)
        async with AsyncExitStack() as stack:
            clients = RoleClients(server, stack)
            ada = await clients.connect("ada", "admin")
            me = f"key:{clients.keys['ada'].id}"
            waits, items = ids["waits"], ids["items"]
            await ada.put(f"{API}/workflows/hello", json={**HELLO, "name": "Hello"})
            await ada.put(f"{API}/workflows/hello/aliases/stable", json={"version": 1})
            await ada.delete(f"{API}/workflows/items")
            await ada.post(f"{API}/executions/{waits}/pause")
            await ada.post(f"{API}/executions/{waits}/resume")
            await ada.post(f"{API}/executions/{waits}/signals", json={"name": "other", "value": "hush-hush"})
            await ada.post(f"{API}/executions/{waits}/cancel", json={"reason": "hush-hush"})
            await ada.post(f"{API}/executions/{waits}/cancel")
            await ada.post(f"{API}/executions/{items}/rerun", json={"node": "s"})
            secret = {"name": "shop", "type": "bearer", "values": {"token": "hush-hush"}, "hosts": ["*"]}
            await ada.post(f"{API}/credentials", json=secret)
            await ada.patch(f"{API}/credentials/shop", json={"values": {"token": "hush-hush-2"}})
            await ada.delete(f"{API}/credentials/shop")
            answer = await ada.get(f"{API}/audit-log", params={"actor": me, "limit": 1000})
        assert "hush-hush" not in answer.text
        assert summaries(answer.json()["entries"])[::-1] == [
            (me, "workflow.deploy", "hello", "asked"),
            (me, "workflow.deploy", "hello", "done"),
            (me, "alias.point", "hello", "asked"),
            (me, "workflow.hide", "items", "asked"),
            (me, "execution.pause", waits, "asked"),
            (me, "execution.resume", waits, "asked"),
            (me, "execution.signal", waits, "asked"),
            (me, "execution.cancel", waits, "asked"),
            (me, "execution.cancel", waits, "asked"),
            (me, "execution.cancel", waits, "ENDED"),
            (me, "execution.rerun", items, "asked"),
            (me, "execution.rerun", items, "done"),
            (me, "credential.add", "shop", "asked"),
            (me, "credential.rotate", "shop", "asked"),
            (me, "credential.remove", "shop", "asked"),
        ]

    run(tmp_path, work, key=BOOTSTRAP)


def test_log_is_paged(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        for number in range(5):
            await server.client.deploy({**HELLO, "name": f"n{number}"})
        whole = [each.number async for each in server.client.log(page=1_000)]
        paged = [each.number async for each in server.client.log(page=2)]
        assert paged == whole == sorted(whole, reverse=True)
        assert len(whole) == 2 * 5
        assert [each.target async for each in server.client.log(action="workflow", target="hello")] == [
            "hello"
        ] * 10
        followed = [each.number async for each in server.client.log(after=whole[-3], page=2)]
        assert followed == whole[-4::-1]
        assert [each async for each in server.client.log(action="key")] == []
        await server.get("/audit-log?cursor=x", 422)

    run(tmp_path, work)


def test_entries_tell_what_was_made_and_from_where(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(HELLO, webhook_workflow())
        answer = await server.http.put(f"{API}/workflows/hello", json={**HELLO, "name": "Hello"})
        requests = {"workflow.deploy": answer.headers["x-request-id"]}
        ended = await server.ended("hello", {"name": "x"})
        (hook,) = (await server.get("/triggers"))["triggers"]
        for enabled in (False, True):
            await server.post(f"/triggers/{hook['id']}/{'enable' if enabled else 'disable'}")
        body = {"action": "retry", "filter": {"workflow": "hello"}, "reason": "again"}
        answer = await server.http.post(f"{API}/bulk", json=body)
        job = answer.json()["id"]
        rerun = (await server.post(f"/executions/{ended}/rerun", {"node": "out"}, 202))["execution_id"]
        await server.post("/executions", {"definition": {**HELLO, "id": "mine"}}, 202)

        found = [each async for each in server.client.log() if each.action != "execution.retry"]
        assert {each.address for each in found} == {"127.0.0.1"}
        assert all(each.request_id for each in found)
        made = [(each.action, each.target, each.details) for each in found if each.outcome == "done"]
        version = (await server.client.workflow("hello")).hash
        assert ("workflow.deploy", "hello", {"version": "2", "hash": version, "change": "created"}) in made
        assert ("execution.rerun", ended, {"node": "out", "execution": rerun}) in made
        bulk = {"reason": "again", "filter": '{"workflow":"hello"}', "count": "1", "job": job}
        assert ("bulk.create", "retry", bulk) in made
        assert [each.action for each in found if each.action.startswith("trigger.")] == [
            "trigger.enable",
            "trigger.disable",
        ]
        assert ("execution.start", "mine") in [(each.action, each.target) for each in found]
        latest = next(each for each in found if each.action == "workflow.deploy")
        assert latest.request_id == requests["workflow.deploy"]

    run(tmp_path, work)


def test_refused_request_of_every_route_is_logged(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        document = await server.get("/openapi.json")
        routes = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
        async with AsyncExitStack() as stack:
            clients = RoleClients(server, stack)
            stranger = await clients.with_key("rune_wrong")
            nobody, viewer = await clients.with_key(None), await clients.connect("vera", "viewer")
            for method, path in sorted(routes):
                answer = await nobody.request(method, re.sub(r"\{\w+\}", "x1", path))
                assert answer.status_code == 401, path
            for _ in range(20):
                assert (await stranger.get(f"{API}/me")).status_code == 401
                assert (await viewer.get(f"{API}/keys")).status_code == 403
            by = f"key:{clients.keys['vera'].id}"
        await server.master.refusals.aclose()
        found = [each async for each in server.client.log(action="access.refused", page=1_000)]
        unknown = [each for each in found if each.actor == "unknown"]
        assert {tuple(each.target.split(" ", 1)) for each in unknown} == routes
        assert {(each.outcome, each.address) for each in unknown} == {("UNAUTHORIZED", "127.0.0.1")}
        of_viewer = [each for each in found if each.actor == by]
        # The first at once with its request, then the number of the others.
        assert [each.details for each in of_viewer] == [{"count": "19"}, {}]
        assert (of_viewer[1].target, of_viewer[1].outcome) == (f"GET {API}/keys", "FORBIDDEN")
        assert of_viewer[1].request_id
        wrong = [each.details for each in unknown if each.target == f"GET {API}/me"]
        assert wrong == [{"count": "20"}, {}]

    run(tmp_path, work, key=BOOTSTRAP, api_failed_logins=0)


def test_refused_requests_cannot_fill_the_log(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        refusals = Refusals(server.engine.services.access.audit_log)
        for number in range(3 * MAX_REFUSALS):
            refusals.add(Refusal("", f"192.0.2.{number}", "GET /x", "UNAUTHORIZED"), "r1")
        await refusals.aclose()
        found = [each async for each in server.client.log(action="access.refused", page=1_000)]
        assert len(found) <= MAX_REFUSALS + 2
        assert sum(int(each.details.get("count", "1")) for each in found) == 3 * MAX_REFUSALS

    run(tmp_path, work)


def test_change_fails_if_log_write_fails(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(HELLO)
        log = server.engine.backend.log
        assert log is not None

        async def away(entry: object) -> None:
            raise StoreUnavailableError("the log is away")

        log.write = away  # type: ignore[method-assign]
        assert (await server.http.delete(f"{API}/workflows/hello")).status_code == 503
        assert (await server.http.get(f"{API}/workflows/hello")).status_code == 200

    run(tmp_path, work)


def test_concurrent_requests_are_logged_under_their_actor(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(HELLO)
        async with AsyncExitStack() as stack:
            clients = RoleClients(server, stack)
            asks = {name: await clients.connect(name, "editor") for name in ("ada", "bob", "cyd")}
            await asyncio.gather(
                *(
                    each.put(f"{API}/workflows/hello/aliases/{name}{number}", json={"version": 1})
                    for number in range(10)
                    for name, each in asks.items()
                )
            )
            for name in asks:
                by = f"key:{clients.keys[name].id}"
                found = [each async for each in server.client.log(actor=by)]
                assert sorted(each.details["alias"] for each in found) == sorted(
                    f"{name}{number}" for number in range(10)
                )

    run(tmp_path, work, key=BOOTSTRAP)
