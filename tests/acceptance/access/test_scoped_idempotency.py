"""The idempotency keys of an API key with a scope neither block those of others nor tell that others used them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.api_clients import API, BOOTSTRAP, RoleClients
from tests.support.api_server import HELLO, WAITS, RunningServer, run
from tests.support.backends import stores

KEY = "order-7"
NAME = {"name": "x"}
OTHER = {**HELLO, "id": "other"}


@pytest.fixture(params=["embedded", "redis"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """The settings of a server over each journal."""
    return {"key": BOOTSTRAP} | ({} if request.param == "embedded" else {"on": stores(tmp_path)})


async def start(client: httpx.AsyncClient, workflow: str, key: str = KEY, **input: Any) -> tuple[int, Any]:
    """Start a workflow under a key; return the status and the body of the response."""
    answer = await client.post(
        f"{API}/workflows/{workflow}/executions",
        json={"input": input or NAME},
        headers={"Idempotency-Key": key},
    )
    return answer.status_code, answer.json()


def with_clients(
    tmp_path: Path, work: Callable[[RunningServer, RoleClients], Awaitable[None]], settings: dict[str, Any]
) -> None:
    """Run a test with a server, a runner `r` of `hello`, another one `s`, and a runner `all` of everything."""

    async def go(server: RunningServer) -> None:
        await server.deploy(HELLO, OTHER, WAITS)
        async with AsyncExitStack() as stack:
            clients = RoleClients(server, stack)
            await clients.connect("r", "runner", "hello")
            await clients.connect("s", "runner", "hello")
            await clients.connect("all", "runner")
            await work(server, clients)

    run(tmp_path, go, **settings)


def test_scoped_key_does_not_block_others(tmp_path: Path, settings: dict[str, Any]) -> None:
    async def work(server: RunningServer, clients: RoleClients) -> None:
        status, mine = await start(clients.clients["r"], "hello")
        assert status == 202
        for client in (server.http, clients.clients["s"]):
            status, other = await start(client, "other" if client is server.http else "hello", name="y")
            assert (status, other.get("replayed")) == (202, False)
        status, again = await start(clients.clients["r"], "hello")
        assert (status, again["execution_id"]) == (200, mine["execution_id"])
        shown = await server.get(f"/executions/{mine['execution_id']}")
        assert shown["key"] == KEY

    with_clients(tmp_path, work, settings)


def test_scoped_key_does_not_learn_of_keys_of_others(tmp_path: Path, settings: dict[str, Any]) -> None:
    async def work(server: RunningServer, clients: RoleClients) -> None:
        assert (await start(server.http, "other"))[0] == 202
        assert (await start(clients.clients["r"], "hello"))[0] == 202
        status, conflict = await start(clients.clients["r"], "hello", name="y")
        assert (status, conflict["code"]) == (409, "KEY_CONFLICT")
        assert conflict["detail"].startswith(f"key `{KEY}` was used before")

    with_clients(tmp_path, work, settings)


def test_keys_without_scope_share_their_keys(tmp_path: Path) -> None:
    async def work(server: RunningServer, clients: RoleClients) -> None:
        _, first = await start(server.http, "hello")
        status, again = await start(clients.clients["all"], "hello")
        assert (status, again["execution_id"]) == (200, first["execution_id"])
        stored = await server.engine.backend.journal.keyed(KEY)
        assert stored == first["execution_id"]

    with_clients(tmp_path, work, {"key": BOOTSTRAP})


def test_no_client_can_send_the_stored_form_of_a_scoped_key(tmp_path: Path) -> None:
    async def work(server: RunningServer, clients: RoleClients) -> None:
        assert (await start(clients.clients["r"], "hello"))[0] == 202
        for client in (server.http, *clients.clients.values()):
            status, refused = await start(client, "hello", f"key:{clients.keys['r'].id}:{KEY}")
            assert (status, refused["code"]) == (400, "RESERVED_KEY")

    with_clients(tmp_path, work, {"key": BOOTSTRAP})


@pytest.mark.parametrize("action", ["retry", "rerun"])
def test_reruns_of_scoped_keys_are_apart(tmp_path: Path, action: str) -> None:
    fails = {"id": "hello", "nodes": [{"id": "out", "type": "fail", "parameters": {"message": "no"}}]}
    body = {"node": "out"} if action == "rerun" else {}

    async def work(server: RunningServer, clients: RoleClients) -> None:
        await server.deploy(fails)
        path = f"{API}/executions/{await server.ended('hello')}/{action}"
        key = {"Idempotency-Key": KEY}
        assert (await start(server.http, "other"))[0] == 202
        first = await clients.clients["r"].post(path, json=body, headers=key)
        again = await clients.clients["r"].post(path, json=body, headers=key)
        assert first.status_code == again.status_code == 202
        assert first.json()["execution_id"] == again.json()["execution_id"]

    with_clients(tmp_path, work, {"key": BOOTSTRAP})
