"""API keys are shown once, stored as digests, and can be revoked or expire."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from rune.client import ApiError
from rune.ports.access import new_key
from rune.ports.clock import SystemClock
from rune.server import auth
from tests.support.api_clients import API, BOOTSTRAP, RoleClients, populate
from tests.support.api_server import RunningServer, run

LIST = f"{API}/executions"


def test_key_secret_is_shown_once_and_never_stored(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> str:
        made = await server.client.create_key("ada", "viewer", expires_in=3_600)
        secret = made.key.rpartition("_")[2]
        listed = (await server.http.get(f"{API}/keys")).text
        log = (await server.http.get(f"{API}/audit-log")).text
        assert made.id in listed
        assert made.id in log
        assert secret not in listed + log
        assert json.loads(listed)["keys"][0]["created_by"] == "bootstrap"
        return secret

    secret = run(tmp_path, work, key=BOOTSTRAP)
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert secret.encode() not in path.read_bytes(), path


def test_revoked_key_is_rejected_immediately(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        async with AsyncExitStack() as stack:
            ada = await RoleClients(server, stack).connect("ada", "admin")
            assert (await ada.get(LIST)).status_code == 200
            id = (await ada.get(f"{API}/me")).json()["principal"].removeprefix("key:")
            assert (await ada.delete(f"{API}/keys/{id}")).status_code == 204
            for path in (LIST, f"{API}/me", f"{API}/keys"):
                assert (await ada.get(path)).status_code == 401
            (kept,) = await server.client.keys()
            assert kept.revoked_at is not None
            assert kept.used_at is not None
        with pytest.raises(ApiError) as refused:
            await server.client.revoke_key("k" + "0" * 16)
        assert refused.value.status == 404

    run(tmp_path, work, key=BOOTSTRAP)


def test_expired_key_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(server: RunningServer) -> None:
        async with AsyncExitStack() as stack:
            ada = await RoleClients(server, stack).connect("ada", "viewer", expires_in=60)
            assert (await ada.get(LIST)).status_code == 200
            later = SystemClock().now() + 60_001
            monkeypatch.setattr(SystemClock, "now", lambda _: later)
            assert (await ada.get(LIST)).status_code == 401

    run(tmp_path, work, key=BOOTSTRAP)


def test_malformed_keys_are_rejected(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        made = (await server.client.create_key("ada", "admin")).key
        other = (await server.client.create_key("bob", "admin")).key
        head, _, secret = made.rpartition("_")
        wrong = [
            "",
            made[:-1],
            made + "0",
            made.upper(),
            f"{head}_{'0' * 64}",
            f"{head}_{other.rpartition('_')[2]}",
            new_key().text,
            secret,
            f"{made},{BOOTSTRAP}",
            BOOTSTRAP[:-1],
        ]
        async with AsyncExitStack() as stack:
            nobody = await RoleClients(server, stack).with_key(None)
            for scheme in ("Bearer", "Basic", "bearer:", ""):
                for each in [*wrong, made] if scheme != "Bearer" else wrong:
                    given = f"{scheme} {each}".strip()
                    answer = await nobody.get(LIST, headers={"Authorization": given})
                    assert answer.status_code == 401, given
            assert (await nobody.get(LIST, headers={b"Authorization": b"Bearer \xff\xfe"})).status_code == 401
            kept = {"Cookie": f"key={made}", "X-API-Key": made}
            assert (await nobody.get(f"{LIST}?key={made}", headers=kept)).status_code == 401

    run(tmp_path, work, key=BOOTSTRAP)


NO_KEYS: list[dict[str, Any]] = [
    {"name": "", "role": "viewer"},
    {"name": "a", "role": "owner"},
    {"name": "a", "role": "viewer", "workflows": ["a/b"]},
    {"name": "a", "role": "viewer", "expires_in": 0},
    {"name": "a", "role": "admin", "workflows": ["a"]},
    {"name": "a\n", "role": "viewer"},
    {"name": "a", "role": "viewer", "id": "k1"},
    {"role": "viewer"},
]


def test_invalid_key_request_is_rejected(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        for body in NO_KEYS:
            assert (await server.http.post(f"{API}/keys", json=body)).status_code == 422, body
        assert await server.client.keys() == []

    run(tmp_path, work)


def test_first_key_ends_anonymous_access_on_loopback(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        assert (await server.http.get(f"{API}/me")).json()["principal"] == "local"
        made = await server.client.create_key("ada", "admin")
        assert (await server.http.get(LIST)).status_code == 401
        keyed = {"Authorization": f"Bearer {made.key}"}
        assert (await server.http.get(LIST, headers=keyed)).status_code == 200
        assert (await server.http.delete(f"{API}/keys/{made.id}", headers=keyed)).status_code == 204
        assert (await server.http.get(LIST)).status_code == 401, "a revoked key must not open the house"

    run(tmp_path, work)


def test_open_stream_receives_nothing_after_revocation(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(server: RunningServer) -> None:
        ids = await populate(server)
        async with AsyncExitStack() as stack:
            clients = RoleClients(server, stack)
            ada = await clients.connect("ada", "viewer")
            path = f"{API}/executions/{ids['waits']}/events"
            answer = await stack.enter_async_context(ada.stream("GET", path))
            lines = answer.aiter_lines()
            await _first(lines)
            socket = await connect(
                server.url.replace("http", "ws") + path,
                additional_headers={"Authorization": f"Bearer {clients.keys['ada'].key}"},
            )
            assert "number" in str(await socket.recv())
            await server.client.revoke_key(clients.keys["ada"].id)
            await server.client.signal(ids["waits"], "go", {"result": "afterwards"})
            await server.client.wait(ids["waits"], 60)
            rest: list[str] = []
            with suppress(httpx.HTTPError):
                rest = [line async for line in lines]
            output = [*rest, *[str(each) async for each in _messages(socket)]]
            assert not any("afterwards" in each or "execution.completed" in each for each in output)
            assert [each.getMessage() for each in caplog.records if each.levelname == "ERROR"] == []

    run(tmp_path, work, key=BOOTSTRAP)


async def _first(lines: AsyncIterator[str]) -> None:
    async for line in lines:
        if line.startswith("data:"):
            return


async def _messages(socket: Any) -> AsyncIterator[str]:
    with suppress(ConnectionClosed):
        async for each in socket:
            yield str(each)


def test_key_cache_lasts_at_most_one_second() -> None:
    assert 0 < auth.CACHE_S <= 1


def test_concurrent_requests_keep_their_principals(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        async with AsyncExitStack() as stack:
            clients = RoleClients(server, stack)
            asks = [await clients.connect(f"n{number}", "viewer") for number in range(8)]
            found = await asyncio.gather(*(each.get(f"{API}/me") for each in asks * 3))
            wanted = [f"key:{clients.keys[f'n{number}'].id}" for number in range(8)] * 3
            assert [each.json()["principal"] for each in found] == wanted

    run(tmp_path, work, key=BOOTSTRAP)
