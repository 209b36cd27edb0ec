"""Parent and children share one virtual clock, whatever the way by which an execution is started."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from rune.build import Workflow
from rune.core.execution.fact import NodeSuspended
from rune.testing import EmbeddedEngine
from rune.testing.harness import harness
from tests.support.cli_process import Rune
from tests.support.up_process import UpProcess
from tests.support.waiting import until
from tests.support.workflows import Fields, edit, of_type, recording_registry, wait, workflow

HOUR_MS = 3_600_000


def child(hours: float, id: str = "child", behind: Fields | None = None) -> Fields:
    """Build a workflow that waits, and then runs one more node."""
    nodes = {"pause": wait(hours), "done": behind or edit(by=id)}
    return {**workflow("start>pause pause>done", **nodes), "id": id}


def race(deadline: float, of: str = "child", id: str = "race") -> Fields:
    """Build a workflow in which a child runs against a wait."""
    nodes = {
        "call": of_type("workflow", workflow=of),
        "deadline": wait(deadline),
        "late": edit(by="deadline"),
        "first": of_type("merge", wait_mode="wait_for_any", cancel_losers=True),
    }
    return {**workflow("start>call start>deadline deadline>late late>first call>first", **nodes), "id": id}


def by_command(folder: Path, children: list[Fields], parent: Fields) -> Fields:
    rune = Rune(folder / "home")
    for number, each in enumerate([*children, parent]):
        file = folder / f"{number}.json"
        file.write_text(json.dumps(each))
        if each is not parent:
            assert rune("deploy", str(file)).returncode == 0
    done = rune("run", str(file), "--fake-time", "--json")
    found: Fields = json.loads(done.stdout)
    return found


def by_start_command(folder: Path, children: list[Fields], parent: Fields) -> Fields:
    rune = Rune(folder / "home")
    for number, each in enumerate([*children, parent]):
        (folder / f"{number}.json").write_text(json.dumps(each))
        assert rune("deploy", str(folder / f"{number}.json")).returncode == 0
    up = UpProcess(rune.home)
    up.start()
    try:
        done = rune("start", parent["id"], "--fake-time", "--wait", "--json")
        shown: Fields = json.loads(rune("show", json.loads(done.stdout)["execution_id"], "--json").stdout)
    finally:
        up.stop(signal.SIGKILL)
    return shown


def by_builder(folder: Path, children: list[Fields], parent: Fields) -> Fields:
    home = folder / "home"
    rune = Rune(home)
    for each in children:
        (folder / "child.json").write_text(json.dumps(each))
        assert rune("deploy", str(folder / "child.json")).returncode == 0
    return dict(Workflow.from_text(json.dumps(parent), "json").run(home=home, fake_time=True).document)


def by_fixture(folder: Path, children: list[Fields], parent: Fields) -> Fields:
    engine = EmbeddedEngine(folder)
    try:
        for each in children:
            engine.deploy(each)
        return dict(engine.run(parent).result.document)
    finally:
        engine.close()


def by_rune_test(folder: Path, children: list[Fields], parent: Fields) -> Fields:
    """Run the workflow by `rune test`, which records what it cannot print: the output that it expected instead."""
    file = folder / "test-race.json"
    expected = {"status": "completed", "output": {"by": "neither"}}
    file.write_text(
        json.dumps(
            {"document": parent, "workflows": children, "tests": [{"case": "race", "expect": expected}]}
        )
    )
    done = Rune(folder / "home")("test", str(file), "--json")
    found = re.findall(r'\{\\*"by\\*": ?\\*"(\w+)', done.stdout.replace("neither", ""))
    assert len(set(found)) == 1, done.stdout
    return {
        "status": "completed",
        "nodes": [{"node_id": "first", "status": "success", "output": {"by": found[0]}}],
    }


def by_start(folder: Path, children: list[Fields], parent: Fields) -> Fields:
    async def go() -> Fields:
        async with harness(folder) as engine:
            for each in children:
                await engine.engine.services.workflows.deploy(json.dumps(each).encode())
            return await engine.run(parent, fake_time=True)

    return asyncio.run(go())


Door = Callable[[Path, list[Fields], Fields], Fields]
doors = pytest.mark.parametrize(
    "run", [by_command, by_start_command, by_builder, by_fixture, by_rune_test, by_start]
)


def outputs(document: Fields) -> Fields:
    return {each["node_id"]: each["output"] for each in document["nodes"] if each["status"] == "success"}


def winner_of(document: Fields) -> str:
    first = outputs(document)["first"]
    return str(first.get("done", first)["by"])


def duration_h(document: Fields) -> float:
    return float(document.get("total_duration_ms", 0)) / HOUR_MS


@doors
def test_deadline_wins_against_slower_child(run: Door, tmp_path: Path) -> None:
    document = run(tmp_path, [child(9)], race(5))
    assert document["status"] == "completed", document
    assert winner_of(document) == "deadline"
    assert 5 <= duration_h(document) < 5.1 or run is by_rune_test


@doors
def test_faster_child_wins_against_deadline(run: Door, tmp_path: Path) -> None:
    document = run(tmp_path, [child(4)], race(5))
    assert winner_of(document) == "child"
    assert 4 <= duration_h(document) < 4.1 or run is by_rune_test


def test_deadline_wins_against_grandchild(tmp_path: Path) -> None:
    between = {**workflow("start>call", call=of_type("workflow", workflow="child")), "id": "between"}
    document = by_start(tmp_path, [child(9), between], race(5, of="between"))
    assert winner_of(document) == "deadline"
    assert 5 <= duration_h(document) < 5.1


def test_child_of_a_lost_race_runs_nothing_after_its_wait(tmp_path: Path) -> None:
    """In real time the child is cancelled while it waits; virtual time must not run it ahead of its parent."""
    calls: list[str] = []

    async def go() -> Fields:
        async with harness(tmp_path, registry=recording_registry(calls)) as engine:
            await engine.engine.services.workflows.deploy(
                json.dumps(child(9, behind=of_type("t.call"))).encode()
            )
            return await engine.run(race(5), fake_time=True)

    assert winner_of(asyncio.run(go())) == "deadline"
    assert not calls


def test_children_end_in_the_order_of_their_durations(tmp_path: Path) -> None:
    call = {name: of_type("workflow", workflow=name) for name in ("long", "short", "middle")}
    document = workflow(
        "start>long start>short start>middle long>a short>b middle>c",
        **call,
        **{name: edit(at="{{ now() }}") for name in "abc"},
    )
    children = [child(9, "long"), child(1, "short"), child(4, "middle")]
    found = outputs(by_start(tmp_path, children, document))
    assert found["b"]["at"] < found["c"]["at"] < found["a"]["at"]


def test_timers_of_parent_and_child_alternate(tmp_path: Path) -> None:
    """Two chains of waits, at the odd and at the even hours, one of them in a child."""
    chain = "start>w0 w0>n0 n0>w1 w1>n1 n1>w2 w2>n2"
    stamp = {f"n{number}": edit(at="{{ now() }}") for number in range(3)}
    inner = {
        **workflow(
            f"{chain} n2>all",
            **{f"w{n}": wait(2) for n in range(3)},
            **stamp,
            all=edit(n0="{{ $n0.at }}", n1="{{ $n1.at }}", n2="{{ $n2.at }}"),
        ),
        "id": "inner",
    }
    outer = workflow(
        f"{chain} start>call",
        call=of_type("workflow", workflow="inner"),
        w0=wait(1),
        w1=wait(2),
        w2=wait(2),
        **stamp,
    )
    found = outputs(by_start(tmp_path, [inner], outer))
    moments = [
        found["n0"]["at"],
        found["call"]["all"]["n0"],
        found["n1"]["at"],
        found["call"]["all"]["n1"],
        found["n2"]["at"],
        found["call"]["all"]["n2"],
    ]
    assert moments == sorted(moments), moments


def test_virtual_race_goes_on_after_a_restart(tmp_path: Path) -> None:
    """Neither the parent nor the child is in memory when the engine opens again."""
    ask = {
        **workflow("start>ask ask>pause", ask=of_type("wait", resume="signal"), pause=wait(9)),
        "id": "child",
    }
    parent = race(5)
    parent["nodes"].append({"id": "hold", **of_type("wait", resume="signal")})
    parent["edges"] = [
        {"src": "start", "dst": "hold"},
        {"src": "hold", "dst": "deadline"},
        *(each for each in parent["edges"] if each["dst"] != "deadline"),
    ]

    async def start() -> tuple[str, str]:
        async with harness(tmp_path) as engine:
            await engine.engine.services.workflows.deploy(json.dumps(ask).encode())
            run = await engine.start(parent, fake_time=True)
            journal = engine.engine.backend.journal

            async def waits() -> bool:
                rows = await journal.children(run.id)
                return bool(rows) and any(
                    type(each.fact) is NodeSuspended for each in await journal.facts(rows[0])
                )

            await until(waits, "the child waits")
            return run.id, (await journal.children(run.id))[0]

    async def go_on(parent_id: str, child_id: str) -> str:
        async with harness(tmp_path) as engine:
            executions = engine.engine.services.executions
            await executions.signal(child_id, "ask", b"1")
            await executions.signal(parent_id, "hold", b"1")
            await asyncio.wait_for(await engine.engine.wait_for(parent_id), 30)
            journal = engine.engine.backend.journal
            child_end = await journal.end(child_id)
            assert child_end is not None
            return child_end.status

    assert asyncio.run(go_on(*asyncio.run(start()))) == "cancelled"


@pytest.mark.parametrize(("lasts", "winner"), [(0.9, "deadline"), (0.2, "child")])
def test_real_time_gives_the_same_winner(lasts: float, winner: str, tmp_path: Path) -> None:
    slow = {
        **workflow("start>pause pause>done", pause=wait(lasts, "seconds"), done=edit(by="child")),
        "id": "child",
    }
    document = race(0.5)
    next(each for each in document["nodes"] if each["id"] == "deadline")["parameters"]["unit"] = "seconds"

    async def go(fake_time: bool) -> Fields:
        async with harness(tmp_path / str(fake_time)) as engine:
            await engine.engine.services.workflows.deploy(json.dumps(slow).encode())
            return await engine.run(document, fake_time=fake_time)

    real, virtual = asyncio.run(go(False)), asyncio.run(go(True))
    assert winner_of(real) == winner_of(virtual) == winner
