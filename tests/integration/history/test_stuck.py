"""Running executions without progress are found; those that wait for a time or a signal are not among them."""

from __future__ import annotations

import asyncio
import json
import pathlib
from typing import Any

import pytest

from rune.bootstrap import open_reader
from rune.nodes.custom import kind_of, node
from rune.nodes.registry import standard_registry
from rune.ports.queries import ExecutionCount, ExecutionFilter
from rune.runtime.queries import store_stats
from tests.support.backends import Backend, backends, until_suspended
from tests.support.in_process_cli import InProcessCli
from tests.support.waiting import until
from tests.support.workflows import edit, of_type, wait, wait_for_signal, workflow

HANGS = workflow("start>a a>b", a=edit(x=1), b=of_type("t.hangs"))
SLEEPS = workflow("start>w", w=wait(1, "hours"))
HANGS_BESIDE_WAITS = workflow(
    "start>w start>l start>a", w=wait(1, "hours"), l=wait_for_signal(), a=of_type("t.hangs")
)
LISTENS = workflow("start>w", w=of_type("wait", resume="signal", name="go"))
STUCK = ExecutionFilter(stuck=True)
DONE = workflow("start>a", a=edit(x=1))


def _hanging(started: list[int], released: asyncio.Event) -> Any:
    @node("t.hangs")
    async def hangs() -> None:
        started.append(1)
        await released.wait()

    found = kind_of(hangs)
    assert found is not None
    return standard_registry().extended([found])


@backends("embedded", "redis", "rabbitmq")
def test_execution_without_progress_is_stuck(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    async def listed() -> list[list[str]]:
        async with open_reader(backend.settings) as reader:
            all_of_them = await reader.executions(STUCK)
            page = await reader.search(STUCK)
            return [[each.id for each in found] for found in (all_of_them, page.executions)]

    async def go() -> tuple[list[list[str]], list[list[str]], str]:
        started: list[int] = []
        released = asyncio.Event()
        async with backend.open(registry=_hanging(started, released)) as engine:
            hangs = await engine.start(HANGS)
            for each in (SLEEPS, LISTENS):
                await until_suspended(await engine.start(each))
            await (await engine.start(DONE)).end()
            await until(lambda: bool(started), "the node runs")
            at_once = await listed()
            monkeypatch.setattr("rune.runtime.queries.reader.STUCK_AFTER_MS", 0)
            later = await listed()
            released.set()
            return at_once, later, hangs.id

    at_once, later, hangs = asyncio.run(go())
    assert (at_once, later) == ([[], []], [[hangs], [hangs]])


@backends("embedded", "redis")
def test_ready_node_beside_waiting_ones_is_stuck_unless_paused(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rune.runtime.queries.reader.STUCK_AFTER_MS", 0)

    async def go() -> tuple[list[str], list[str], str]:
        started: list[int] = []
        released = asyncio.Event()
        async with (
            backend.open(registry=_hanging(started, released)) as engine,
            open_reader(backend.settings) as reader,
        ):
            run = await engine.start(HANGS_BESIDE_WAITS)
            await until_suspended(run, 2)
            await until(lambda: bool(started), "the node runs")
            hanging = [each.id for each in await reader.executions(STUCK)]
            await engine.engine.services.executions.pause(run.id)
            paused = [each.id for each in await reader.executions(STUCK)]
            released.set()
            return hanging, paused, run.id

    hanging, paused, execution = asyncio.run(go())
    assert (hanging, paused) == ([execution], [])


@backends("embedded", "redis")
def test_gauge_counts_stuck_executions_over_several_reads(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read that has no time left for all running executions is continued by the next one."""
    monkeypatch.setattr("rune.runtime.queries.reader.STUCK_AFTER_MS", 0)
    monkeypatch.setattr("rune.runtime.queries.reader.BATCH_SIZE", 2)
    monkeypatch.setattr(store_stats, "STUCK_PASS_S", 1e-9)
    monkeypatch.setattr(store_stats, "CACHE_S", 0)

    async def go() -> list[int | None]:
        started: list[int] = []
        released = asyncio.Event()
        async with (
            backend.open(registry=_hanging(started, released)) as engine,
            open_reader(backend.settings) as reader,
        ):
            for _ in range(3):
                await engine.start(HANGS)
                await until_suspended(await engine.start(SLEEPS))
            await until(lambda: len(started) == 3, "the nodes run")
            store = engine.engine.backend
            stats = store_stats.StoreStats(store, lambda: 0, 1, frozenset({"worker"}), reader)
            counts = [(await stats.read()).stuck for _ in range(4)]
            assert await reader.count(STUCK) == ExecutionCount(3, exact=True)
            released.set()
            return counts

    counts = asyncio.run(go())
    assert counts[0] is None
    assert counts[-1] == 3


def test_list_command_selects_stuck_executions(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An execution that was started without a process that runs it makes no progress."""
    rune = InProcessCli(tmp_path)
    path = tmp_path / "workflow.json"
    path.write_text(json.dumps({**DONE, "id": "waits"}))
    rune.json("deploy", str(path))
    execution = rune.json("start", "waits")["execution_id"]
    assert rune.json("list", "--stuck")["executions"] == []
    monkeypatch.setattr("rune.runtime.queries.reader.STUCK_AFTER_MS", 0)
    assert [each["execution_id"] for each in rune.json("list", "--stuck")["executions"]] == [execution]
