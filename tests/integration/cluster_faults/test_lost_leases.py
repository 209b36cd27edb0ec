"""Workers keep the nodes that they run when Redis loses its data."""

from __future__ import annotations

import asyncio
import os
import pathlib
from collections.abc import Iterator

import pytest

from rune.adapters.redis.encoding import PARTITIONS
from rune.nodes.registry import full_registry
from rune.ports.state import LEASE_MS
from tests.support.backends import NODES, flush_redis, open_engines, redis_command
from tests.support.clusters import Cluster, open_cluster
from tests.support.waiting import until
from tests.support.workflows import of_type, workflow

pytestmark = pytest.mark.long

EXECUTIONS = 6
PATIENCE_S = 60.0


@pytest.fixture(params=["redis", "rabbitmq"])
def cluster(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[Cluster]:
    with open_cluster(tmp_path, request.param, in_place=False) as made:
        yield made


async def _now() -> int:
    return int((await redis_command("TIME"))[0]) * 1000


async def _are_held_until(prefix: str, when: int) -> bool:
    """Return whether as many tokens as there are executions are held, all of them at least until then."""
    ends = []
    for part in range(PARTITIONS):
        held = await redis_command("ZRANGE", f"{prefix}:{{p{part:02d}}}:held", 0, -1, "WITHSCORES")
        ends += [int(each) for each in held[1::2]]
    return len(ends) == EXECUTIONS and min(ends) >= when


def test_nodes_that_run_are_not_begun_again_after_loss(cluster: Cluster, tmp_path: pathlib.Path) -> None:
    opens = tmp_path / "opens"
    os.mkfifo(opens)
    gate = of_type("ledger.gate", opens=str(opens))
    documents = [workflow("start>a", a={**gate, "at_most_once": once}) for once in (True, False)]

    async def go() -> list[str]:
        registry = full_registry(NODES)
        async with open_engines(cluster.settings, roles=frozenset(), registry=registry) as engine:
            runs = [await engine.start(documents[each % 2]) for each in range(EXECUTIONS)]
            journal = engine.engine.backend.journal

            async def run() -> bool:
                return all([await journal.last_claims(each.id) for each in runs])

            await until(run, "the claims of all nodes are in the journal", PATIENCE_S)
            await until(lambda: cluster.effects().total() == EXECUTIONS, "all nodes run", PATIENCE_S)
            await flush_redis()
            renewed = await _now() + 2 * LEASE_MS
            prefix = cluster.settings.prefix

            async def go_on() -> bool:
                assert cluster.effects().total() == EXECUTIONS, "a node was begun again"
                return await _are_held_until(prefix, renewed)

            await until(go_on, "the leases are renewed", PATIENCE_S)
            with opens.open("w") as pipe:
                pipe.write("open")
            return [(await each.end()).status for each in runs]

    assert asyncio.run(go()) == ["completed"] * EXECUTIONS
    assert list(cluster.effects().values()) == [1] * EXECUTIONS
