"""Grants of credentials are checked when a node uses the credential."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec

from rune.codec.messages import NodeExecutionMessage
from rune.runtime.messaging.foreign_messages import ForeignMessages
from tests.support.api_clients import API, BOOTSTRAP, RoleClients
from tests.support.api_server import RunningServer, run

NODES = ("tests.acceptance.access.credential_nodes",)


def uses(id: str, credential: str = "shop") -> dict[str, Any]:
    return {
        "id": id,
        "nodes": [
            {"id": "in", "type": "input"},
            {"id": "use", "type": "access.use", "credentials": {"name": credential}},
        ],
        "edges": [{"src": "in", "dst": "use"}],
    }


WAITS_THEN_USES: dict[str, Any] = {
    "id": "later",
    "nodes": [
        {"id": "in", "type": "input"},
        {"id": "w", "type": "wait", "parameters": {"resume": "signal", "name": "go"}},
        {"id": "use", "type": "access.use", "credentials": {"name": "shop"}},
    ],
    "edges": [{"src": "in", "dst": "w"}, {"src": "w", "dst": "use"}],
}
PARENT: dict[str, Any] = {
    "id": "parent",
    "nodes": [
        {"id": "in", "type": "input"},
        {"id": "call", "type": "workflow", "parameters": {"workflow": "child"}},
    ],
    "edges": [{"src": "in", "dst": "call"}],
}


async def grants(server: RunningServer, *grant: str, withdraw: tuple[str, ...] = ()) -> list[str]:
    """Change the grants of the credential and return them."""
    body = {"grant": list(grant), "withdraw": list(withdraw)}
    found = await server.post("/credentials/shop/grants", body)
    granted: list[str] = found["granted"]
    return granted


async def shop(
    server: RunningServer, *documents: dict[str, Any], granted: tuple[str, ...] = ("everyone",)
) -> None:
    await server.client.deploy(documents[0])
    for each in documents[1:]:
        await server.client.deploy(each)
    body = {
        "name": "shop",
        "type": "custom",
        "values": {"password": "s3cret-password"},
        "hosts": ["*"],
        "grants": list(granted),
    }
    await server.post("/credentials", body, 201)


async def ended(server: RunningServer, execution: str) -> tuple[str, str | None]:
    found = await server.client.wait(execution, 60)
    return found.status, None if found.error is None else found.error.code


async def by_queue(server: RunningServer, document: dict[str, Any], execution: str) -> None:
    """Start an execution by a message at the broker."""
    engine = server.engine
    message = NodeExecutionMessage(
        workflow_id=document["id"],
        execution_id=execution,
        current_node="use",
        definition=msgspec.Raw(msgspec.json.encode(document)),
        context=msgspec.Raw(b"{}"),
    )
    await ForeignMessages(engine.backend, engine.plans, engine.launcher).take(message, b"")


def test_new_credential_is_granted_to_principal_that_adds_it(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await shop(server, uses("orders"), granted=())
        assert (await server.get("/credentials/shop/grants"))["granted"] == ["bootstrap"]
        own = (await server.post("/workflows/orders/executions", None, 202))["execution_id"]
        assert await ended(server, own) == ("completed", None)
        async with AsyncExitStack() as stack:
            ada = await RoleClients(server, stack).connect("ada", "runner")
            started = (await ada.post(f"{API}/workflows/orders/executions")).json()["execution_id"]
            assert await ended(server, started) == ("halted", "CREDENTIAL_DENIED")

    run(tmp_path, work, key=BOOTSTRAP, nodes=NODES)


def test_grant_to_everyone_does_not_include_queue(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await shop(server, uses("orders"))
        async with AsyncExitStack() as stack:
            ada = await RoleClients(server, stack).connect("ada", "runner")
            started = (await ada.post(f"{API}/workflows/orders/executions")).json()["execution_id"]
            assert await ended(server, started) == ("completed", None)
        await by_queue(server, uses("orders"), "q1")
        assert await ended(server, "q1") == ("halted", "CREDENTIAL_DENIED")
        assert (await server.client.execution("q1")).principal == "queue"
        assert await grants(server, "queue") == ["everyone", "queue"]
        await by_queue(server, uses("orders"), "q2")
        assert await ended(server, "q2") == ("completed", None)

    run(tmp_path, work, key=BOOTSTRAP, nodes=NODES)


def test_h_i6_grant_to_key_denies_other_keys(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await shop(server, uses("orders"))
        async with AsyncExitStack() as stack:
            clients = RoleClients(server, stack)
            asks = {name: await clients.connect(name, "runner") for name in ("ada", "bob")}
            await grants(server, f"key:{clients.keys['ada'].id}", withdraw=("everyone",))
            found = {}
            for name, each in asks.items():
                started = (await each.post(f"{API}/workflows/orders/executions")).json()["execution_id"]
                found[name] = await ended(server, started)
            assert found == {"ada": ("completed", None), "bob": ("halted", "CREDENTIAL_DENIED")}
            again = (await asks["ada"].post(f"{API}/executions/{started}/retry")).json()["execution_id"]
            assert await ended(server, again) == ("halted", "CREDENTIAL_DENIED"), "it is still bob's"

    run(tmp_path, work, key=BOOTSTRAP, nodes=NODES)


def test_h_i6_grant_to_workflow_covers_stored_versions_only(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await shop(server, uses("orders"))
        await grants(server, "workflow:ord*", withdraw=("everyone",))
        stored = (await server.client.start("orders")).execution_id
        assert await ended(server, stored) == ("completed", None)
        imitated = {**uses("orders"), "name": "not what was stored"}
        mine = (await server.client.start_definition(imitated)).execution_id
        assert await ended(server, mine) == ("halted", "CREDENTIAL_DENIED")
        await by_queue(server, imitated, "q1")
        assert await ended(server, "q1") == ("halted", "CREDENTIAL_DENIED")

    run(tmp_path, work, nodes=NODES)


def test_grant_is_checked_when_node_runs(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await shop(server, WAITS_THEN_USES)
        first, second = [(await server.client.start("later")).execution_id for _ in range(2)]
        await server.client.signal(first, "go")
        assert await ended(server, first) == ("completed", None)
        await grants(server, withdraw=("everyone",))
        await server.client.signal(second, "go")
        assert await ended(server, second) == ("halted", "CREDENTIAL_DENIED")
        (run_of,) = [
            each for each in (await server.client.document(second))["nodes"] if each["node_id"] == "use"
        ]
        assert "s3cret-password" not in str(run_of)

    run(tmp_path, work, nodes=NODES)


def test_child_inherits_principal_of_parent(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await shop(server, uses("child"), PARENT)
        async with AsyncExitStack() as stack:
            clients = RoleClients(server, stack)
            ada = await clients.connect("ada", "runner")
            await grants(server, "local", withdraw=("everyone",))
            started = (await ada.post(f"{API}/workflows/parent/executions")).json()["execution_id"]
            assert (await ended(server, started))[0] == "halted"
            listed = (await server.get("/executions?workflow=child"))["executions"]
            child = await server.client.execution(listed[0]["execution_id"])
            assert child.principal == f"key:{clients.keys['ada'].id}"
            assert child.error is not None
            assert child.error.code == "CREDENTIAL_DENIED"

    run(tmp_path, work, key=BOOTSTRAP, nodes=NODES)


def test_invalid_grantee_is_rejected(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await shop(server, uses("orders"))
        for whom in ("nobody", "key:", "role:admin", "*"):
            await server.post("/credentials/shop/grants", {"grant": [whom]}, 422)
        await server.post("/credentials/other/grants", {"grant": ["queue"]}, 404)
        assert (await server.get("/credentials/shop/grants"))["granted"] == ["everyone"]

    run(tmp_path, work, nodes=NODES)
