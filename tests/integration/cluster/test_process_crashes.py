"""Processes crash at fail points; other processes complete their work once."""

from __future__ import annotations

import asyncio
import json
import pathlib
import time
from collections import defaultdict
from typing import Any

import pytest

from rune.core.definition.model import canonical
from rune.core.execution.stored_value import Inline
from rune.ports.journal import ExecutionRecord
from rune.runtime.lifecycle.launcher import new_execution_id
from rune.testing.harness import Harness, Run, compiled
from tests.support import process_nodes
from tests.support.cli_process import Rune
from tests.support.cli_process import until as until_sync
from tests.support.cluster_cli import command_line, until_ended, with_id
from tests.support.clusters import Cluster
from tests.support.documents import document, node
from tests.support.forked_rune import KILLED
from tests.support.services.fleet import Process
from tests.support.services.postgres import server
from tests.support.waiting import until

pytestmark = pytest.mark.long

TIMEOUT_S = 240.0
POINTS = ("received", "claimed", "ran", "journaled", "applied", "sent", "ending", "ended")


def _chain(effect: str) -> dict[str, Any]:
    return document(
        [
            node("start", "input"),
            node("e1", effect, {"did": "e1"}),
            node("e2", effect, {"did": "e2"}),
            node("out", "output", {"value": "{{ [$e1.did, $e2.did] }}"}),
        ],
        "start>e1",
        "e1>e2",
        "e2>out",
    )


CHAIN = _chain("ledger.effect")
PLACED = _chain("place.effect")
PARENT = document(
    [
        node("start", "input"),
        node("call", "workflow", {"workflow": "crash-child"}),
        node("out", "output", {"value": "$call"}),
    ],
    "start>call",
    "call>out",
    id="crash-parent",
)
CHILD = document(
    [node("start", "input"), node("out", "output", {"value": 42})], "start>out", id="crash-child"
)


def _check_killed(process: Process) -> None:
    assert process.process.wait(TIMEOUT_S) == KILLED, process.output()[-2000:]


def _write(tmp_path: pathlib.Path, raw: dict[str, Any]) -> str:
    path = tmp_path / f"{raw['id']}.json"
    path.write_text(json.dumps(raw))
    return str(path)


def _outbox_length(cluster: Cluster, execution: str) -> int:
    """Count the outbox entries of an execution."""
    name = cluster.settings.journal.rpartition("/")[2]
    return int(server().sql(f"SELECT count(*) FROM outbox WHERE execution = '{execution}'", name))


@pytest.mark.parametrize("point", ["accepted", "admitted"])
def test_start_is_opened_after_crash_of_starter(
    point: str, workerless_cluster: Cluster, tmp_path: pathlib.Path
) -> None:
    workerless_cluster.start_worker()
    rune = command_line(workerless_cluster.fleet)
    given = {
        name: value
        for name, value in workerless_cluster.fleet.environment.items()
        if name.startswith("RUNE_")
    }
    given.pop("RUNE_HOME")
    path = _write(tmp_path, with_id(CHAIN, "opened"))
    starter = Rune(
        tmp_path, **given, RUNE_FAILPOINT=point, PYTHONPATH=workerless_cluster.fleet.environment["PYTHONPATH"]
    )
    name = f"opened-{point}"
    done = starter("run", path, "--no-worker", "--id", name, "--json")
    assert done.returncode == KILLED, done.stdout + done.stderr

    assert until_ended(rune, name)["output"] == ["e1", "e2"]
    assert {key: count for key, count in workerless_cluster.effects().items() if name in key} == {
        f"{name}:e1@/#1": 1,
        f"{name}:e2@/#1": 1,
    }
    until_sync(lambda: _outbox_length(workerless_cluster, name) == 0 or None, "the outbox is empty")


def test_worker_crash_at_any_fail_point_loses_and_repeats_nothing(workerless_cluster: Cluster) -> None:
    crashing = {point: workerless_cluster.fleet.start("worker", RUNE_FAILPOINT=point) for point in POINTS}
    for each in crashing.values():
        each.wait_for_output("is ready")

    async def go() -> list[str]:
        async with workerless_cluster.connect() as (engine, _):
            harness = Harness(engine, None)
            runs: list[Run] = []
            while any(each.alive for each in crashing.values()):
                runs.append(await harness.start(with_id(PLACED, "crashing")))
                await _until_crash_or_end(crashing, runs)
            await asyncio.to_thread(workerless_cluster.start_worker)
            for run in runs:
                await run.end(TIMEOUT_S)
                assert (await run.document())["output"] == ["e1", "e2"]
            return [run.id for run in runs]

    executions = asyncio.run(go())
    for each in crashing.values():
        _check_killed(each)
    _check_effects(workerless_cluster, executions, {each.process.pid for each in crashing.values()})
    report = command_line(workerless_cluster.fleet).json("verify", *executions)
    assert report["violations"] == 0, report
    until_sync(
        lambda: not sum(_outbox_length(workerless_cluster, one) for one in executions) or None,
        "the outbox is empty",
    )


def _check_effects(cluster: Cluster, executions: list[str], crashed: set[int]) -> None:
    """Check that an effect is repeated only after a crash between the effect and its row: by another process, and
    before any effect that follows from the row."""
    processes_by_effect: dict[str, list[int]] = defaultdict(list)
    order: dict[str, list[str]] = defaultdict(list)
    for each in process_nodes.recorded_effects(cluster.fleet.environment["RUNE_TEST_LEDGER"]):
        execution, _, name = each.key.partition(":")
        processes_by_effect[each.key].append(each.process)
        order[execution].append(name)
    assert processes_by_effect.keys() >= {f"{one}:{name}@/#1" for one in executions for name in ("e1", "e2")}
    for one in executions:
        assert order[one] == sorted(order[one]), f"{one}: an effect was repeated after its row: {order[one]}"
        assert set(order[one]) == {"e1@/#1", "e2@/#1"}, order[one]
    for key, processes in processes_by_effect.items():
        assert len(set(processes)) == len(processes), f"{key} was made twice by one process: {processes}"
        assert set(processes[:-1]) <= crashed, (
            f"{key} was repeated while its first process was alive: {processes}, crashed: {crashed}"
        )


async def _until_crash_or_end(crashing: dict[str, Process], runs: list[Run]) -> None:
    """Wait until a worker has crashed or the latest run has ended."""
    living = {point: each for point, each in crashing.items() if each.alive}

    async def crashed_or_ended() -> bool:
        # The last worker may have crashed just before.
        crashed = not living or not all(each.alive for each in living.values())
        return runs[-1].ending.done() or crashed

    try:
        await until(crashed_or_ended, f"{runs[-1].id} ends or a worker crashes", TIMEOUT_S)
    except AssertionError as error:
        facts = [each.fact for each in await runs[-1].facts()]
        outputs = {point: each.output()[-1000:] for point, each in living.items()}
        raise AssertionError(f"{error}: {facts}; {outputs}") from None


def test_parent_resumes_after_crash_at_end_of_child(
    workerless_cluster: Cluster, tmp_path: pathlib.Path
) -> None:
    rune = command_line(workerless_cluster.fleet)
    rune.json("deploy", _write(tmp_path, CHILD))
    rune.json("deploy", _write(tmp_path, PARENT))
    crashing = workerless_cluster.fleet.start("worker", RUNE_FAILPOINT="ended")
    crashing.wait_for_output("is ready")
    execution = rune.json("start", "crash-parent")["execution_id"]
    _check_killed(crashing)
    child = rune.json("list", "--workflow", "crash-child")["executions"][0]
    assert child["status"] == "completed"
    assert rune.json("show", execution)["completed_at"] is None

    workerless_cluster.start_worker()
    assert until_ended(rune, execution)["output"] == 42
    assert len(rune.json("list", "--workflow", "crash-child")["executions"]) == 1
    until_sync(
        lambda: _outbox_length(workerless_cluster, child["execution_id"]) == 0 or None, "the outbox is empty"
    )


def test_other_scheduler_fires_timer_after_crash(workerless_cluster: Cluster, tmp_path: pathlib.Path) -> None:
    workerless_cluster.start_worker()
    rune = command_line(workerless_cluster.fleet)
    crashing = workerless_cluster.fleet.start("scheduler", RUNE_FAILPOINT="fired")
    crashing.wait_for_output("is ready")
    nap = document(
        [
            node("start", "input"),
            node("nap", "wait", {"amount": 0.2}),
            node("e1", "ledger.effect", {"did": "e1"}),
        ],
        "start>nap",
        "nap>e1",
        id="napping",
    )
    rune.json("deploy", _write(tmp_path, nap))
    found = []

    def scheduler_crashed() -> bool | None:
        found.append(rune.json("start", "napping")["execution_id"])
        until_ended(rune, found[-1])
        return not crashing.alive or None

    until_sync(scheduler_crashed, "the crashing scheduler has fired a timer")
    _check_killed(crashing)
    effects = {
        key: count for key, count in workerless_cluster.effects().items() if key.split(":")[0] in found
    }
    assert effects == {f"{each}:e1@/#1": 1 for each in found}


def test_relay_crash_after_work_repeats_nothing(workerless_cluster: Cluster) -> None:
    workerless_cluster.start_worker()
    crashing = workerless_cluster.fleet.start("scheduler", RUNE_FAILPOINT="relayed")

    async def go() -> list[str]:
        async with workerless_cluster.connect() as (engine, _):
            plan = compiled(with_id(CHAIN, "relayed"), engine.registry)
            await engine.backend.journal.save_definition(plan.hash, canonical(plan.definition))
            found: list[str] = []

            async def relay_crashed() -> bool:
                at = time.time_ns() // 1_000_000
                wanted = ExecutionRecord(
                    id=new_execution_id(), workflow="relayed", hash=plan.hash, at=at, input=Inline(b"{}")
                )
                ending = await engine.wait_for(wanted.id)
                await engine.backend.journal.accept(wanted)  # without opening it
                found.append(wanted.id)
                async with asyncio.timeout(TIMEOUT_S):
                    assert (await ending).status == "completed"
                return not crashing.alive

            await until(relay_crashed, "the crashing relay has worked", TIMEOUT_S)
            return found

    executions = asyncio.run(go())
    _check_killed(crashing)
    effects = {
        key: count for key, count in workerless_cluster.effects().items() if key.split(":")[0] in executions
    }
    assert effects == {f"{each}:{name}@/#1": 1 for each in executions for name in ("e1", "e2")}
    assert command_line(workerless_cluster.fleet).json("verify", *executions)["violations"] == 0
