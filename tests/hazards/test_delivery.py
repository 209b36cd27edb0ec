"""Hazards C: delivery of tokens to engines, in one process and through RabbitMQ."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import aio_pika
import msgspec
import pytest

from rune.adapters.rabbitmq.amqp.client import Message
from rune.core.execution.token import Token
from rune.nodes.custom import kind_of, node
from rune.nodes.registry import standard_registry
from rune.ports.queue import Delivery, default_route
from rune.ports.state import KeptToken
from rune.runtime.maintenance.scheduler import SWEEP_PERIOD_MS
from rune.runtime.worker import worker
from rune.runtime.worker.executor import Executor
from rune.runtime.worker.node_runner import NodeRunner
from rune.testing.harness import Harness, VirtualClock
from tests.hazards.dead_letters import next_dead_letter
from tests.support.backends import Backend, backends
from tests.support.workflows import (
    Fields,
    chain,
    edit,
    gated_registry,
    node_entry,
    of_type,
    recording_registry,
    wait,
    wait_for_signal,
    workflow,
)

WORK = "workflow.execution"
TIMEOUT_S = 60.0
NESTED_REFERENCE = "{{ $trigger.a.b.c + 1 }}"


def _break_node_runner(monkeypatch: pytest.MonkeyPatch, *delays: float) -> None:
    """Make the engine fail with an internal error on every token; it retries after these delays."""

    async def broken(*given: Any) -> Any:
        raise LookupError("the engine itself")

    monkeypatch.setattr(worker, "REDELIVERY_DELAYS_S", delays)
    monkeypatch.setattr(NodeRunner, "run", broken)


async def _declare_queues(engine: Harness) -> None:
    queue: Any = engine.engine.backend.queue
    await queue.check()


@asynccontextmanager
async def _copied_messages(url: str, exchange: str, key: str) -> AsyncIterator[list[bytes]]:
    """Collect a copy of each message that is published to an exchange."""
    found: list[bytes] = []

    async def take(message: Any) -> None:
        found.append(message.body)

    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue(exclusive=True)
        await queue.bind(exchange, key)
        await queue.consume(take, no_ack=True)
        yield found


async def _send_without_context(engine: Harness, execution: str, token: Token) -> None:
    """Send a token that the engine itself would never send."""
    queue: Any = engine.engine.backend.queue
    lookup, route = queue._context_lookup, queue._route
    queue._context_lookup, queue._route = None, default_route
    await queue.send(execution, [token])
    queue._context_lookup, queue._route = lookup, route


@backends("embedded")
def test_h_c3_unhandled_message_fails_its_execution(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    # fault: c3: the worker drops a message after its last try
    _break_node_runner(monkeypatch, 0.0, 0.0)

    async def go() -> Any:
        async with backend.open(clock=VirtualClock()) as engine:
            return await (await engine.start(workflow("start>a", a=edit(x=1)))).end()

    end = asyncio.run(go())
    assert (end.status, end.error.code) == ("failed", "DEAD_LETTERED")
    assert "LookupError" in end.error.message


@backends("rabbitmq-travelling")
def test_h_c3_message_given_up_by_engine_is_dead_lettered(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    # fault: c3-givenup: a message that is given up is acknowledged and lost
    _break_node_runner(monkeypatch, 0.0)

    async def go() -> tuple[Any, Message | None, int]:
        async with backend.open() as engine:
            run = await engine.start(workflow("start>a", a=edit(x=1)))
            end = await run.end()
            letter = await next_dead_letter(backend.settings.queue, run.id)
            queue: Any = engine.engine.backend.queue
            return end, letter, len(queue._held)

    end, letter, held = asyncio.run(go())
    assert (end.status, end.error.code) == ("failed", "DEAD_LETTERED")
    assert letter is not None
    assert letter.headers["rune-code"] == "DEAD_LETTERED"
    assert "LookupError" in letter.headers["rune-reason"]
    assert held == 0, "the message is still held"


@backends("rabbitmq-travelling")
def test_h_c3_message_for_unknown_node_does_not_end_execution(backend: Backend) -> None:
    # fault: c3-node: it counts as an error of the engine, and the execution ends
    gate = asyncio.Event()

    async def go() -> tuple[Message | None, str]:
        async with backend.open(registry=gated_registry([], lambda: gate)) as engine:
            run = await engine.start(workflow("start>a", a=of_type("t.gate")))
            await _send_without_context(engine, run.id, Token(99))
            letter = await next_dead_letter(backend.settings.queue, run.id)
            gate.set()
            return letter, (await run.end()).status

    letter, status = asyncio.run(go())
    assert letter is not None
    assert letter.headers["rune-code"] == "UNKNOWN_NODE"
    assert status == "completed"


@backends("embedded")
def test_h_c4_failed_message_is_redelivered_with_growing_delay(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    # fault: c4: every error counts as the first
    clock = VirtualClock()
    tries: list[int] = []

    async def broken(*given: Any) -> Any:
        tries.append(clock.now())
        raise LookupError("the engine itself")

    monkeypatch.setattr(NodeRunner, "run", broken)

    async def go() -> Any:
        async with backend.open(clock=clock) as engine:
            return await (await engine.start(workflow("start>a", a=edit(x=1)))).end()

    end = asyncio.run(go())
    assert (end.status, end.error.code) == ("failed", "DEAD_LETTERED")
    gaps = [(after - before) / 1000 for before, after in pairwise(tries)]
    assert len(gaps) == 3
    for gap, delay in zip(gaps, worker.REDELIVERY_DELAYS_S, strict=True):
        assert delay <= gap <= delay + SWEEP_PERIOD_MS / 1000


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")], ids=str)
@backends("embedded", "rabbitmq-travelling")
def test_h_c5_non_json_output_fails_node_once(backend: Backend, bad: float) -> None:
    # fault: c5: floats are not checked at the boundary
    # fault: c5-rabbitmq: floats are not checked at the boundary
    calls: list[str] = []

    @node("t.bad")
    async def returns_bad() -> dict[str, Any]:
        calls.append("a")
        return {"x": [bad]}

    found = kind_of(returns_bad)
    assert found is not None
    document = workflow("start>a a>b", a=of_type("t.bad"), b=edit(x=1))
    failed = node_entry(backend.run(document, registry=standard_registry().extended([found])), "a")
    assert (failed["status"], failed["attempts"], calls) == ("failed", 1, ["a"])
    assert failed["error"]["code"] == "NOT_JSON"


@pytest.mark.parametrize(
    "reader",
    [edit(x=NESTED_REFERENCE), of_type("log", message=NESTED_REFERENCE)],
    ids=["evaluated by the node", "resolved before the node"],
)
@backends("embedded", "rabbitmq-travelling")
def test_h_c6_expression_error_fails_only_its_node(backend: Backend, reader: Fields) -> None:
    # fault: c6: an error of `resolve` is not assigned to a node
    # fault: c6-rabbitmq: an error of `resolve` is not assigned to a node
    document = workflow("start>a a>b", a=reader, b=edit(x=1))

    async def go() -> list[str]:
        async with backend.open() as engine:
            return [
                (await engine.run(document, given))["status"]
                for given in ({}, {"a": 1}, {"a": {"b": {"c": 1}}})
            ]

    assert asyncio.run(go()) == ["halted", "halted", "completed"]


@backends("embedded", "rabbitmq-travelling")
def test_h_c7_stopping_engine_fails_no_node(backend: Backend) -> None:
    # fault: c7: the services are cancelled without a drain
    # fault: c7-rabbitmq: the services are cancelled without a drain
    calls: list[str] = []
    document = workflow("start>a a>b", a=of_type("t.gate"), b=of_type("t.gate"))

    async def go() -> str:
        gate = asyncio.Event()
        registry = gated_registry(calls, lambda: gate)
        async with backend.open(registry=registry) as engine:
            run = await engine.start(document)
            await engine.wait_for(lambda: calls == ["a@/"], 60)
            asyncio.get_running_loop().call_later(0.05, gate.set)
        async with backend.open(registry=registry) as engine:
            return (await engine.until(await engine.engine.wait_for(run.id))).status

    assert asyncio.run(go()) == "completed"
    assert calls == ["a@/", "b@/"]


@backends("embedded")
def test_h_c8_redelivered_message_runs_nothing_again(backend: Backend) -> None:
    # fault: c8: a claim of a finished token returns `run`
    calls: list[str] = []
    document = workflow("start>a a>b b>c", a=of_type("t.call"), b=of_type("t.call"), c=wait(1))

    async def go() -> str:
        clock = VirtualClock()
        async with backend.open(clock=clock, registry=recording_registry(calls)) as engine:
            run = await engine.start(document)
            await engine.settle()
            for _ in range(3):
                await engine.engine.backend.queue.send(run.id, [Token(1), Token(2)])
                await engine.settle()
            return (await run.end()).status

    assert asyncio.run(go()) == "completed"
    assert calls == ["a@/", "b@/"]


@backends("rabbitmq-travelling")
def test_h_c8_message_redelivered_by_broker_runs_nothing_again(backend: Backend) -> None:
    # fault: c8-rabbitmq: a claim of a finished token returns `run`
    calls: list[str] = []
    document = workflow("start>a a>b b>w", a=of_type("t.call"), b=of_type("t.call"), w=wait_for_signal())

    async def go() -> str:
        async with backend.open(registry=recording_registry(calls)) as engine:
            run = await engine.start(document)
            await engine.wait_for(lambda: calls == ["a@/", "b@/"], TIMEOUT_S)
            for _ in range(3):
                await engine.engine.backend.queue.send(run.id, [Token(1), Token(2)])
            # Queued after the repeated messages: once it has ended they have been handled.
            await engine.run(workflow("start>c", c=of_type("t.call")))
            await engine.engine.services.executions.signal(run.id, "go", b"1")
            return (await run.end()).status

    assert asyncio.run(go()) == "completed"
    assert calls == ["a@/", "b@/", "c@/"]


@backends("embedded")
def test_h_c10_slow_node_occupies_one_slot(backend: Backend) -> None:
    # fault: c10: one slot serves all executions
    async def go() -> list[str]:
        gate, calls = asyncio.Event(), list[str]()
        async with backend.open(registry=gated_registry(calls, lambda: gate), slots=2) as engine:
            slow = await engine.start(workflow("start>a", a=of_type("t.gate")))
            await engine.wait_for(lambda: calls == ["a@/"])
            quick = [await engine.start(workflow("start>a", a=edit(x=1))) for _ in range(20)]
            try:
                ends: list[str] = [(await each.end()).status for each in quick]
            finally:
                gate.set()
            await slow.end()
            return ends

    assert asyncio.run(go()) == ["completed"] * 20


@backends("embedded")
def test_h_c12_token_contains_neither_definition_nor_context(backend: Backend) -> None:
    # fault: c12: a token carries the start payload
    async def go() -> int:
        sizes: list[int] = []
        async with backend.open(in_place=False) as engine:
            queue: Any = engine.engine.backend.queue
            send = queue.send

            async def measure(execution: str, tokens: Any, priority: int = 5) -> None:
                sizes.extend(len(msgspec.msgpack.encode(each)) for each in tokens)
                await send(execution, tokens, priority)

            queue.send = measure
            await engine.run(chain(30, edit(x="{{ $trigger.big }}")), {"big": "x" * 100_000})
        assert len(sizes) >= 30
        return max(sizes)

    assert asyncio.run(go()) < 1_000


@backends("rabbitmq-travelling")
def test_h_c12_messages_do_not_grow_along_chain(backend: Backend) -> None:
    # fault: c12-rabbitmq: messages are written in full although the setting is off
    document = chain(10, edit(x="{{ $trigger.big }}"))

    async def go() -> list[int]:
        async with backend.open() as engine:
            await _declare_queues(engine)
            async with _copied_messages(backend.settings.queue, WORK, WORK) as bodies:
                await engine.run(document, {"big": "x" * 20_000})
                return [len(each) for each in bodies]

    sizes = asyncio.run(go())
    assert len(sizes) >= 9
    assert max(sizes) < 1_000


@backends("embedded")
def test_h_c14_events_are_numbered_in_journal_order(backend: Backend) -> None:
    # fault: c14: events are numbered by the clock
    async def go() -> tuple[list[int], list[str]]:
        async with backend.open() as engine:
            run = await engine.start(
                workflow("start>a a>w w>b", a=edit(x=1), w=wait(1), b=edit(x=2)), fake_time=True
            )
            await run.end()
            events = (await run.history()).events()
            return [each.number for each in events], [each.kind for each in events]

    numbers, kinds = asyncio.run(go())
    assert numbers == list(range(1, len(numbers) + 1))
    assert kinds.index("node.waiting") < len(kinds) - 1
    assert (kinds[0], kinds[-1]) == ("execution.accepted", "execution.completed")


@backends("rabbitmq-travelling")
def test_h_c14_statuses_are_published_in_order(backend: Backend) -> None:
    # fault: c14-rabbitmq: statuses that could not be published at once are published newest first
    wanted = [(f"n{number}", status) for number in range(6) for status in ("running", "success")]

    async def go() -> list[tuple[str, str]]:
        async with backend.open(count=2, registry=recording_registry([])) as engine:
            await _declare_queues(engine)
            name = "workflow.node.status"
            async with _copied_messages(backend.settings.queue, name, name) as bodies:
                await engine.run(chain(6, of_type("t.call")))
                await engine.wait_for(lambda: len(bodies) >= len(wanted), TIMEOUT_S)
                statuses = [json.loads(each) for each in bodies]
                return [(each["node_id"], each["status"]) for each in statuses]

    assert asyncio.run(go()) == wanted


@backends("embedded")
def test_h_c15_message_of_unknown_execution_is_dropped_after_last_try(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    # fault: c15: a message is tried forever
    monkeypatch.setattr(worker, "REDELIVERY_DELAYS_S", (0.0, 0.0))
    monkeypatch.setattr(worker, "STORE_RETRY_DELAY_S", 0.0)  # retries come at once
    tries: list[str] = []
    handle = Executor.handle

    async def counted(self: Executor, delivery: Delivery, *more: Any) -> KeptToken | None:
        tries.append(delivery.execution)
        if tries.count("gone") > 10:
            await asyncio.Event().wait()
        return await handle(self, delivery, *more)

    monkeypatch.setattr(Executor, "handle", counted)

    async def go() -> str:
        async with backend.open(clock=VirtualClock(), slots=2) as engine:
            await engine.engine.backend.queue.send("gone", [Token(1)])
            await engine.wait_for(lambda: tries.count("gone") > 10 or engine.engine.busy == 0)
            assert 1 <= tries.count("gone") <= 3
            return (await (await engine.start(workflow("start>a", a=edit(x=1)))).end(10)).status

    assert asyncio.run(go()) == "completed"


@backends("rabbitmq-travelling")
def test_h_c15_message_of_unknown_execution_is_dead_lettered(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    # fault: c15-rabbitmq: it counts as an error of the engine and is tried again
    tries: list[str] = []
    handle = Executor.handle

    async def counted(self: Executor, delivery: Delivery, *more: Any) -> KeptToken | None:
        tries.append(delivery.execution)
        return await handle(self, delivery, *more)

    monkeypatch.setattr(Executor, "handle", counted)
    document = workflow("start>a a>w w>b", a=edit(x=1), w=wait(1), b=edit(x=2))

    async def go() -> tuple[Message | None, str]:
        async with backend.open() as engine:
            await _send_without_context(engine, "gone", Token(1))
            letter = await next_dead_letter(backend.settings.queue, "gone")
            return letter, str((await engine.run(document, fake_time=True))["status"])

    letter, status = asyncio.run(go())
    assert letter is not None
    assert letter.headers["rune-code"] == "UNKNOWN_EXECUTION"
    assert (tries.count("gone"), status) == (1, "completed")


@backends("redis")
def test_h_i19_wrong_type_in_template_fails_its_node(backend: Backend) -> None:
    # fault: i19: parameters that cannot be resolved are an error of the engine
    document = workflow("start>a", a=wait("{{ $trigger.n + 1 }}"))
    result = backend.run(document, {"n": {"not": "a number"}})
    assert (result["status"], node_entry(result, "a")["status"]) == ("halted", "failed")
