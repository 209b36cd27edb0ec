"""Workers come and go: what runs finishes, what one cannot do another does, and who is gone is seen to be."""

from __future__ import annotations

import asyncio
import os
import pathlib
from typing import Any

from rune import bootstrap
from rune.ports.processes import EXPIRY_S
from rune.runtime.engine import Engine
from rune.testing.harness import Harness, Run
from tests.acceptance.cli.here import Here
from tests.acceptance.cli.process import until
from tests.integration.cluster.commands import here, named
from tests.integration.cluster.standing import Standing
from tests.support.waiting import until as until_so
from tests.unit.core.documents import document, node

PATIENCE = 120.0
GATED = document(
    [
        node("start", "input"),
        node("e1", "ledger.gate", {"opens": "{{ $trigger.pipe }}"}),
        node("e2", "ledger.effect", {"did": "e2"}),
        node("out", "output", {"value": "{{ [$e1.said, $e2.did] }}"}),
    ],
    "start>e1",
    "e1>e2",
    "e2>out",
)


def _where(queue: str | None) -> dict[str, Any]:
    more: dict[str, Any] = {} if queue is None else {"queue": queue}
    return document(
        [
            node("start", "input"),
            node("at", "place.process", **more),
            node("out", "output", {"value": "$at"}),
        ],
        "start>at",
        "at>out",
        id=f"where-{queue}",
    )


def _status(rune: Here, name: str) -> str:
    return str(rune.json("show", name)["status"])


def test_a_worker_that_is_told_to_stop_finishes_what_it_runs(crew: Standing, tmp_path: pathlib.Path) -> None:
    rune = here(crew.fleet)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    first = crew.worker()

    async def begin() -> str:
        async with crew.asked() as (engine, _):
            run = await Harness(engine, None).start(named(GATED, "drained"), {"pipe": str(pipe)})
            return run.id

    execution = asyncio.run(begin())
    with pipe.open("w") as gate:  # opens when the node reads: its effect is made, it still runs
        first.process.terminate()
        first.wait_said("1 nodes still running")
        gate.write("finished")
    assert first.process.wait(PATIENCE) == 0
    assert {key: count for key, count in crew.effects().items() if execution in key} == {
        f"{execution}:e1@/#1": 1
    }
    assert _status(rune, execution) == "running"
    pids = [each["pid"] for each in rune.json("workers")["workers"]]
    assert first.process.pid not in pids

    crew.worker()
    until(lambda: _status(rune, execution) == "completed" or None, "another one goes on")
    assert rune.json("show", execution)["output"] == ["finished", "e2"]
    made = {key: count for key, count in crew.effects().items() if execution in key}
    assert made == {f"{execution}:e1@/#1": 1, f"{execution}:e2@/#1": 1}
    assert rune.json("audit", execution)["violations"] == 0


def test_a_worker_of_an_older_deploy_hands_back_what_it_does_not_know(crew: Standing) -> None:
    old = crew.worker(RUNE_NODES="")

    async def go() -> None:
        async with crew.asked() as (engine, _):
            made = Harness(engine, None)
            run = await made.start(_where(None))
            await asyncio.to_thread(old.wait_said, f"{run.id} is left to other workers")
            plain = await made.start(document([node("start", "input"), node("do")], "start>do", id="plain"))
            await plain.end(PATIENCE)  # it goes on with what it knows
            new = await asyncio.to_thread(crew.worker)
            await run.end(PATIENCE)
            assert (await run.document())["output"] == new.process.pid

    asyncio.run(go())
    assert old.alive


def test_a_node_runs_only_where_its_queue_is_served(crew: Standing) -> None:
    plain = crew.worker()

    async def go() -> None:
        async with crew.asked() as (engine, _):
            made = Harness(engine, None)
            ours = await made.start(_where("gpu"))
            for _ in range(3):
                beside = await made.start(_where(None))
                await beside.end(PATIENCE)
                assert (await beside.document())["output"] == plain.process.pid
            assert not ours.ending.done()
            special = await asyncio.to_thread(crew.worker, "--queues", "gpu")
            await ours.end(PATIENCE)
            assert await _output(ours) == special.process.pid
            more = await asyncio.gather(*(_ran(made, "gpu") for _ in range(5)))
            assert set(more) == {special.process.pid}
            await asyncio.to_thread(special.stop)
            both = await asyncio.to_thread(crew.worker, "--queues", "gpu,default")
            await asyncio.to_thread(plain.stop)
            assert await _ran(made, "gpu") == await _ran(made, None) == both.process.pid

    asyncio.run(go())


async def _output(run: Run) -> Any:
    return (await run.document())["output"]


async def _ran(made: Harness, queue: str | None) -> Any:
    run = await made.start(_where(queue))
    await run.end(PATIENCE)
    return await _output(run)


def test_who_was_killed_is_no_longer_seen_after_fifteen_seconds(crew: Standing) -> None:
    gone = crew.worker()

    async def seen_at() -> int | None:
        listed = await bootstrap.list_processes(crew.settings)
        return next((each.seen_at for each in listed if each.pid == gone.process.pid), None)

    async def go(engine: Engine) -> None:
        last = await seen_at()
        assert last is not None
        gone.kill()
        last = await seen_at() or last

        async def vanished() -> bool:
            before = await engine.backend.state.now()  # type: ignore[attr-defined]
            listed = await seen_at()
            assert listed is None or before - last <= EXPIRY_S * 1000
            return listed is None

        await until_so(vanished, "it is no longer listed", PATIENCE)
        assert await engine.backend.state.now() - last > EXPIRY_S * 1000  # type: ignore[attr-defined]

    async def ask() -> None:
        async with crew.asked() as (engine, _):
            await go(engine)

    asyncio.run(ask())


def test_what_is_handed_back_stays_in_its_queue(crew: Standing) -> None:
    """Two workers of different queues bring back what was put off, each what is its own."""
    old = crew.worker(RUNE_NODES="")
    crew.worker("--queues", "gpu")

    async def go() -> None:
        async with crew.asked() as (engine, _):
            made = Harness(engine, None)
            runs = [await made.start(_where(None)) for _ in range(8)]
            for run in runs:
                await asyncio.to_thread(old.wait_said, f"{run.id} is left to other workers", 3)
            assert not any(run.ending.done() for run in runs)
            new = await asyncio.to_thread(crew.worker)
            for run in runs:
                await run.end(PATIENCE)
            assert {await _output(run) for run in runs} == {new.process.pid}

    asyncio.run(go())
