"""Completions that were not published before a crash."""

from __future__ import annotations

import asyncio
import json

import pytest

from rune.core.execution.fact import ExecutionEnded
from rune.testing.harness import Harness
from tests.support.amqp_client import open_client
from tests.support.cli_process import until
from tests.support.cluster_cli import GATED, command_line, until_waiting, with_id
from tests.support.clusters import Cluster, wait_until_declared
from tests.support.forked_rune import KILLED
from tests.support.services.postgres import server

pytestmark = pytest.mark.long

TIMEOUT_S = 120.0


def _outbox_length(cluster: Cluster, execution: str) -> int:
    name = cluster.settings.journal.rpartition("/")[2]
    return int(server().sql(f"SELECT count(*) FROM outbox WHERE execution = '{execution}'", name))


def test_relay_publishes_missing_completion_with_same_bytes(empty_cluster: Cluster) -> None:
    """The process that wrote the terminal row stops, and a relay crashes after the message; another one repeats it."""
    empty_cluster.start_worker()
    wait_until_declared(empty_cluster.settings)

    async def publish_twice() -> tuple[str, list[bytes]]:
        async with (
            empty_cluster.connect() as (engine, _),
            open_client(empty_cluster.settings.queue) as client,
        ):
            run = await Harness(engine, None).start(with_id(GATED, "owed"), {"n": 1})
            await asyncio.to_thread(until_waiting, command_line(empty_cluster.fleet), run.id)
            await engine.backend.journal.record(
                run.id, [ExecutionEnded(engine.backend.clock.now(), "cancelled")]
            )
            crashing = empty_cluster.fleet.start("scheduler", RUNE_FAILPOINT="relayed")
            assert await asyncio.to_thread(crashing.process.wait, TIMEOUT_S) == KILLED, crashing.output()
            empty_cluster.fleet.start("scheduler")
            async with asyncio.timeout(TIMEOUT_S):
                while len(client.completions(run.id)) < 2:
                    await client.wait_for_message()
            return run.id, client.completions(run.id)

    execution, bodies = asyncio.run(publish_twice())
    assert len(set(bodies)) == 1
    ended = json.loads(bodies[0])
    assert (ended["status"], ended["final_context"]["$first"]) == ("cancelled", {"k": 1})
    until(lambda: _outbox_length(empty_cluster, execution) == 0 or None, "the outbox is empty")
