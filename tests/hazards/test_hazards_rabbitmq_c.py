"""The rest of hazards C over RabbitMQ: queues on a real broker, and engines of this process that it carries for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import aio_pika
import pytest
from msgspec.structs import replace

from rune.adapters.rabbitmq.amqp.client import Message
from rune.core.execution.token import Token
from rune.ports.queue import Delivery
from rune.runtime.worker.executor import Executor
from rune.settings import Settings
from rune.testing.harness import Harness
from tests.hazards import delivering
from tests.hazards.building import counting, gated, in_a_row, kind, sets, waits, workflow
from tests.hazards.clustered import engines, fresh, ran
from tests.integration.rabbitmq.helping import scenario
from tests.integration.rabbitmq.queues import Place, place
from tests.support.services.rabbitmq import broker

WORK = "workflow.execution"
SOON = 60.0  # s: long enough for whatever is on its way


@pytest.fixture(scope="module")
def carried() -> Iterator[Settings]:
    """Stores that nobody has used, and a broker between the engines."""
    with broker().vhost() as vhost:
        yield replace(fresh(), queue=broker().url(vhost))


@asynccontextmanager
async def copied(settings: Settings, exchange: str, key: str) -> AsyncIterator[list[bytes]]:
    """A copy of whatever is published there from now on."""
    found: list[bytes] = []

    async def take(message: Any) -> None:
        found.append(message.body)

    async with await aio_pika.connect(settings.queue) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue(exclusive=True)
        await queue.bind(exchange, key)
        await queue.consume(take, no_ack=True)
        yield found


async def buried(here: Place, of: str = "") -> Message | None:
    """The dead letter that must come, of an execution if one is named; None if none does."""
    loop = asyncio.get_running_loop()
    until = loop.time() + SOON
    while loop.time() < until:
        found = await here.take("workflow.execution.dead")
        if found is not None and of.encode() in found.body:
            return found
    return None


async def _declared(cluster: Harness) -> None:
    queue: Any = cluster.engine.backend.queue
    await queue.check()


@pytest.mark.usefixtures("carried")
@scenario
async def test_h_c3_what_nobody_can_read_is_kept_with_its_reason() -> None:
    # fault: c3-broker: it is acknowledged and gone
    async with place() as here:
        queue = here.queue()
        await queue.check()
        await here.put(WORK, b"{not json")
        await queue.send("x", [Token(1)])
        assert (await queue.receive()).execution == "x", "nothing waits behind it"
        letter = await buried(here)
        assert letter is not None
        assert letter.headers["rune-code"] == "BAD_MESSAGE"


@pytest.mark.parametrize("kind", ["classic", "quorum"])
@pytest.mark.usefixtures("carried")
def test_h_c3_what_somebody_rejects_is_kept(kind: str) -> None:
    # fault: c3-rejected: work has no dead-letter exchange

    @scenario
    async def go() -> None:
        async with place() as here:
            await here.queue(kind=kind).check()
            await here.put(WORK, b"{}")
            async with await aio_pika.connect(here.url) as connection:
                queue = await (await connection.channel()).get_queue(WORK, ensure=False)
                await (await queue.get()).reject(requeue=False)
            assert await buried(here) is not None

    go()


@pytest.mark.usefixtures("carried")
@scenario
async def test_h_c4_what_is_to_come_later_does_not_come_at_once() -> None:
    # fault: c4-broker: whatever is given back goes to the end of its queue
    async with place() as here:
        queue = here.queue()
        await queue.send("x", [Token(1)])
        await queue.requeue(await queue.receive(), 125.0)
        again = asyncio.create_task(queue.receive())
        done, _ = await asyncio.wait([again], timeout=2.0)
        again.cancel()
        assert not done


@pytest.mark.parametrize("bad", [float("nan"), float("inf")], ids=str)
def test_h_c5_what_is_not_json_loops_through_no_queue(carried: Settings, bad: float) -> None:
    # fault: c5-broker: the boundary does not look at floats
    delivering.what_is_not_json_fails_its_node_once(partial(ran, on=carried, in_place=False), bad)


def test_h_c6_an_error_in_an_expression_harms_nobody_else(carried: Settings) -> None:
    # fault: c6-broker: an error of `resolve` is nobody's
    reads = kind("log", message=delivering.DEEP)
    delivering.an_error_in_an_expression_is_its_node_s(partial(engines, carried, in_place=False), reads)


def test_h_c7_a_worker_that_stops_fails_no_node(carried: Settings) -> None:
    # fault: c7-broker: the services are cancelled without a drain
    delivering.a_stop_fails_no_node(partial(engines, carried, in_place=False))


def test_h_c8_a_message_that_comes_again_runs_nothing_again(carried: Settings) -> None:
    # fault: c8-broker: a claim answers `run` for a token that is done
    calls: list[str] = []
    document = workflow(
        "start>a a>b b>w", a=kind("t.call"), b=kind("t.call"), w=kind("wait", resume="signal", name="go")
    )

    async def go() -> str:
        async with engines(carried, registry=counting(calls), in_place=False) as cluster:
            run = await cluster.start(document)
            await cluster.wait_for(lambda: calls == ["a@/", "b@/"], SOON)
            for _ in range(3):
                await cluster.engine.backend.queue.send(run.id, [Token(1), Token(2)])
            await cluster.run(workflow("start>c", c=kind("t.call")))  # behind them in the same queue
            await cluster.engine.services.executions.signal(run.id, "go", b"1")
            return (await run.end()).status

    assert asyncio.run(go()) == "completed"
    assert calls == ["a@/", "b@/", "c@/"]


@pytest.mark.usefixtures("carried")
@scenario
async def test_h_c10_what_waits_behind_a_slow_call_goes_to_who_is_idle() -> None:
    # fault: c10-broker: whoever has no free slot keeps what it was sent
    async with place() as here:
        busy, idle = here.queue("busy", prefetch=1), here.queue("idle", prefetch=10)
        await busy.send("slow", [Token(0)])
        held = await busy.receive()
        for priority in (1, 5, 9):
            await busy.send("more", [Token(each) for each in range(3)], priority)
        got = [asyncio.create_task(idle.receive()) for _ in range(9)]
        done, late = await asyncio.wait(got, timeout=SOON)
        for each in late:
            each.cancel()
        assert len(done) == 9
        await busy.ack(held)


def test_h_c12_messages_stay_small_whatever_ran_before(carried: Settings) -> None:
    # fault: c12-broker: messages are written in full although nobody asked for it
    document = in_a_row(10, sets(x="{{ $trigger.big }}"))

    async def go() -> list[int]:
        async with engines(carried, in_place=False) as cluster:
            await _declared(cluster)
            async with copied(carried, WORK, WORK) as bodies:
                await cluster.run(document, {"big": "x" * 20_000})
                return [len(each) for each in bodies]

    sizes = asyncio.run(go())
    assert len(sizes) >= 9
    assert max(sizes) < 1_000


def test_h_c14_statuses_come_in_the_order_in_which_things_happened(carried: Settings) -> None:
    # fault: c14-broker: what could not be told at once is told newest first
    wanted = [(f"n{number}", status) for number in range(6) for status in ("running", "success")]

    async def go() -> list[tuple[str, str]]:
        async with engines(carried, count=2, registry=counting([]), in_place=False) as cluster:
            await _declared(cluster)
            async with copied(carried, "workflow.node.status", "workflow.node.status") as bodies:
                await cluster.run(in_a_row(6, kind("t.call")))
                await cluster.wait_for(lambda: len(bodies) >= len(wanted), SOON)
                told = [json.loads(each) for each in bodies]
                return [(each["node_id"], each["status"]) for each in told]

    assert asyncio.run(go()) == wanted


def test_h_c3_what_the_engine_gives_up_is_kept_with_its_reason(
    carried: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    # fault: c3-givenup: what was given up is acknowledged and gone
    delivering.nothing_can_be_run(monkeypatch, 0.0)

    async def go() -> tuple[Any, Message | None, int]:
        async with engines(carried, in_place=False) as cluster:
            run = await cluster.start(workflow("start>a", a=sets(x=1)))
            end = await run.end()
            letter = await buried(Place(carried.queue, ""), run.id)
            queue: Any = cluster.engine.backend.queue
            return end, letter, len(queue._held)

    end, letter, held = asyncio.run(go())
    assert (end.status, end.error.code) == ("failed", "DEAD_LETTERED")
    assert letter is not None
    assert letter.headers["rune-code"] == "DEAD_LETTERED"
    assert "LookupError" in letter.headers["rune-reason"]
    assert held == 0, "nobody waits for what was given up"


def test_h_c15_a_message_of_an_execution_that_is_gone_goes_too(
    carried: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    # fault: c15-broker: it is an error of the engine, and tried again
    tries: list[str] = []
    handle = Executor.handle

    async def counted(self: Executor, delivery: Delivery) -> bool:
        tries.append(delivery.execution)
        return await handle(self, delivery)

    monkeypatch.setattr(Executor, "handle", counted)
    document = workflow("start>a a>w w>b", a=sets(x=1), w=waits(1), b=sets(x=2))

    async def go() -> tuple[Message | None, str]:
        async with engines(carried, in_place=False) as cluster:
            await forged(cluster, "gone", Token(1))
            letter = await buried(Place(carried.queue, ""), "gone")
            return letter, str((await cluster.run(document, fake_time=True))["status"])

    letter, status = asyncio.run(go())
    assert letter is not None
    assert letter.headers["rune-code"] == "UNKNOWN_EXECUTION"
    assert (tries.count("gone"), status) == (1, "completed")


def test_h_c3_a_message_for_a_node_that_is_not_there_ends_no_execution(carried: Settings) -> None:
    # fault: c3-node: it is an error of the engine, and the execution is ended for it
    gate = asyncio.Event()

    async def go() -> tuple[Message | None, str]:
        async with engines(carried, registry=gated([], lambda: gate), in_place=False) as cluster:
            run = await cluster.start(workflow("start>a", a=kind("t.gate")))
            await forged(cluster, run.id, Token(99))
            letter = await buried(Place(carried.queue, ""), run.id)
            gate.set()
            return letter, (await run.end()).status

    letter, status = asyncio.run(go())
    assert letter is not None
    assert letter.headers["rune-code"] == "UNKNOWN_NODE"
    assert status == "completed"


async def forged(cluster: Harness, execution: str, token: Token) -> None:
    """A message that nobody should have sent."""
    queue: Any = cluster.engine.backend.queue
    naming, route = queue._context_lookup, queue._route
    queue._context_lookup = queue._route = None
    await queue.send(execution, [token])
    queue._context_lookup, queue._route = naming, route
