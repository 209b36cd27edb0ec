"""A workflow starts as children only what its author could start, whoever starts it and in whatever way."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from tests.support.api_clients import API, BOOTSTRAP, RoleClients
from tests.support.api_server import RunningServer, run
from tests.support.backends import stores
from tests.support.documents import document, node
from tests.support.services.rabbitmq import broker
from tests.support.waiting import until

pytestmark = pytest.mark.long

SALARIES = "salaries-of-everybody"
FORBIDDEN = ("halted", "CHILD_FORBIDDEN")
COMPLETED = ("completed", None)
Settings = dict[str, Any]


@pytest.fixture(params=["embedded", "redis", "rabbitmq"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Settings]:
    """The settings of a server over each backend."""
    if request.param == "embedded":
        yield {}
    elif request.param == "redis":
        yield {"on": stores(tmp_path)}
    else:
        with broker().vhost() as vhost:
            yield {"on": replace(stores(tmp_path), queue=broker().url(vhost))}


def says(id: str, text: str, **settings: Any) -> dict[str, Any]:
    """Return a workflow whose output is this text."""
    return document([node("out", "output", {"value": text})], id=id, settings=settings)


def calls(id: str, child: str, *, trigger: str = "input") -> dict[str, Any]:
    """Return a workflow whose output is that of a child."""
    return {
        "id": id,
        "nodes": [
            {"id": "in", "type": trigger},
            {"id": "call", "type": "workflow", "parameters": {"workflow": child, "input": "{{ $trigger }}"}},
            {"id": "out", "type": "output", "parameters": {"value": "{{ $call }}"}},
        ],
        "edges": [{"src": "in", "dst": "call"}, {"src": "call", "dst": "out"}],
    }


CHOSEN = "{{ $trigger.workflow }}"
AT_WEBHOOK = "{{ $trigger.body.workflow }}"


class People:
    """An admin, who has deployed workflows for all, and Ada, an editor of the workflows `shop-*`."""

    def __init__(self, server: RunningServer, ada: httpx.AsyncClient) -> None:
        self.server = server
        self.ada = ada
        self.admin = server.http

    async def start(self, client: httpx.AsyncClient, workflow: str, child: str, **more: Any) -> str:
        body = {"workflow": workflow, "input": {"workflow": child}, **more}
        return await self.id_of(client.post(f"{API}/executions", json=body))

    async def bring(self, client: httpx.AsyncClient, definition: dict[str, Any], child: str) -> str:
        body = {"definition": definition, "input": {"workflow": child}}
        return await self.id_of(client.post(f"{API}/executions", json=body))

    async def again(self, client: httpx.AsyncClient, execution: str, action: str, **body: Any) -> str:
        return await self.id_of(client.post(f"{API}/executions/{execution}/{action}", json=body))

    async def id_of(self, request: Awaitable[httpx.Response]) -> str:
        answer = await request
        assert answer.status_code in {200, 202}, answer.text
        id: str = answer.json()["execution_id"]
        return id

    async def ending(self, execution: str) -> tuple[str, str | None]:
        """Wait for the end; what a forbidden child returns is nowhere in the execution."""
        found = await self.server.client.wait(execution, 60)
        whole = await self.admin.get(f"{API}/executions/{execution}/document")
        assert found.status == "completed" or SALARIES not in whole.text
        return found.status, None if found.error is None else found.error.code


def among_people(tmp_path: Path, settings: Settings, work: Callable[[People], Awaitable[None]]) -> None:
    async def go(server: RunningServer) -> None:
        await server.deploy(
            says("payroll", SALARIES),
            says("shared", "for the shop", callable_by=["shop-*"]),
            says("shop-c", "of the shop"),
        )
        async with AsyncExitStack() as stack:
            ada = await RoleClients(server, stack).connect("ada", "editor", "shop-*")
            await work(People(server, ada))

    run(tmp_path, go, key=BOOTSTRAP, **settings)


def test_version_starts_only_children_of_its_deployer(tmp_path: Path, settings: Settings) -> None:
    async def work(people: People) -> None:
        ada, admin = people.ada, people.admin
        assert (await ada.post(f"{API}/workflows", json=calls("shop-a", CHOSEN))).status_code == 201
        for child, expected in {
            "payroll": FORBIDDEN,
            "nothing": FORBIDDEN,
            "shop-nothing": ("halted", "UNKNOWN_WORKFLOW"),
            "shop-c": COMPLETED,
            "shared": COMPLETED,
        }.items():
            # Whoever starts it: the version is hers.
            for client in (ada, admin):
                assert await people.ending(await people.start(client, "shop-a", child)) == expected, child
        withdrawn = says("shared", "for the shop", callable_by=["billing"])
        assert (await admin.put(f"{API}/workflows/shared", json=withdrawn)).status_code == 200
        assert await people.ending(await people.start(ada, "shop-a", "shared")) == FORBIDDEN
        # A second deployer vouches for the same version.
        assert (await admin.put(f"{API}/workflows/shop-a", json=calls("shop-a", CHOSEN))).status_code == 200
        assert await people.ending(await people.start(ada, "shop-a", "payroll")) == COMPLETED

    among_people(tmp_path, settings, work)


def test_retries_reruns_triggers_and_grandchildren_keep_scope(tmp_path: Path, settings: Settings) -> None:
    async def work(people: People) -> None:
        ada, admin = people.ada, people.admin
        for each in (
            calls("shop-a", CHOSEN),
            calls("shop-hook", AT_WEBHOOK, trigger="webhook"),
            # The trigger of this one passes `workflow` on to its child.
            calls("shop-outer", "shop-a"),
        ):
            assert (await ada.post(f"{API}/workflows", json=each)).status_code == 201
        refused = await people.start(ada, "shop-a", "payroll")
        assert await people.ending(refused) == FORBIDDEN
        allowed = await people.start(ada, "shop-a", "shop-c")
        assert await people.ending(allowed) == COMPLETED
        assert await people.ending(await people.again(admin, refused, "retry")) == FORBIDDEN
        assert await people.ending(await people.again(ada, refused, "rerun", node="call")) == FORBIDDEN
        other = {"node": "in", "input": {"workflow": "payroll"}}
        assert await people.ending(await people.again(admin, allowed, "rerun", **other)) == FORBIDDEN
        fixed = {"node": "call", "parameters": {"workflow": "payroll"}}
        assert await people.ending(await people.again(ada, allowed, "rerun", **fixed)) == FORBIDDEN
        older = {"node": "call", "version": 1, "input": {"workflow": "payroll"}}
        assert await people.ending(await people.again(admin, allowed, "rerun", **older)) == FORBIDDEN
        job = await admin.post(f"{API}/bulk", json={"action": "retry", "ids": [refused]})
        assert job.status_code in {200, 202}, job.text
        (hook,) = (await admin.get(f"{API}/triggers?workflow=shop-hook")).json()["triggers"]
        delivered = await admin.post(hook["webhook"]["path"], json={"workflow": "payroll"})
        assert await people.ending(delivered.json()["execution_id"]) == FORBIDDEN
        nested = await people.start(admin, "shop-outer", "payroll")
        assert await people.ending(nested) == ("halted", "CHILD_FAILED")
        # The workflow of an admin may start others for her: that was the admin's decision.
        await people.server.deploy(calls("shop-wages", "payroll"))
        assert await people.ending(await people.start(ada, "shop-wages", "shop-c")) == COMPLETED
        listed = (await admin.get(f"{API}/executions?workflow=payroll")).json()["executions"]
        assert len(listed) == 1

    among_people(tmp_path, settings, work)


@pytest.mark.parametrize("setting", ["on_failure", "on_late", "on_missing"])
def test_deploy_with_forbidden_handler_is_refused_like_a_child(tmp_path: Path, setting: str) -> None:
    async def work(people: People) -> None:
        for handler, status in {
            "payroll": 403,
            "nothing": 403,
            "shared": 201,
            "shop-c": 201,
            "none": 201,
        }.items():
            named = {
                "id": f"shop-{handler}-{setting}".replace("_", "-"),
                "nodes": [{"id": "in", "type": "input"}],
                "settings": {setting: handler, "expect_within": 60, "expect_every": 60},
            }
            answer = await people.ada.post(f"{API}/workflows", json=named)
            assert answer.status_code == status, (handler, answer.text)
            assert status == 201 or answer.json()["code"] == "CHILD_FORBIDDEN"

    among_people(tmp_path, {}, work)


def test_handler_that_became_forbidden_is_listed_as_failed(tmp_path: Path) -> None:
    async def work(people: People) -> None:
        ada, admin = people.ada, people.admin
        fails = document(
            [node("out", "fail", {"message": "x"})], id="shop-a", settings={"on_failure": "shared"}
        )
        assert (await ada.post(f"{API}/workflows", json=fails)).status_code == 201
        withdrawn = says("shared", "for the shop", callable_by=["billing"])
        assert (await admin.put(f"{API}/workflows/shared", json=withdrawn)).status_code == 200
        execution = await people.start(ada, "shop-a", "")

        async def listed() -> bool:
            found = (await admin.get(f"{API}/handlers/failed")).json()["handlers"]
            return [each["execution_id"] for each in found if "`shared`" in each["error"]] == [execution]

        await until(listed, patience=30)

    among_people(tmp_path, {}, work)


def test_definition_that_is_not_stored_has_scope_of_starter(tmp_path: Path, settings: Settings) -> None:
    async def work(people: People) -> None:
        ada, admin = people.ada, people.admin
        brought = calls("shop-new", CHOSEN)
        assert await people.ending(await people.bring(ada, brought, "payroll")) == FORBIDDEN
        assert await people.ending(await people.bring(ada, brought, "shared")) == COMPLETED
        harmless = await people.bring(admin, brought, "shop-c")
        assert await people.ending(harmless) == COMPLETED
        # Another input of the admin's definition, given by Ada.
        other = {"node": "in", "input": {"workflow": "payroll"}}
        assert await people.ending(await people.again(ada, harmless, "rerun", **other)) == FORBIDDEN
        await people.server.deploy(calls("shop-wages", "payroll"))
        pins: dict[str, Any] = {"pins": {"out": {"output": {}}}}
        assert await people.ending(await people.start(ada, "shop-wages", "shop-c", **pins)) == FORBIDDEN

    among_people(tmp_path, settings, work)


def test_deploy_of_forbidden_child_is_refused_like_unknown_one(tmp_path: Path) -> None:
    async def work(people: People) -> None:
        answers = {}
        for child in ("payroll", "nothing"):
            answer = await people.ada.post(f"{API}/workflows", json=calls("shop-a", child))
            assert (answer.status_code, answer.json()["code"]) == (403, "CHILD_FORBIDDEN")
            answers[child] = answer.json()["detail"].replace(child, "CHILD")
        assert answers["payroll"] == answers["nothing"]
        for child in ("shared", "shop-c", "shop-later"):
            named = calls(f"shop-{child}", child)
            assert (await people.ada.post(f"{API}/workflows", json=named)).status_code == 201
        assert (await people.admin.post(f"{API}/workflows", json=calls("a", "later"))).status_code == 201

    among_people(tmp_path, {}, work)
