"""Hazards F7, H2, I6 and I7: credentials, from the store to the request and never into the history."""

from __future__ import annotations

import asyncio
import base64
import pathlib
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from rune import bootstrap
from rune.errors import InvalidDocumentError
from rune.ports.credentials import TYPES
from rune.settings import Settings
from rune.testing.clock import VirtualClock
from rune.testing.harness import harness
from tests.hazards import waiting
from tests.hazards.building import Fields, entry, kind, ran, waits, workflow
from tests.hazards.hearing import TOKEN, Heard
from tests.unit.nodes.io.calling import serving


def used(
    folder: pathlib.Path,
    heard: Heard,
    type: str,
    values: Callable[[int], Fields],
    *,
    hosts: tuple[str, ...] = (),
    path: str = "/",
    **more: Any,
) -> Fields:
    """What a run says whose one request uses a credential that was stored the way everybody stores one."""

    async def scenario() -> Fields:
        async with serving(heard) as port:
            async with bootstrap.open_services(Settings(home=str(folder))) as services:
                await services.credentials.add("shop", type, values(port), hosts)
            call = {
                **kind("http", url=f"http://127.0.0.1:{port}{path}"),
                "credentials": {"name": "shop"},
                **more,
            }
            async with harness(folder, http_allow=("127.0.0.1",)) as engine:
                return await engine.run(workflow("start>call", call=call))

    return asyncio.run(scenario())


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
def test_h_h2_what_is_stored_is_what_is_sent(type: str, tmp_path: pathlib.Path) -> None:
    # fault: h2: the node looks for `user` where the store keeps `username`
    heard = Heard()
    values, arrived = STORED[type]

    assert used(tmp_path, heard, type, values)["status"] == "completed"
    assert arrived(*heard.requests[-1])


@pytest.mark.parametrize(
    ("type", "values", "hosts", "credentials", "code"),
    [
        ("basic", basic, ("shop.example",), {"name": "shop"}, "CREDENTIAL_FORBIDDEN"),
        ("basic", basic, (), {"name": "shop", "type": "bearer"}, "CREDENTIAL_FORBIDDEN"),
        ("smtp", lambda port: {"host": "h", "password": TOKEN}, (), {"name": "shop"}, "CREDENTIAL_FORBIDDEN"),
        ("custom", lambda port: {"a": TOKEN}, (), {"name": "shop"}, "CREDENTIAL_FORBIDDEN"),
        ("basic", basic, (), {"name": "of-somebody-else"}, "CREDENTIAL_MISSING"),
        ("basic", basic, (), {"id": "c" + "0" * 32}, "CREDENTIAL_MISSING"),
    ],
)
def test_h_i6_whether_a_credential_may_be_used_is_asked_when_it_is_used(
    type: str,
    values: Callable[[int], Fields],
    hosts: tuple[str, ...],
    credentials: Fields,
    code: str,
    tmp_path: pathlib.Path,
) -> None:
    # fault: i6-use: the hosts of a credential are not looked at
    heard = Heard()
    told = used(tmp_path, heard, type, values, hosts=hosts, credentials=credentials)

    assert entry(told, "call")["status"] == "failed"
    assert entry(told, "call")["error"]["code"] == code
    assert heard.requests == []


def test_h_f7_who_wakes_up_uses_the_credential_of_today(tmp_path: pathlib.Path) -> None:
    # fault: f7: the credential is kept from an earlier attempt
    opened = partial(harness, tmp_path, clock=VirtualClock())
    waiting.who_wakes_up_uses_the_credential_of_today(opened, waits(48))


def test_h_i6_a_failure_follows_the_policy_of_its_node(tmp_path: pathlib.Path) -> None:
    # fault: i6-policy: a failure inside a node is an error of the engine
    told = used(tmp_path, Heard(), "basic", basic, hosts=("shop.example",), error="ignore")

    assert (told["status"], entry(told, "call")["status"]) == ("completed", "failed")


def test_h_i7_a_credential_is_in_no_row(tmp_path: pathlib.Path) -> None:
    # fault: i7-row: outcomes are journaled as they come out of the node
    heard = Heard()
    told = used(tmp_path, heard, "basic", basic)

    encoded = base64.b64encode(f"me:{TOKEN}".encode()).decode()
    assert encoded in heard.requests[0][0]["authorization"]
    assert entry(told, "call")["output"]["body"]["headers"]["authorization"] == "Basic ***"
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.name != "secret.key")
    for trace in (TOKEN, encoded):
        assert trace.encode() not in stored
        assert trace not in str(told)


@pytest.mark.parametrize(
    "credentials",
    [{"name": "shop", "password": TOKEN}, {"token": TOKEN}, {"name": "shop", "fields": {"token": TOKEN}}],
)
def test_h_i7_a_document_names_a_credential_and_holds_none(credentials: Fields) -> None:
    # fault: i7-document: unknown fields of `credentials` are kept
    with pytest.raises(InvalidDocumentError) as refused:
        ran(
            workflow("start>call", call={**kind("http", url="https://x.example"), "credentials": credentials})
        )

    assert {each.code for each in refused.value.problems} >= {"SECRET_IN_DOCUMENT"}
    assert TOKEN not in str(refused.value)


@pytest.mark.parametrize(
    "expression", ["$credentials.shop", "$credential.password", "$secret.shop", "$node.call.credentials"]
)
def test_h_i7_no_expression_reaches_a_credential(expression: str) -> None:
    # fault: i7-expression: `$credentials` is a root of the scope
    call = {**kind("http", url="https://x.example"), "credentials": {"name": "shop"}}
    with pytest.raises(InvalidDocumentError):
        ran(workflow("start>out start>call", call=call, out=kind("output", value="{{ " + expression + " }}")))
