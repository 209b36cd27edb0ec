"""A copy of PostgreSQL, put back beside an empty Redis and an empty RabbitMQ: what the old broker still held is sent
again, and everything that was under way goes on."""

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
from tests.acceptance.deploy.test_restore import PATIENCE, at_their_gates, dumped, output, violations
from tests.integration.cluster.commands import GATED, named
from tests.integration.cluster.standing import stores
from tests.support.services.postgres import server
from tests.support.services.rabbitmq import broker
from tests.support.services.redis_server import RedisServer
from tests.support.waiting import until
from tests.unit.core.documents import document, keep, node

ITEMS = 12
SLEEPS = document(
    [
        node("start", "input"),
        node("each", "split", parameters={"input_array": "$trigger.xs"}),
        node("nap", "wait", parameters={"amount": 3}),
        keep("mine", "$item"),
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


def calls(url: str) -> dict[str, object]:
    """A node that asks somebody who is slow to answer."""
    asks = node("ask", "http", parameters={"method": "POST", "url": url, "timeout": 600})
    value = node("out", "output", parameters={"value": "$ask.body"})
    return document([node("start", "input"), asks, value], "start>ask", "ask>out", id="calls")


class Slow:
    """Answers nobody until it is told to; remembers the key of each request."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.answers = asyncio.Event()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        made = await asyncio.start_server(self._served, "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{made.sockets[0].getsockname()[1]}/"
        finally:
            made.close()

    async def _served(self, read: asyncio.StreamReader, write: asyncio.StreamWriter) -> None:
        try:
            head = (await read.readuntil(b"\r\n\r\n")).decode().lower()
            self.keys += [line for line in head.split("\r\n") if line.startswith("idempotency-key:")]
            await self.answers.wait()
            write.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1\r\n\r\n7")
            await write.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # whoever asked has gone
        finally:
            write.close()


async def waiting(engine: Engine) -> int:
    """How many hints lie at the broker."""
    queue = engine.backend.queue
    assert isinstance(queue, ReportsDepth)
    return sum(each.waiting for each in await queue.depths())


async def half_done(settings: Settings, url: str) -> tuple[str, dict[str, list[str]]]:
    """Executions of every kind; where the copy is, and the executions."""
    async with running_engine(settings) as engine:
        made = Harness(engine, None)
        gated = [await made.start(named(GATED, "gated"), {"n": number}) for number in range(3)]
        called = await made.start(calls(url))
        await at_their_gates(engine, gated)
        sleeping = await made.start(SLEEPS, {"xs": list(range(ITEMS))})
        runs = {"gated": gated, "called": [called], "sleeping": [sleeping]}
        started = {name: [each.id for each in found] for name, found in runs.items()}
    async with running_engine(settings, working=False) as engine:  # nobody who would take anything
        made = Harness(engine, None)
        queued = [await made.start(named(GATED, "gated"), {"n": 10 + number}) for number in range(3)]
        queued += [await made.start(SLEEPS, {"xs": list(range(ITEMS))})]

        async def sent() -> bool:
            return await waiting(engine) >= len(queued)

        await until(sent, "the broker holds them", PATIENCE)
        started["queued"] = [each.id for each in queued]
        where = await asyncio.to_thread(dumped, server(), settings.journal.rpartition("/")[2])
    return where, started


async def gone_on(settings: Settings, started: dict[str, list[str]], slow: Slow) -> None:
    """All of them end as they would have, and what comes new does too."""
    async with running_engine(settings) as engine, open_reader(settings) as look:
        gated = [*started["gated"], *started["queued"][:3]]
        for execution in gated:
            await engine.services.executions.signal(execution, "go", b"7")
        values = [0, 1, 2, 10, 11, 12]
        assert [await output(look, engine, each) for each in gated] == [[n, 7] for n in values]
        for execution in (*started["sleeping"], started["queued"][3]):
            assert await output(look, engine, execution) == ITEMS
        slow.answers.set()
        assert await output(look, engine, started["called"][0]) == 7
        fresh = await Harness(engine, None).start(SLEEPS, {"xs": [1]})
        await fresh.end(PATIENCE)
        assert await violations(look) == []


def test_what_waited_at_the_broker_is_sent_again(tmp_path: Path) -> None:
    empty = RedisServer()

    async def go(before: Settings, fresh: str) -> None:
        slow = Slow()
        async with slow.listening() as url:
            where, started = await half_done(before, url)
            asked = len(slow.keys)
            await gone_on(replace(before, journal=where, state=empty.url, queue=fresh), started, slow)
        assert asked == 1
        assert len(slow.keys) > 1, "it was under way, so it is done again"
        assert len(set(slow.keys)) == 1, "under the same key"

    try:
        with broker().vhost() as full, broker().vhost() as fresh:
            settings = replace(stores(tmp_path), queue=broker().url(full), grace=0)
            asyncio.run(go(settings, broker().url(fresh)))
    finally:
        empty.stop()
