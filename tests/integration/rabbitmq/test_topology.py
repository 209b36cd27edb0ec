"""Topology and role permissions on a real broker."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Literal

import aio_pika
import msgspec
import pytest

from rune.adapters.rabbitmq.amqp.channel import Outgoing
from rune.adapters.rabbitmq.amqp.client import AmqpError, ChannelClosedError, connect
from rune.adapters.rabbitmq.amqp.connection import Connection
from rune.adapters.rabbitmq.consumer import RabbitEventConsumer
from rune.adapters.rabbitmq.dead_letters import DeadLetters, requeue_innocent
from rune.adapters.rabbitmq.legacy import LegacyExecutor
from rune.adapters.rabbitmq.publisher import Publisher
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
from rune.ports.journal import StoreUnavailableError
from tests.support.async_test import async_test
from tests.support.paths import ROOT
from tests.support.rabbitmq_queues import VhostQueues, exhaust_deliveries
from tests.support.services.rabbitmq import broker
from tests.support.waiting import until

pytestmark = pytest.mark.long

PASSWORDS = {"worker": "w w", "master": "m/m"}


@asynccontextmanager
async def vhost_from_definitions(topology: Topology) -> AsyncIterator[str]:
    """Create a vhost from a definitions file alone."""
    with broker().vhost() as vhost:
        broker().api("POST", "definitions", definitions(topology, vhost, PASSWORDS))
        yield vhost


def url(vhost: str, role: str) -> str:
    return broker().url(vhost, user_name(role), PASSWORDS[role])


async def is_refused(vhost: str, role: str, act: str, name: str) -> bool:
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
@async_test
async def test_second_declare_changes_nothing(kind: str) -> None:
    topology = Topology(queues=("default", "gpu"), kind=kind)  # type: ignore[arg-type]
    with broker().vhost() as vhost:
        connection = await connect(broker().url(vhost))
        await declare(connection, topology)
        await declare(connection, topology)
        await connection.close()
        declared = {each["name"]: each for each in broker().api("GET", f"queues/{vhost}")}
        assert set(declared) == {each.name for each in topology.table()}
        assert declared["workflow.execution.gpu.high"]["arguments"]["x-queue-type"] == kind
        assert "x-message-ttl" not in declared["workflow.execution"]["arguments"]


@pytest.mark.parametrize("kind", ["classic", "quorum"])
@async_test
async def test_definitions_file_matches_declaration(kind: str) -> None:
    topology = Topology(kind=kind)  # type: ignore[arg-type]
    async with vhost_from_definitions(topology) as vhost:
        connection = await connect(broker().url(vhost))
        await declare(connection, topology)
        await connection.close()


@async_test
async def test_each_role_has_only_its_permissions() -> None:
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
    async with vhost_from_definitions(topology) as vhost:
        acts = [("publish", each.name) for each in all_exchanges(topology)]
        acts += [("read", each.name) for each in all_queues(topology)]
        acts += [("publish", ""), ("publish", "amq.direct"), ("declare", "mine"), ("declare", "workflow.x")]
        for role, permitted in allowed.items():
            found = {(act, name) for act, name in acts if not await is_refused(vhost, role, act, name)}
            assert found == permitted


@async_test
async def test_queue_works_with_permissions_of_worker() -> None:
    async with vhost_from_definitions(Topology()) as vhost:
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


@async_test
async def test_master_permissions_allow_requeue_of_innocent_messages() -> None:
    topology = Topology(kind="quorum")
    async with vhost_from_definitions(topology) as vhost:
        queue = RabbitQueue(url(vhost, "worker"), consumer="w", kind="quorum")
        await queue.send("x", [Token(7)])
        await exhaust_deliveries(broker().url(vhost), topology.execution)
        requeueing = asyncio.create_task(
            requeue_innocent(DeadLetters(url(vhost, "master"), topology), pause=0.05)
        )
        assert (await queue.receive()).token.node == 7
        requeueing.cancel()
        await asyncio.wait([requeueing])
        await queue.close()


@async_test
async def test_token_for_a_missing_queue_does_not_repeat_those_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker that may not declare queues holds tokens for two that are missing; then one of them is made."""
    sent: list[str] = []

    async def route(execution: str, token: Token) -> str:
        return f"missing{token.node}"

    async def count(self: Publisher, messages: Sequence[Outgoing]) -> None:
        sent.extend(key for _, key, _, _ in messages)
        await publish(self, messages)

    publish = Publisher.publish
    monkeypatch.setattr(Publisher, "publish", count)
    topology = Topology()
    async with vhost_from_definitions(topology) as vhost:
        queue = RabbitQueue(url(vhost, "worker"), consumer="w", route=route, deadline=0.5, adopt=True)
        for node in (1, 2):
            with pytest.raises(StoreUnavailableError):
                await queue.send("x", [Token(node)])
        admin = await connect(broker().url(vhost))
        await declare(admin, topology.extended(["missing1"]))
        length = partial((await admin.channel()).declare_queue, "workflow.execution.missing1", passive=True)

        async def has_arrived() -> bool:
            return (await length()).message_count == 1

        await until(has_arrived, patience=30)
        sent.clear()
        await until(lambda: len(sent) >= 2, "the other is tried several times", patience=60)
        assert {each.rpartition(".")[2] for each in sent} == {"missing2"}
        assert (await length()).message_count == 1
        await queue.close()
        await admin.close()


@async_test
async def test_legacy_start_is_delivered_from_master_to_worker() -> None:
    topology = Topology()
    async with vhost_from_definitions(topology) as vhost:
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


@async_test
async def test_existing_legacy_queue_is_not_redeclared() -> None:
    with broker().vhost() as vhost:
        legacy = {"durable": True, "arguments": {"x-message-ttl": 60_000}}
        broker().api("PUT", f"queues/{vhost}/workflow.started", legacy)
        broker().api("POST", "definitions", definitions(Topology(), vhost, PASSWORDS))
        sender = LegacyExecutor(url(vhost, "master"), Topology(), "master")
        await sender.hand_over(b"{}")
        await sender.close()
        connection = await connect(url(vhost, "worker"))
        assert await (await connection.channel()).get("workflow.started") is not None
        await connection.close()
        found = broker().api("GET", f"queues/{vhost}/workflow.started")
        assert found["arguments"] == legacy["arguments"]


@async_test
async def test_hand_over_recreates_deleted_legacy_queue() -> None:
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


@async_test
async def test_rejected_start_is_kept_when_dead_letter_queue_is_missing() -> None:
    """The dead letter queue is deleted meanwhile; a new connection declares it again, and the start is kept."""
    topology = Topology()
    with broker().vhost() as vhost:

        async def take(message: NodeExecutionMessage, body: bytes) -> None:
            raise LookupError("never")

        reader = LegacyExecutor(broker().url(vhost), topology, "worker", take)
        reader.start()
        # Its own connection: that of the reader is dropped, perhaps before a confirmation has arrived on it.
        sender = LegacyExecutor(broker().url(vhost), topology, "master")
        await sender.hand_over(b"{}")
        queues = VhostQueues(broker().url(vhost), vhost)
        await until(lambda: _has_one(queues))
        broker().api("DELETE", f"queues/{vhost}/{topology.dead}")
        await sender.hand_over(b"[]")
        await until(lambda: _has_one(queues))
        letter = await queues.take(topology.dead)
        assert letter is not None
        assert letter.body == b"[]"
        await sender.close()
        await reader.close()


async def _has_one(queues: VhostQueues) -> bool:
    try:
        return await queues.waiting("workflow.execution.dead") == 1
    except ChannelClosedError:
        return False


def test_topology_of_old_broker_uses_known_arguments() -> None:
    old = {each.name: each.arguments for each in Topology(kind="quorum").table((3, 9))}
    new = {each.name: each.arguments for each in Topology(kind="quorum").table((4, 1))}

    assert old["workflow.execution.retry.5s"]["x-queue-type"] == "classic"
    assert new["workflow.execution.retry.5s"]["x-queue-type"] == "quorum"
    assert new["workflow.execution"]["x-dead-letter-strategy"] == "at-least-once"
    assert (
        old["workflow.execution"]["x-delivery-limit"] == new["workflow.execution"]["x-delivery-limit"] == 20
    )


def test_stored_queues_have_no_low_delivery_limit() -> None:
    """Brokers from 4.0 on limit deliveries of every quorum queue to 20 by default."""
    for version in ((3, 9), (3, 10, 8), (4, 1)):
        found = {each.name: each.arguments for each in Topology(kind="quorum").table(version)}
        for name in ("workflow.execution.dead", "workflow.completion"):
            if found[name]["x-queue-type"] == "quorum":
                assert found[name]["x-delivery-limit"] > 1_000_000_000
    for queue in Topology().table((4, 1)):
        assert "x-delivery-limit" not in queue.arguments


def test_as_text_lists_queues_and_roles() -> None:
    text = as_text(Topology("acme"))

    assert "acme.execution.retry.25s" in text
    assert "role worker" in text
    assert "x-message-ttl=604800000" in text


def test_definitions_contain_no_password() -> None:
    assert "m/m" not in str(definitions(Topology(), "/", PASSWORDS))


@pytest.mark.parametrize("kind", ["classic", "quorum"])
@async_test
async def test_definitions_bound_existing_dead_letter_queue(kind: Literal["classic", "quorum"]) -> None:
    topology = Topology(kind=kind)
    async with vhost_from_definitions(topology) as vhost:
        connection = await aio_pika.connect(broker().url(vhost))
        async with connection:
            channel = await connection.channel()
            exchange = await channel.get_exchange(topology.dead_exchange, ensure=False)

            async def publish(*bodies: bytes) -> None:
                for body in bodies:
                    await exchange.publish(aio_pika.Message(body, delivery_mode=2), routing_key="")

            await publish(b"1", b"2", b"3", b"4", b"5")
            bounded = definitions(topology, vhost, {}, max_dead=3)
            await asyncio.to_thread(broker().api, "POST", "definitions", bounded)

            async def is_bounded() -> bool:
                queue = await channel.declare_queue(topology.dead, passive=True)
                return queue.declaration_result.message_count == 3

            await until(is_bounded, "the oldest dead letters are dropped")
            await publish(b"6")
            await until(is_bounded, "a further dead letter replaces the oldest")
            queue = await channel.get_queue(topology.dead, ensure=False)
            kept = [(await queue.get(no_ack=True)).body for _ in range(3)]
    assert kept == [b"4", b"5", b"6"]


@pytest.mark.parametrize("kind", ["classic", "quorum"])
@async_test
async def test_unread_completions_are_bounded(kind: Literal["classic", "quorum"]) -> None:
    topology = Topology(kind=kind)
    with broker().vhost() as vhost:
        connection = await connect(broker().url(vhost))
        await declare(connection, topology)
        await connection.close()
        queues = {each["name"]: each["arguments"] for each in broker().api("GET", f"queues/{vhost}")}
    for name in (topology.completion, topology.status):
        assert queues[name]["x-max-length"] == 100_000
        assert queues[name]["x-overflow"] == "drop-head"
        assert queues[name]["x-message-ttl"] > 0


class IgnoringHandler:
    async def on_statuses(self, bodies: Sequence[bytes]) -> None: ...

    async def on_completion(self, body: bytes) -> None: ...


@async_test
async def test_api_process_prefetches_100_statuses_and_one_completion() -> None:
    topology = Topology()
    with broker().vhost() as vhost:
        consumer = RabbitEventConsumer(broker().url(vhost), topology, "api")
        running = asyncio.create_task(consumer.run(IgnoringHandler()))

        async def prefetch() -> dict[str, int]:
            command = ("list_consumers", "-p", vhost, "--formatter=json", "queue_name", "prefetch_count")
            rows = msgspec.json.decode(await asyncio.to_thread(broker().control, *command))
            return {row["queue_name"]: row["prefetch_count"] for row in rows}

        async def consumes() -> bool:
            return await prefetch() == {topology.status: 100, topology.completion: 1}

        await until(consumes, "both queues are consumed with their prefetch", 120.0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@async_test
async def test_unbounded_completions_of_earlier_version_are_accepted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    topology = Topology()
    with broker().vhost() as vhost:
        connection = await connect(broker().url(vhost))
        channel = await connection.channel()
        arguments = {"x-queue-type": "classic", "x-message-ttl": 7 * 86_400_000}
        await channel.declare_queue(topology.completion, arguments)
        await declare(connection, topology)
        await connection.close()
    assert "the queue workflow.completion has no bound" in caplog.text


SET_EVENTS = re.compile(r"set_permissions --vhost VHOST events '(.+?)' '(.+?)' \\\n +'(.+?)'")


@async_test
async def test_documented_user_sees_the_work_of_all_lanes() -> None:
    """The permissions are those of the page on RabbitMQ."""
    page = (ROOT / "docs" / "rabbitmq.md").read_text(encoding="utf-8")
    events, work = SET_EVENTS.findall(page)
    topology = Topology()
    async with vhost_from_definitions(topology) as vhost:
        for rights, sees in ((events, False), (work, True)):
            broker().user("events", "e", vhost, *rights)
            connection = await connect(broker().url(vhost, "events", "e"))
            assert await _binds(connection, "events.work", topology.work, topology.execution) is sees
            await connection.close()
        queue = RabbitQueue(broker().url(vhost, user_name("worker"), PASSWORDS["worker"]), consumer="one")
        await queue.send("x", [Token(0), Token(1, (0, 7))])
        await queue.send("y", [Token(2, (0, 7))], 9)
        connection = await connect(broker().url(vhost, "events", "e"))
        channel = await connection.channel()
        seen = [await channel.get("events.work") for _ in range(3)]
        await connection.close()
        await queue.close()
    assert sorted(each.routing_key for each in seen if each is not None) == [
        "workflow.execution",
        "workflow.execution",
        "workflow.execution.low",
    ]


async def _binds(connection: Connection, queue: str, keys: Sequence[str], exchange: str) -> bool:
    """Declare a queue and return whether it may be bound to an exchange."""
    channel = await connection.channel()
    await channel.declare_queue(queue, {})
    try:
        for key in keys:
            await channel.bind(queue, exchange, key)
    except ChannelClosedError as closed:
        if closed.reply != 403:
            raise
        return False
    return True
