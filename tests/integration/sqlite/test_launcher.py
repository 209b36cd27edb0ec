"""Starts through the launcher of an embedded engine."""

from __future__ import annotations

import asyncio
from pathlib import Path

from rune.nodes.custom import kind_of, node
from rune.nodes.registry import standard_registry
from rune.ports.journal import ExecutionRecord
from rune.testing.harness import VirtualClock, compiled, harness
from tests.support.async_test import async_test


@async_test
async def test_repeated_start_of_running_id_runs_once(tmp_path: Path) -> None:
    begun, gate = asyncio.Event(), asyncio.Event()
    runs: list[int] = []

    @node("run.once")
    async def once() -> int:
        """Runs until the gate opens."""
        runs.append(len(runs))
        begun.set()
        await gate.wait()
        return len(runs)

    kind = kind_of(once)
    assert kind is not None
    registry = standard_registry().extended([kind])
    plan = compiled({"id": "one", "nodes": [{"id": "a", "type": "run.once"}]}, registry)
    async with harness(tmp_path, clock=VirtualClock(), registry=registry) as running:
        launcher = running.engine.launcher

        async def start(id: str) -> ExecutionRecord:
            return await launcher.start(launcher.new_record(plan, b"{}", execution=id), plan)

        first = await start("same")
        await begun.wait()
        begun.clear()
        assert await start("same") == first
        other = await start("other")
        await begun.wait()
        gate.set()
        for each in (first, other):
            await running.until(await running.engine.wait_for(each.id))
        assert len(runs) == 2
