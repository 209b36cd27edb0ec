"""Clients that ask again and again for whole executions and read no answer: a few bytes each, which cost the server
little more than one answer, and delay no other request."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import NamedTuple

import httpx
import pytest

from tests.acceptance.api.test_cost_of_reading import reading_routes
from tests.support.documents import document, edit, node
from tests.support.loop_meter import MeteredServer
from tests.support.waiting import until
from tests.support.whole import WHOLE

pytestmark = pytest.mark.long

ITEMS = 18_000
CLIENTS = 40
MAX_TURN_S = 0.4
MAX_ANSWERS = 8
"""How many answers the server may make for the clients that have gone: those that it had begun with."""

SPLIT = document(
    [
        node("in", "input"),
        node("s", "split", {"input_array": "$in"}),
        edit("x", "$item"),
        node("a", "aggregator"),
    ],
    "in>s",
    "s>x",
    "x>a",
    id="split",
)
VALUES = {"other": "{execution}", "node": "x", "attempt": "1", "key": "x@/s:1", "split": "s"}
WHOLE_EXECUTIONS = (
    "document",
    "test",
    "diff/{execution}",
    "diff/{execution}/runs",
    "graph?at=15000",
    "events",
)


class Ended(NamedTuple):
    server: MeteredServer
    execution: str


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ended]:
    async def start(server: MeteredServer) -> str:
        async with httpx.AsyncClient(base_url=f"{server.url}/api/v1", timeout=120, trust_env=False) as http:
            given = {"definition": SPLIT, "input": [{"i": each} for each in range(ITEMS)]}
            started = (await http.post("/executions?wait=60", json=given)).json()
            assert started["execution"]["status"] == "completed"
            return str(started["execution_id"])

    with MeteredServer(tmp_path_factory.mktemp("unread")) as server:
        yield Ended(server, asyncio.run(start(server)))


def paths() -> list[str]:
    """What is asked for: what reads whole executions; in a whole run all that reads one."""
    if not WHOLE:
        return list(WHOLE_EXECUTIONS)
    places = {"execution": "{execution}"} | VALUES
    found = []
    for route in reading_routes():
        with contextlib.suppress(KeyError):
            found.append(route.format_map(places).partition("/executions/{execution}/")[2])
    return [*WHOLE_EXECUTIONS, *(each for each in found if each)]


def ask(server: MeteredServer, path: str) -> socket.socket:
    host, port = server.url.removeprefix("http://").split(":")
    client = socket.create_connection((host, int(port)))
    client.sendall(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
    return client


async def cpu_of(server: MeteredServer, http: httpx.AsyncClient, before: float) -> float:
    """Return the CPU time used since a time, once the server does nothing any more."""
    seen = [before]

    async def is_idle() -> bool:
        for _ in range(3):
            assert (await http.get("/healthz")).status_code == 200
        seen.append(server.cpu_s())
        return seen[-1] - seen[-2] < 0.1

    await until(is_idle, "the server does nothing", max_pause=0.5)
    return seen[-1] - before


@pytest.mark.parametrize("path", paths())
def test_answers_that_nobody_reads_cost_little_and_delay_nobody(path: str, ended: Ended) -> None:
    server = ended.server
    asked = f"/api/v1/executions/{ended.execution}/{path.replace('{execution}', ended.execution)}"

    async def flood() -> tuple[float, float, float]:
        async with httpx.AsyncClient(base_url=server.url, timeout=60, trust_env=False) as http:
            await http.get("/healthz")
            before = server.cpu_s()
            async with http.stream("GET", asked) as answer:
                if answer.headers.get("content-type", "").startswith("text/event-stream"):
                    await anext(answer.aiter_bytes())
                else:
                    await answer.aread()
            one = await cpu_of(server, http, before)
            server.take()
            before = server.cpu_s()
            with contextlib.ExitStack() as clients:
                for _ in range(CLIENTS):
                    clients.enter_context(ask(server, asked))
                for _ in range(3):
                    assert (await http.get("/healthz")).status_code == 200
            return one, await cpu_of(server, http, before), server.take().longest_s

    one, all_of_them, longest = asyncio.run(flood())

    assert all_of_them <= MAX_ANSWERS * one + 1
    assert longest <= MAX_TURN_S
