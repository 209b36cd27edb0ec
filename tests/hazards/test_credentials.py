"""Hazards F7, H2, I6 and I7: credentials are used in requests and never reach the history."""

from __future__ import annotations

import asyncio
import base64
import pathlib
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web

from rune import bootstrap
from rune.errors import InvalidDocumentError
from rune.ports.credentials import TYPES
from rune.settings import Settings
from rune.testing.harness import VirtualClock, harness, run_document
from tests.support.backends import Backend, EmbeddedBackend, backends, until_suspended
from tests.support.io_nodes import http_server
from tests.support.workflows import Fields, node_entry, of_type, wait, workflow

TOKEN = "kanari-9f3d0c7-e51b"


class EchoServer:
    """Records all requests and responds with their headers and path."""

    def __init__(self) -> None:
        self.requests: list[tuple[dict[str, str], str]] = []

    async def __call__(self, request: web.Request) -> web.Response:
        headers = {name.lower(): text for name, text in request.headers.items()}
        self.requests.append((headers, request.raw_path))
        if request.path == "/token":
            return web.json_response({"access_token": f"fetched-{TOKEN}", "token_type": "Bearer"})
        return web.json_response({"headers": headers, "path": request.raw_path})


def run_request(
    folder: pathlib.Path,
    server: EchoServer,
    type: str,
    values: Callable[[int], Fields],
    *,
    hosts: tuple[str, ...] = ("*",),
    path: str = "/",
    **more: Any,
) -> Fields:
    """Store a credential, run one request that uses it, and return the run document."""

    async def go() -> Fields:
        async with http_server(server) as port:
            async with bootstrap.open_services(Settings(home=str(folder))) as services:
                await services.credentials.add("shop", type, values(port), hosts, insecure=True)
            call = {
                **of_type("http", url=f"http://127.0.0.1:{port}{path}"),
                "credentials": {"name": "shop"},
                **more,
            }
            async with harness(folder, http_allow=("127.0.0.1",)) as engine:
                return await engine.run(workflow("start>call", call=call))

    return asyncio.run(go())


def basic(port: int) -> Fields:
    return {"username": "me", "password": TOKEN}


STORED: dict[str, tuple[Callable[[int], Fields], Callable[[dict[str, str], str], bool]]] = {
    "basic": (
        basic,
        lambda headers, path: (
            headers["authorization"] == "Basic " + base64.b64encode(f"me:{TOKEN}".encode()).decode()
        ),
    ),
    "bearer": (
        lambda port: {"token": TOKEN},
        lambda headers, path: headers["authorization"] == f"Bearer {TOKEN}",
    ),
    "header": (
        lambda port: {"name": "X-Shop", "value": TOKEN},
        lambda headers, path: headers["x-shop"] == TOKEN,
    ),
    "api_key": (
        lambda port: {"key": TOKEN, "name": "k", "place": "query"},
        lambda headers, path: path == f"/?k={TOKEN}",
    ),
    "oauth2": (
        lambda port: {
            "token_url": f"http://127.0.0.1:{port}/token",
            "client_id": "me",
            "client_secret": TOKEN,
        },
        lambda headers, path: headers["authorization"] == f"Bearer fetched-{TOKEN}",
    ),
}


@pytest.mark.parametrize("type", sorted(TYPES.keys() - {"smtp", "custom"}))
def test_h_h2_stored_credential_is_sent(type: str, tmp_path: pathlib.Path) -> None:
    # fault: h2: the node reads `user` where the store has `username`
    server = EchoServer()
    values, was_sent = STORED[type]

    assert run_request(tmp_path, server, type, values)["status"] == "completed"
    assert was_sent(*server.requests[-1])


@pytest.mark.parametrize(
    ("type", "values", "hosts", "credentials", "code"),
    [
        ("basic", basic, ("shop.example",), {"name": "shop"}, "CREDENTIAL_FORBIDDEN"),
        ("basic", basic, ("*",), {"name": "shop", "type": "bearer"}, "CREDENTIAL_FORBIDDEN"),
        (
            "smtp",
            lambda port: {"host": "h", "password": TOKEN},
            ("*",),
            {"name": "shop"},
            "CREDENTIAL_FORBIDDEN",
        ),
        ("custom", lambda port: {"a": TOKEN}, ("*",), {"name": "shop"}, "CREDENTIAL_FORBIDDEN"),
        ("basic", basic, ("*",), {"name": "of-another-owner"}, "CREDENTIAL_MISSING"),
        ("basic", basic, ("*",), {"id": "c" + "0" * 32}, "CREDENTIAL_MISSING"),
    ],
)
def test_h_i6_credential_is_authorized_when_used(
    type: str,
    values: Callable[[int], Fields],
    hosts: tuple[str, ...],
    credentials: Fields,
    code: str,
    tmp_path: pathlib.Path,
) -> None:
    # fault: i6-use: the hosts of a credential are not checked
    server = EchoServer()
    result = run_request(tmp_path, server, type, values, hosts=hosts, credentials=credentials)

    assert node_entry(result, "call")["status"] == "failed"
    assert node_entry(result, "call")["error"]["code"] == code
    assert server.requests == []


@backends("embedded", "redis")
def test_h_f7_node_after_wait_uses_rotated_credential(backend: Backend) -> None:
    # fault: f7: the credential is kept from an earlier attempt
    # fault: f7-redis: the credential is kept from an earlier attempt
    server = EchoServer()
    embedded = isinstance(backend, EmbeddedBackend)
    pause = wait(48) if embedded else wait(2.5, "seconds")
    options: Fields = {"clock": VirtualClock()} if embedded else {}

    async def go() -> str:
        async with http_server(server) as port, backend.open(http_allow=("127.0.0.1",), **options) as engine:
            credentials = engine.engine.services.credentials
            await credentials.add("shop", "bearer", {"token": f"{TOKEN}-1"}, ("*",), insecure=True)
            call = {**of_type("http", url=f"http://127.0.0.1:{port}/"), "credentials": "shop"}
            run = await engine.start(workflow("start>a a>pause pause>b", a=call, pause=pause, b=call))
            await until_suspended(run)
            await credentials.rotate("shop", {"token": f"{TOKEN}-2"})
            return (await run.end()).status

    assert asyncio.run(go()) == "completed"
    assert [headers["authorization"][-1] for headers, _ in server.requests] == ["1", "2"]


def test_h_i6_forbidden_credential_follows_error_policy(tmp_path: pathlib.Path) -> None:
    # fault: i6-policy: a failure inside a node is an error of the engine
    result = run_request(tmp_path, EchoServer(), "basic", basic, hosts=("shop.example",), error="ignore")

    assert (result["status"], node_entry(result, "call")["status"]) == ("completed", "failed")


def test_h_i7_credential_is_not_journaled(tmp_path: pathlib.Path) -> None:
    # fault: i7-row: outcomes are journaled without redaction
    server = EchoServer()
    result = run_request(tmp_path, server, "basic", basic)

    encoded = base64.b64encode(f"me:{TOKEN}".encode()).decode()
    assert encoded in server.requests[0][0]["authorization"]
    assert node_entry(result, "call")["output"]["body"]["headers"]["authorization"] == "Basic ***"
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.name != "secret.key")
    for trace in (TOKEN, encoded):
        assert trace.encode() not in stored
        assert trace not in str(result)


@pytest.mark.parametrize(
    "credentials",
    [{"name": "shop", "password": TOKEN}, {"token": TOKEN}, {"name": "shop", "fields": {"token": TOKEN}}],
)
def test_h_i7_secret_in_document_is_rejected(credentials: Fields) -> None:
    # fault: i7-document: unknown fields of `credentials` are kept
    with pytest.raises(InvalidDocumentError) as rejected:
        run_document(
            workflow(
                "start>call", call={**of_type("http", url="https://x.example"), "credentials": credentials}
            )
        )

    assert {each.code for each in rejected.value.problems} >= {"SECRET_IN_DOCUMENT"}
    assert TOKEN not in str(rejected.value)


@pytest.mark.parametrize(
    "expression", ["$credentials.shop", "$credential.password", "$secret.shop", "$node.call.credentials"]
)
def test_h_i7_expression_cannot_read_credential(expression: str) -> None:
    # fault: i7-expression: `$credentials` is a root of the scope
    call = {**of_type("http", url="https://x.example"), "credentials": {"name": "shop"}}
    with pytest.raises(InvalidDocumentError):
        run_document(
            workflow(
                "start>out start>call", call=call, out=of_type("output", value="{{ " + expression + " }}")
            )
        )
