"""The queue on RabbitMQ, beyond what every queue promises."""

from __future__ import annotations

import asyncio
import time

import pytest

from rune.adapters.rabbitmq.queue import EARLY_ACK_S
from rune.adapters.rabbitmq.topology import InvalidQueueNameError, Topology, TopologyMismatchError
from rune.codec.messages import NodeExecutionMessage
from rune.core.execution.token import Token
from rune.errors import RuneError
from rune.ports.journal import StoreUnavailableError
from tests.integration.rabbitmq.helping import scenario
from tests.integration.rabbitmq.queues import place
from tests.support.services.rabbitmq import broker
from tests.support.waiting import until

EXAMPLE = b"""{"workflow_id": "wf_email_notification", "execution_id": "exec_20251009_123456",
    "current_node": "http_fetch_user", "workflow_definition": {"nodes": [], "edges": []},
    "accumulated_context": {"$trigger": {"user_id": "user_123"}}}"""


@scenario
async def test_a_busy_worker_keeps_nothing_from_an_idle_one() -> None:
    async with place() as here:
        busy, idle = here.queue("busy", prefetch=1), here.queue("idle", prefetch=10)
        await busy.send("first", [Token(0)])
        held = await busy.receive()
        for priority in (1, 5, 9):
            await busy.send("more", [Token(node) for node in range(3)], priority)
        got = [await idle.receive() for _ in range(9)]
        assert {each.execution for each in got} == {"more"}
        assert busy.consumer.pulling
        await busy.ack(held)


@scenario
async def test_nobody_is_handed_more_than_there_are_slots() -> None:
    async with place() as here:
        await here.queue("sender").send("x", [Token(node) for node in range(50)])
        queue = here.queue(prefetch=3)
        held = [await queue.receive() for _ in range(3)]
        await until(lambda: _has(here.waiting("workflow.execution"), 47))
        assert queue.consumer._arrived == len(held)


@scenario
async def test_after_a_while_a_busy_worker_takes_work_again() -> None:
    async with place() as here:
        queue = here.queue(prefetch=4)
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


@scenario
async def test_a_busy_worker_forgets_no_lane_and_no_queue() -> None:
    """Never more than a third of its slots is free, so it fetches message by message."""

    async def route(execution: str, token: Token) -> str:
        return "other" if execution == "other" else "default"

    async with place() as here:
        queue = here.queue(prefetch=6, queues=("default", "other"), route=route)
        await queue.send("first", [Token(node) for node in range(6)])
        held = [await queue.receive() for _ in range(6)]
        await queue.send("urgent", [Token(node) for node in range(120)], 9)
        await until(lambda: queue.consumer.pulling)
        await queue.send("usual", [Token(0)])
        await queue.send("other", [Token(0)])
        await queue.send("idle", [Token(0)], 1)
        seen: list[str] = []
        for _ in range(100):
            await queue.ack(held.pop(0))
            held.append(await queue.receive())
            seen.append(held[-1].execution)
        assert queue.consumer.pulling
        assert {"urgent", "usual", "other", "idle"} == set(seen)
        assert seen.count("urgent") > 90


@scenario
async def test_what_is_held_for_long_is_acknowledged_early() -> None:
    async with place() as here:
        queue = here.queue(early=0.2)
        await queue.send("x", [Token(0)])
        held = await queue.receive()
        await until(lambda: queue._held[held.tag].early)
        await queue.close()
        assert await here.waiting("workflow.execution") == 0
    assert EARLY_ACK_S == 60.0, "far below the half hour after which a broker takes the channel away"


@scenario
async def test_what_was_acknowledged_early_can_still_be_given_back() -> None:
    async with place() as here:
        queue = here.queue(early=0.1)
        await queue.send("x", [Token(5)])
        held = await queue.receive()
        await until(lambda: queue._held[held.tag].early)
        await queue.requeue(held)
        assert (await queue.receive()).token.node == 5


@scenario
async def test_what_is_in_hands_at_the_end_goes_back() -> None:
    async with place() as here:
        queue = here.queue()
        await queue.send("x", [Token(node) for node in range(3)])
        served = (
            await queue.receive()
        )  # not always the one sent first: what nobody takes for long goes to the end
        await queue.ack(served)
        await queue.receive()
        await queue.close()
        other = here.queue("other")
        got = [await other.receive() for _ in range(2)]
        assert {each.token.node for each in got} == {0, 1, 2} - {served.token.node}


@scenario
async def test_a_long_delay_is_spent_in_a_queue_of_the_broker() -> None:
    async with place() as here:
        queue = here.queue()
        await queue.send("x", [Token(3)], 9)
        await queue.requeue(await queue.receive(), 5.0)
        await until(lambda: _has(here.waiting("workflow.execution.retry.5s"), 1))
        again = await queue.receive()
        assert again.token.node == 3
        await queue.requeue(again, 100.0)
        await until(lambda: _has(here.waiting("workflow.execution.retry.125s"), 1))
        letter = await here.take("workflow.execution.retry.125s")
        assert letter is not None
        assert letter.routing_key == "workflow.execution.high", "it finds back to its lane"


@scenario
async def test_named_queues_are_read_by_who_names_them() -> None:
    async with place() as here:

        async def route(execution: str, token: Token) -> str:
            return "gpu" if token.node else "default"

        plain, special = here.queue("plain"), here.queue("special", queues=("gpu",))
        sender = here.queue("sender", queues=("default", "gpu"), route=route)
        await sender.send("x", [Token(0), Token(1)], 9)
        assert (await plain.receive()).token.node == 0
        assert (await special.receive()).token.node == 1


@scenario
async def test_a_named_queue_that_nobody_reads_yet_waits_for_who_does() -> None:
    async with place() as here:

        async def route(execution: str, token: Token) -> str:
            return "gpu"

        sender = here.queue("sender", adopt=True, route=route)
        await sender.send("x", [Token(1)], 1)
        assert await here.waiting("workflow.execution.gpu.low") == 1
        reader = here.queue("reader", queues=("gpu",))
        assert (await reader.receive()).token.node == 1


@scenario
async def test_what_one_cannot_send_disturbs_nobody_else() -> None:
    async with place() as here:

        async def route(execution: str, token: Token) -> str:
            return "default" if execution == "x" else "nowhere"

        queue = here.queue(deadline=1.0, route=route)
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
def test_a_queue_is_known_by_its_lanes(key: str, queue: str | None) -> None:
    assert Topology().queue_of(key) == queue


@scenario
async def test_a_queue_may_be_called_as_the_topology_calls_something_else() -> None:
    names = ("high", "low", "dead", "dlx", "retry")

    async def route(execution: str, token: Token) -> str:
        return execution

    async with place() as here:
        usual, others = here.queue("usual"), here.queue("others", queues=names, adopt=True, route=route)
        for name in names:
            await others.send(name, [Token(0)])
        await others.send("default", [Token(1)], 9)
        for queue, count in ((others, len(names)), (usual, 1)):
            got = [await queue.receive() for _ in range(count)]
            assert {each.execution for each in got} == (set(names) if queue is others else {"default"})
        assert await here.waiting("workflow.execution.dead") == 0


@pytest.mark.parametrize("name", ["a.b", "", "ü", "x" * 129])
def test_a_name_that_nothing_is_called_is_refused(name: str) -> None:
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
@scenario
async def test_what_cannot_be_served_is_a_dead_letter_with_its_reason(body: bytes, code: str) -> None:
    async with place() as here:
        queue = here.queue()
        await queue.send("x", [Token(0)])
        await queue.ack(await queue.receive())
        await here.put("workflow.execution", body)
        await queue.send("x", [Token(1)])
        assert (await queue.receive()).token.node == 1
        await until(lambda: _has(here.waiting("workflow.execution.dead"), 1))
        letter = await here.take("workflow.execution.dead")
        assert letter is not None
        assert letter.body == body
        assert letter.headers["rune-code"] == code
        assert letter.headers["rune-queue"] == "workflow.execution"


async def _has(counting: object, wanted: int) -> bool:
    return bool(await counting >= wanted)  # type: ignore[misc]  # a queue may double


@scenario
async def test_a_dead_letter_by_request_keeps_the_reason() -> None:
    async with place() as here:
        queue = here.queue()
        await queue.send("x", [Token(0)], 1)
        await queue.dead_letter(await queue.receive(), "WORKER_CRASH", "it killed five workers")
        letter = await here.take("workflow.execution.dead")
        assert letter is not None
        assert letter.headers["rune-code"] == "WORKER_CRASH"
        assert letter.headers["rune-reason"] == "it killed five workers"
        assert letter.routing_key == "workflow.execution.low"


@scenario
async def test_a_long_reason_fits_into_the_smallest_frame() -> None:
    async with place() as here:
        queue = here.queue(url=f"{here.url}?frame_max=4096")
        await queue.send("x", [Token(3)])
        await queue.dead_letter(await queue.receive(), "CODE", "ok " + "\U0001f600" * 2000)
        letter = await here.take("workflow.execution.dead")
        assert letter is not None
        assert letter.headers["rune-reason"].startswith("ok \U0001f600")
        assert queue.publisher.link.made == 1


@scenario
async def test_messages_of_others_are_handed_over() -> None:
    async with place() as here:
        seen: list[NodeExecutionMessage] = []

        async def take(message: NodeExecutionMessage, body: bytes) -> None:
            seen.append(message)
            if message.current_node == "nowhere":
                raise RuneError("no such node", code="UNKNOWN_NODE")

        queue = here.queue(foreign_handler=take)
        waiting = asyncio.ensure_future(queue.receive())
        await until(lambda: queue.consumer.link.is_up)
        await here.put("workflow.execution", EXAMPLE)
        await here.put("workflow.execution", EXAMPLE.replace(b"http_fetch_user", b"nowhere"))
        await until(lambda: _has(here.waiting("workflow.execution.dead"), 1))
        letter = await here.take("workflow.execution.dead")
        assert letter is not None
        assert letter.headers["rune-code"] == "UNKNOWN_NODE"
        assert [each.current_node for each in seen] == ["http_fetch_user", "nowhere"]
        assert seen[0].workflow_id == "wf_email_notification"
        waiting.cancel()
        await asyncio.wait((waiting,))
        await queue.close()
        assert await here.waiting("workflow.execution") == 0


@scenario
async def test_a_setting_that_contradicts_the_broker_is_explained() -> None:
    async with place() as here:
        await here.queue().send("x", [Token(0)])
        other = here.queue("other", kind="quorum", deadline=1.0)
        with pytest.raises(StoreUnavailableError) as caught:
            await other.send("x", [Token(0)])
        assert "delete_queue" in str(caught.value)
        with pytest.raises(TopologyMismatchError, match=r"`workflow\.execution\.high` exists"):
            await other.check()


@scenario
async def test_sending_to_a_broker_that_is_away_is_an_outage() -> None:
    async with place() as here:
        queue = here.queue(url="amqp://127.0.0.1:1/", deadline=0.3)
        with pytest.raises(StoreUnavailableError):
            await queue.send("x", [Token(0)])


@scenario
async def test_the_broker_tells_how_long_the_oldest_has_waited() -> None:
    async with place() as here:
        queue = here.queue()
        before = int(time.time())
        await queue.send("x", [Token(0)])
        after = int(time.time())
        listing = ("list_queues", "-p", here.vhost, "name", "head_message_timestamp")
        told = await asyncio.to_thread(broker().control, *listing)
        found = dict(line.split("\t") for line in told.splitlines() if "\t" in line)
        assert before <= int(found["workflow.execution"]) <= after
