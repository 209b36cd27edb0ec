"""Whether the small has to wait for the big: one-node executions beside a fan-out of 100,000 items."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from rune.bench import documents
from rune.bench.load import completed
from rune.bench.report import Report, percentile
from rune.compose import running_engine
from rune.settings import Settings

MOST = 5.0


async def fair_share(folder: Path, scale: float) -> Report:
    """One-node executions, one after the other: alone, then beside a fan-out of 100,000 items."""
    items, count = max(2_000, int(100_000 * scale)), max(50, int(500 * scale))
    async with running_engine(Settings(home=str(folder))) as engine:
        small = documents.chain(1, engine.registry.catalogue, effectful=True)
        big = documents.fan(items, engine.registry.catalogue, effectful=True)
        await completed(engine, small, [b"{}"] * 20, 1)
        alone = await completed(engine, small, [b"{}"] * count, 1)
        payload = msgspec.json.encode({"xs": list(range(items))})
        crowd = asyncio.create_task(completed(engine, big, [payload], 1))
        beside: list[float] = []
        while not crowd.done():
            beside += await completed(engine, small, [b"{}"], 1)
        await crowd
    idle, busy = percentile(alone, 0.99), percentile(beside, 0.99)
    return Report(
        name="fair-share",
        p50_ms=percentile(beside, 0.5),
        p99_ms=busy,
        limit=idle,
        ratio=idle / busy,
        unit="ms p99 alone (limit)",
        goal=f"p99 <= {MOST:g}x that of an idle engine",
        met=busy <= MOST * idle,
        details={"items": items, "beside": len(beside), "p50_alone_ms": round(percentile(alone, 0.5), 2)},
    )
