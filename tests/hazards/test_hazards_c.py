"""Hazards C: delivery, as far as it concerns a process without a broker."""

from __future__ import annotations

import asyncio
import pathlib
from functools import partial
from typing import Any

import msgspec
import pytest

from rune.core.execution.token import Token
from rune.ports.queue import Delivery
from rune.runtime.worker import worker
from rune.runtime.worker import worker as failures
from rune.runtime.worker.executor import Executor
from rune.runtime.worker.worker import RedeliveryBackoff
from rune.testing.clock import VirtualClock
from rune.testing.harness import harness
from tests.hazards import delivering
from tests.hazards.building import counting, gated, in_a_row, kind, ran, sets, waits, workflow


def test_h_c3_a_message_that_cannot_be_handled_ends_its_execution(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # fault: c3: the worker drops a message after its last try
    delivering.nothing_can_be_run(monkeypatch, 0.0, 0.0)

    async def go() -> Any:
        async with harness(tmp_path, clock=VirtualClock()) as engine:
            return await (await engine.start(workflow("start>a", a=sets(x=1)))).end()

    end = asyncio.run(go())
    assert (end.status, end.error.code) == ("failed", "DEAD_LETTERED")
    assert "LookupError" in end.error.message


def test_h_c4_a_message_that_fails_comes_back_later_and_not_for_ever() -> None:
    # fault: c4: `delay` answers 0.0 every time
    counted = RedeliveryBackoff()
    delivery = Delivery("x", Token(1))
    assert [counted.delay(delivery) for _ in range(4)] == [5.0, 25.0, 125.0, None]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")], ids=str)
def test_h_c5_what_is_not_json_fails_its_node_once(bad: float) -> None:
    # fault: c5: the boundary does not look at floats
    delivering.what_is_not_json_fails_its_node_once(ran, bad)


@pytest.mark.parametrize(
    "reads",
    [sets(x=delivering.DEEP), kind("log", message=delivering.DEEP)],
    ids=["it evaluates itself", "it is given values"],
)
def test_h_c6_an_error_in_an_expression_is_its_node_s(reads: dict[str, Any], tmp_path: pathlib.Path) -> None:
    # fault: c6: an error of `resolve` is nobody's
    delivering.an_error_in_an_expression_is_its_node_s(partial(harness, tmp_path), reads)


def test_h_c7_a_stop_fails_no_node(tmp_path: pathlib.Path) -> None:
    # fault: c7: the services are cancelled without a drain
    delivering.a_stop_fails_no_node(partial(harness, tmp_path))


def test_h_c8_a_message_delivered_again_runs_nothing_again(tmp_path: pathlib.Path) -> None:
    # fault: c8: `touch` answers `run` for a token that is done
    calls: list[str] = []
    document = workflow("start>a a>b b>c", a=kind("t.call"), b=kind("t.call"), c=waits(1))

    async def go() -> str:
        clock = VirtualClock()
        async with harness(tmp_path, clock=clock, registry=counting(calls)) as engine:
            run = await engine.start(document)
            await engine.settle()
            for _ in range(3):
                await engine.engine.backend.queue.send(run.id, [Token(1), Token(2)])
                await engine.settle()
            return (await run.end()).status

    assert asyncio.run(go()) == "completed"
    assert calls == ["a@/", "b@/"]


def test_h_c10_a_slow_node_holds_one_slot_and_nothing_else(tmp_path: pathlib.Path) -> None:
    # fault: c10: one slot serves everybody
    async def go() -> list[str]:
        gate, calls = asyncio.Event(), list[str]()
        async with harness(tmp_path, registry=gated(calls, lambda: gate), slots=2) as engine:
            slow = await engine.start(workflow("start>a", a=kind("t.gate")))
            await engine.wait_for(lambda: calls == ["a@/"])
            quick = [await engine.start(workflow("start>a", a=sets(x=1))) for _ in range(20)]
            try:
                ends: list[str] = [(await each.end()).status for each in quick]
            finally:
                gate.set()
            await slow.end()
            return ends

    assert asyncio.run(go()) == ["completed"] * 20


def test_h_c12_a_message_carries_neither_definition_nor_context(tmp_path: pathlib.Path) -> None:
    # fault: c12: a token carries the start payload
    async def go() -> int:
        sizes: list[int] = []
        async with harness(tmp_path, in_place=False) as engine:
            queue: Any = engine.engine.backend.queue
            send = queue.send

            async def weighed(execution: str, tokens: Any, priority: int = 5) -> None:
                sizes.extend(len(msgspec.msgpack.encode(each)) for each in tokens)
                await send(execution, tokens, priority)

            queue.send = weighed
            await engine.run(in_a_row(30, sets(x="{{ $trigger.big }}")), {"big": "x" * 100_000})
        assert len(sizes) >= 30
        return max(sizes)

    assert asyncio.run(go()) < 1_000


def test_h_c14_events_are_numbered_without_gaps_in_the_order_of_the_journal(tmp_path: pathlib.Path) -> None:
    # fault: c14: events are numbered by the clock
    async def go() -> tuple[list[int], list[str]]:
        async with harness(tmp_path) as engine:
            run = await engine.start(
                workflow("start>a a>w w>b", a=sets(x=1), w=waits(1), b=sets(x=2)), fake_time=True
            )
            await run.end()
            events = (await run.history()).events()
            return [each.number for each in events], [each.kind for each in events]

    numbers, kinds = asyncio.run(go())
    assert numbers == list(range(1, len(numbers) + 1))
    assert kinds.index("node.waiting") < len(kinds) - 1
    assert (kinds[0], kinds[-1]) == ("execution.accepted", "execution.completed")


def test_h_c15_a_message_of_nothing_known_ends_with_its_last_try(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # fault: c15: a message is tried for ever
    monkeypatch.setattr(failures, "REDELIVERY_DELAYS_S", (0.0, 0.0))
    monkeypatch.setattr(worker, "STORE_RETRY_DELAY_S", 0.0)  # whatever comes again comes at once
    tries: list[str] = []
    handle = Executor.handle

    async def counted(self: Executor, delivery: Delivery) -> bool:
        tries.append(delivery.execution)
        if tries.count("gone") > 10:
            await asyncio.Event().wait()
        return await handle(self, delivery)

    monkeypatch.setattr(Executor, "handle", counted)

    async def go() -> str:
        async with harness(tmp_path, clock=VirtualClock(), slots=2) as engine:
            await engine.engine.backend.queue.send("gone", [Token(1)])
            await engine.wait_for(lambda: tries.count("gone") > 10 or engine.engine.busy == 0)
            assert 1 <= tries.count("gone") <= 3
            return (await (await engine.start(workflow("start>a", a=sets(x=1)))).end(10)).status

    assert asyncio.run(go()) == "completed"
