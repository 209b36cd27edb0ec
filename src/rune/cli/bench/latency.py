"""Latency of one execution at a time in an idle engine, called in its process and over HTTP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec

from rune.bootstrap import open_reader, running_engine
from rune.bootstrap.http import serve
from rune.cli.bench import workloads
from rune.cli.bench.workloads import Report, bare_rate, completed, new_settings, percentile
from rune.core.definition.model import canonical
from rune.runtime.engine import Engine

WARM_UP = 20
WAIT_S = 30


async def latency_1(folder: Path, scale: float) -> Report:
    """Latency of one node with effects in an idle engine, from start to completion."""
    return await _latency(folder, scale, 1, 3.0, effectful=True)


async def latency_3(folder: Path, scale: float) -> Report:
    """Latency of three nodes with effects in an idle engine, from start to completion."""
    return await _latency(folder, scale, 3, 5.0, effectful=True)


async def latency_10(folder: Path, scale: float) -> Report:
    """Latency of ten pure nodes in an idle engine, from start to completion."""
    return await _latency(folder, scale, 10, 8.0, effectful=False)


async def latency_http_1(folder: Path, scale: float) -> Report:
    """Latency of one node with effects over HTTP: one request starts the execution and waits for its end."""
    return await _latency_http(folder, scale, 1, 5.0)


async def latency_http_3(folder: Path, scale: float) -> Report:
    """Latency of three nodes with effects over HTTP."""
    return await _latency_http(folder, scale, 3, 6.0)


async def _latency(folder: Path, scale: float, nodes: int, goal: float, *, effectful: bool) -> Report:
    count = max(20, int(300 * scale))
    async with running_engine(new_settings(folder)) as engine:
        plan = workloads.chain(nodes, engine.registry.catalogue, effectful=effectful)
        await completed(engine, plan, [b"{}"] * WARM_UP, 1)
        took = await completed(engine, plan, [b'{"x": 1}'] * count, 1)
    return _report(f"latency-{nodes}", took, goal, _commit_ms(folder, scale))


async def _latency_http(folder: Path, scale: float, nodes: int, goal: float) -> Report:
    count = max(20, int(300 * scale))
    async with _serving(folder) as (engine, url), aiohttp.ClientSession(url) as session:
        plan = workloads.chain(nodes, engine.registry.catalogue, effectful=True)
        await engine.services.workflows.deploy(canonical(plan.definition))
        await start_and_wait(session, plan.definition.id, WARM_UP)
        took = await start_and_wait(session, plan.definition.id, count)
    return _report(f"latency-http-{nodes}", took, goal, _commit_ms(folder, scale))


async def start_and_wait(session: aiohttp.ClientSession, workflow: str, count: int) -> list[float]:
    """Start executions one after the other and wait for each; return the ms that each took."""
    took: list[float] = []
    for _ in range(count):
        began = time.perf_counter()
        async with session.post(
            f"/api/v1/workflows/{workflow}/executions", params={"wait": WAIT_S}, json={"input": {"x": 1}}
        ) as reply:
            started = msgspec.json.decode(await reply.read())
        assert started["execution"]["status"] == "completed", started
        took.append((time.perf_counter() - began) * 1000)
    return took


@asynccontextmanager
async def _serving(folder: Path) -> AsyncIterator[tuple[Engine, str]]:
    """Run an engine with its API on a free port."""
    settings = new_settings(folder)
    loop = asyncio.get_running_loop()
    stop: asyncio.Future[None] = loop.create_future()
    ready: asyncio.Future[str] = loop.create_future()
    async with running_engine(settings) as engine, open_reader(settings) as reader:
        serving = asyncio.create_task(
            serve(settings, engine, reader, "127.0.0.1", 0, stop=stop, ready=ready.set_result)
        )
        try:
            yield engine, await ready
        finally:
            stop.set_result(None)
            await serving


def _commit_ms(folder: Path, scale: float) -> float:
    """Return how long a loop without an engine takes for a commit."""
    commits = max(20, int(100 * scale))
    return 1000 / bare_rate(folder / "limit.db", nodes=commits, claims=False, per_commit=1)


def _report(name: str, took: list[float], goal: float, commit: float) -> Report:
    p50 = percentile(took, 0.5)
    return Report(
        name=name,
        p50_ms=p50,
        p99_ms=percentile(took, 0.99),
        limit=commit,
        ratio=commit / p50,
        unit="ms a commit (limit)",
        goal=f"p50 <= {goal:g} ms",
        met=p50 <= goal,
    )
