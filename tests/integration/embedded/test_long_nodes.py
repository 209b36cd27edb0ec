"""Nodes that outlast their lease, and executions whose node types this process does not have."""

from __future__ import annotations

import asyncio
import pathlib
from typing import Any

from rune.nodes.custom import kind_of, node
from rune.nodes.registry import Registry, standard_registry
from rune.testing.harness import VirtualClock, harness


def _registry(started: list[int], gate: asyncio.Event) -> Registry:
    @node("test.slow")
    async def slow() -> str:
        started.append(1)
        await gate.wait()
        return "done"

    kind = kind_of(slow)
    assert kind is not None
    return standard_registry().extended([kind])


SLOW: dict[str, Any] = {
    "id": "slow",
    "nodes": [
        {"id": "in", "type": "input"},
        {"id": "s", "type": "test.slow"},
        {"id": "out", "type": "output", "parameters": {"value": "$s"}},
    ],
    "edges": [{"src": "in", "dst": "s"}, {"src": "s", "dst": "out"}],
}
WAITING: dict[str, Any] = {
    "id": "waiting",
    "nodes": [
        {"id": "in", "type": "input"},
        {"id": "w", "type": "wait", "parameters": {"amount": 1, "unit": "hours"}},
        {"id": "out", "type": "output", "parameters": {"value": "woke"}},
    ],
    "edges": [{"src": "in", "dst": "w"}, {"src": "w", "dst": "out"}],
}


def test_node_longer_than_lease_runs_once(tmp_path: pathlib.Path) -> None:
    async def go() -> tuple[int, Any]:
        started: list[int] = []
        gate = asyncio.Event()
        clock = VirtualClock()
        async with harness(tmp_path, clock=clock, registry=_registry(started, gate)) as engine:
            run = await engine.start(SLOW)
            await engine.wait_for(lambda: bool(started))
            for _ in range(20):
                await engine.wait_for(lambda: clock.asleep)
                clock.advance(3_000)
            await engine.wait_for(lambda: clock.asleep)
            gate.set()
            await run.end()
            return len(started), (await run.document())["output"]

    assert asyncio.run(go()) == (1, "done")


def test_unknown_node_type_does_not_block_other_executions(tmp_path: pathlib.Path) -> None:
    async def go() -> tuple[list[str], str]:
        clock = VirtualClock()
        gate = asyncio.Event()
        started: list[int] = []
        ids = []
        async with harness(tmp_path, clock=clock, registry=_registry(started, gate), grace=0.01) as engine:
            ids.append((await engine.start(WAITING)).id)
            foreign = (await engine.start(SLOW)).id
            ids.append((await engine.start(WAITING)).id)
            await engine.wait_for(lambda: bool(started))
        async with harness(tmp_path, clock=clock, registry=standard_registry()) as engine:
            endings = [await engine.engine.wait_for(each) for each in ids]
            clock.advance(3_600_000)
            ends = [await engine.until(each) for each in endings]
        gate.set()
        async with harness(tmp_path, clock=clock, registry=_registry(started, gate)) as engine:
            last = await engine.until(await engine.engine.wait_for(foreign))
        return [each.status for each in ends], last.status

    assert asyncio.run(go()) == (["completed", "completed"], "completed")
