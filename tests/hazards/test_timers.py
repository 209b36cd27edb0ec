"""Hazards F: wait and timers. F2 concerns Redis alone: test_redis_state.py. F7: test_credentials.py."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rune.core.execution.fact import ExecutionEnded, NodeResult
from rune.core.execution.token import Token
from rune.runtime.maintenance import scheduler
from rune.testing.harness import VirtualClock
from tests.support.backends import (
    UNSERVED_QUEUE,
    Backend,
    ClusterBackend,
    backends,
    end_status,
    flush_redis,
    until_suspended,
)
from tests.support.waiting import until
from tests.support.workflows import (
    edit,
    fail,
    node_entry,
    of_type,
    recording_registry,
    split,
    wait,
    workflow,
)

HOUR = 3_600_000


@backends("embedded")
def test_h_f1_timer_survives_process(backend: Backend) -> None:
    # fault: f1: a fold arms no timers
    async def go() -> str:
        clock = VirtualClock()
        document = workflow("start>w w>a", w=wait(1), a=edit(x=1))
        for _ in range(3):
            async with backend.open(clock=clock) as engine:
                run = await engine.start(document, key="k")
                await engine.settle()
        async with backend.open(clock=clock) as engine:
            ending = await engine.engine.wait_for(run.id)
            clock.advance(HOUR)
            return (await engine.until(ending)).status

    assert asyncio.run(go()) == "completed"


@backends("redis")
def test_h_f1_timer_survives_processes_of_cluster(backend: ClusterBackend) -> None:
    # fault: f1-redis: the due time of a sleeping execution is not stored
    async def go() -> str:
        async with backend.open() as engine:
            run = await engine.start(workflow("start>w w>a", w=wait(2.5, "seconds"), a=edit(x=1)))
            await until_suspended(run)
        async with backend.open() as engine:
            return await end_status(engine, run.id)

    assert asyncio.run(go()) == "completed"


@backends("embedded")
def test_h_f3_timer_id_is_stable_and_wait_resumes_once(backend: Backend) -> None:
    # fault: f3: the id of a timer is random
    calls: list[str] = []

    async def go() -> dict[str, Any]:
        clock = VirtualClock()
        async with backend.open(clock=clock, registry=recording_registry(calls)) as engine:
            run = await engine.start(workflow("start>w w>c", w=wait(1), c=of_type("t.call")))
            await engine.settle()
            clock.advance(HOUR)
            await run.end()
            await engine.settle()
            return await run.document()

    result = asyncio.run(go())
    assert node_entry(result, "w")["output"]["timer_id"] == "wait:w@/"
    assert calls == ["c@/"]


@backends("redis")
def test_h_f3_redelivered_wait_resumes_once(backend: ClusterBackend) -> None:
    # fault: f3-redis: a claim of a waiting token returns `run`
    calls: list[str] = []

    async def go() -> dict[str, Any]:
        async with backend.open(count=2, registry=recording_registry(calls)) as engine:
            run = await engine.start(workflow("start>w w>c", w=wait(1.5, "seconds"), c=of_type("t.call")))
            await until_suspended(run)
            resumed = Token(run.plan.index["w"], (), resumed=True)
            for _ in range(3):
                await engine.engine.backend.queue.send(run.id, [resumed])
            await run.end()
            return await run.document()

    result = asyncio.run(go())
    assert node_entry(result, "w")["output"]["timer_id"] == "wait:w@/"
    assert calls == ["c@/"]
    assert result["total_duration_ms"] >= 1_500


@backends("embedded", "redis")
def test_h_f4_waits_at_end_of_split_complete_once(backend: Backend) -> None:
    # fault: f4: the end of an item ends the execution
    # fault: f4-redis: the last token of an item ends the execution
    document = workflow("start>s s>w", s=split(), w=wait("{{ $item }}"))
    options = {"count": 2} if isinstance(backend, ClusterBackend) else {}

    async def go() -> tuple[int, int]:
        async with backend.open(**options) as engine:
            run = await engine.start(document, {"items": [1, 2, 3]}, fake_time=True)
            end = await run.end()
            ends = sum(isinstance(row.fact, ExecutionEnded) for row in await run.facts())
            return ends, end.at - run.accepted.at

    ends, duration = asyncio.run(go())
    assert ends == 1
    assert duration >= 3 * HOUR


@backends("embedded")
def test_h_f5_timer_of_ended_execution_does_nothing(backend: Backend) -> None:
    # fault: f5: neither the state nor a claim checks for the end
    calls: list[str] = []

    async def go() -> tuple[str, int, int]:
        clock = VirtualClock()
        async with backend.open(clock=clock, registry=recording_registry(calls)) as engine:
            document = workflow("start>w w>c start>a", w=wait(1), c=of_type("t.call"), a=fail())
            run = await engine.start(document)
            end = await run.end()
            before = len(await run.facts())
            clock.advance(2 * HOUR)
            await engine.settle()
            return end.status, before, len(await run.facts())

    status, before, after = asyncio.run(go())
    assert (status, calls) == ("halted", [])
    assert before == after


@backends("redis")
def test_h_f5_ended_execution_has_no_timers(backend: ClusterBackend) -> None:
    # fault: f5-redis: an ended execution stays in the set of due executions
    async def go() -> tuple[str, int | None]:
        async with backend.open(registry=recording_registry([])) as engine:
            document = workflow(
                "start>w w>c start>v v>a",
                w=wait(1), c=of_type("t.call"), v=wait(0.5, "seconds"), a=fail(),
            )  # fmt: skip
            run = await engine.start(document)
            end = await run.end()
            return end.status, await engine.engine.backend.state.next_due()

    assert asyncio.run(go()) == ("halted", None)


@backends("redis")
def test_h_f6_timers_survive_loss_of_redis(backend: ClusterBackend) -> None:
    # fault: f6-redis: the running executions are not recovered after Redis has lost its data
    async def go() -> tuple[str, int]:
        async with backend.open() as engine:
            run = await engine.start(workflow("start>w w>a", w=wait(3, "seconds"), a=edit(x=1)))
            await until_suspended(run)
            await flush_redis()
            end = await run.end()
            return end.status, end.at - run.accepted.at

    status, duration = asyncio.run(go())
    assert status == "completed"
    assert duration >= 3_000


@backends("redis")
def test_h_f6_virtual_time_continues_after_loss_of_redis(backend: ClusterBackend) -> None:
    # fault: f6-own-redis: a time of an execution's virtual clock is read as real time
    async def go() -> str:
        async with backend.open(roles=frozenset({"worker"})) as engine:  # no scheduler fires the timer
            document = workflow("start>w w>b", w=wait(2, "days"), b=edit(x=1))
            run = await engine.start(document, fake_time=True)
            await until_suspended(run)
        await flush_redis()
        async with backend.open() as engine:
            return await end_status(engine, run.id)

    assert asyncio.run(go()) == "completed"


@pytest.mark.parametrize(("amount", "ms"), [(1.5, 1_500), (0.25, 250), (0, 0)])
@backends("embedded", "redis")
def test_h_f8_fractions_of_unit_count(backend: Backend, amount: float, ms: int) -> None:
    # fault: f8-fractions: the amount is converted to an int
    # fault: f8-fractions-redis: the amount is converted to an int
    # Over Redis the run itself may take seconds, which would hide fractions of one.
    unit, seconds = ("hours", 3_600) if isinstance(backend, ClusterBackend) else ("seconds", 1)
    duration = backend.run(workflow("start>w", w=wait(amount, unit)))["total_duration_ms"]
    assert ms <= duration / seconds < ms + 1_000


@backends("embedded", "redis")
def test_h_f8_amount_beyond_all_dates_fails_node(backend: Backend) -> None:
    # fault: f8-overflow: an amount beyond all dates resumes at once
    # fault: f8-overflow-redis: any amount is accepted, however large
    document = workflow("start>w", w=wait("{{ $trigger.n }}", "days"))
    result = backend.run(document, {"n": 10**15})
    assert (result["status"], node_entry(result, "w")["status"]) == ("halted", "failed")


@backends("embedded")
def test_h_f9_more_timers_than_batch_all_fire(backend: Backend) -> None:
    # fault: f9: due timers beyond the limit of one batch are dropped
    async def go() -> int:
        clock = VirtualClock()
        async with backend.open(clock=clock) as engine:
            document = workflow("start>s s>w", s=split("{{ range(800) }}"), w=wait(1))
            run = await engine.start(document)
            await engine.settle()
            clock.advance(HOUR)
            await engine.settle()
            return sum(
                each["status"] == "success" and each["node_id"] == "w"
                for each in (await run.document())["nodes"]
            )

    assert asyncio.run(go()) == 800


@backends("redis")
def test_h_f9_more_timers_than_batch_all_fire_in_cluster(backend: ClusterBackend) -> None:
    # fault: f9-redis: due timers beyond the limit of one batch are dropped
    document = workflow(
        "start>s s>w w>g g>out", s=split("{{ range(800) }}"),
        w=of_type("wait", resume="date_time", date_time="{{ $trigger.when }}"), g=of_type("aggregator"),
        out=of_type("output", value="{{ len($g) }}"),
    )  # fmt: skip
    assert backend.run(document, {"when": "2100-01-01T00:00:00Z"})["output"] == 800


@backends("redis")
def test_h_f10_successors_of_wait_are_sent_together(backend: ClusterBackend) -> None:
    # fault: f10: of the tokens that a transition emits only the first is sent
    calls: list[str] = []
    call = {**of_type("t.call"), "queue": UNSERVED_QUEUE}

    async def go() -> str:
        async with backend.open(registry=recording_registry(calls)) as engine:
            run = await engine.start(
                workflow("start>w w>a w>b w>c", w=wait(0.3, "seconds"), a=call, b=call, c=call)
            )
            await backend.wait_for_queue_length(3)
        async with backend.open(registry=recording_registry(calls), queues=(UNSERVED_QUEUE,)) as engine:
            return await end_status(engine, run.id)

    assert asyncio.run(go()) == "completed"
    assert sorted(calls) == ["a@/", "b@/", "c@/"]


@backends("embedded")
def test_h_f11_due_timers_do_not_starve_new_work(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    # fault: f11: the scheduler takes all due timers at once, and the lane of items is read first
    monkeypatch.setattr(scheduler, "BATCH", 20)

    async def go() -> tuple[int, str]:
        clock = VirtualClock()
        async with backend.open(clock=clock) as engine:
            many = await engine.start(
                workflow("start>s s>w w>e", s=split("{{ range(1000) }}"), w=wait(1), e=edit(x=1))
            )
            await engine.settle()

            async def results() -> int:
                return sum(isinstance(row.fact, NodeResult) for row in await many.facts())

            async def some_timers_fired() -> bool:
                return await results() > 2

            clock.advance(HOUR)
            await until(some_timers_fired, "some timers have fired")
            new = await engine.start(workflow("start>a", a=edit(x=1)))
            async with asyncio.timeout(60):
                await new.ending
            return await results(), (await many.end(60)).status

    before, status = asyncio.run(go())
    assert status == "completed"
    assert before < 1_800, f"new work ran after {before} results"


@backends("redis")
def test_h_f11_due_timers_do_not_starve_new_work_in_cluster(backend: ClusterBackend) -> None:
    # fault: f11-redis: the most urgent lane is read last
    many = workflow(
        "start>s s>w w>e", s=split("{{ range(300) }}"), w=wait(0.2, "seconds"), e=of_type("t.call")
    )

    async def go() -> tuple[int, str]:
        async with backend.open(registry=recording_registry([]), roles=frozenset({"worker"})) as engine:
            run = await engine.start(many)
            await until_suspended(run, 300)
        async with backend.open(registry=recording_registry([]), roles=frozenset({"scheduler"})):

            async def all_due() -> bool:
                return await backend.queue_length("default") >= 300

            await until(all_due, "all timers are due", 90.0)
        async with backend.open(registry=recording_registry([]), slots=1) as engine:
            new = await engine.start(workflow("start>a", a=of_type("t.call")), priority=9)
            async with asyncio.timeout(60):
                await new.ending
            facts = await engine.engine.backend.journal.facts(run.id)
            before = sum(isinstance(row.fact, NodeResult) for row in facts)
            return before, await end_status(engine, run.id)

    before, status = asyncio.run(go())
    assert status == "completed"
    assert before < 300, "new work ran after all due timers"
