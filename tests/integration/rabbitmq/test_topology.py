"""The topology on a real broker, and what real users of each role may do with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from rune.adapters.rabbitmq.amqp.client import AmqpError, ChannelClosedError, connect
from rune.adapters.rabbitmq.dead_letters import DeadLetters, requeue_innocent
from rune.adapters.rabbitmq.legacy import LegacyExecutor
from rune.adapters.rabbitmq.queue import RabbitQueue
from rune.adapters.rabbitmq.topology import (
    Topology,
    all_exchanges,
    all_queues,
    as_text,
    declare,
    definitions,
    user_name,
)
from rune.codec.messages import NodeExecutionMessage, encode_message
from rune.core.execution.token import Token
from tests.integration.rabbitmq.helping import scenario
from tests.integration.rabbitmq.queues import Place, worn_out
from tests.support.services.rabbitmq import broker
from tests.support.waiting import until

PASSWORDS = {"worker": "w w", "master": "m/m"}


@asynccontextmanager
async def imported(topology: Topology) -> AsyncIterator[str]:
    """A vhost that was made from a definitions file alone."""
    with broker().vhost() as vhost:
        broker().api("POST", "definitions", definitions(topology, vhost, PASSWORDS))
        yield vhost


def url(vhost: str, role: str) -> str:
    return broker().url(vhost, user_name(role), PASSWORDS[role])


async def refused(vhost: str, role: str, act: str, name: str) -> bool:
    connection = await connect(url(vhost, role))
    channel = await connection.channel()
    try:
        if act == "publish":
            await channel.confirm()
            await channel.publish(name, "workflow.execution" if name != "" else name, b"{}")
        elif act == "declare":
            await channel.declare_queue(name)
        else:
            await channel.get(name)
    except ChannelClosedError as closed:
        return closed.code == "ACCESS_REFUSED"
    except AmqpError:
        return False
    finally:
        await connection.close()
    return False


@pytest.mark.parametrize("kind", ["classic", "quorum"])
@scenario
async def test_declaring_twice_changes_nothing(kind: str) -> None:
    topology = Topology(queues=("default", "gpu"), kind=kind)  # type: ignore[arg-type]
    with broker().vhost() as vhost:
        connection = await connect(broker().url(vhost))
        await declare(connection, topology)
        await declare(connection, topology)
        await connection.close()
        made = {each["name"]: each for each in broker().api("GET", f"queues/{vhost}")}
        assert set(made) == {each.name for each in topology.table()}
        assert made["workflow.execution.gpu.high"]["arguments"]["x-queue-type"] == kind
        assert "x-message-ttl" not in made["workflow.execution"]["arguments"]


@pytest.mark.parametrize("kind", ["classic", "quorum"])
@scenario
async def test_the_file_and_the_declaration_agree(kind: str) -> None:
    topology = Topology(kind=kind)  # type: ignore[arg-type]
    async with imported(topology) as vhost:
        connection = await connect(broker().url(vhost))
        await declare(connection, topology)
        await connection.close()


@scenario
async def test_each_role_may_do_its_own_and_nothing_else() -> None:
    topology = Topology()
    allowed = {
        "worker": {
            *(("publish", each.name) for each in all_exchanges(topology)),
            *(("read", each) for each in (*topology.work, "workflow.started")),
        },
        "master": {
            *(
                ("publish", f"workflow.{each}")
                for each in ("execution", "started", "node.status", "completion")
            ),
            *(("read", each) for each in ("workflow.node.status", "workflow.completion", topology.dead)),
        },
    }
    async with imported(topology) as vhost:
        acts = [("publish", each.name) for each in all_exchanges(topology)]
        acts += [("read", each.name) for each in all_queues(topology)]
        acts += [("publish", ""), ("publish", "amq.direct"), ("declare", "mine"), ("declare", "workflow.x")]
        for role, may in allowed.items():
            found = {(act, name) for act, name in acts if not await refused(vhost, role, act, name)}
            assert found == may


@scenario
async def test_a_worker_with_the_rights_of_a_worker_works() -> None:
    async with imported(Topology()) as vhost:
        queue = RabbitQueue(url(vhost, "worker"), consumer="w", watch=0.1)
        await queue.check()
        await queue.send("x", [Token(1)], 9)
        delivery = await queue.receive()
        await queue.requeue(delivery)
        again = await queue.receive()
        await queue.dead_letter(again, "CODE", "reason")
        await until(lambda: queue.consumer.link.is_up)
        assert queue.consumer.link.made == 1
        await queue.close()
        connection = await connect(url(vhost, "master"))
        letter = await (await connection.channel()).get("workflow.execution.dead")
        assert letter is not None
        await connection.close()


@scenario
async def test_a_scheduler_with_the_rights_of_the_master_hands_innocent_messages_back() -> None:
    topology = Topology(kind="quorum")
    async with imported(topology) as vhost:
        queue = RabbitQueue(url(vhost, "worker"), consumer="w", kind="quorum")
        await queue.send("x", [Token(7)])
        await worn_out(broker().url(vhost), topology.execution)
        rescuing = asyncio.create_task(
            requeue_innocent(DeadLetters(url(vhost, "master"), topology), pause=0.05)
        )
        assert (await queue.receive()).token.node == 7
        rescuing.cancel()
        await asyncio.wait([rescuing])
        await queue.close()


@scenario
async def test_starts_for_another_engine_go_from_the_master_to_a_worker() -> None:
    topology = Topology()
    async with imported(topology) as vhost:
        found: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def take(message: NodeExecutionMessage, body: bytes) -> None:
            found.set_result(message.execution_id)

        sender = LegacyExecutor(url(vhost, "master"), topology, "master")
        reader = LegacyExecutor(url(vhost, "worker"), topology, "worker", take)
        reader.start()
        start = NodeExecutionMessage(
            workflow_id="w",
            execution_id="x",
            current_node="n",
            definition_ref="h",
            context=msgspec.Raw(b"{}"),
        )
        await sender.hand_over(encode_message(start))
        assert await found == "x"
        await sender.close()
        await reader.close()


@scenario
async def test_the_queue_of_another_engine_stays_as_it_is() -> None:
    with broker().vhost() as vhost:
        theirs = {"durable": True, "arguments": {"x-message-ttl": 60_000}}
        broker().api("PUT", f"queues/{vhost}/workflow.started", theirs)
        broker().api("POST", "definitions", definitions(Topology(), vhost, PASSWORDS))
        sender = LegacyExecutor(url(vhost, "master"), Topology(), "master")
        await sender.hand_over(b"{}")
        await sender.close()
        connection = await connect(url(vhost, "worker"))
        assert await (await connection.channel()).get("workflow.started") is not None
        await connection.close()
        found = broker().api("GET", f"queues/{vhost}/workflow.started")
        assert found["arguments"] == theirs["arguments"]


@scenario
async def test_a_start_is_handed_over_although_the_queue_of_the_other_engine_has_gone() -> None:
    with broker().vhost() as vhost:
        sender = LegacyExecutor(broker().url(vhost), Topology(), "master")
        await sender.hand_over(b"{}")
        broker().api("DELETE", f"queues/{vhost}/workflow.started")
        await sender.hand_over(b'{"a": 1}')
        await sender.close()
        connection = await connect(broker().url(vhost))
        found = await (await connection.channel()).get("workflow.started")
        assert found is not None
        assert found.body == b'{"a": 1}'
        await connection.close()


@scenario
async def test_a_start_that_cannot_be_put_aside_is_not_forgotten() -> None:
    """The queue of dead letters has gone meanwhile; a new connection brings it back, and the start with it."""
    topology = Topology()
    with broker().vhost() as vhost:

        async def take(message: NodeExecutionMessage, body: bytes) -> None:
            raise LookupError("never")

        reader = LegacyExecutor(broker().url(vhost), topology, "worker", take)
        reader.start()
        await reader.hand_over(b"{}")
        here = Place(broker().url(vhost), vhost)
        await until(lambda: _has_one(here))
        broker().api("DELETE", f"queues/{vhost}/{topology.dead}")
        await reader.hand_over(b"[]")
        await until(lambda: _has_one(here))
        letter = await here.take(topology.dead)
        assert letter is not None
        assert letter.body == b"[]"
        await reader.close()


async def _has_one(here: Place) -> bool:
    try:
        return await here.waiting("workflow.execution.dead") == 1
    except ChannelClosedError:
        return False


def test_an_old_broker_gets_what_it_knows() -> None:
    old = {each.name: each.arguments for each in Topology(kind="quorum").table((3, 9))}
    new = {each.name: each.arguments for each in Topology(kind="quorum").table((4, 1))}

    assert old["workflow.execution.retry.5s"]["x-queue-type"] == "classic"
    assert new["workflow.execution.retry.5s"]["x-queue-type"] == "quorum"
    assert new["workflow.execution"]["x-dead-letter-strategy"] == "at-least-once"
    assert (
        old["workflow.execution"]["x-delivery-limit"] == new["workflow.execution"]["x-delivery-limit"] == 20
    )


def test_who_looks_at_what_is_kept_wears_nothing_out() -> None:
    """Brokers from 4.0 on count deliveries of every quorum queue, and drop what had 20 unless told otherwise."""
    for version in ((3, 9), (3, 10, 8), (4, 1)):
        found = {each.name: each.arguments for each in Topology(kind="quorum").table(version)}
        for name in ("workflow.execution.dead", "workflow.completion"):
            if found[name]["x-queue-type"] == "quorum":
                assert found[name]["x-delivery-limit"] > 1_000_000_000
    for queue in Topology().table((4, 1)):
        assert "x-delivery-limit" not in queue.arguments


def test_the_topology_can_be_read() -> None:
    text = as_text(Topology("acme"))

    assert "acme.execution.retry.25s" in text
    assert "role worker" in text
    assert "x-message-ttl=604800000" in text


def test_a_definitions_file_holds_no_password() -> None:
    assert "m/m" not in str(definitions(Topology(), "/", PASSWORDS))
