"""Hazards I9–I12 and I15–I21: what several processes and stores do to each other."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rune.adapters.redis.stores import RedisStores
from rune.codec.facts import encode_fact
from rune.core.execution.fact import AttemptFailed, EffectStarted, NodeResult
from rune.core.execution.routing import decision_for_fact
from rune.core.execution.token import Token
from rune.testing.harness import Run, compiled
from tests.chaos.stand import BreakablePostgres, BreakableRedis
from tests.hazards.building import counting, entry, gated, kind, sets, splits, waits, workflow
from tests.hazards.clustered import (
    LATER,
    accepted,
    ask,
    engines,
    fresh,
    queued,
    ran,
    status_of,
    until,
    wipe,
)
from tests.support.services.databases import ready
from tests.support.services.postgres import new_server

LEASE = 9.0  # s
SOON = 90.0  # s: long enough for whatever is on its way


async def _results(run: Run, count: int) -> None:
    async def there() -> bool:
        return sum(isinstance(row.fact, NodeResult) for row in await run.facts()) >= count

    await until(there)


def test_h_i9_a_result_that_comes_again_is_one_arrival() -> None:
    # fault: cluster-i9: a decision about a node that is done is carried out again, and arrivals are counted
    settings = fresh()
    calls: list[str] = []
    document = workflow(
        "start>a start>b a>m b>m m>c", a=sets(x=1), b=waits(1.5, "seconds"), m=kind("merge"), c=kind("t.call")
    )

    async def go() -> tuple[list[str], Any]:
        async with engines(settings, registry=counting(calls), in_place=False) as cluster:
            run = await cluster.start(document)
            await _results(run, 1)
            first = next(row.fact for row in await run.facts() if isinstance(row.fact, NodeResult))
            for _ in range(3):
                await cluster.engine.backend.state.apply(run.id, [decision_for_fact(run.plan, first)])
            before = list(calls)
            await run.end()
            return before, entry(await run.document(), "m")["output"]

    before, merged = asyncio.run(go())
    assert (before, calls) == ([], ["c@/"])
    assert len(merged) == 2


def test_h_i10_recovery_uses_up_no_retries() -> None:
    # fault: cluster-i10: whoever takes a token after a loss counts it as another attempt
    settings = fresh()
    calls: list[str] = []
    work = {**kind("t.gate"), "retry": {"max_attempts": 2, "initial_delay": 60}}

    async def go() -> list[Any]:
        gates = [asyncio.Event(), asyncio.Event()]
        async with engines(
            settings, count=2, registry=gated(calls, lambda: gates[len(calls) - 1])
        ) as cluster:
            run = await cluster.start(workflow("start>a", a=work))
            await cluster.wait_for(lambda: len(calls) == 1, SOON)
            await wipe()
            # nobody knows that it runs: the window of every effect
            await cluster.wait_for(lambda: len(calls) == 2, SOON)
            gates[1].set()  # the result is that of who came after the loss
            await run.end()
            gates[0].set()
            return [row.fact for row in await run.facts()]

    facts = asyncio.run(go())
    assert not any(isinstance(each, AttemptFailed) for each in facts)
    assert [each.attempt for each in facts if isinstance(each, NodeResult)] == [1]


def test_h_i11_what_has_a_row_is_not_done_again_after_a_loss() -> None:
    # fault: cluster-i11: a fold begins with nothing, and nobody looks into the journal before a node runs
    settings = fresh()
    calls: list[str] = []
    last = {**kind("t.call"), "queue": LATER}
    document = workflow("start>a a>b b>c", a=kind("t.call"), b=kind("t.call"), c=last)

    async def go() -> str:
        async with engines(settings, registry=counting(calls)) as cluster:
            run = await cluster.start(document)
            await _results(run, 2)
            await wipe()
        async with engines(settings, registry=counting(calls), queues=("default", LATER)) as cluster:
            return await status_of(cluster, run.id)

    assert asyncio.run(go()) == "completed"
    assert calls == ["a@/", "b@/", "c@/"]


def test_h_i12_the_work_of_a_dead_worker_is_taken_over() -> None:
    # fault: cluster-i12: the sweeper sends nothing
    settings = fresh()
    calls: list[str] = []

    async def die_with_it() -> str:
        """Somebody takes the token and a lease on it, and is never heard of again."""
        async with engines(settings, registry=counting(calls), roles=frozenset()) as cluster:
            run = await cluster.start(workflow("start>a", a=kind("t.call")))
            stores = RedisStores(settings.state, prefix=settings.prefix)
            async with asyncio.timeout(60):
                delivery = await stores.queue("ghost").receive()
            claim = await cluster.engine.backend.state.claim(run.id, delivery.token, "ghost", leased=True)
            assert claim.verdict == "run"
            for client in (stores.client, stores._blocking):
                await client.close()
            return run.id

    async def go() -> str:
        execution = await die_with_it()
        # No longer: in the end a message that nobody acknowledges goes to somebody else without any sweeper.
        async with engines(settings, registry=counting(calls)) as cluster, asyncio.timeout(LEASE + 20):
            return await status_of(cluster, execution)

    assert asyncio.run(go()) == "completed"
    assert calls == ["a@/"]


def test_h_i15_an_older_state_does_not_take_back_what_is_known() -> None:
    # fault: cluster-i15: a state of an earlier run of the server is taken for true
    ready()
    redis = BreakableRedis()
    settings = replace(fresh(), state=redis.url, queue=redis.url)
    calls: list[str] = []
    rest = {**kind("t.call"), "queue": LATER}
    document = workflow(
        "start>s s>i i>a:true i>b:false a>g b>g g>out",
        s=splits(), i=kind("conditional", expression="$item < 3"), a=kind("t.call"), b=rest,
        g=kind("aggregator"), out=kind("output", value="{{ [x.did for x in $g] }}"),
    )  # fmt: skip
    copy = Path(tempfile.mkdtemp()) / "older"

    def called(name: str) -> int:
        return sum(each.startswith(f"{name}@") for each in calls)

    async def go() -> Any:
        async with engines(settings, registry=counting(calls)) as cluster:
            run = await cluster.start(document, {"items": list(range(6))})
            await cluster.wait_for(lambda: called("a") == 3 and cluster.engine.busy == 0, SOON)
        redis.ask("CONFIG", "SET", "appendfsync", "always")
        shutil.copytree(redis.files, copy)
        async with engines(settings, registry=counting(calls), queues=(LATER,), in_place=False) as cluster:
            await cluster.wait_for(lambda: called("b") == 3 and cluster.engine.busy == 0, SOON)
        redis.put_back(copy)
        async with engines(settings, registry=counting(calls), queues=("default", LATER)) as cluster:
            assert await status_of(cluster, run.id) == "completed"
            run._harness = cluster
            return (await run.document())["output"]

    try:
        assert asyncio.run(go()) == ["a", "a", "a", "b", "b", "b"]
    finally:
        redis.stop()
    assert len(calls) == len(set(calls)) == 6


def test_h_i16_two_engines_with_the_same_message_run_it_once() -> None:
    # fault: cluster-i16: a claim does not ask whether somebody holds the token
    settings = fresh()
    calls: list[str] = []
    gates: list[asyncio.Event] = []

    async def go() -> list[str]:
        gates.append(asyncio.Event())
        registry = gated(calls, lambda: gates[0])
        async with engines(settings, count=2, registry=registry) as cluster:
            document = workflow("start>a a>out", a=kind("t.gate"), out=kind("output", value="{{ $a.did }}"))
            started = [await cluster.start(document) for _ in range(10)]
            for run in started:
                await cluster.engine.backend.queue.send(run.id, [Token(run.plan.index["a"], ())] * 2)

            async def settled() -> bool:
                return len(calls) > 10 or (len(calls) == 10 and await queued(settings, "default") <= 10)

            await until(settled)
            gates[0].set()
            return [(await run.end()).status for run in started]

    assert asyncio.run(go()) == ["completed"] * 10
    assert len(calls) == 10


def test_h_i17_a_message_may_be_there_before_the_state() -> None:
    # fault: cluster-i17: nobody folds what is not there
    settings = fresh()
    plan = compiled(
        workflow("start>a a>out", a=sets(x="{{ $trigger.n }}"), out=kind("output", value="{{ $a.x }}"))
    )

    async def go() -> Any:
        async with engines(settings) as cluster:
            written = await accepted(cluster, plan, b'{"n": 7}')
            await cluster.engine.backend.queue.send(written.id, [Token(plan.index["a"], ())])
            ending = await cluster.engine.wait_for(written.id)
            async with asyncio.timeout(60):
                await ending
            return (await Run(cluster, written, plan, ending).document())["output"]

    assert asyncio.run(go()) == 7


def test_h_i18_a_result_waits_for_a_journal_that_is_away(caplog: pytest.LogCaptureFixture) -> None:
    # fault: cluster-i18: a result that cannot be written is dropped
    server = new_server()
    database = BreakablePostgres(server)
    calls: list[str] = []
    gates: list[asyncio.Event] = []
    settings = replace(fresh(), journal=server.create("away"))

    async def go() -> tuple[str, int]:
        gates.append(asyncio.Event())
        async with engines(settings, registry=gated(calls, lambda: gates[0])) as cluster:
            run = await cluster.start(workflow("start>a", a=kind("t.gate")))
            await cluster.wait_for(lambda: len(calls) == 1, SOON)
            database.down()
            gates[0].set()
            await cluster.wait_for(
                lambda: "keeping a result" in caplog.text or "holding work" in caplog.text, SOON
            )
            database.up()
            return (await run.end(LEASE + 30)).status, len(calls)

    try:
        assert asyncio.run(go()) == ("completed", 1)
    finally:
        server.stop()
        shutil.rmtree(server.folder, ignore_errors=True)


def test_h_i19_a_wrong_type_is_its_node_s_failure() -> None:
    # fault: cluster-i19: parameters that cannot be resolved are an error of the engine
    told = ran(workflow("start>a", a=waits("{{ $trigger.n + 1 }}")), {"n": {"not": "a number"}})
    assert (told["status"], entry(told, "a")["status"]) == ("halted", "failed")


def test_h_i20_one_slot_is_enough() -> None:
    # fault: cluster-i20: a worker keeps a slot back
    calls: list[str] = []
    document = workflow(
        "start>s s>c c>w w>g start>d g>m d>m m>out",
        s=splits("{{ range(5) }}"), c=kind("t.call"), w=waits(1), g=kind("aggregator"), d=kind("t.call"),
        m=kind("merge"), out=kind("output", value="{{ len($g) }}"),
    )  # fmt: skip
    assert ran(document, registry=counting(calls), slots=1)["output"] == 5
    assert len(calls) == 6


async def _asked() -> int:
    """How many scripts the server has run."""
    told = (await ask("INFO", "commandstats")).decode()
    line = next(each for each in told.splitlines() if each.startswith("cmdstat_fcall:"))
    return int(line.partition("calls=")[2].partition(",")[0])


def test_h_i21_cost_grows_with_the_width_and_not_with_its_square() -> None:
    # fault: cluster-i21: an item that ends looks at all the others
    settings = fresh()
    document = workflow("start>s s>c c>g", s=splits(), c=kind("t.call"), g=kind("aggregator"))

    async def cost(width: int) -> tuple[int, int]:
        async with engines(settings, registry=counting([]), roles=frozenset({"worker"})) as cluster:
            before, sent = await _asked(), await _received()
            run = await cluster.start(document, {"items": list(range(width))})
            await run.end(60)
            return await _asked() - before, await _received() - sent

    async def go() -> tuple[tuple[int, int], tuple[int, int]]:
        return await cost(50), await cost(400)

    narrow, wide = asyncio.run(go())
    assert wide[0] <= 4 * 400
    assert wide[1] <= 16 * narrow[1]


async def _received() -> int:
    """How many bytes have gone into and out of the server."""
    told = (await ask("INFO", "stats")).decode().splitlines()
    names = ("total_net_input_bytes:", "total_net_output_bytes:")
    return sum(int(each.partition(":")[2]) for each in told if each.startswith(names))


def test_h_i21_payloads_do_not_double_from_diamond_to_diamond() -> None:
    # fault: cluster-i21-diamonds: what a node only passes on is written down again
    names = [f"d{number}" for number in range(13)]
    edges, nodes = [f"start>{names[0]}"], {names[0]: kind("noop")}
    for one, two in itertools.pairwise(names):
        edges += [f"{one}>{one}a", f"{one}>{one}b", f"{one}a>{two}", f"{one}b>{two}"]
        nodes |= {f"{one}a": kind("noop"), f"{one}b": kind("noop"), two: kind("noop")}
    settings = fresh()

    async def go() -> tuple[str, int]:
        async with engines(settings) as cluster:
            run = await cluster.start(workflow(" ".join(edges), **nodes), {"text": "x" * 100})
            status = (await run.end()).status
            rows = [row.fact for row in await run.facts()]
            return status, sum(len(encode_fact(each)) for each in rows if not isinstance(each, EffectStarted))

    status, size = asyncio.run(go())
    assert status == "completed"
    assert size < 20_000
