"""HTTP clients with API keys of different roles."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import httpx

from rune.client.models import NewApiKey
from rune.core.permissions import ROLES
from tests.support.api_server import API, DEADLINE, HELLO, ITEMS, WAITS, RunningServer

BOOTSTRAP = "the-key-that-is-configured"
NONE = "none"


class RoleClients:
    """A client with a key of each role, and one without a key."""

    def __init__(self, server: RunningServer, stack: AsyncExitStack) -> None:
        self.server = server
        self._stack = stack
        self.keys: dict[str, NewApiKey] = {}
        self.clients: dict[str, httpx.AsyncClient] = {}

    async def connect_all(self) -> RoleClients:
        self.clients[NONE] = await self.with_key(None)
        for role in ROLES:
            await self.connect(role, role)
        return self

    async def connect(self, name: str, role: str, *workflows: str, **said: Any) -> httpx.AsyncClient:
        """Create a key and a client that uses it."""
        self.keys[name] = await self.server.client.create_key(name, role, workflows=list(workflows), **said)
        self.clients[name] = await self.with_key(self.keys[name].key)
        return self.clients[name]

    async def with_key(self, key: str | None) -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        client = httpx.AsyncClient(
            base_url=self.server.url, timeout=DEADLINE, headers=headers, trust_env=False
        )
        return await self._stack.enter_async_context(client)


async def status(asks: httpx.AsyncClient, method: str, path: str, **said: Any) -> int:
    """The status code of a response whose body is not read."""
    async with asks.stream(method, path, **said) as answer:
        return answer.status_code


async def populate(server: RunningServer) -> dict[str, str]:
    """Deploy workflows and start one execution of each; return their ids by workflow."""
    await server.deploy(HELLO, WAITS, ITEMS)
    return {
        "hello": await server.ended("hello", {"name": "x"}),
        "items": await server.ended("items", {"items": [0, 1]}),
        "waits": (await server.client.start("waits")).execution_id,
    }


__all__ = ["API", "BOOTSTRAP", "NONE", "RoleClients", "populate", "status"]
