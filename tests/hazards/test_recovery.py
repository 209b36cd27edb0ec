"""Hazards I1, I5, I9–I12 and I15–I18: recovery after crashes, repeated messages and losses of a store."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rune.adapters.postgres import journal_writes
from rune.adapters.redis.stores import RedisStores
from rune.core.execution.fact import AttemptFailed, NodeResult
from rune.core.execution.step import decision_for_fact
from rune.core.execution.token import Token
from rune.testing.harness import Run, compiled
from tests.chaos.breakable_cluster import BreakablePostgres, BreakableRedis
from tests.support.backends import (
    UNSERVED_QUEUE,
    Backend,
    ClusterBackend,
    accept_unopened,
    backends,
    end_status,
    flush_redis,
)
from tests.support.services.postgres import new_server
from tests.support.waiting import until
from tests.support.workflows import (
    edit,
    gated_registry,
    node_entry,
    of_type,
    recording_registry,
    split,
    wait,
    workflow,
)

LEASE_S = 9.0
TIMEOUT_S = 90.0


async def _until_results(run: Run, count: int) -> None:
    async def journaled() -> bool:
        return sum(isinstance(row.fact, NodeResult) for row in await run.facts()) >= count

    await until(journaled, f"{count} results are journaled", TIMEOUT_S)


@backends("redis")
def test_h_i9_repeated_result_is_one_arrival(backend: ClusterBackend) -> None:
    # fault: i9: a decision about a finished node is applied again, and arrivals are counted
    calls: list[str] = []
    document = workflow(
        "start>a start>b a>m b>m m>c",
        a=edit(x=1),
        b=wait(1.5, "seconds"),
        m=of_type("merge"),
        c=of_type("t.call"),
    )

    async def go() -> tuple[list[str], Any]:
        async with backend.open(registry=recording_registry(calls), in_place=False) as engine:
            run = await engine.start(document)
            await _until_results(run, 1)
            first = next(row.fact for row in await run.facts() if isinstance(row.fact, NodeResult))
            for _ in range(3):
                await engine.engine.backend.state.apply(run.id, [decision_for_fact(run.plan, first)])
            before = list(calls)
            await run.end()
            return before, node_entry(await run.document(), "m")["output"]

    before, merged = asyncio.run(go())
    assert (before, calls) == ([], ["c@/"])
    assert len(merged) == 2


@backends("redis")
def test_h_i10_recovery_consumes_no_retries(backend: ClusterBackend) -> None:
    # fault: i10: a token that is claimed after a loss counts as another attempt
    calls: list[str] = []
    work = {**of_type("t.gate"), "retry": {"max_attempts": 2, "initial_delay": 60}}

    async def go() -> list[Any]:
        gates = [asyncio.Event(), asyncio.Event()]
        async with backend.open(
            count=2, registry=gated_registry(calls, lambda: gates[len(calls) - 1])
        ) as engine:
            run = await engine.start(workflow("start>a", a=work))
            await engine.wait_for(lambda: len(calls) == 1, TIMEOUT_S)
            await flush_redis()
            # The claim is lost, so a second engine runs the node: effects are at least once.
            await engine.wait_for(lambda: len(calls) == 2, TIMEOUT_S)
            gates[1].set()  # the result of the second run is journaled first
            await run.end()
            gates[0].set()
            return [row.fact for row in await run.facts()]

    facts = asyncio.run(go())
    assert not any(isinstance(each, AttemptFailed) for each in facts)
    assert [each.attempt for each in facts if isinstance(each, NodeResult)] == [1]


@backends("redis")
def test_h_i11_journaled_node_is_not_run_again_after_loss(backend: ClusterBackend) -> None:
    # fault: i11: a fold starts empty, and the journal is not read before a node runs
    calls: list[str] = []
    last = {**of_type("t.call"), "queue": UNSERVED_QUEUE}
    document = workflow("start>a a>b b>c", a=of_type("t.call"), b=of_type("t.call"), c=last)

    async def go() -> str:
        async with backend.open(registry=recording_registry(calls)) as engine:
            run = await engine.start(document)
            await _until_results(run, 2)
            await flush_redis()
        async with backend.open(
            registry=recording_registry(calls), queues=("default", UNSERVED_QUEUE)
        ) as engine:
            return await end_status(engine, run.id)

    assert asyncio.run(go()) == "completed"
    assert calls == ["a@/", "b@/", "c@/"]


@backends("redis")
def test_h_i12_work_of_dead_worker_is_reclaimed(backend: ClusterBackend) -> None:
    # fault: i12: the sweeper sends nothing
    calls: list[str] = []

    async def claim_and_die() -> str:
        """Claim the token with a lease that is never renewed, and acknowledge its message: the queue has no copy."""
        async with backend.open(registry=recording_registry(calls), roles=frozenset()) as engine:
            run = await engine.start(workflow("start>a", a=of_type("t.call")))
            stores = RedisStores(backend.settings.state, prefix=backend.settings.prefix)
            queue = stores.queue("ghost")
            async with asyncio.timeout(60):
                delivery = await queue.receive()
            claim = await engine.engine.backend.state.claim(run.id, delivery.token, "ghost", leased=True)
            assert claim.verdict == "run"
            await queue.ack(delivery)
            for client in (stores.client, stores._blocking):
                await client.close()
            return run.id

    async def go() -> str:
        execution = await claim_and_die()
        async with backend.open(registry=recording_registry(calls)) as engine, asyncio.timeout(LEASE_S + 20):
            return await end_status(engine, execution)

    assert asyncio.run(go()) == "completed"
    assert calls == ["a@/"]


@backends("redis")
def test_h_i15_restored_older_state_does_not_revert_progress(backend: ClusterBackend) -> None:
    # fault: i15: the state of an earlier run of the server is trusted
    redis = BreakableRedis()
    backend.settings = replace(backend.settings, state=redis.url, queue=redis.url)
    calls: list[str] = []
    rest = {**of_type("t.call"), "queue": UNSERVED_QUEUE}
    document = workflow(
        "start>s s>i i>a:true i>b:false a>g b>g g>out",
        s=split(), i=of_type("conditional", expression="$item < 3"), a=of_type("t.call"), b=rest,
        g=of_type("aggregator"), out=of_type("output", value="{{ [x.did for x in $g] }}"),
    )  # fmt: skip
    copy = Path(tempfile.mkdtemp()) / "older"

    def called(name: str) -> int:
        return sum(each.startswith(f"{name}@") for each in calls)

    async def go() -> Any:
        async with backend.open(registry=recording_registry(calls)) as engine:
            run = await engine.start(document, {"items": list(range(6))})
            await engine.wait_for(lambda: called("a") == 3 and engine.engine.busy == 0, TIMEOUT_S)
        redis.command("CONFIG", "SET", "appendfsync", "always")
        shutil.copytree(redis.files, copy)
        async with backend.open(
            registry=recording_registry(calls), queues=(UNSERVED_QUEUE,), in_place=False
        ) as engine:
            await engine.wait_for(lambda: called("b") == 3 and engine.engine.busy == 0, TIMEOUT_S)
        redis.restore(copy)
        async with backend.open(
            registry=recording_registry(calls), queues=("default", UNSERVED_QUEUE)
        ) as engine:
            assert await end_status(engine, run.id) == "completed"
            run._harness = engine
            return (await run.document())["output"]

    try:
        assert asyncio.run(go()) == ["a", "a", "a", "b", "b", "b"]
    finally:
        redis.stop()
    assert len(calls) == len(set(calls)) == 6


@backends("redis")
def test_h_i16_same_message_at_two_engines_runs_once(backend: ClusterBackend) -> None:
    # fault: i16: a claim does not check whether the token is held
    calls: list[str] = []
    gates: list[asyncio.Event] = []

    async def go() -> list[str]:
        gates.append(asyncio.Event())
        registry = gated_registry(calls, lambda: gates[0])
        async with backend.open(count=2, registry=registry) as engine:
            document = workflow(
                "start>a a>out", a=of_type("t.gate"), out=of_type("output", value="{{ $a.did }}")
            )
            started = [await engine.start(document) for _ in range(10)]
            for run in started:
                await engine.engine.backend.queue.send(run.id, [Token(run.plan.index["a"], ())] * 2)

            async def settled() -> bool:
                return len(calls) > 10 or (len(calls) == 10 and await backend.queue_length("default") <= 10)

            await until(settled, "the repeated messages are handled", TIMEOUT_S)
            gates[0].set()
            return [(await run.end()).status for run in started]

    assert asyncio.run(go()) == ["completed"] * 10
    assert len(calls) == 10


@backends("redis")
def test_h_i17_message_before_state_is_handled(backend: ClusterBackend) -> None:
    # fault: i17: a missing state is not folded from the journal
    plan = compiled(
        workflow("start>a a>out", a=edit(x="{{ $trigger.n }}"), out=of_type("output", value="{{ $a.x }}"))
    )

    async def go() -> Any:
        async with backend.open() as engine:
            written = await accept_unopened(engine, plan, b'{"n": 7}')
            await engine.engine.backend.queue.send(written.id, [Token(plan.index["a"], ())])
            ending = await engine.engine.wait_for(written.id)
            async with asyncio.timeout(60):
                await ending
            return (await Run(engine, written, plan, ending).document())["output"]

    assert asyncio.run(go()) == 7


@backends("redis")
def test_h_i18_result_is_kept_until_journal_is_back(
    backend: ClusterBackend, caplog: pytest.LogCaptureFixture
) -> None:
    # fault: i18: a result that cannot be written is dropped
    server = new_server()
    database = BreakablePostgres(server)
    calls: list[str] = []
    gates: list[asyncio.Event] = []
    backend.settings = replace(backend.settings, journal=server.create("away"))

    async def go() -> tuple[str, int]:
        gates.append(asyncio.Event())
        async with backend.open(registry=gated_registry(calls, lambda: gates[0])) as engine:
            run = await engine.start(workflow("start>a", a=of_type("t.gate")))
            await engine.wait_for(lambda: len(calls) == 1, TIMEOUT_S)
            database.down()
            gates[0].set()
            await engine.wait_for(
                lambda: "keeping a result" in caplog.text or "holding work" in caplog.text, TIMEOUT_S
            )
            database.up()
            return (await run.end(LEASE_S + 30)).status, len(calls)

    try:
        assert asyncio.run(go()) == ("completed", 1)
    finally:
        server.stop()
        shutil.rmtree(server.folder, ignore_errors=True)


@backends("redis")
def test_h_i1_accepted_execution_that_was_not_opened_runs(
    backend: ClusterBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    # fault: i1: the relay opens nothing
    monkeypatch.setattr(journal_writes, "ACTIVATION_MS", 0)  # the relay does not wait for the launcher
    calls: list[str] = []
    plan = compiled(workflow("start>a", a=of_type("t.call")), recording_registry(calls))

    async def accept_and_die() -> str:
        async with backend.open(registry=recording_registry(calls), roles=frozenset()) as engine:
            return (await accept_unopened(engine, plan)).id

    async def go() -> str:
        async with backend.open(registry=recording_registry(calls)) as engine:
            execution = await accept_and_die()
            return await end_status(engine, execution)

    assert asyncio.run(go()) == "completed"
    assert calls == ["a@/"]


@backends("embedded")
def test_h_i5_repeated_activation_deletes_nothing(backend: Backend) -> None:
    # fault: i5: activating an execution starts it over
    calls: list[str] = []

    async def go() -> dict[str, Any]:
        gate = asyncio.Event()
        document = workflow("start>a a>b b>c", a=of_type("t.call"), b=of_type("t.gate"), c=of_type("t.call"))
        async with backend.open(registry=gated_registry(calls, lambda: gate)) as engine:
            started = await engine.start(document)
            await engine.wait_for(lambda: len(calls) == 2, TIMEOUT_S)
            for _ in range(3):
                await engine.engine.launcher.activate(started.accepted)
            gate.set()
            await started.end()
            return await started.document()

    result = asyncio.run(go())
    assert result["status"] == "completed"
    assert calls == ["a@/", "b@/", "c@/"]
    assert [each["node_id"] for each in result["nodes"]] == ["start", "a", "b", "c"]
