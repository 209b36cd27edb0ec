"""RabbitMQ queue beyond the queue contract."""

from __future__ import annotations

import asyncio
import functools
import time

import pytest

from rune.adapters.rabbitmq.queue import EARLY_ACK_S
from rune.adapters.rabbitmq.topology import DELAYS_S, InvalidQueueNameError, Topology, TopologyMismatchError
from rune.codec.messages import NodeExecutionMessage
from rune.core.execution.token import Token
from rune.errors import RuneError
from rune.ports.journal import StoreUnavailableError
from tests.support.async_test import async_test
from tests.support.rabbitmq_queues import VhostQueues, vhost_queues
from tests.support.services.rabbitmq import broker
from tests.support.waiting import until

EXAMPLE = b"""{"workflow_id": "wf_email_notification", "execution_id": "exec_20251009_123456",
    "current_node": "http_fetch_user", "workflow_definition": {"nodes": [], "edges": []},
    "accumulated_context": {"$trigger": {"user_id": "user_123"}}}"""


@async_test
async def test_busy_worker_leaves_tokens_to_idle_one() -> None:
    async with vhost_queues() as vhost:
        busy, idle = vhost.queue("busy", prefetch=1), vhost.queue("idle", prefetch=10)
        await busy.send("first", [Token(0)])
        held = await busy.receive()
        for priority in (1, 5, 9):
            await busy.send("more", [Token(node) for node in range(3)], priority)
        received = [await idle.receive() for _ in range(9)]
        assert {each.execution for each in received} == {"more"}
        assert busy.consumer.pulling
        await busy.ack(held)


@async_test
async def test_unacked_deliveries_are_limited_by_prefetch() -> None:
    async with vhost_queues() as vhost:
        await vhost.queue("sender").send("x", [Token(node) for node in range(50)])
        queue = vhost.queue(prefetch=3)
        held = [await queue.receive() for _ in range(3)]
        await until(lambda: _has(vhost.waiting("workflow.execution"), 47))
        assert queue.consumer._arrived == len(held)


@async_test
async def test_worker_resumes_consuming_after_ack() -> None:
    async with vhost_queues() as vhost:
        queue = vhost.queue(prefetch=4)
        await queue.send("x", [Token(node) for node in range(4)])
        held = [await queue.receive() for _ in range(4)]
        await queue.send("high", [Token(node) for node in range(4)], 9)
        await until(lambda: queue.consumer.pulling)
        await queue.ack(held.pop())
        assert (await queue.receive()).execution == "high"
        for each in held:
            await queue.ack(each)
        rest = await asyncio.gather(*(queue.receive() for _ in range(3)))
        assert {each.execution for each in rest} == {"high"}
        await queue.send("later", [Token(0)])
        assert (await queue.receive()).execution == "later"


@async_test
async def test_pulling_worker_serves_all_lanes_and_queues() -> None:
    """At most a third of its slots is free, so it pulls message by message."""

    async def route(execution: str, token: Token) -> str:
        return "other" if execution == "other" else "default"

    async with vhost_queues() as vhost:
        queue = vhost.queue(prefetch=6, queues=("default", "other"), route=route)
        await queue.send("first", [Token(node) for node in range(6)])
        held = [await queue.receive() for _ in range(6)]
        await queue.send("high", [Token(node) for node in range(120)], 9)
        await until(lambda: queue.consumer.pulling)
        await queue.send("normal", [Token(0)])
        await queue.send("other", [Token(0)])
        await queue.send("low", [Token(0)], 1)
        seen: list[str] = []
        for _ in range(100):
            await queue.ack(held.pop(0))
            held.append(await queue.receive())
            seen.append(held[-1].execution)
        assert queue.consumer.pulling
        assert {"high", "normal", "other", "low"} == set(seen)
        assert seen.count("high") > 90


@async_test
async def test_long_held_delivery_is_acked_early() -> None:
    async with vhost_queues() as vhost:
        queue = vhost.queue(early=0.2)
        await queue.send("x", [Token(0)])
        held = await queue.receive()
        await until(lambda: queue._held[held.tag].early)
        await queue.close()
        assert await vhost.waiting("workflow.execution") == 0
    assert EARLY_ACK_S == 60.0, "far below the consumer timeout of the broker (30 minutes)"


@async_test
async def test_early_acked_delivery_can_be_requeued() -> None:
    async with vhost_queues() as vhost:
        queue = vhost.queue(early=0.1)
        await queue.send("x", [Token(5)])
        held = await queue.receive()
        await until(lambda: queue._held[held.tag].early)
        await queue.requeue(held)
        assert (await queue.receive()).token.node == 5


@async_test
async def test_close_returns_unacked_deliveries() -> None:
    async with vhost_queues() as vhost:
        queue = vhost.queue()
        await queue.send("x", [Token(node) for node in range(3)])
        served = await queue.receive()  # not always the first one sent
        await queue.ack(served)
        await queue.receive()
        await queue.close()
        other = vhost.queue("other")
        received = [await other.receive() for _ in range(2)]
        assert {each.token.node for each in received} == {0, 1, 2} - {served.token.node}


@async_test
async def test_long_requeue_delay_uses_retry_queue() -> None:
    async with vhost_queues() as vhost:
        queue = vhost.queue()
        await queue.send("x", [Token(3)], 9)
        await queue.requeue(await queue.receive(), 5.0)
        await until(lambda: _has(vhost.waiting("workflow.execution.retry.5s"), 1))
        again = await queue.receive()
        assert again.token.node == 3
        await queue.requeue(again, 100.0)
        await until(lambda: _has(vhost.waiting("workflow.execution.retry.125s"), 1))
        letter = await vhost.take("workflow.execution.retry.125s")
        assert letter is not None
        assert letter.routing_key == "workflow.execution.high", "it returns to its lane"


@async_test
async def test_named_queue_is_read_by_its_workers() -> None:
    async with vhost_queues() as vhost:

        async def route(execution: str, token: Token) -> str:
            return "gpu" if token.node else "default"

        plain, special = vhost.queue("plain"), vhost.queue("special", queues=("gpu",))
        sender = vhost.queue("sender", queues=("default", "gpu"), route=route)
        await sender.send("x", [Token(0), Token(1)], 9)
        assert (await plain.receive()).token.node == 0
        assert (await special.receive()).token.node == 1


@async_test
async def test_named_queue_keeps_tokens_until_worker_starts() -> None:
    async with vhost_queues() as vhost:

        async def route(execution: str, token: Token) -> str:
            return "gpu"

        sender = vhost.queue("sender", adopt=True, route=route)
        await sender.send("x", [Token(1)], 1)
        assert await vhost.waiting("workflow.execution.gpu.low") == 1
        reader = vhost.queue("reader", queues=("gpu",))
        assert (await reader.receive()).token.node == 1


@async_test
async def test_unroutable_send_does_not_affect_others() -> None:
    async with vhost_queues() as vhost:

        async def route(execution: str, token: Token) -> str:
            return "default" if execution == "x" else "nowhere"

        queue = vhost.queue(deadline=1.0, route=route)
        await queue.send("x", [Token(0)])
        lost = asyncio.ensure_future(queue.send("lost", [Token(0)]))
        while not lost.done():
            await queue.send("x", [Token(1)])
        assert isinstance(lost.exception(), StoreUnavailableError)
        assert queue.publisher.link.made == 1


@pytest.mark.parametrize(
    ("key", "queue"),
    [
        ("workflow.execution", "default"),
        ("workflow.execution.high", "default"),
        ("workflow.execution.gpu", "gpu"),
        ("workflow.execution.gpu.low", "gpu"),
        ("workflow.execution.dead", None),
        ("workflow.execution.retry.5s", None),
        ("elsewhere.gpu", None),
        ("workflow.execution.high.queue", "high"),
        ("workflow.execution.high.queue.high", "high"),
        ("workflow.execution.retry.queue.low", "retry"),
        ("workflow.execution.gpu.queue", None),
    ],
)
def test_queue_name_is_derived_from_routing_key(key: str, queue: str | None) -> None:
    assert Topology().queue_of(key) == queue


@async_test
async def test_queue_may_have_reserved_name() -> None:
    names = ("high", "low", "dead", "dlx", "retry")

    async def route(execution: str, token: Token) -> str:
        return execution

    async with vhost_queues() as vhost:
        normal, others = vhost.queue("normal"), vhost.queue("others", queues=names, adopt=True, route=route)
        for name in names:
            await others.send(name, [Token(0)])
        await others.send("default", [Token(1)], 9)
        for queue, count in ((others, len(names)), (normal, 1)):
            received = [await queue.receive() for _ in range(count)]
            assert {each.execution for each in received} == (set(names) if queue is others else {"default"})
        assert await vhost.waiting("workflow.execution.dead") == 0


@pytest.mark.parametrize("name", ["a.b", "", "ü", "x" * 129])
def test_invalid_queue_name_is_rejected(name: str) -> None:
    with pytest.raises(InvalidQueueNameError):
        Topology(queues=(name,))


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"not json", "BAD_MESSAGE"),
        (b"{}", "BAD_MESSAGE"),
        (b'{"execution_id": "x", "token": {"node": "seven"}}', "BAD_MESSAGE"),
        (b'{"execution_id": "", "token": {"node": 1}}', "BAD_MESSAGE"),
        (b"[" * 100_000, "BAD_MESSAGE"),
        (b'{"execution_id": "x"}', "BAD_MESSAGE"),
        (EXAMPLE, "UNKNOWN_EXECUTION"),
        (EXAMPLE.replace(b'"$trigger"', b'"trigger"'), "BAD_MESSAGE"),
    ],
)
@async_test
async def test_invalid_message_is_dead_lettered_with_code(body: bytes, code: str) -> None:
    async with vhost_queues() as vhost:
        queue = vhost.queue()
        await queue.send("x", [Token(0)])
        await queue.ack(await queue.receive())
        await vhost.put("workflow.execution", body)
        await queue.send("x", [Token(1)])
        assert (await queue.receive()).token.node == 1
        await until(lambda: _has(vhost.waiting("workflow.execution.dead"), 1))
        letter = await vhost.take("workflow.execution.dead")
        assert letter is not None
        assert letter.body == body
        assert letter.headers["rune-code"] == code
        assert letter.headers["rune-queue"] == "workflow.execution"


async def _has(counting: object, wanted: int) -> bool:
    return bool(await counting >= wanted)  # type: ignore[misc]  # duplicates are allowed


@async_test
async def test_dead_letter_keeps_code_and_reason() -> None:
    async with vhost_queues() as vhost:
        queue = vhost.queue()
        await queue.send("x", [Token(0)], 1)
        await queue.dead_letter(await queue.receive(), "WORKER_CRASH", "it killed five workers")
        letter = await vhost.take("workflow.execution.dead")
        assert letter is not None
        assert letter.headers["rune-code"] == "WORKER_CRASH"
        assert letter.headers["rune-reason"] == "it killed five workers"
        assert letter.routing_key == "workflow.execution.low"


@async_test
async def test_long_reason_is_truncated_to_frame() -> None:
    async with vhost_queues() as vhost:
        queue = vhost.queue(url=f"{vhost.url}?frame_max=4096")
        await queue.send("x", [Token(3)])
        await queue.dead_letter(await queue.receive(), "CODE", "ok " + "\U0001f600" * 2000)
        letter = await vhost.take("workflow.execution.dead")
        assert letter is not None
        assert letter.headers["rune-reason"].startswith("ok \U0001f600")
        assert queue.publisher.link.made == 1


@async_test
async def test_foreign_messages_are_passed_to_handler() -> None:
    async with vhost_queues() as vhost:
        seen: list[NodeExecutionMessage] = []

        async def take(message: NodeExecutionMessage, body: bytes) -> None:
            seen.append(message)
            if message.current_node == "nowhere":
                raise RuneError("no such node", code="UNKNOWN_NODE")

        queue = vhost.queue(foreign_handler=take)
        waiting = asyncio.ensure_future(queue.receive())
        await until(lambda: queue.consumer.link.is_up)
        await vhost.put("workflow.execution", EXAMPLE)
        await vhost.put("workflow.execution", EXAMPLE.replace(b"http_fetch_user", b"nowhere"))
        await until(lambda: _has(vhost.waiting("workflow.execution.dead"), 1))
        letter = await vhost.take("workflow.execution.dead")
        assert letter is not None
        assert letter.headers["rune-code"] == "UNKNOWN_NODE"
        assert [each.current_node for each in seen] == ["http_fetch_user", "nowhere"]
        assert seen[0].workflow_id == "wf_email_notification"
        waiting.cancel()
        await asyncio.wait((waiting,))
        await queue.close()
        assert await vhost.waiting("workflow.execution") == 0


@async_test
async def test_start_for_which_the_engine_fails_is_retried_after_each_delay() -> None:
    async with vhost_queues() as vhost:

        async def fail(message: NodeExecutionMessage, body: bytes) -> None:
            raise MemoryError("no memory")

        queue = vhost.queue(foreign_handler=fail)
        waiting = asyncio.ensure_future(queue.receive())
        await until(lambda: queue.consumer.link.is_up)
        await vhost.put("workflow.execution", EXAMPLE)
        for delay in DELAYS_S:
            name = f"workflow.execution.retry.{delay:g}s"
            await until(functools.partial(_has_one, vhost, name))
            again = await vhost.take(name)
            assert again is not None
            assert (again.body, again.routing_key) == (EXAMPLE, "workflow.execution")
            assert await vhost.waiting("workflow.execution.dead") == 0
            await vhost.put("workflow.execution", again.body, headers=again.headers)
        await until(lambda: _has(vhost.waiting("workflow.execution.dead"), 1))
        letter = await vhost.take("workflow.execution.dead")
        assert letter is not None
        assert (letter.body, letter.headers["rune-code"]) == (EXAMPLE, "DEAD_LETTERED")
        assert await vhost.waiting("workflow.execution.dead") == 0
        waiting.cancel()
        await asyncio.wait((waiting,))


async def _has_one(vhost: VhostQueues, name: str) -> bool:
    return await vhost.waiting(name) == 1


@async_test
async def test_mismatched_queue_kind_is_explained() -> None:
    async with vhost_queues() as vhost:
        await vhost.queue().send("x", [Token(0)])
        other = vhost.queue("other", kind="quorum", deadline=1.0)
        with pytest.raises(StoreUnavailableError) as caught:
            await other.send("x", [Token(0)])
        assert "delete_queue" in str(caught.value)
        with pytest.raises(TopologyMismatchError, match=r"`workflow\.execution\.high` exists"):
            await other.check()


@async_test
async def test_send_to_unreachable_broker_is_unavailable() -> None:
    async with vhost_queues() as vhost:
        queue = vhost.queue(url="amqp://127.0.0.1:1/", deadline=0.3)
        with pytest.raises(StoreUnavailableError):
            await queue.send("x", [Token(0)])


@async_test
async def test_message_has_timestamp() -> None:
    async with vhost_queues() as vhost:
        queue = vhost.queue()
        before = int(time.time())
        await queue.send("x", [Token(0)])
        after = int(time.time())
        listing = ("list_queues", "-p", vhost.name, "name", "head_message_timestamp")
        listed = await asyncio.to_thread(broker().control, *listing)
        found = dict(line.split("\t") for line in listed.splitlines() if "\t" in line)
        assert before <= int(found["workflow.execution"]) <= after
