"""Statuses in batches: the same statuses in the same order, in front of the work that follows from them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import aio_pika
import pytest

from tests.integration.cluster.standing import Standing
from tests.integration.rabbitmq_cluster.plain import PATIENCE, client, valid
from tests.integration.rabbitmq_cluster.standing import standing
from tests.integration.rabbitmq_cluster.test_by_hand import message, new_id
from tests.integration.rabbitmq_cluster.test_inline import CHAIN, START


@pytest.fixture(scope="module")
def batched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    folder = tmp_path_factory.mktemp("batched")
    with standing(folder, in_place=False, workers=1, statuses="batched") as made:
        yield made


async def _both(url: str, execution: str, until: str) -> list[tuple[str, Any]]:
    """Statuses and work of an execution as one queue gets them, until a node has succeeded."""
    seen: list[tuple[str, Any]] = []
    connection = await aio_pika.connect(url)
    async with connection, asyncio.timeout(PATIENCE):
        channel = await connection.channel()
        queue = await channel.declare_queue(exclusive=True)
        await queue.bind("workflow.node.status", "workflow.node.status")
        for lane in ("", ".high", ".low"):
            await queue.bind("workflow.execution", f"workflow.execution{lane}")
        body = json.dumps(message(execution, "first", CHAIN, {"$trigger": START})).encode()
        work = await channel.get_exchange("workflow.execution", ensure=False)
        await work.publish(aio_pika.Message(body), routing_key="workflow.execution")
        async with queue.iterator(no_ack=True) as messages:
            async for each in messages:
                told = json.loads(each.body)
                if each.type == "NodeStatusBatch":
                    valid("node-status-batch", told)
                    seen += [("status", one) for one in told if one["execution_id"] == execution]
                elif told["execution_id"] == execution:
                    seen.append(("work", told))
                if ("status", until, "success") in [
                    (kind, one.get("node_id"), one.get("status")) for kind, one in seen
                ]:
                    break
    return seen


def test_statuses_are_at_the_broker_before_the_work_that_follows_from_them(batched: Standing) -> None:
    seen = asyncio.run(_both(batched.settings.queue, new_id(), "last"))

    ended: list[tuple[str, tuple[int, ...]]] = []
    followed = 0
    for kind, told in seen:
        items = tuple(frame["item_index"] for frame in told.get("lineage_stack", []))
        if kind == "status" and told["status"] == "success":
            ended.append((told["node_id"], items))
        elif kind == "work" and "from_node" in told:
            before = (told["from_node"], items)
            assert before in ended or (told["from_node"], items[:-1]) in ended, f"{before} is not told yet"
            followed += 1
    assert followed >= 3
    assert [name for name, _ in ended] == ["first", "each", "double", "double", "all", "last"]


def test_whoever_reads_batches_is_told_what_others_are(batched: Standing) -> None:
    async def steps() -> list[tuple[str, str]]:
        execution = new_id()
        async with client(batched.settings.queue) as plain:
            await plain.publish(message(execution, "first", CHAIN, {"$trigger": START}))
            done = await plain.completion(execution, statuses=10)
            assert done["status"] == "completed"
            return [each for each in plain.steps(execution) if each[1] != "waiting"]

    told = asyncio.run(steps())
    assert told[:2] == [("first", "running"), ("first", "success")]
    assert told[-2:] == [("last", "running"), ("last", "success")]
    assert told.count(("double", "running")) == told.count(("double", "success")) == 2
