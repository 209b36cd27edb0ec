"""The bytes of all bodies in flight are bounded, whichever route receives them and whether they ever end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import pytest

from rune.server import bodies
from rune.server.app import Api
from rune.server.routing import ApiRoute
from tests.acceptance.api.test_hostile_connections import bearer, peak_kib, request
from tests.support.api_server import API, HELLO, WAITS, RunningServer, run
from tests.support.async_test import async_test
from tests.support.trigger_workflows import webhook_workflow
from tests.support.up_process import UpProcess
from tests.support.waiting import until

KEY = "k" * 32
MEBIBYTE = 1024 * 1024
SIGNED = ("x-rune-timestamp: 1", "x-rune-signature: sha256=" + "0" * 64)
JSON = {"Content-Type": "application/json"}
READ_AS_TEXT = {"/workflows", "/workflows/import", "/workflows/validate", "/workflows/{workflow}"}
"""Paths of the routes that read a body which is no JSON for a model."""


def routes_with_body() -> list[tuple[str, str]]:
    """Return the method and the path of every route that reads a body, with values for the parameters of the path."""
    return [
        (method, "/".join("a1" if "{" in part else part for part in route.path.split("/")))
        for route in Api().routes
        if isinstance(route, ApiRoute)
        for method in sorted((route.methods or set()) & {"POST", "PUT", "PATCH"})
        if route.body_model is not None or route.path.removeprefix(API) in READ_AS_TEXT
    ]


def test_every_route_refuses_a_body_for_which_there_is_no_room(tmp_path: Path) -> None:
    body = json.dumps({"text": "x" * bodies.MAX_UNCOUNTED_BODY_BYTES}).encode()

    async def work(server: RunningServer) -> None:
        await server.deploy(
            *(webhook_workflow(id=each, auth=each, path=each) for each in ("none", "hmac")), HELLO
        )
        found = [*routes_with_body(), ("POST", "/hooks/none"), ("POST", "/hooks/hmac")]
        assert len(found) > 20
        server.http.headers.update(JSON)
        server.master.bodies = bodies.BytesInFlight(0, 0)
        for method, path in found:
            answer = await server.http.request(method, path, content=body)
            assert (answer.status_code, answer.json()["code"]) == (503, "TOO_MANY_BYTES"), (method, path)
            assert int(answer.headers["retry-after"]) >= 1

    run(tmp_path, work)


class Sender:
    """Sends requests whose bodies never end."""

    def __init__(self, url: str) -> None:
        self._host, _, self._port = url.removeprefix("http://").partition(":")
        self._writers: list[asyncio.StreamWriter] = []
        self._answers: list[asyncio.Task[bytes]] = []

    async def __aenter__(self) -> Sender:
        return self

    async def __aexit__(self, *_: object) -> None:
        for each in self._writers:
            each.transport.abort()
        await asyncio.gather(*self._answers, return_exceptions=True)

    async def send(self, path: str, size: int, *headers: str) -> None:
        """Send a request with all but a byte of its body, as far as the server takes it."""
        reader, writer = await asyncio.open_connection(self._host, int(self._port))
        self._writers.append(writer)
        self._answers.append(asyncio.ensure_future(reader.readuntil(b"}")))
        length = f"content-length: {size}"
        try:
            writer.write(request("POST", path, "content-type: application/json", length, *headers))
            writer.write(b'{"input":"'.ljust(size - 1, b"x"))
            await writer.drain()
        except ConnectionError:
            return

    async def answers(self, number: int) -> list[bytes]:
        """Wait for a number of responses and return all."""
        found: list[bytes] = []
        for each in asyncio.as_completed(self._answers, timeout=60):
            found.append(await each)
            if len(found) == number:
                break
        return found


class Attack(msgspec.Struct, frozen=True):
    """Unfinished bodies that are sent over several connections."""

    path: str
    connections: int
    size: int
    headers: tuple[str, ...] = ()
    refused: int = 1


ATTACKS = {
    "large bodies to a signed webhook": Attack("/hooks/hmac", 9, 30_000_000, SIGNED, 8),
    "bodies of a megabyte to a webhook": Attack("/hooks/none", 240, 990_000, refused=200),
    "documents": Attack(f"{API}/workflows/validate", 130, 1_900_000, (bearer(KEY),), 90),
}


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpProcess]:
    process = UpProcess(tmp_path_factory.mktemp("attacked"), RUNE_API_KEY=KEY)
    url = process.start("--no-examples")
    try:
        with httpx.Client(base_url=url + API, headers={"Authorization": f"Bearer {KEY}"}, timeout=60) as http:
            for auth, size in (("none", MEBIBYTE), ("hmac", 32 * MEBIBYTE)):
                document = webhook_workflow(id=auth, auth=auth, path=auth, max_bytes=size)
                assert http.put(f"/workflows/{auth}", json=document).is_success
            secrets = [each["id"] for each in http.get("/triggers?workflow=hmac").json()["triggers"]]
            assert http.post(f"/triggers/{secrets[0]}/rotate", json={"secret": True}).is_success
        yield process
    finally:
        process.stop()


@pytest.mark.parametrize("name", ATTACKS)
@async_test
async def test_unfinished_bodies_do_not_fill_the_memory(name: str, attacked: UpProcess) -> None:
    attack, pid, url = ATTACKS[name], attacked.said["pid"], attacked.said["url"]
    before = peak_kib(pid, reset=True)
    async with Sender(url) as sender, httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as http:
        for _ in range(attack.connections):
            await sender.send(attack.path, attack.size, *attack.headers)
        for answer in await sender.answers(attack.refused):
            assert answer.startswith(b"HTTP/1.1 503"), answer
            assert b"TOO_MANY_BYTES" in answer
            assert b"retry-after: " in answer
        small = await http.post("/hooks/none", json={"text": "x" * 10_000})
        valid = await http.post(
            f"{API}/workflows/validate",
            json={**HELLO, "description": "x" * 100_000},
            headers={"Authorization": f"Bearer {KEY}"},
        )
    assert (small.status_code, valid.status_code) == (202, 200), (small.text, valid.text)
    assert peak_kib(pid) - before < 120 * 1024


@pytest.mark.parametrize("kind", ["start", "webhook"])
def test_body_of_a_request_that_waits_for_its_execution_leaves_room(kind: str, tmp_path: Path) -> None:
    webhook = {"id": "in", "type": "webhook", "parameters": {"path": "w", "respond": "result", "wait": 60}}
    first, *others = WAITS["nodes"]
    path = "/hooks/w" if kind == "webhook" else f"{API}/workflows/waits/executions?wait=60"

    async def work(server: RunningServer) -> None:
        await server.deploy({**WAITS, "nodes": [webhook if kind == "webhook" else first, *others]})
        server.master.bodies = bodies.BytesInFlight(200_000, 0)
        requests: list[asyncio.Task[httpx.Response]] = []

        async def started() -> list[str]:
            assert not [each.result().text for each in requests if each.done()]
            return [each["execution_id"] for each in (await server.get("/executions"))["executions"]]

        async def is_started() -> bool:
            return len(await started()) == len(requests)

        for _ in range(4):
            requests.append(asyncio.ensure_future(server.http.post(path, json={"input": "x" * 60_000})))
            await until(is_started)
        for each in await started():
            await server.client.signal(each, "go", 1)
        statuses = [answer.status_code for answer in await asyncio.gather(*requests)]
        assert statuses == [200 if kind == "webhook" else 202] * 4

    run(tmp_path, work)


def test_body_that_does_not_end_makes_room_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "ARRIVAL_S", 0.0)

    async def work(server: RunningServer) -> None:
        await server.deploy(webhook_workflow(path="orders"))
        server.master.bodies = bodies.BytesInFlight(600_000, 0)
        async with Sender(server.url) as sender:
            await sender.send("/hooks/orders", 200_000)
            await until(lambda: server.master.bodies.count > 150_000)
            second = await server.http.post("/hooks/orders", json={"text": "x" * 150_000})
            (first,) = await sender.answers(1)
        assert second.status_code == 202, second.text
        assert first.startswith(b"HTTP/1.1 503")
        assert b"TOO_MANY_BYTES" in first
        await until(lambda: server.master.bodies.count == 0)

    run(tmp_path, work)
