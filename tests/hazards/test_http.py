"""Hazards H1 and H3 of the http node, and C7 while a request runs."""

from __future__ import annotations

import asyncio
import pathlib

import pytest
from aiohttp import web

from rune.core.execution.outcome import Failure, Outcome, Output
from rune.nodes.base import Resources
from rune.testing.harness import run_document
from tests.acceptance.conformance.case import Case
from tests.acceptance.conformance.stubs import stub_servers
from tests.support.cli_process import TIMEOUT_S, Rune, until
from tests.support.documents import document, edit, node
from tests.support.io_nodes import (
    RedirectingServer,
    ScriptedResolver,
    echo,
    http_server,
    local_resources,
    respond_with,
    run_node,
    send_request,
)
from tests.support.workflows import node_entry, of_type, workflow


def _code(outcome: Outcome) -> str:
    assert isinstance(outcome, Failure), outcome
    return outcome.error.code


def test_h_h1_query_and_header_values_of_any_type_are_sent() -> None:
    # fault: h1: query values that are not text are left out
    outcome = send_request(echo, query={"page": 2, "all": True}, headers={"X-Count": 3, "X-Ratio": 0.5})

    assert isinstance(outcome, Output)
    seen = outcome.value["body"]
    assert seen["path"] == "/?page=2&all=true"
    assert (seen["headers"]["x-count"], seen["headers"]["x-ratio"]) == ("3", "0.5")


def test_h_h3_large_response_is_rejected() -> None:
    # fault: h3-size: the size of a body is not checked
    assert _code(send_request(respond_with(b"x" * 2_000_000), max_bytes=1_000_000)) == "HTTP_TOO_LARGE"
    assert _code(send_request(respond_with(b"x" * (10 * 1024 * 1024 + 1)))) == "HTTP_TOO_LARGE"


def test_h_h3_calls_share_connection_pool() -> None:
    # fault: h3-pool: every call opens its own client
    ports: set[int] = set()

    async def answer(request: web.Request) -> web.Response:
        assert request.transport is not None
        ports.add(request.transport.get_extra_info("peername")[1])
        return web.Response(text="x")

    async def go() -> None:
        resources = local_resources()
        async with http_server(answer) as port:
            for _ in range(5):
                await run_node("http", {"url": f"http://127.0.0.1:{port}/"}, resources)
            await resources.close()

    asyncio.run(go())
    assert len(ports) == 1


@pytest.mark.parametrize(
    "url", ["http://169.254.169.254/latest/meta-data/", "http://10.0.0.1/", "http://0x7f.1/", "http://[::1]/"]
)
def test_h_h3_private_address_is_blocked(url: str) -> None:
    # fault: h3-private: every host counts as named on the allow list
    result = run_document(workflow("start>a", a=of_type("http", url=url)))

    assert node_entry(result, "a")["error"]["code"] == "HTTP_BLOCKED"


def test_h_h3_redirect_to_private_address_is_blocked() -> None:
    # fault: h3-redirect: an address is not checked before it is called
    site = RedirectingServer((302, "http://127.0.0.2:PORT/"))

    assert _code(site.send_request()) == "HTTP_BLOCKED"
    assert len(site.requests) == 1


def test_h_h3_rebound_name_is_blocked() -> None:
    # fault: h3-rebinding: only the first address of a name is checked, and connections are not
    site, names = RedirectingServer(), ScriptedResolver(["93.184.216.34", "127.0.0.1"], ["127.0.0.1"])

    async def go() -> Outcome:
        resources = Resources(resolve=names)
        async with http_server(site.handle) as port:
            outcome = await run_node("http", {"url": f"http://rebinding.example:{port}/"}, resources)
            await resources.close()
        return outcome

    assert _code(asyncio.run(go())) == "HTTP_BLOCKED"
    assert (names.hosts, site.requests) == (["rebinding.example"], [])


SLOW = document(
    [node("start", "input"), node("call", "http", parameters={"url": "{{base_url}}/slow"}), edit("after", 1)],
    "start>call",
    "call>after",
    id="slow",
)


@pytest.mark.parametrize(
    ("grace", "first_ms", "calls"),
    [("30", 700, 1), ("0.1", 20_000, 2)],
    ids=["finished", "abandoned"],
)
def test_h_c7_sigterm_during_request_fails_no_node(
    grace: str, first_ms: int, calls: int, tmp_path: pathlib.Path
) -> None:
    # fault: c7-sigterm: a request that is cancelled is reported as failed
    routes = ({"path": "/slow", "json": {}, "delay_ms": first_ms, "times": 1}, {"path": "/slow", "json": {}})
    case = Case("slow", "", (), {}, SLOW, http=routes)
    rune = Rune(tmp_path / "home", RUNE_HTTP_ALLOW="127.0.0.1", RUNE_GRACE=grace)
    with stub_servers(case) as around:
        file = tmp_path / "slow.json"
        file.write_text(case.workflow_source(around.base_url))
        with rune.begin("run", str(file), "--key", "k") as process:
            until(lambda: around.http.calls.get("/slow"), "the request has started")
            process.terminate()
            process.communicate(timeout=TIMEOUT_S)
        result = rune.json("run", str(file), "--key", "k")

    assert process.returncode == 143
    assert result["status"] == "completed"
    assert (node_entry(result, "call")["status"], node_entry(result, "call")["attempts"]) == ("success", 1)
    assert around.http.calls["/slow"].count == calls
