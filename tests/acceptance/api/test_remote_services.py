"""What the commands do over a server while others change the same workflow: the server answers what a request did."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from rune.cli.remote.dead_letters import RemoteDeadMessageService
from rune.cli.remote.workflows import RemoteWorkflows, RemoteWorkflowService
from rune.client import AsyncClient
from rune.errors import RuneError
from tests.support.api_server import HELLO, running_server

OTHER = {**HELLO, "nodes": [HELLO["nodes"][0], {"id": "out", "type": "output", "parameters": {"value": "2"}}]}


class Intercepted(httpx.AsyncBaseTransport):
    """Calls a function before each request is sent."""

    def __init__(self, before: Callable[[httpx.Request], Awaitable[None]]) -> None:
        self._before = before
        self._network = httpx.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await self._before(request)
        return await self._network.handle_async_request(request)

    async def aclose(self) -> None:
        await self._network.aclose()


def test_alias_that_another_request_has_pointed_there_is_not_reported_as_moved(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_server(tmp_path) as server:
            await server.deploy(HELLO, OTHER)
            await server.client.set_alias("hello", "stable", 1)

            async def point_first(request: httpx.Request) -> None:
                if request.method == "PUT":
                    await server.client.set_alias("hello", "stable", 2)

            async with AsyncClient(server.url, transport=Intercepted(point_first)) as client:
                pointed = await RemoteWorkflowService(client).set_alias("hello", "stable", 2)

            assert (pointed.number, pointed.change) == (2, "none")

    asyncio.run(scenario())


def test_alias_is_reported_with_the_version_that_the_request_pointed_it_at(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_server(tmp_path) as server:
            await server.deploy(HELLO, OTHER)
            first, second = await RemoteWorkflows(server.client).versions("hello")
            service = RemoteWorkflowService(server.client)

            moved = await service.set_alias("hello", "stable", 1)
            again = await service.set_alias("hello", "stable", 1)
            kept = await service.set_alias("hello", "stable", None, weights={2: 30.0})

            assert moved == msgspec.structs.replace(first, aliases=("stable",), change="moved")
            assert again.change == "none"
            assert (kept.number, kept.change) == (1, "moved")
            assert second.aliases == ("latest",)

    asyncio.run(scenario())


def test_workflow_that_another_request_has_archived_is_not_reported_as_archived_by_this_one(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with running_server(tmp_path) as server:
            await server.deploy(HELLO)

            async def archive_first(request: httpx.Request) -> None:
                if request.method == "DELETE":
                    await server.client.delete("hello")

            async with AsyncClient(server.url, transport=Intercepted(archive_first)) as client:
                assert not await RemoteWorkflowService(client).archive("hello")

    asyncio.run(scenario())


def test_archive_of_unknown_workflow_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_server(tmp_path) as server:
            with pytest.raises(RuneError) as refused:
                await RemoteWorkflowService(server.client).archive("nobody")
            assert refused.value.code == "UNKNOWN_WORKFLOW"

    asyncio.run(scenario())


def test_deploy_points_its_alias_although_the_connection_is_lost_afterwards(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_server(tmp_path) as server:
            await server.deploy(HELLO)
            await server.client.set_alias("hello", "stable", 1)
            sent: list[httpx.Request] = []

            async def lose_all_but_first(request: httpx.Request) -> None:
                sent.append(request)
                if len(sent) > 1:
                    raise httpx.ConnectError("lost")

            async with AsyncClient(server.url, transport=Intercepted(lose_all_but_first)) as client:
                deployed = await RemoteWorkflowService(client).deploy(
                    msgspec.json.encode(OTHER), alias="stable", note="second"
                )

            assert (deployed.number, deployed.change, deployed.note) == (2, "created", "second")
            assert deployed.aliases == ("latest", "stable")
            assert (await server.client.alias("hello", "stable")).version == 2

    asyncio.run(scenario())


def test_deploy_with_an_alias_that_is_refused_stores_no_version(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_server(tmp_path) as server:
            await server.deploy(HELLO)
            for alias in ("v3", "not an alias"):
                with pytest.raises(RuneError):
                    await RemoteWorkflowService(server.client).deploy(msgspec.json.encode(OTHER), alias=alias)
            assert len(await RemoteWorkflows(server.client).versions("hello")) == 1

    asyncio.run(scenario())


VERSION = {"version": 2, "hash": "sha256:x", "deployed_at": "2026-01-01T00:00:00.000Z"}


def test_answers_of_older_servers_are_read() -> None:
    """Servers have answered without content, and without the change of an alias."""

    def answer(request: httpx.Request) -> httpx.Response:
        older: dict[str, Any] = {
            "PUT": {"alias": "stable", "version": 2},
            "GET": {**VERSION, "workflow_id": "hello", "name": "", "definition": {}},
        }
        found = older.get(request.method)
        return httpx.Response(204) if found is None else httpx.Response(200, json=found)

    async def scenario() -> None:
        async with AsyncClient("http://localhost", transport=httpx.MockTransport(answer)) as client:
            pointed = await RemoteWorkflowService(client).set_alias("hello", "stable", 2)

            assert (pointed.number, pointed.hash, pointed.change) == (2, "sha256:x", "moved")
            assert await RemoteWorkflowService(client).archive("hello")
            assert await RemoteDeadMessageService(client).discard("m1") == 1

    asyncio.run(scenario())


def test_identical_dead_messages_are_counted_by_the_server() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"id": "m1", "count": 3})

    async def scenario() -> None:
        async with AsyncClient("http://localhost", transport=httpx.MockTransport(answer)) as client:
            assert await RemoteDeadMessageService(client).discard("m1") == 3

    asyncio.run(scenario())
