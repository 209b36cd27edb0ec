"""A server that accepts connections and answers nothing: callers that wait for the same attempt fail with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from rune.adapters.redis import client, cluster
from rune.ports.journal import StoreUnavailableError
from tests.support.async_test import async_test


class SilentServer:
    """Counts the connections to it."""

    def __init__(self) -> None:
        self.connections = 0
        self.port = 0
        self._handlers: set[asyncio.Task[None] | None] = set()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._handlers.add(asyncio.current_task())
        with suppress(ConnectionError):
            await reader.read(-1)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[SilentServer]:
        server = await asyncio.start_server(self.accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        async with server:
            yield self
        await asyncio.gather(*(each for each in self._handlers if each is not None))


@pytest.fixture(autouse=True)
def _short_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "REPLY_TIMEOUT_S", 0.2)
    monkeypatch.setattr(cluster, "MAP_TIMEOUT_S", 0.2)


@pytest.mark.parametrize("query", ["", "?cluster=true"])
@async_test
async def test_concurrent_calls_share_one_attempt_to_connect(query: str) -> None:
    async with SilentServer().running() as server:
        address = f"127.0.0.1:{server.port}"
        opened = cluster.open_client(f"redis://rune:secret@{address}{query}")
        calls = [opened.call("GET", f"rune:{number}") for number in range(16)]
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(each) for each in found} == {StoreUnavailableError}
        assert server.connections == 1
        assert all("127.0.0.1" in str(each) and "secret" not in str(each) for each in found)
        with pytest.raises(StoreUnavailableError):
            await opened.call("GET", "rune:later")
        assert server.connections == 2, "a later call makes an attempt of its own"
        await opened.close()
