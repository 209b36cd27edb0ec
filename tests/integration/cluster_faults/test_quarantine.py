"""An execution that blocks the event loop of its worker, which is killed, does not block one worker after the other."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from rune.adapters.postgres.database import Database
from rune.testing.harness import Harness
from tests.support import process_nodes
from tests.support.cli_process import Rune
from tests.support.clusters import Cluster, open_cluster
from tests.support.services.fleet import Process
from tests.support.waiting import until
from tests.support.workflows import of_type, workflow

pytestmark = pytest.mark.long

FOR_GOOD_S = 100_000.0
NOTED = "SELECT count(*) FROM loop_block WHERE execution = $1 AND mark <> ''"
REASON = "it blocked the event loop twice"


def effects(cluster: Cluster) -> int:
    """How often the node that blocks has begun."""
    try:
        return len(process_nodes.recorded_effects(cluster.fleet.environment["RUNE_TEST_LEDGER"]))
    except FileNotFoundError:
        return 0


def ready_answer(api: Process) -> Any:
    return httpx.get(f"{api.url}/readyz", timeout=30, trust_env=False).json()


def command_line(cluster: Cluster, folder: Path) -> Rune:
    names = ("RUNE_JOURNAL", "RUNE_STATE", "RUNE_QUEUE", "RUNE_PREFIX", "RUNE_NODES")
    return Rune(folder, **{name: cluster.fleet.environment[name] for name in names})


@pytest.mark.parametrize("queue", ["redis", "rabbitmq"])
def test_execution_whose_workers_are_killed_is_quarantined(queue: str, tmp_path: Path) -> None:
    blocks = workflow("start>a", a=of_type("place.block", seconds=FOR_GOOD_S))
    plain = workflow("start>b", b=of_type("place.process"))

    async def go(cluster: Cluster) -> None:
        database = Database(cluster.settings.journal, size=1)
        await database.open()

        async def noted() -> int:
            ((count,),) = await database.fetch(NOTED, run.id)
            return int(count)

        async def paused() -> bool:
            async with cluster.connect() as (other, _):
                return (await other.backend.state.pause_state(run.id))[1]

        async with cluster.connect() as (engine, _):
            harness = Harness(engine, None)
            run = await harness.start(blocks)
            for count in (1, 2):

                async def blocked(count: int = count) -> bool:
                    return await noted() == count

                await until(blocked, f"block {count} is noted")
                assert effects(cluster) == count
                for worker in cluster.fleet.of("worker"):
                    worker.kill()
                if count == 1:
                    cluster.start_worker()
            await until(paused, "the execution is paused")
            api = cluster.fleet.api()
            cluster.start_worker()

            await until(lambda: ready_answer(api).get("quarantined") == 1, "the server reports it")
            assert (await harness.run(plain))["status"] == "completed"
            assert effects(cluster) == 2, "the third worker was not given the node"

            rune = command_line(cluster, tmp_path)
            assert (await asyncio.to_thread(rune.json, "show", run.id))["paused_because"] == REASON
            checks = {
                each["check"]: each for each in (await asyncio.to_thread(rune.json, "doctor"))["checks"]
            }
            assert run.id in checks["quarantine"]["found"]

            assert (await asyncio.to_thread(rune, "resume", run.id)).returncode == 0
            await until(lambda: effects(cluster) == 3, "the node runs again")
            await until(lambda: "quarantined" not in ready_answer(api), "nothing is in quarantine")
            assert (await asyncio.to_thread(rune, "cancel", run.id)).returncode == 0
        await database.close()

    with open_cluster(tmp_path, queue, workers=1, schedulers=1, in_place=False) as cluster:
        asyncio.run(go(cluster))


def test_worker_whose_loop_runs_again_leaves_no_note(tmp_path: Path) -> None:
    """A block of some seconds is noted while it lasts, and counts for nothing afterwards."""
    short = workflow("start>a", a=of_type("place.block", seconds=4.0))

    async def go(cluster: Cluster) -> None:
        database = Database(cluster.settings.journal, size=1)
        await database.open()

        async def notes() -> int:
            ((count,),) = await database.fetch("SELECT count(*) FROM loop_block")
            return int(count)

        async def none() -> bool:
            return await notes() == 0

        async with cluster.connect() as (engine, _):
            run = await Harness(engine, None).start(short)
            await until(notes, "the block is noted")
            assert (await run.end()).status == "completed"
            await until(none, "the note is removed")
        await database.close()

    with open_cluster(tmp_path, "redis", workers=1, schedulers=1, in_place=False) as cluster:
        asyncio.run(go(cluster))
