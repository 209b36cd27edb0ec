"""A worker that crashes after the row of an external start: the row alone is enough to continue."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.integration.cluster.external_messages import MIDDLE, START, message, new_id, with_client
from tests.support.amqp_client import Client
from tests.support.backends import redis_command
from tests.support.clusters import Cluster, wait_until_declared
from tests.support.forked_rune import KILLED
from tests.support.services.postgres import server
from tests.support.services.rabbitmq import broker

pytestmark = pytest.mark.long

TIMEOUT_S = 120.0
WORK = "workflow.execution"


def _rows(empty_cluster: Cluster, execution: str) -> int:
    name = empty_cluster.settings.journal.rpartition("/")[2]
    return int(server().sql(f"SELECT count(*) FROM execution WHERE id = '{execution}'", name))


def _purge_work_queue(empty_cluster: Cluster) -> None:
    vhost = empty_cluster.settings.queue.rpartition("/")[2]
    broker().api("DELETE", f"queues/{vhost}/{WORK}/contents")


@pytest.mark.parametrize(
    ("node", "context", "c"),
    [("a", START, {"n": 3}), ("c", {**START, "$b": {"n": 6}}, {"n": 7})],
    ids=["first node", "inner node"],
)
def test_crash_after_row_of_start_leaves_only_the_row(
    empty_cluster: Cluster, node: str, context: dict[str, Any], c: Any
) -> None:
    crashing = empty_cluster.fleet.start("worker", RUNE_FAILPOINT="accepted")
    wait_until_declared(empty_cluster.settings)

    async def exchange(client: Client) -> None:
        execution = new_id()
        await client.publish(message(execution, node, MIDDLE, context))
        assert await asyncio.to_thread(crashing.process.wait, TIMEOUT_S) == KILLED, crashing.output()
        assert _rows(empty_cluster, execution) == 1
        assert await redis_command("KEYS", f"{empty_cluster.settings.prefix}*{execution}*") == []
        assert client.steps(execution) == []

        _purge_work_queue(empty_cluster)
        empty_cluster.start_worker()
        empty_cluster.fleet.start("scheduler")
        completion = await client.wait_for_completion(execution)
        assert (completion["status"], completion["final_context"]["$c"]) == ("completed", c)

    with_client(empty_cluster.settings.queue, exchange)
