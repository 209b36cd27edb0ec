"""Hazards F on a cluster: wait and timers. F2 is a matter of Redis alone: test_hazards_redis.py."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from rune.core.execution.fact import NodeResult
from rune.core.execution.token import Token
from tests.hazards import waiting
from tests.hazards.building import counting, entry, fails, kind, sets, splits, waits, workflow
from tests.hazards.clustered import (
    LATER,
    engines,
    fresh,
    queued,
    ran,
    status_of,
    until,
    until_queued,
    wipe,
)
from tests.hazards.waiting import suspended


def test_h_f1_on_a_cluster_a_timer_survives_the_processes() -> None:
    # fault: cluster-f1: when an execution that sleeps is due is not kept
    settings = fresh()

    async def go() -> str:
        async with engines(settings) as cluster:
            run = await cluster.start(workflow("start>w w>a", w=waits(2.5, "seconds"), a=sets(x=1)))
            await suspended(run)
        async with engines(settings) as cluster:
            return await status_of(cluster, run.id)

    assert asyncio.run(go()) == "completed"


def test_h_f3_on_a_cluster_timers_have_names_and_a_wait_resumes_once() -> None:
    # fault: cluster-f3: a claim answers that a token which waits may run
    calls: list[str] = []
    settings = fresh()

    async def go() -> dict[str, Any]:
        async with engines(settings, count=2, registry=counting(calls)) as cluster:
            run = await cluster.start(workflow("start>w w>c", w=waits(1.5, "seconds"), c=kind("t.call")))
            await suspended(run)
            for _ in range(3):
                await cluster.engine.backend.queue.send(
                    run.id, [Token(run.plan.index["w"], (), resumed=True)]
                )
            await run.end()
            return await run.document()

    told = asyncio.run(go())
    assert entry(told, "w")["output"]["timer_id"] == "wait:w@/"
    assert calls == ["c@/"]
    assert told["total_duration_ms"] >= 1_500


def test_h_f4_on_a_cluster_waits_that_end_a_split_complete_once() -> None:
    # fault: cluster-f4: the last token of an item ends the execution
    waiting.waits_that_end_a_split_complete_once(partial(engines, fresh(), count=2))


def test_h_f5_on_a_cluster_an_ended_execution_has_no_timers() -> None:
    # fault: cluster-f5: the end leaves an execution among those that are due
    settings = fresh()

    async def go() -> tuple[str, int | None]:
        async with engines(settings, registry=counting([])) as cluster:
            document = workflow(
                "start>w w>c start>v v>a",
                w=waits(1), c=kind("t.call"), v=waits(0.5, "seconds"), a=fails(),
            )  # fmt: skip
            run = await cluster.start(document)
            end = await run.end()
            return end.status, await cluster.engine.backend.state.next_due()

    assert asyncio.run(go()) == ("halted", None)


def test_h_f6_on_a_cluster_timers_outlive_a_redis_that_keeps_nothing() -> None:
    # fault: cluster-f6: after a loss nobody reads the roll of what was running
    settings = fresh()

    async def go() -> tuple[str, int]:
        async with engines(settings) as cluster:
            run = await cluster.start(workflow("start>w w>a", w=waits(3, "seconds"), a=sets(x=1)))
            await suspended(run)
            await wipe()
            end = await run.end()
            return end.status, end.at - run.accepted.at

    status, took = asyncio.run(go())
    assert status == "completed"
    assert took >= 3_000


def test_h_f6_on_a_cluster_nor_does_a_clock_of_its_own_stand_still() -> None:
    # fault: cluster-f6-own: a time of an execution's own clock is taken for one of ours
    settings = fresh()
    call = {**kind("t.call"), "queue": LATER}

    async def go() -> str:
        async with engines(settings, registry=counting([])) as cluster:
            document = workflow("start>w w>b start>a", w=waits(2, "days"), a=call, b=sets(x=1))
            run = await cluster.start(document, fake_time=True)
            await suspended(run)
        await wipe()
        async with engines(settings, registry=counting([]), queues=("default", LATER)) as cluster:
            return await status_of(cluster, run.id)

    assert asyncio.run(go()) == "completed"


def test_h_f7_on_a_cluster_who_wakes_up_uses_the_credential_of_today() -> None:
    # fault: cluster-f7: the credential is kept from an earlier attempt
    waiting.who_wakes_up_uses_the_credential_of_today(partial(engines, fresh()), waits(2.5, "seconds"))


@pytest.mark.parametrize(("amount", "ms"), [(1.5, 1_500), (0.25, 250), (0, 0)])
def test_h_f8_on_a_cluster_fractions_of_a_unit_count(amount: float, ms: int) -> None:
    # fault: cluster-f8: the amount is made an int
    assert ms <= ran(workflow("start>w", w=waits(amount, "hours")))["total_duration_ms"] / 3_600 < ms + 1_000


def test_h_f8_on_a_cluster_an_amount_beyond_all_dates_fails_its_node() -> None:
    # fault: cluster-f8-far: however large an amount is, it is no mistake
    waiting.an_amount_beyond_all_dates_fails_its_node(ran)


def test_h_f9_on_a_cluster_more_timers_than_a_batch_all_fire() -> None:
    # fault: cluster-f9: what is due beyond the limit of one batch is dropped
    document = workflow(
        "start>s s>w w>g g>out", s=splits("{{ range(800) }}"),
        w=kind("wait", resume="date_time", date_time="{{ $trigger.when }}"), g=kind("aggregator"),
        out=kind("output", value="{{ len($g) }}"),
    )  # fmt: skip
    assert ran(document, {"when": "2100-01-01T00:00:00Z"})["output"] == 800


def test_h_f10_on_a_cluster_what_a_wait_wakes_is_sent_in_one_act() -> None:
    # fault: cluster-f10: of what an act emits only the first is sent
    calls: list[str] = []
    settings = fresh()
    call = {**kind("t.call"), "queue": LATER}

    async def go() -> str:
        async with engines(settings, registry=counting(calls)) as cluster:
            run = await cluster.start(
                workflow("start>w w>a w>b w>c", w=waits(0.3, "seconds"), a=call, b=call, c=call)
            )
            await until_queued(settings, 3)
        async with engines(settings, registry=counting(calls), queues=(LATER,)) as cluster:
            return await status_of(cluster, run.id)

    assert asyncio.run(go()) == "completed"
    assert sorted(calls) == ["a@/", "b@/", "c@/"]


def test_h_f11_on_a_cluster_many_due_timers_do_not_starve_fresh_work() -> None:
    # fault: cluster-f11: what is urgent is read last
    settings = fresh()
    many = workflow(
        "start>s s>w w>e", s=splits("{{ range(300) }}"), w=waits(0.2, "seconds"), e=kind("t.call")
    )
    scheduling = frozenset({"scheduler"})

    async def go() -> tuple[int, str]:
        async with engines(settings, registry=counting([])) as cluster:
            run = await cluster.start(many)
            await suspended(run, 300)
        async with engines(settings, registry=counting([]), roles=scheduling) as cluster:

            async def all_due() -> bool:
                return await queued(settings, "default") >= 300

            await until(all_due)
        async with engines(settings, registry=counting([]), slots=1) as cluster:
            fresh_one = await cluster.start(workflow("start>a", a=kind("t.call")), priority=9)
            async with asyncio.timeout(60):
                await fresh_one.ending
            facts = await cluster.engine.backend.journal.facts(run.id)
            before = sum(isinstance(row.fact, NodeResult) for row in facts)
            return before, await status_of(cluster, run.id)

    before, ended = asyncio.run(go())
    assert ended == "completed"
    assert before < 300, "fresh work came behind everything that was due"
