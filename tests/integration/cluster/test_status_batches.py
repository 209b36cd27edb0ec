"""Statuses in batches: complete, in order, and published before the work that follows from them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aio_pika

from tests.integration.cluster.external_messages import CHAIN, CHAIN_INPUT, message, new_id
from tests.support.amqp_client import TIMEOUT_S, check_schema, open_client
from tests.support.clusters import Cluster, clusters

pytestmark = clusters("rabbitmq-batched")


async def _statuses_and_work(url: str, execution: str, until: str) -> list[tuple[str, Any]]:
    """Run an execution and return its statuses and work messages in one order, up to the success of a node."""
    seen: list[tuple[str, Any]] = []
    connection = await aio_pika.connect(url)
    async with connection, asyncio.timeout(TIMEOUT_S):
        channel = await connection.channel()
        queue = await channel.declare_queue(exclusive=True)
        await queue.bind("workflow.node.status", "workflow.node.status")
        for lane in ("", ".high", ".low"):
            await queue.bind("workflow.execution", f"workflow.execution{lane}")
        body = json.dumps(message(execution, "first", CHAIN, {"$trigger": CHAIN_INPUT})).encode()
        work = await channel.get_exchange("workflow.execution", ensure=False)
        await work.publish(aio_pika.Message(body), routing_key="workflow.execution")
        async with queue.iterator(no_ack=True) as messages:
            async for each in messages:
                content = json.loads(each.body)
                if each.type == "NodeStatusBatch":
                    check_schema("node-status-batch", content)
                    seen += [("status", one) for one in content if one["execution_id"] == execution]
                elif content["execution_id"] == execution:
                    seen.append(("work", content))
                if ("status", until, "success") in [
                    (kind, one.get("node_id"), one.get("status")) for kind, one in seen
                ]:
                    break
    return seen


def test_statuses_are_published_before_following_work(cluster: Cluster) -> None:
    seen = asyncio.run(_statuses_and_work(cluster.settings.queue, new_id(), "last"))

    ended: list[tuple[str, tuple[int, ...]]] = []
    followed = 0
    for kind, content in seen:
        items = tuple(frame["item_index"] for frame in content.get("lineage_stack", []))
        if kind == "status" and content["status"] == "success":
            ended.append((content["node_id"], items))
        elif kind == "work" and content.get("from_node") not in (None, "trigger"):
            assert content["from_node"] in [name for name, _ in ended], f"{content} has no published status"
            followed += 1
    assert followed >= 3
    assert [name for name, _ in ended] == ["first", "each", "double", "double", "all", "last"]


def test_batches_contain_all_statuses(cluster: Cluster) -> None:
    async def steps() -> list[tuple[str, str]]:
        execution = new_id()
        async with open_client(cluster.settings.queue) as client:
            await client.publish(message(execution, "first", CHAIN, {"$trigger": CHAIN_INPUT}))
            done = await client.wait_for_completion(execution, statuses=10)
            assert done["status"] == "completed"
            return [each for each in client.steps(execution) if each[1] != "waiting"]

    content = asyncio.run(steps())
    assert content[:2] == [("first", "running"), ("first", "success")]
    assert content[-2:] == [("last", "running"), ("last", "success")]
    assert content.count(("double", "running")) == content.count(("double", "success")) == 2
