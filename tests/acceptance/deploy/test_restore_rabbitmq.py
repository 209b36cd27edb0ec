"""A restored copy of PostgreSQL with an empty Redis and an empty RabbitMQ resumes all open executions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec.structs import replace

from rune.bootstrap import open_reader, running_engine
from rune.ports.inspection import ReportsDepth
from rune.runtime.engine import Engine
from rune.settings import Settings
from rune.testing.harness import Harness
from tests.acceptance.deploy.test_restore import (
    TIMEOUT_S,
    dump_and_restore,
    output,
    violations,
    wait_at_gates,
)
from tests.support.backends import stores
from tests.support.cluster_cli import GATED, with_id
from tests.support.documents import document, edit, node
from tests.support.services.postgres import server
from tests.support.services.rabbitmq import broker
from tests.support.services.redis_server import RedisServer
from tests.support.waiting import until

ITEMS = 12
SLEEPS = document(
    [
        node("start", "input"),
        node("each", "split", parameters={"input_array": "$trigger.xs"}),
        node("nap", "wait", parameters={"amount": 3}),
        edit("mine", "$item"),
        node("all", "aggregator"),
        node("out", "output", parameters={"value": "{{ len($all) }}"}),
    ],
    "start>each",
    "each>nap",
    "nap>mine",
    "mine>all",
    "all>out",
    id="sleeps",
)


def slow_call(url: str) -> dict[str, object]:
    """A workflow whose node calls the slow server."""
    call = node("ask", "http", parameters={"method": "POST", "url": url, "timeout": 600})
    value = node("out", "output", parameters={"value": "$ask.body"})
    return document([node("start", "input"), call, value], "start>ask", "ask>out", id="calls")


class SlowServer:
    """Holds all responses until `release` is set, and records the idempotency key of each request."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.release = asyncio.Event()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        made = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{made.sockets[0].getsockname()[1]}/"
        finally:
            made.close()

    async def _serve(self, read: asyncio.StreamReader, write: asyncio.StreamWriter) -> None:
        try:
            head = (await read.readuntil(b"\r\n\r\n")).decode().lower()
            self.keys += [line for line in head.split("\r\n") if line.startswith("idempotency-key:")]
            await self.release.wait()
            write.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1\r\n\r\n7")
            await write.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client has disconnected
        finally:
            write.close()


async def queued_messages(engine: Engine) -> int:
    """The number of messages at the broker."""
    queue = engine.backend.queue
    assert isinstance(queue, ReportsDepth)
    return sum(each.waiting for each in await queue.depths())


async def copy_while_open(settings: Settings, url: str) -> tuple[str, dict[str, list[str]]]:
    """Start executions of every kind and copy the database; return the DSN of the copy and the execution ids."""
    async with running_engine(settings) as engine:
        made = Harness(engine, None)
        gated = [await made.start(with_id(GATED, "gated"), {"n": number}) for number in range(3)]
        called = await made.start(slow_call(url))
        await wait_at_gates(engine, gated)
        sleeping = await made.start(SLEEPS, {"xs": list(range(ITEMS))})
        runs = {"gated": gated, "called": [called], "sleeping": [sleeping]}
        started = {name: [each.id for each in found] for name, found in runs.items()}
    async with running_engine(settings, working=False) as engine:  # without a worker the messages stay queued
        made = Harness(engine, None)
        queued = [await made.start(with_id(GATED, "gated"), {"n": 10 + number}) for number in range(3)]
        queued += [await made.start(SLEEPS, {"xs": list(range(ITEMS))})]

        async def sent() -> bool:
            return await queued_messages(engine) >= len(queued)

        await until(sent, "the broker holds them", TIMEOUT_S)
        started["queued"] = [each.id for each in queued]
        where = await asyncio.to_thread(dump_and_restore, server(), settings.journal.rpartition("/")[2])
    return where, started


async def check_resumed(settings: Settings, started: dict[str, list[str]], slow: SlowServer) -> None:
    """All open executions and a new one end with the expected output."""
    async with running_engine(settings) as engine, open_reader(settings) as reader:
        gated = [*started["gated"], *started["queued"][:3]]
        for execution in gated:
            await engine.services.executions.signal(execution, "go", b"7")
        values = [0, 1, 2, 10, 11, 12]
        assert [await output(reader, engine, each) for each in gated] == [[n, 7] for n in values]
        for execution in (*started["sleeping"], started["queued"][3]):
            assert await output(reader, engine, execution) == ITEMS
        slow.release.set()
        assert await output(reader, engine, started["called"][0]) == 7
        fresh = await Harness(engine, None).start(SLEEPS, {"xs": [1]})
        await fresh.end(TIMEOUT_S)
        assert await violations(reader) == []


def test_restored_journal_with_empty_broker_resends_messages(tmp_path: Path) -> None:
    empty = RedisServer()

    async def go(before: Settings, fresh: str) -> None:
        slow = SlowServer()
        async with slow.listening() as url:
            where, started = await copy_while_open(before, url)
            calls_before = len(slow.keys)
            await check_resumed(replace(before, journal=where, state=empty.url, queue=fresh), started, slow)
        assert calls_before == 1
        assert len(slow.keys) > 1, "the open call is repeated"
        assert len(set(slow.keys)) == 1, "under the same key"

    try:
        with broker().vhost() as full, broker().vhost() as fresh:
            settings = replace(stores(tmp_path), queue=broker().url(full), grace=0)
            asyncio.run(go(settings, broker().url(fresh)))
    finally:
        empty.stop()
