"""Every route admits exactly the roles of the permission matrix."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute, APIWebSocketRoute
from starlette.requests import Request
from starlette.responses import Response
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from rune.core.permissions import RIGHTS
from rune.server.app import make_app
from rune.server.auth import UndeclaredPermissionError, requires
from rune.server.health import HEALTH
from rune.server.resource import Resource
from rune.server.routing import PRINCIPALS, allowed, check_declared, hidden, permission_of, rows
from tests.acceptance.access.write_matrix import DOCS, matrix, written
from tests.support.api_clients import API, BOOTSTRAP, NONE, RoleClients, populate, status
from tests.support.api_server import WAITS, RunningServer, run

METHODS = ("GET", "HEAD", "POST", "DELETE", "OPTIONS")


def expected(need: str | None, who: str, got: int) -> bool:
    """Whether a status agrees with the matrix; a permitted request may fail for other reasons than authorization."""
    if allowed(need, who):  # type: ignore[arg-type]
        return got not in (401, 403)
    return got == (401 if who == NONE else 403)


def placed(path: str) -> str:
    """The path of a route with ids that do not exist."""
    return re.sub(r"{(\w+)(:path)?}", lambda found: "k" + "0" * 16 if found[1] == "id" else "nothing", path)


def test_h_i8_every_route_enforces_permission_matrix(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        wrong: list[str] = []
        async with AsyncExitStack() as stack:
            clients = await RoleClients(server, stack).connect_all()
            await server.deploy(WAITS)
            waiting = (await server.client.start("waits")).execution_id
            asked = 0
            for method, path, need in rows(list(make_app(server.master).routes)):
                for who in PRINCIPALS:
                    if method == "WebSocket":
                        got = await _socket(server, path.format(execution=waiting), clients, who)
                    else:
                        got = await status(clients.clients[who], method, placed(path))
                    asked += 1
                    if not expected(need, who, got):
                        wrong.append(f"{method} {path} by {who}: {got}")
        assert wrong == []
        assert asked > 250

    run(tmp_path, work, key=BOOTSTRAP)


async def _socket(server: RunningServer, path: str, clients: RoleClients, who: str) -> int:
    headers = {} if who == NONE else {"Authorization": f"Bearer {clients.keys[who].key}"}
    try:
        async with connect(server.url.replace("http", "ws") + path, additional_headers=headers):
            return 101
    except InvalidStatus as refused:
        return refused.response.status_code


def test_documented_matrix_is_current(tmp_path: Path) -> None:
    page = DOCS.read_text(encoding="utf-8")
    assert page == written(page, run(tmp_path, matrix)), "python -m tests.acceptance.access.write_matrix"


def test_only_health_routes_skip_authorization(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        exempt = []
        for route in make_app(server.master).routes:
            assert isinstance(route, APIRoute | APIWebSocketRoute)
            if permission_of(route) is None:
                exempt.append(route.endpoint)
        assert exempt == list(HEALTH.values())
        assert len(exempt) == 3

    run(tmp_path, work)


def test_route_without_permission_is_rejected() -> None:
    async def nothing(request: Request) -> Response:
        return Response()

    for router in (Resource("things").router, hidden()):
        with pytest.raises(UndeclaredPermissionError):
            router.add_api_route("/things", nothing)
    beside = FastAPI(openapi_url=None)
    beside.add_api_route("/things", nothing)
    with pytest.raises(UndeclaredPermissionError, match="declares no permission"):
        check_declared(beside.routes, HEALTH.values())
    late = FastAPI(openapi_url=None)
    late.add_api_route("/things", nothing, dependencies=[requires("view")])
    with pytest.raises(UndeclaredPermissionError, match="reads its body"):
        check_declared(late.routes, HEALTH.values())
    mounted = FastAPI(openapi_url=None)
    mounted.mount("/things", beside)
    with pytest.raises(UndeclaredPermissionError, match="skips authentication"):
        check_declared(mounted.routes, HEALTH.values())
    for elsewhere in ("everything", "hook", "page"):
        with pytest.raises(UndeclaredPermissionError):
            check_declared(_requiring(elsewhere, nothing).routes, ())
    imitated = FastAPI(openapi_url=None)
    imitated.add_api_route("/healthz", nothing)
    with pytest.raises(UndeclaredPermissionError):
        check_declared(imitated.routes, HEALTH.values())


def _requiring(right: str, endpoint: Callable[..., Any]) -> APIRouter:
    router = hidden()
    router.add_api_route("/things", endpoint, dependencies=[requires(right)])  # type: ignore[arg-type]
    return router


def test_unusual_methods_and_paths_do_not_bypass_auth(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        ids = await populate(server)
        found: list[str] = []
        async with AsyncExitStack() as stack:
            clients = RoleClients(server, stack)
            nobody = await clients.with_key(None)
            secret = "waits"
            for path in _tricks(ids["waits"]):
                for method in METHODS:
                    answer = await nobody.request(method, path)
                    result = secret in answer.text and "no execution" not in answer.text
                    if answer.status_code not in (400, 401, 403, 404, 405) or result:
                        found.append(f"{method} {path}: {answer.status_code}")
        assert found == []

    run(tmp_path, work, key=BOOTSTRAP)


def _tricks(execution: str) -> list[str]:
    whole = f"{API}/executions/{execution}"
    return [
        f"{API}/executions",
        f"{API}/executions/",
        f"{API}//executions",
        f"{API.upper()}/executions",
        f"{API}/Executions",
        f"{API}/executions.json",
        f"{API}/executions;/healthz",
        f"{API}/executions%2f",
        f"{API}/executions%00",
        f"{API}/executions?x=/healthz",
        f"{API}/executions/healthz",
        f"/healthz/..{API}/executions",
        "/healthz%2f..%2fapi%2fv1%2fexecutions",
        f"/version/{execution}",
        f"/readyz/../api/v1/executions/{execution}",
        f"{API}/./executions",
        whole,
        f"{whole}/",
        f"{whole}/input",
        f"{whole}/input/",
        f"{whole}/blobs/../../healthz",
        f"{whole}/events?view=rollup",
        f"{API}/openapi.json/",
        "/hooks",
        "/hooks/..%2fapi%2fv1%2fexecutions",
        "/static/../api/v1/executions",
        "/static/docs.js/",
        "/redoc",
        "/openapi.json",
    ]


def test_roles_cover_all_permissions() -> None:
    assert set().union(*RIGHTS.values()) == {"self", "inbox", "signal", "view", "run", "edit", "admin"}
