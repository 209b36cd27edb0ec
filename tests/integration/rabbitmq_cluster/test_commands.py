"""The command line over a fleet with RabbitMQ: dead letters of the broker, the topology, starts for others."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aio_pika
import pytest

from tests.acceptance.cli.here import Here
from tests.acceptance.cli.process import until
from tests.integration.cluster.commands import ended, here
from tests.integration.cluster.standing import Standing
from tests.integration.rabbitmq_cluster.plain import client
from tests.unit.core.documents import document, keep, node


@pytest.fixture
def rune(travelling: Standing) -> Here:
    return here(travelling.fleet)


def deployed(rune: Here, made: dict[str, Any]) -> None:
    path = rune.home / f"{made['id']}.json"
    path.write_text(json.dumps(made))
    rune.said("deploy", str(path))


def letter_of(rune: Here, execution: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        found = rune.json("dlq", "list", "--limit", "1000")["dead_letters"]
        return next((each for each in found if each["execution_id"] == execution), None)

    return until(look, f"{execution} is a dead letter")


def publish(url: str, execution: str, current: str = "nobody", **outputs: Any) -> None:
    made = document([node("start", "manual"), keep("one", 1), keep("two", 2)], "start>one", "one>two")
    message = {
        "workflow_id": "w",
        "execution_id": execution,
        "current_node": current,
        "workflow_definition": made,
        "accumulated_context": {"$trigger": {}} | {f"${name}": value for name, value in outputs.items()},
    }

    async def say() -> None:
        async with client(url) as plain:
            await plain.publish(message)

    asyncio.run(say())


def test_a_message_that_nobody_can_serve_is_listed_and_shown(rune: Here, amqp: str) -> None:
    publish(amqp, "exec_listed")
    listed = letter_of(rune, "exec_listed")
    assert (listed["code"], listed["queue"], listed["node_id"]) == (
        "UNKNOWN_NODE",
        "workflow.execution",
        "nobody",
    )
    shown = rune.json("dlq", "show", listed["id"])
    assert json.loads(shown["body"])["execution_id"] == "exec_listed"
    assert "UNKNOWN_NODE" in rune("dlq", "show", listed["id"]).output


def test_a_message_is_sent_again_and_found_wanting_again(rune: Here, amqp: str) -> None:
    publish(amqp, "exec_again")
    first = letter_of(rune, "exec_again")
    assert rune.json("dlq", "requeue", first["id"])["requeued"] is True
    assert letter_of(rune, "exec_again")["id"] == first["id"]


def test_a_message_that_is_dropped_is_gone(rune: Here, amqp: str) -> None:
    publish(amqp, "exec_dropped")
    found = letter_of(rune, "exec_dropped")
    assert rune.json("dlq", "drop", found["id"])["dropped"] is True
    left = rune.json("dlq", "list", "--limit", "1000")["dead_letters"]
    assert "exec_dropped" not in [each["execution_id"] for each in left]


def test_a_start_in_the_middle_stands_up_to_an_audit(rune: Here, amqp: str) -> None:
    """What was given counts as kept, however large it is, and not as an effect that nobody claimed."""
    large = "x" * 100_000
    publish(amqp, "exec_middle", "two", one={"k": large})
    until(lambda: rune("show", "exec_middle").exit_code == 0 or None, "it is known")
    shown = ended(rune, "exec_middle")
    assert shown["status"] == "completed"
    assert shown["context"]["$one"] == {"k": large}
    assert rune.json("audit", "exec_middle")["violations"] == 0


def test_the_topology_is_shown_and_can_be_imported(rune: Here) -> None:
    shown = rune.json("topology")
    assert "workflow.execution.dead" in [each["name"] for each in shown["queues"]]
    assert "workflow.node.status" in rune("topology").output
    made = json.loads(rune("topology", "--definitions").stdout)
    assert {each["name"] for each in made["users"]} == {"rune-worker", "rune-master"}
    assert {each["name"] for each in made["queues"]} == {each["name"] for each in shown["queues"]}


async def _taken(url: str) -> dict[str, Any]:
    """The one message that waits for the other engine."""
    connection = await aio_pika.connect(url)
    async with connection:
        channel = await connection.channel()
        queue = await channel.get_queue("workflow.started", ensure=False)
        message = await queue.get()
        await message.ack()
        found: dict[str, Any] = json.loads(message.body)
        return found


def test_what_another_engine_runs_is_handed_over(rune: Here, amqp: str) -> None:
    made = document([node("start", "manual"), keep("one", 1)], "start>one")
    made |= {"id": "elsewhere", "settings": {"executor": "legacy"}}
    deployed(rune, made)
    started = rune.json("start", "elsewhere", "--input", '{"n": 7}')
    message = asyncio.run(_taken(amqp))
    assert message["execution_id"] == started["execution_id"]
    assert message["accumulated_context"] == {"$trigger": {"n": 7}}
    assert message["current_node"] == "one"

    async def hand_in() -> dict[str, Any]:
        """Addressed to the workers it is run by them, whatever its definition says."""
        async with client(amqp) as plain:
            await plain.publish(message)
            return await plain.completion(message["execution_id"])

    assert asyncio.run(hand_in())["status"] == "completed"


def test_the_place_of_the_other_engine_can_be_taken(rune: Here, amqp: str, travelling: Standing) -> None:
    made = document([node("start", "manual"), keep("one", 1)], "start>one")
    deployed(rune, made | {"id": "taken-over", "settings": {"executor": "legacy"}})

    async def told() -> dict[str, Any]:
        async with client(amqp) as plain:
            started = await asyncio.to_thread(rune.json, "start", "taken-over", "--key", "once")
            again = await asyncio.to_thread(rune.json, "start", "taken-over", "--key", "once")
            assert started["execution_id"] == again["execution_id"]
            return await plain.completion(started["execution_id"])

    worker = travelling.worker(RUNE_LEGACY_CONSUME="true")
    try:
        assert asyncio.run(told())["status"] == "completed"
    finally:
        worker.kill()


def test_whoever_ends_an_execution_tells_of_it_once(rune: Here, amqp: str) -> None:
    gate = node("gate", "wait", parameters={"resume": "signal"})
    made = document([node("start", "manual"), gate], "start>gate")
    deployed(rune, made | {"id": "gated-ended"})

    async def cancelled() -> tuple[str, list[bytes]]:
        async with client(amqp) as plain:
            execution = (await asyncio.to_thread(rune.json, "start", "gated-ended"))["execution_id"]
            await asyncio.to_thread(rune.json, "cancel", execution)
            told = await plain.completion(execution)
            return told["status"], plain.completions(execution)

    status, bodies = asyncio.run(cancelled())
    assert status == "cancelled"
    assert len(bodies) == 1
