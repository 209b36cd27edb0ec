"""Every route except the health checks requires authorization."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.routing import APIRoute, APIWebSocketRoute
from websockets.asyncio.client import connect

from rune.bootstrap.http import ServerStartError, check_address
from rune.server.app import make_app
from rune.server.health import HEALTH
from rune.server.routing import KNOWN, permission_of
from tests.support.api_server import HELLO, RunningServer, run


def test_every_route_except_health_is_authorized(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        app = make_app(server.master)
        exempt = []
        for route in app.routes:
            assert isinstance(route, APIRoute | APIWebSocketRoute), route
            permission = permission_of(route)
            if permission is not None:
                assert permission in KNOWN, route.path
            else:
                exempt.append(route.endpoint)
        assert exempt == list(HEALTH.values())

    run(tmp_path, work)


def test_requests_without_key_are_unauthorized(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(HELLO)
        bare = {"Authorization": ""}
        for method, path in (
            ("GET", "/api/v1/executions"),
            ("GET", "/api/v1/events"),
            ("GET", "/api/v1/executions/x/events"),
            ("GET", "/api/v1/openapi.json"),
            ("POST", "/api/v1/workflows/hello/executions"),
            ("DELETE", "/api/v1/workflows/hello"),
            ("GET", "/metrics"),
        ):
            answer = await server.http.request(method, path, headers=bare)
            assert (answer.status_code, answer.json()["code"]) == (401, "UNAUTHORIZED"), path
            wrong = await server.http.request(method, path, headers={"Authorization": "Bearer wrong"})
            assert wrong.status_code == 401
        with pytest.raises(Exception, match=r"40[13]"):
            await connect(server.url.replace("http", "ws") + "/api/v1/executions/x/events")
        assert "hello" not in (await server.http.get("/", headers=bare)).text  # only the login form
        for path in HEALTH:
            assert (await server.http.get(path, headers=bare)).status_code == 200
        assert (await server.client.start("hello", {"name": "x"})).workflow_id == "hello"

    run(tmp_path, work, key="s3cret")


def test_foreign_origins_and_hosts_are_forbidden(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        path = "/api/v1/executions"
        for headers in (
            {"Origin": "https://evil.example"},
            {"Origin": "null"},
            {"Host": "evil.example"},
            {"Host": "127.0.0.1.evil.example:80"},
            {"Origin": "http://[", "Host": "localhost"},
        ):
            assert (await server.http.get(path, headers=headers)).status_code == 403, headers
        own = server.url.removeprefix("http://")
        assert (await server.http.get(path, headers={"Origin": server.url, "Host": own})).status_code == 200
        with pytest.raises(Exception, match="403"):
            await connect(
                server.url.replace("http", "ws") + "/api/v1/executions/x/events",
                origin="https://evil.example",  # type: ignore[arg-type]
            )
        simple = await server.http.post(
            "/api/v1/executions", content=b"{}", headers={"Content-Type": "text/plain"}
        )
        assert simple.status_code == 415

    run(tmp_path, work)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "example.com"])
def test_public_address_requires_key(host: str) -> None:
    with pytest.raises(ServerStartError):
        check_address(host, key="", locked=False)
    check_address(host, key="", locked=True)
    check_address(host, key="0123456789abcdef01234567", locked=True)


@pytest.mark.parametrize(
    "key", ["rune", "0123456789abcdef0123456", "change-me", "please-Change-Me-before-use"]
)
def test_short_or_example_key_is_refused_beyond_loopback(key: str) -> None:
    with pytest.raises(ServerStartError, match="openssl rand -hex 32") as refused:
        check_address("0.0.0.0", key=key, locked=True)
    assert key not in refused.value.message
    check_address("127.0.0.1", key=key, locked=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.8.8.8"])
def test_loopback_address_needs_no_key(host: str) -> None:
    check_address(host, key="", locked=False)
