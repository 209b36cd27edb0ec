"""Large documents are read one at a time: clients that are gone are passed over, and keys take turns."""

from __future__ import annotations

import asyncio
import threading
from contextlib import AsyncExitStack
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rune.documents import loader
from rune.server.routes import workflows
from tests.support.api_clients import BOOTSTRAP, RoleClients
from tests.support.api_server import API, RunningServer, run
from tests.support.documents import document as workflow
from tests.support.documents import node
from tests.support.waiting import until

VALIDATE = f"{API}/workflows/validate"
YAML = {"content-type": "application/yaml"}


def document(name: str) -> bytes:
    """Return a document that is too large to be read on the event loop."""
    return f"id: {name}\n{'#' * workflows.MAX_INLINE_PARSE_BYTES}\n".encode()


class Reading:
    """Records which documents are read; the first waits until it is released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        self.released = threading.Event()
        monkeypatch.setattr(workflows, "load_document", self.load)

    def load(self, data: bytes, *arguments: Any, **options: Any) -> Any:
        self.names.append(data.split(b"\n")[0].decode().removeprefix("id: "))
        assert self.released.wait(60)
        return loader.load_document(data, *arguments, **options)


def test_documents_of_clients_that_are_gone_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = Reading(monkeypatch)

    async def work(server: RunningServer) -> None:
        host, port = server.url.removeprefix("http://").split(":")

        async def ask(name: str) -> int:
            answer = await server.http.post(VALIDATE, content=document(name), headers=YAML)
            return answer.status_code

        def waits(number: int) -> bool:
            return len(server.master.parsing) == number

        first = asyncio.create_task(ask("first"))
        await until(lambda: reading.names)
        body = document("abandoned")
        head = f"POST {VALIDATE} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/yaml\r\n"
        for number in range(5):
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
            await until(partial(waits, number + 1))
            writer.transport.abort()
        last = asyncio.create_task(ask("last"))
        await until(partial(waits, 6))
        reading.released.set()
        assert [await first, await last] == [200, 200]
        assert reading.names == ["first", "last"]

    run(tmp_path, work)


def test_document_of_another_key_waits_for_one_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = Reading(monkeypatch)

    async def work(server: RunningServer) -> None:
        async with AsyncExitStack() as stack:
            clients = RoleClients(server, stack)
            ada, bob = await clients.connect("ada", "viewer"), await clients.connect("bob", "viewer")
            asked: list[asyncio.Task[Any]] = []

            async def ask(client: Any, name: str) -> None:
                asked.append(asyncio.create_task(client.post(VALIDATE, content=document(name), headers=YAML)))
                await until(lambda: len(reading.names) + len(server.master.parsing) == len(asked))

            for number in range(4):
                await ask(ada, f"ada{number}")
            await ask(bob, "bob")
            reading.released.set()
            assert {each.status_code for each in await asyncio.gather(*asked)} == {200}
            assert reading.names == ["ada0", "ada1", "bob", "ada2", "ada3"]

    run(tmp_path, work, key=BOOTSTRAP)


@pytest.mark.parametrize("media", ["application/json", "application/yaml"])
def test_small_documents_and_json_do_not_wait_for_large_yaml(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, media: str
) -> None:
    reading = Reading(monkeypatch)
    large = b"id: large\n" + b"#" * workflows.MAX_SHORT_YAML_BYTES
    other = b'{"id": "other"}' + b" " * 200_000 if media.endswith("json") else document("other")

    def load(data: bytes, *arguments: Any, **options: Any) -> Any:
        return (
            reading.load(data, *arguments, **options)
            if data == large
            else loader.load_document(data, *arguments, **options)
        )

    monkeypatch.setattr(workflows, "load_document", load)

    async def work(server: RunningServer) -> None:
        first = asyncio.create_task(server.http.post(VALIDATE, content=large, headers=YAML))
        await until(lambda: reading.names)
        try:
            async with asyncio.timeout(30):
                found = await server.http.post(VALIDATE, content=other, headers={"content-type": media})
            assert (found.status_code, first.done()) == (200, False)
        finally:
            reading.released.set()
        assert (await first).status_code == 200

    run(tmp_path, work)


def test_splits_nested_too_deeply_have_problems_and_no_layout(tmp_path: Path) -> None:
    names = [f"n{at}" for at in range(1_800)]
    nodes = [node(name, "split" if at < 900 else "aggregator") for at, name in enumerate(names)]
    body = workflow([node("in", "input"), *nodes], "in>n0", *map(">".join, pairwise(names)), id="deep")

    async def work(server: RunningServer) -> None:
        found = await server.http.post(f"{VALIDATE}?layout=true&plan=true", json=body)
        assert found.status_code == 200
        assert "SPLIT_TOO_DEEP" in {each["code"] for each in found.json()["problems"]}
        assert (found.json().get("layout"), found.json().get("plan")) == (None, None)

    run(tmp_path, work)
