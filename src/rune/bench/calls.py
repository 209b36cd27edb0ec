"""Measures of http nodes: their rate beside that of a bare client, and what many calls under way cost."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec

from rune.bench import documents
from rune.bench.files import many_files
from rune.bench.load import completed
from rune.bench.report import Report, resident_mb
from rune.compose import running_engine
from rune.settings import Settings

AT_ONCE = 64
ROUNDS = 3


@asynccontextmanager
async def serving() -> AsyncIterator[str]:
    """The address of a server in a process of its own."""
    many_files()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "rune.bench.answering",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        port = int(await process.stdout.readline())
        yield f"http://127.0.0.1:{port}"
    finally:
        process.stdin.close()
        await process.wait()


async def http_64(folder: Path, scale: float) -> Report:
    """http nodes, 64 under way, against a bare client doing the same; the better of three rounds each, in turn."""
    count = max(500, int(6_000 * scale))
    rates: list[float] = []
    limits: list[float] = []
    async with serving() as url, running_engine(_settings(folder, 256)) as engine:
        plan = documents.calls(f"{url}/", AT_ONCE, engine.registry.catalogue)
        await completed(engine, plan, [_numbers(200)], 1)
        for _ in range(ROUNDS):
            limits.append(await _bare(f"{url}/", count))
            began = time.perf_counter()
            await completed(engine, plan, [_numbers(count)], 1)
            rates.append(count / (time.perf_counter() - began))
    rate, limit = max(rates), max(limits)
    return Report(
        name="http-64",
        rate=rate,
        unit="requests/s",
        limit=limit,
        ratio=rate / limit,
        goal=">= 60 % of a bare client",
        met=rate >= 0.6 * limit,
        details={"worst_round": round(min(a / b for a, b in zip(rates, limits, strict=True)), 2)},
    )


async def _bare(url: str, count: int) -> float:
    """What a client without an engine does: it asks, and reads JSON."""
    left = iter(range(count))
    connector = aiohttp.TCPConnector(limit=AT_ONCE)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def lane() -> None:
            for _ in left:
                async with session.get(url) as response:
                    assert response.status == 200
                    msgspec.json.decode(await response.read())

        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(lane())
        return count / (time.perf_counter() - began)


async def http_1000(folder: Path, scale: float) -> Report:
    """1,000 calls under way in one process: how much memory it takes."""
    count = max(50, int(1_000 * min(scale, 1.0)))
    async with serving() as url, running_engine(_settings(folder, count + 24)) as engine:
        before = resident_mb()
        plan = documents.calls(f"{url}/hold", count, engine.registry.catalogue)
        began = time.perf_counter()
        running = asyncio.create_task(completed(engine, plan, [_numbers(count)], 1))
        async with aiohttp.ClientSession() as session:
            while await _text(session, f"{url}/held") != str(count):
                if running.done():
                    running.result()
                await asyncio.sleep(0.02)
            took = time.perf_counter() - began
            memory = resident_mb()
            await _text(session, f"{url}/release")
        await running
    return Report(
        name="http-1000",
        rate=count / took,
        unit="begun/s",
        rss_mb=memory,
        goal=f"{count:,} under way within 200 MB",
        met=memory < 200,
        details={"before_mb": round(before, 1), "a_call_kb": round((memory - before) * 1024 / count, 1)},
    )


async def _text(session: aiohttp.ClientSession, url: str) -> str:
    async with session.get(url) as response:
        return await response.text()


def _settings(folder: Path, slots: int) -> Settings:
    return Settings(home=str(folder), slots=slots, http_allow=("127.0.0.1",), http_per_host=slots)


def _numbers(count: int) -> bytes:
    return msgspec.json.encode({"xs": list(range(count))})
