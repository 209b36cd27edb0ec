"""Virtual time with children: one clock on the embedded backend, refused on a cluster."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from rune.bootstrap import open_reader
from rune.ports.queries import ExecutionFilter
from rune.runtime.lifecycle.launcher import StartOptions, VirtualTimeError
from rune.testing.harness import Harness
from tests.support.backends import Backend, backends
from tests.support.in_process_cli import InProcessCli
from tests.support.workflows import edit, of_type, wait, workflow

CHILD = {**workflow("start>nap", nap=wait(9, "seconds")), "id": "napping"}
RACE = {
    **workflow(
        "start>call start>deadline deadline>late call>first late>first",
        call=of_type("workflow", workflow="napping"),
        deadline=wait(5, "seconds"),
        late=edit(by="deadline"),
        first=of_type("merge", wait_mode="wait_for_any", cancel_losers=True),
    ),
    "id": "race",
}
ALONE = {**workflow("start>nap", nap=wait(2, "days")), "id": "alone"}


async def deploy(engine: Harness, *documents: Any) -> None:
    for each in documents:
        await engine.engine.services.workflows.deploy(json.dumps(each).encode())


@backends("embedded")
def test_deadline_wins_race_against_longer_child(backend: Backend) -> None:
    async def go() -> Any:
        async with backend.open() as engine:
            await deploy(engine, CHILD)
            return (await engine.run(RACE, fake_time=True))["output"]

    assert asyncio.run(go()) == {"first": {"by": "deadline"}}


@backends("redis", "rabbitmq")
def test_cluster_refuses_children_in_virtual_time(backend: Backend) -> None:
    async def go() -> int:
        async with backend.open() as engine:
            await deploy(engine, CHILD, RACE)
            executions = engine.engine.services.executions
            with pytest.raises(
                VirtualTimeError, match="`race` starts children: on a cluster they do not share"
            ):
                await engine.start(RACE, fake_time=True)
            with pytest.raises(VirtualTimeError):
                await executions.start("race", None, b"{}", StartOptions(fake_time=True))
            run = await engine.run(ALONE, fake_time=True)
            assert run["status"] == "completed"
            async with open_reader(backend.settings) as reader:
                return len(await reader.executions(ExecutionFilter(workflow="race")))

    assert asyncio.run(go()) == 0


@backends("redis")
def test_command_is_refused_with_the_reason(backend: Backend, tmp_path: Path) -> None:
    settings = backend.settings
    rune = InProcessCli(
        tmp_path,
        RUNE_JOURNAL=settings.journal,
        RUNE_STATE=settings.state,
        RUNE_QUEUE=settings.queue,
        RUNE_PREFIX=settings.prefix,
    )
    (tmp_path / "child.json").write_text(json.dumps(CHILD))
    (tmp_path / "race.json").write_text(json.dumps(RACE))
    rune.json("deploy", str(tmp_path / "child.json"))
    (problem,) = rune.json("run", str(tmp_path / "race.json"), "--fake-time", code=2)["problems"]
    assert problem["code"] == "NO_SHARED_CLOCK"
    rune.json("deploy", str(tmp_path / "race.json"))
    (problem,) = rune.json("start", "race", "--fake-time", code=2)["problems"]
    assert problem["code"] == "NO_SHARED_CLOCK"
