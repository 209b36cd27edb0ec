"""A node that blocks the event loop of its worker keeps its lease."""

from __future__ import annotations

import asyncio
import pathlib

import pytest

from rune.testing.harness import Harness
from tests.support import process_nodes
from tests.support.clusters import open_cluster
from tests.support.workflows import of_type, workflow

pytestmark = pytest.mark.long

BLOCKED_S = 14.0  # longer than a lease, and than a sweep after it


@pytest.mark.parametrize("queue", ["redis", "rabbitmq"])
def test_node_that_blocks_longer_than_its_lease_runs_once(queue: str, tmp_path: pathlib.Path) -> None:
    document = workflow(
        "start>a a>b", a=of_type("place.block", seconds=BLOCKED_S), b=of_type("place.effect", did="b")
    )

    async def go() -> tuple[str, list[str]]:
        async with cluster.connect() as (engine, _):
            run = await Harness(engine, None).start(document)
            status = (await run.end()).status
            processes = engine.backend.processes
            assert processes is not None
            return status, [each.name for each in await processes.list() if "worker" in each.roles]

    with open_cluster(tmp_path, queue, workers=2, schedulers=1, in_place=False) as cluster:
        status, workers = asyncio.run(go())
    effects = process_nodes.recorded_effects(cluster.fleet.environment["RUNE_TEST_LEDGER"])
    assert status == "completed"
    assert [each.key.partition(":")[2] for each in effects] == ["a@/#1", "b@/#1"]
    assert len(workers) == 2, "the blocked worker has sent heartbeats"
