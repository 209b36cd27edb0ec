"""Processes die right behind what they wrote; others do what was left undone, once."""

from __future__ import annotations

import asyncio
import json
import pathlib
import time
from collections import defaultdict
from typing import Any

import pytest

from rune.core.definition.model import canonical
from rune.ports.journal import ExecutionRecord
from rune.runtime.lifecycle.launcher import new_execution_id
from rune.testing.harness import Harness, Run, compiled
from tests.acceptance.cli.process import Rune
from tests.acceptance.cli.process import until as until_then
from tests.integration.cluster import place_nodes
from tests.integration.cluster.commands import ended, here, named
from tests.integration.cluster.standing import Standing
from tests.integration.embedded.forks import KILLED
from tests.support.services.fleet import Process
from tests.support.services.postgres import server
from tests.support.waiting import until
from tests.unit.core.documents import document, node

PATIENCE = 240.0
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
        node("call", "workflow", {"workflow": "bereft-child"}),
        node("out", "output", {"value": "$call"}),
    ],
    "start>call",
    "call>out",
    id="bereft-parent",
)
CHILD = document(
    [node("start", "input"), node("out", "output", {"value": 42})], "start>out", id="bereft-child"
)


def _dead(process: Process) -> None:
    assert process.process.wait(PATIENCE) == KILLED, process.said()[-2000:]


def _written(tmp_path: pathlib.Path, raw: dict[str, Any]) -> str:
    path = tmp_path / f"{raw['id']}.json"
    path.write_text(json.dumps(raw))
    return str(path)


def _outbox(crew: Standing, execution: str) -> int:
    """What is still to be done for an execution."""
    name = crew.settings.journal.rpartition("/")[2]
    return int(server().sql(f"SELECT count(*) FROM outbox WHERE execution = '{execution}'", name))


@pytest.mark.parametrize("point", ["accepted", "admitted"])
def test_a_start_whose_process_died_behind_its_row_is_opened(
    point: str, crew: Standing, tmp_path: pathlib.Path
) -> None:
    crew.worker()
    rune = here(crew.fleet)
    given = {name: value for name, value in crew.fleet.environment.items() if name.startswith("RUNE_")}
    given.pop("RUNE_HOME")
    path = _written(tmp_path, named(CHAIN, "opened"))
    starter = Rune(tmp_path, **given, RUNE_FAILPOINT=point, PYTHONPATH=crew.fleet.environment["PYTHONPATH"])
    name = f"opened-{point}"
    done = starter("run", path, "--no-worker", "--id", name, "--json")
    assert done.returncode == KILLED, done.stdout + done.stderr

    assert ended(rune, name)["output"] == ["e1", "e2"]
    assert {key: count for key, count in crew.effects().items() if name in key} == {
        f"{name}:e1@/#1": 1,
        f"{name}:e2@/#1": 1,
    }
    until_then(lambda: _outbox(crew, name) == 0 or None, "nothing is left to do")


def test_workers_that_die_at_every_point_lose_and_double_nothing(crew: Standing) -> None:
    doomed = {point: crew.fleet.start("worker", RUNE_FAILPOINT=point) for point in POINTS}
    for each in doomed.values():
        each.wait_said("is ready")

    async def go() -> list[str]:
        async with crew.asked() as (engine, _):
            made = Harness(engine, None)
            runs: list[Run] = []
            while any(each.alive for each in doomed.values()):
                runs.append(await made.start(named(PLACED, "doomed")))
                await _until_dead_or(doomed, runs)
            await asyncio.to_thread(crew.worker)
            for run in runs:
                await run.end(PATIENCE)
                assert (await run.document())["output"] == ["e1", "e2"]
            return [run.id for run in runs]

    executions = asyncio.run(go())
    for each in doomed.values():
        _dead(each)
    _check_effects(crew, executions, {each.process.pid for each in doomed.values()})
    report = here(crew.fleet).json("audit", *executions)
    assert report["violations"] == 0, report
    until_then(lambda: not sum(_outbox(crew, one) for one in executions) or None, "nothing is left to do")


def _check_effects(crew: Standing, executions: list[str], died: set[int]) -> None:
    """An effect is made again only where a process died behind it and before its row: by somebody else, and before
    anything that follows from the row. So nobody makes one twice, and whoever made one in vain is dead."""
    makers: dict[str, list[int]] = defaultdict(list)
    later: dict[str, list[str]] = defaultdict(list)
    for each in place_nodes.made(crew.fleet.environment["RUNE_TEST_LEDGER"]):
        execution, _, name = each.key.partition(":")
        makers[each.key].append(each.process)
        later[execution].append(name)
    assert makers.keys() >= {f"{one}:{name}@/#1" for one in executions for name in ("e1", "e2")}
    for one in executions:
        assert later[one] == sorted(later[one]), f"{one}: an effect was made behind its row: {later[one]}"
        assert set(later[one]) == {"e1@/#1", "e2@/#1"}, later[one]
    for key, by in makers.items():
        assert len(set(by)) == len(by), f"{key} was made twice by one process: {by}"
        assert set(by[:-1]) <= died, f"{key} was made again beside somebody who lives: {by}, dead are {died}"


async def _until_dead_or(doomed: dict[str, Process], runs: list[Run]) -> None:
    """Until somebody has died of the latest, or it has ended."""
    living = {point: each for point, each in doomed.items() if each.alive}

    async def so() -> bool:
        # The last of them may have died just before.
        died = not living or not all(each.alive for each in living.values())
        return runs[-1].ending.done() or died

    try:
        await until(so, f"{runs[-1].id} ends, or somebody dies of it", PATIENCE)
    except AssertionError as error:
        facts = [each.fact for each in await runs[-1].facts()]
        said = {point: each.said()[-1000:] for point, each in living.items()}
        raise AssertionError(f"{error}: {facts}; {said}") from None


def test_a_parent_hears_of_a_child_whose_worker_died_behind_the_end(
    crew: Standing, tmp_path: pathlib.Path
) -> None:
    rune = here(crew.fleet)
    rune.json("deploy", _written(tmp_path, CHILD))
    rune.json("deploy", _written(tmp_path, PARENT))
    doomed = crew.fleet.start("worker", RUNE_FAILPOINT="ended")
    doomed.wait_said("is ready")
    it = rune.json("start", "bereft-parent")["execution_id"]
    _dead(doomed)
    child = rune.json("list", "--workflow", "bereft-child")["executions"][0]
    assert child["status"] == "completed"
    assert rune.json("show", it)["completed_at"] is None

    crew.worker()
    assert ended(rune, it)["output"] == 42
    assert len(rune.json("list", "--workflow", "bereft-child")["executions"]) == 1
    until_then(lambda: _outbox(crew, child["execution_id"]) == 0 or None, "nothing is left to do")


def test_a_scheduler_that_dies_over_a_timer_is_replaced(crew: Standing, tmp_path: pathlib.Path) -> None:
    """Both of them may fire; whoever lives does, once."""
    crew.worker()
    rune = here(crew.fleet)
    doomed = crew.fleet.start("scheduler", RUNE_FAILPOINT="fired")
    doomed.wait_said("is ready")
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
    rune.json("deploy", _written(tmp_path, nap))
    found = []

    def die() -> bool | None:
        found.append(rune.json("start", "napping")["execution_id"])
        ended(rune, found[-1])
        return not doomed.alive or None

    until_then(die, "the scheduler that is to die fires one")
    _dead(doomed)
    made = {key: count for key, count in crew.effects().items() if key.split(":")[0] in found}
    assert made == {f"{each}:e1@/#1": 1 for each in found}


def test_a_relay_that_dies_behind_its_work_leaves_it_done_once(crew: Standing) -> None:
    """What it did is found done by the next that looks."""
    crew.worker()
    doomed = crew.fleet.start("scheduler", RUNE_FAILPOINT="relayed")

    async def go() -> list[str]:
        async with crew.asked() as (engine, _):
            plan = compiled(named(CHAIN, "relayed"), engine.registry)
            await engine.backend.journal.save_definition(plan.hash, canonical(plan.definition))
            found: list[str] = []

            async def dies() -> bool:
                at = time.time_ns() // 1_000_000
                wanted = ExecutionRecord(
                    id=new_execution_id(), workflow="relayed", hash=plan.hash, at=at, input=b"{}"
                )
                ending = await engine.wait_for(wanted.id)
                await engine.backend.journal.accept(wanted)  # and nobody opens it
                found.append(wanted.id)
                async with asyncio.timeout(PATIENCE):
                    assert (await ending).status == "completed"
                return not doomed.alive

            await until(dies, "the relay that is to die has worked", PATIENCE)
            return found

    executions = asyncio.run(go())
    _dead(doomed)
    made = {key: count for key, count in crew.effects().items() if key.split(":")[0] in executions}
    assert made == {f"{each}:{name}@/#1": 1 for each in executions for name in ("e1", "e2")}
    assert here(crew.fleet).json("audit", *executions)["violations"] == 0
