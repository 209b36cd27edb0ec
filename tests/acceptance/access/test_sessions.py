"""Browser sessions: a key is exchanged for a cookie, which ends with the session, the key or the time."""

from __future__ import annotations

from contextlib import AsyncExitStack, suppress
from pathlib import Path

import httpx
import pytest

from rune.server.auth import SECURE_COOKIE, SESSION_COOKIE, SESSION_S
from tests.support.api_clients import API, BOOTSTRAP, RoleClients
from tests.support.api_server import HELLO, WAITS, RunningServer, run

SESSION = f"{API}/session"


async def sign_in(server: RunningServer, stack: AsyncExitStack, key: str) -> httpx.AsyncClient:
    """A client that has the cookie of a session and no key."""
    browser = await RoleClients(server, stack).with_key(None)
    answer = await browser.post(SESSION, headers={"Authorization": f"Bearer {key}", "Origin": server.url})
    assert answer.status_code == 200, answer.text
    return browser


def test_session_cookie_authenticates_like_its_key(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(HELLO)
        key = await server.client.create_key("ada", "runner", workflows=["hello"])
        async with AsyncExitStack() as stack:
            browser = await RoleClients(server, stack).with_key(None)
            answer = await browser.post(SESSION, headers={"Authorization": f"Bearer {key.key}"})
            cookie = answer.headers["set-cookie"]
            assert answer.json()["authentication"] == "session"
            assert answer.json()["expires_at"] is not None
            for part in (
                f"{SESSION_COOKIE}=",
                "HttpOnly",
                "SameSite=strict",
                f"Max-Age={SESSION_S}",
                "Path=/",
            ):
                assert part in cookie
            assert "Secure" not in cookie
            assert key.key not in cookie
            me = (await browser.get(f"{API}/me")).json()
            assert (me["principal"], me["role"], me["workflows"]) == (f"key:{key.id}", "runner", ["hello"])
            assert me["rights"] == ["inbox", "run", "self", "signal", "view"]
            own = {"Origin": server.url}
            started = await browser.post(f"{API}/workflows/hello/executions", json={}, headers=own)
            assert started.status_code == 202
            assert (await browser.delete(f"{API}/workflows/hello", headers=own)).status_code == 403

    run(tmp_path, work, key=BOOTSTRAP)


def test_session_over_tls_has_secure_cookie(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        for headers in ({"X-Forwarded-Proto": "https"}, {"Origin": server.url.replace("http:", "https:")}):
            answer = await server.http.post(SESSION, headers=headers)
            cookie = answer.headers["set-cookie"]
            assert cookie.startswith(f"{SECURE_COOKIE}="), headers
            assert "Secure" in cookie, headers
            assert "Path=/;" in cookie, headers
            token = cookie.partition("=")[2].partition(";")[0]
            for name, status in ((SECURE_COOKIE, 200), (SESSION_COOKIE, 401)):
                sent = {**headers, "Cookie": f"other=1; {name}={token}", "Authorization": ""}
                sent["Origin"] = server.url.replace("http:", "https:")
                assert (await server.http.get(f"{API}/me", headers=sent)).status_code == status, name

    run(tmp_path, work, key=BOOTSTRAP, trusted_proxies=("127.0.0.1",))


def test_scheme_that_is_not_named_by_a_trusted_proxy_is_ignored(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        answer = await server.http.post(SESSION, headers={"X-Forwarded-Proto": "https"})
        assert answer.headers["set-cookie"].startswith(f"{SESSION_COOKIE}=")
        assert "Secure" not in answer.headers["set-cookie"]

    run(tmp_path, work, key=BOOTSTRAP)


def test_change_in_session_requires_own_origin(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(WAITS)
        id = (await server.client.start("waits")).execution_id
        async with AsyncExitStack() as stack:
            browser = await sign_in(server, stack, BOOTSTRAP)
            path = f"{API}/executions/{id}/cancel"
            for headers in ({}, {"Origin": "https://evil.example"}, {"Origin": "null"}):
                assert (await browser.post(path, json={}, headers=headers)).status_code == 403
            assert (await browser.get(f"{API}/executions/{id}")).json()["status"] == "running"
            answer = await browser.post(path, json={}, headers={"Origin": server.url})
            assert answer.json()["status"] == "cancelled"

    run(tmp_path, work, key=BOOTSTRAP)


def test_ended_session_is_rejected(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        async with AsyncExitStack() as stack:
            browser, other = [await sign_in(server, stack, BOOTSTRAP) for _ in range(2)]
            token = browser.cookies[SESSION_COOKIE]
            ended = await browser.delete(SESSION, headers={"Origin": server.url})
            assert ended.status_code == 204
            assert SESSION_COOKIE not in browser.cookies
            kept = {"Cookie": f"{SESSION_COOKIE}={token}"}
            assert (await browser.get(f"{API}/me", headers=kept)).status_code == 401
            assert (await other.get(f"{API}/me")).status_code == 200
            for changed in ("", "x", token[:-1]):
                wrong = {"Cookie": f"{SESSION_COOKIE}={changed}"}
                assert (await browser.get(f"{API}/me", headers=wrong)).status_code == 401

    run(tmp_path, work, key=BOOTSTRAP)


def test_session_ends_with_its_key(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(WAITS)
        id = (await server.client.start("waits")).execution_id
        key = await server.client.create_key("ada", "viewer")
        async with AsyncExitStack() as stack:
            browser = await sign_in(server, stack, key.key)
            seen: list[str] = []
            with suppress(httpx.RemoteProtocolError):  # the server closes the stream
                async with browser.stream("GET", f"{API}/executions/{id}/events") as stream:
                    async for line in stream.aiter_lines():
                        seen.append(line)
                        if "node.waiting" in line:
                            await server.client.revoke_key(key.id)
                            assert (await browser.get(f"{API}/me")).status_code == 401
                            await server.client.signal(id, "go")
            assert any("node.waiting" in line for line in seen)
            assert not any("execution.completed" in line for line in seen)

    run(tmp_path, work, key=BOOTSTRAP)


def test_session_ends_after_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rune.server.auth.SESSION_S", 0)

    async def work(server: RunningServer) -> None:
        answer = await server.http.post(SESSION)
        token = answer.headers["set-cookie"].partition("=")[2].partition(";")[0]
        cookie = {"Cookie": f"{SESSION_COOKIE}={token}", "Authorization": ""}
        assert (await server.http.get(f"{API}/me", headers=cookie)).status_code == 401

    run(tmp_path, work, key=BOOTSTRAP)


def test_session_of_changed_bootstrap_key_is_rejected(tmp_path: Path) -> None:
    async def create(server: RunningServer) -> str:
        answer = await server.http.post(SESSION)
        return answer.headers["set-cookie"].partition("=")[2].partition(";")[0]

    token = run(tmp_path, create, key=BOOTSTRAP)

    async def status(server: RunningServer) -> int:
        cookie = {"Cookie": f"{SESSION_COOKIE}={token}", "Authorization": ""}
        return (await server.http.get(f"{API}/me", headers=cookie)).status_code

    assert run(tmp_path, status, key=BOOTSTRAP) == 200
    assert run(tmp_path, status, key="another-key") == 401


def test_session_cannot_create_another_session(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        async with AsyncExitStack() as stack:
            browser = await sign_in(server, stack, BOOTSTRAP)
            answer = await browser.post(SESSION, headers={"Origin": server.url})
            assert answer.status_code == 403

    run(tmp_path, work, key=BOOTSTRAP)


def test_server_without_keys_needs_no_session(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        answer = await server.http.post(SESSION)
        assert answer.json()["authentication"] == "none"
        assert "set-cookie" not in answer.headers
        me = await server.client.me()
        assert (me.principal, me.authentication, me.expires_at) == ("local", "none", None)
        assert "admin" in me.rights

    run(tmp_path, work)


def test_session_token_is_not_stored(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> str:
        answer = await server.http.post(SESSION)
        log = await server.get("/audit-log")
        assert log["entries"][0]["action"] == "session.create"
        return answer.headers["set-cookie"].partition("=")[2].partition(";")[0]

    token = run(tmp_path, work, key=BOOTSTRAP)
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert token.encode() not in path.read_bytes(), path
