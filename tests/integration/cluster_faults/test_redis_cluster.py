"""Executions on a Redis Cluster whose servers fail or pass partitions on: it costs time only."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rune.adapters.redis.encoding import KeySpace
from rune.settings import Settings
from tests.support.backends import open_engines, stores
from tests.support.services.redis_cluster import RedisClusterServers, own_redis_cluster
from tests.support.waiting import until
from tests.support.workflows import edit, of_type, recording_registry, split, wait, workflow

pytestmark = pytest.mark.long

EXECUTIONS = 40
TIMEOUT_S = 120.0
DOCUMENT = workflow(
    "start>a a>w w>s s>i i>g g>b b>out",
    a=of_type("t.call"),
    w=wait(0.5, "seconds"),
    s=split("$trigger.items"),
    i=edit(v="{{ $item * $item }}"),
    g=of_type("aggregator"),
    b=of_type("t.call"),
    out=of_type("output", value="{{ [$trigger.n, [x.v for x in $g], $b.did] }}"),
)


@pytest.fixture(scope="module")
def own_servers() -> Iterator[RedisClusterServers]:
    with own_redis_cluster() as made:
        yield made


@pytest.fixture
def servers(own_servers: RedisClusterServers) -> Iterator[RedisClusterServers]:
    yield own_servers
    own_servers.heal()


def _run_through(settings: Settings, disturb: Callable[[], None]) -> list[dict[str, Any]]:
    """Start executions before and after a disturbance, and return their run documents."""
    calls: list[str] = []

    async def go() -> list[dict[str, Any]]:
        async with open_engines(settings, count=2, registry=recording_registry(calls)) as engine:
            first = [await engine.start(DOCUMENT, _payload(number)) for number in range(EXECUTIONS // 2)]
            await until(lambda: len(calls) >= EXECUTIONS // 4, "a part of the executions has begun")
            disturbance = asyncio.create_task(asyncio.to_thread(disturb))
            second = [
                await engine.start(DOCUMENT, _payload(number))
                for number in range(EXECUTIONS // 2, EXECUTIONS)
            ]
            runs = [*first, *second]
            await asyncio.gather(disturbance, *(each.end(TIMEOUT_S) for each in runs))
            return [await each.document() for each in runs]

    return asyncio.run(go())


def _payload(number: int) -> dict[str, Any]:
    return {"n": number, "items": [number, number + 1, number + 2]}


def _check(found: list[dict[str, Any]]) -> None:
    for number, document in enumerate(found):
        assert document["status"] == "completed", document
        squares = [n * n for n in (number, number + 1, number + 2)]
        assert document["output"] == [number, squares, "b"]


@pytest.mark.parametrize("fault", ["kill", "freeze"])
def test_executions_complete_after_replica_has_taken_over(
    servers: RedisClusterServers, tmp_path: pathlib.Path, fault: str
) -> None:
    settings = stores(tmp_path, servers.url)
    key = KeySpace(settings.prefix).due(0)
    master = servers.master_of(key)

    def fail() -> None:
        getattr(master, fault)()
        servers.await_new_master(key, master)

    _check(_run_through(settings, fail))
    assert servers.master_of(key) is not master


def test_executions_complete_while_partitions_move(
    servers: RedisClusterServers, tmp_path: pathlib.Path
) -> None:
    settings = stores(tmp_path, servers.url)
    keys = KeySpace(settings.prefix)
    before = {part: servers.master_of(keys.due(part)) for part in range(6)}

    def move() -> None:
        for part in before:
            servers.begin_move(keys.due(part)).finish()

    _check(_run_through(settings, move))
    assert all(servers.master_of(keys.due(part)) is not master for part, master in before.items())
