"""The measures of `rune bench`. Each runs in a separate process with a new database and verifies what it counts.

Executions are started through the public interface and awaited to their end. `python -m rune.cli.bench.measures` runs
the web server of the HTTP measures and prints its port.
"""

from __future__ import annotations

import asyncio
import math
import os
import resource
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from aiohttp import web
from msgspec.structs import replace

from rune.bootstrap import running_engine
from rune.cli.bench import workloads
from rune.cli.bench.jobs import JOBS, Goal, Job, arm
from rune.cli.bench.place import NODES, EnginePlace, open_place
from rune.cli.bench.place import serving as serving_api
from rune.cli.bench.workloads import (
    Bare,
    Report,
    Spent,
    bare_executions,
    bare_nodes,
    completed,
    fill,
    new_settings,
    percentile,
    resident_mb,
)
from rune.core.definition.model import canonical
from rune.core.json_decoder import read_json
from rune.ports.retention import Rule
from rune.settings import Settings

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
    settings = new_settings(folder)
    async with (
        running_engine(settings) as engine,
        serving_api(settings, engine) as url,
        aiohttp.ClientSession(url) as session,
    ):
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
            started = read_json(await reply.read())
        assert started["execution"]["status"] == "completed", started
        took.append((time.perf_counter() - began) * 1000)
    return took


def _commit_ms(folder: Path, scale: float) -> float:
    """Return how long a loop without an engine takes for a commit."""
    commits = max(20, int(100 * scale))
    return 1000 / bare_nodes(folder / "limit.db", nodes=commits, claims=False, per_commit=1).rate


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


MAX_FAIR_RATIO = 5.0
HTTP_CONCURRENCY = 64
HTTP_ROUNDS = 3
HELLO = Path("examples") / "hello" / "hello.yaml"
BODY = b'{"id":7,"name":"Ada","tags":["a","b"],"active":true}'


async def fair_share(folder: Path, scale: float) -> Report:
    """Sequential one-node executions: first alone, then during a fan-out of 100,000 items."""
    items, count = max(2_000, int(100_000 * scale)), max(50, int(500 * scale))
    async with running_engine(Settings(home=str(folder))) as engine:
        small = workloads.chain(1, engine.registry.catalogue, effectful=True)
        big = workloads.fan(engine.registry.catalogue, effectful=True)
        await completed(engine, small, [b"{}"] * 20, 1)
        alone = await completed(engine, small, [b"{}"] * count, 1)
        payload = msgspec.json.encode({"xs": list(range(items))})
        fan_out = asyncio.create_task(completed(engine, big, [payload], 1))
        beside: list[float] = []
        while not fan_out.done():
            beside += await completed(engine, small, [b"{}"], 1)
        await fan_out
    idle, busy = percentile(alone, 0.99), percentile(beside, 0.99)
    return Report(
        name="fair-share",
        p50_ms=percentile(beside, 0.5),
        p99_ms=busy,
        limit=idle,
        ratio=idle / busy,
        unit="ms p99 alone (limit)",
        goal=f"p99 <= {MAX_FAIR_RATIO:g}x that of an idle engine",
        met=busy <= MAX_FAIR_RATIO * idle,
        details={"items": items, "beside": len(beside), "p50_alone_ms": round(percentile(alone, 0.5), 2)},
    )


def many_files(wanted: int = 8192) -> None:
    """Raise the limit of open files: measures with a thousand connections exceed the default of many systems."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))


@asynccontextmanager
async def serving() -> AsyncIterator[str]:
    """Run the web server in a separate process and yield its URL."""
    many_files()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "rune.cli.bench.measures",
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
    """http nodes with 64 concurrent calls against a bare client; the best of three alternating rounds each."""
    count = max(500, int(6_000 * scale))
    rates: list[float] = []
    limits: list[float] = []
    async with serving() as url, running_engine(_slot_settings(folder, 256)) as engine:
        plan = workloads.calls(f"{url}/", HTTP_CONCURRENCY, engine.registry.catalogue)
        await completed(engine, plan, [_numbers(200)], 1)
        for _ in range(HTTP_ROUNDS):
            limits.append(await _bare_client_rate(f"{url}/", count))
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


async def _bare_client_rate(url: str, count: int) -> float:
    """Return the requests per second of a client without an engine that decodes JSON."""
    left = iter(range(count))
    connector = aiohttp.TCPConnector(limit=HTTP_CONCURRENCY)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def lane() -> None:
            for _ in left:
                async with session.get(url) as response:
                    assert response.status == 200
                    read_json(await response.read())

        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(HTTP_CONCURRENCY):
                group.create_task(lane())
        return count / (time.perf_counter() - began)


async def http_1000(folder: Path, scale: float) -> Report:
    """The memory of 1,000 concurrent calls in one process."""
    count = max(50, int(1_000 * min(scale, 1.0)))
    async with serving() as url, running_engine(_slot_settings(folder, count + 24)) as engine:
        before = resident_mb()
        plan = workloads.calls(f"{url}/hold", count, engine.registry.catalogue)
        began = time.perf_counter()
        running = asyncio.create_task(completed(engine, plan, [_numbers(count)], 1))
        async with aiohttp.ClientSession() as session:
            while await _get_text(session, f"{url}/held") != str(count):
                if running.done():
                    running.result()
                await asyncio.sleep(0.02)
            took = time.perf_counter() - began
            memory = resident_mb()
            await _get_text(session, f"{url}/release")
        await running
    return Report(
        name="http-1000",
        rate=count / took,
        unit="begun/s",
        rss_mb=memory,
        goal=f"{count:,} concurrent calls within 200 MB",
        met=memory < 200,
        details={"before_mb": round(before, 1), "a_call_kb": round((memory - before) * 1024 / count, 1)},
    )


async def _get_text(session: aiohttp.ClientSession, url: str) -> str:
    async with session.get(url) as response:
        return await response.text()


def _slot_settings(folder: Path, slots: int) -> Settings:
    return Settings(home=str(folder), slots=slots, http_allow=("127.0.0.1",), http_per_host=slots)


def _numbers(count: int) -> bytes:
    return msgspec.json.encode({"xs": list(range(count))})


Measure = Callable[[Path, float], Coroutine[Any, Any, Report]]


async def run_job(name: str, folder: Path, scale: float) -> Report:
    """Run a job in an engine of this process, then its limit; both with their CPU time per unit."""
    job = JOBS[name]
    settings = replace(new_settings(folder), nodes=NODES)
    async with open_place(settings, serves=job.serves) as place:
        warm = await job.load(place, job.warm_up, job.concurrency)
        before = resident_mb()
        with Spent() as spent:
            done = await job.load(place, job.scaled(scale), job.concurrency)
        grown, peak = resident_mb() - before, resident_mb(peak=True) - before
        results = await place.count_results()
    assert results == warm.results + done.results, f"{results} results"
    bare = _limit(job, folder / "limit.db", done.units)
    rate = done.units / spent.seconds
    goal = job.goal
    return Report(
        name=name,
        rate=rate,
        unit=f"{job.unit}/s",
        cpu_us=spent.cpu_s / done.units * 1e6,
        limit_cpu_us=bare.cpu_us,
        limit=bare.rate,
        ratio=rate / bare.rate,
        p50_ms=percentile(done.took, 0.5) if done.took else None,
        p99_ms=percentile(done.took, 0.99) if done.took else None,
        rss_mb=grown,
        goal="" if goal is None else _text(goal, job.unit),
        met=None
        if goal is None
        else rate >= goal.rate and rate / bare.rate >= goal.share and grown <= goal.grown_mb,
        details={
            job.unit: done.units,
            "peak_mb": round(peak, 1),
            "peak_bytes_per_unit": round(peak * 2**20 / done.units),
        },
    )


def _limit(job: Job, path: Path, units: int) -> Bare:
    """Write the rows of the job without an engine."""
    if job.rows == "execution":
        return bare_executions(path, executions=units, per_commit=job.per_commit)
    return bare_nodes(path, nodes=units, claims=job.rows == "node", per_commit=job.per_commit)


def _text(goal: Goal, unit: str) -> str:
    text = f">= {goal.rate:,.0f} {unit}/s"
    if goal.share:
        text += f" and >= {goal.share:.0%} of the limit"
    if goal.grown_mb < math.inf:
        text += f", growth <= {goal.grown_mb:g} MB"
    return text


async def sharing(folder: Path, scale: float) -> Report:
    """10,000 items that each read one field of a 5 MB value, compared with a small value."""
    items = max(100, int(10_000 * scale))
    took: list[float] = []
    async with running_engine(new_settings(folder)) as engine:
        plan = workloads.sharing(engine.registry.catalogue)
        for size in (10, 10, 5_000_000):
            payload = msgspec.json.encode({"xs": list(range(items)), "field": 1, "blob": "x" * size})
            began = time.perf_counter()
            await completed(engine, plan, [payload], 1)
            took.append(time.perf_counter() - began)
    small, large = took[1], took[2]
    return Report(
        name="sharing-5mb",
        rate=items / large,
        unit="items/s",
        limit=items / small,
        ratio=small / large,
        goal="within 2x of a small value",
        met=large <= 2 * small,
    )


async def long_chain(folder: Path, scale: float) -> Report:
    """A 2,000-node chain: time per node compared with a 10-node chain."""
    length = min(1_999, max(100, int(2_000 * scale)))
    async with running_engine(new_settings(folder)) as engine:
        catalogue = engine.registry.catalogue
        short, long = (workloads.chain(n, catalogue, effectful=True) for n in (10, length))
        await completed(engine, short, [b"{}"] * 20, 1)
        began = time.perf_counter()
        await completed(engine, short, [b'{"x": 1}'] * (length // 10), 1)
        per_short = (time.perf_counter() - began) / length
        began = time.perf_counter()
        await completed(engine, long, [b'{"x": 1}'], 1)
        per_long = (time.perf_counter() - began) / length
    return Report(
        name="chain-2000",
        rate=1 / per_long,
        unit="nodes/s",
        limit=1 / per_short,
        ratio=per_short / per_long,
        goal="time per node within 1.5x of a 10-node chain's",
        met=per_long <= 1.5 * per_short,
    )


async def waits(folder: Path, scale: float) -> Report:
    """1,000,000 waiting executions: armed, stored on disk, then 1,000 per second resumed."""
    count = max(1_000, int(1_000_000 * scale))
    woken = max(500, min(10_000, count // 10))
    async with running_engine(new_settings(folder)) as engine:
        plan = workloads.waiting(engine.registry.catalogue)
        began = time.perf_counter()
        await arm(EnginePlace(engine), count - woken, 400)
        rate = (count - woken) / (time.perf_counter() - began)
        soon = time.time() + woken / 8_000 + 3
        moments = [soon + i / 1_000 for i in range(woken)]
        late = await _wake(engine, plan, moments)
        memory = resident_mb()
    return Report(
        name="waits-1m",
        rate=rate,
        unit="armed/s",
        p50_ms=percentile(late, 0.5),
        p99_ms=percentile(late, 0.99),
        rss_mb=memory,
        goal=">= 10,000 armed/s, <= 200 MB, lateness p99 <= 250 ms at 1,000 due/s",
        met=rate >= 10_000 and memory <= 200 and percentile(late, 0.99) <= 250,
        details={"waiting": count - woken, "woken": woken},
    )


async def waits_burst(folder: Path, scale: float) -> Report:
    """10,000 waiting executions that are due in the same second."""
    count = max(1_000, int(10_000 * scale))
    async with running_engine(new_settings(folder)) as engine:
        plan = workloads.waiting(engine.registry.catalogue)
        soon = time.time() + count / 2_000 + 5
        late = await _wake(engine, plan, [soon + i / count for i in range(count)])
    return Report(
        name="waits-burst",
        rate=count / max(1.0, 1 + max(late) / 1000),
        unit="ended/s",
        p50_ms=percentile(late, 0.5),
        p99_ms=percentile(late, 0.99),
        goal="lateness p99 <= 2 s",
        met=percentile(late, 0.99) <= 2_000,
        details={"waiting": count},
    )


async def _wake(engine: object, plan: object, moments: list[float]) -> list[float]:
    late: list[float] = []

    async def one(moment: float) -> None:
        when = datetime.fromtimestamp(moment, UTC).isoformat()
        _, ending = await engine.start(plan, msgspec.json.encode({"when": when}))  # type: ignore[attr-defined]
        await ending
        late.append((time.time() - moment) * 1000)

    async with asyncio.TaskGroup() as group:
        for moment in moments:
            group.create_task(one(moment))
    return late


async def retention(folder: Path, scale: float) -> Report:
    """Retention over 1,000,000 ended executions, of which 1,000 are kept.

    The database is filled without an engine, with the rows an engine would write.
    """
    count = max(2_000, int(1_000_000 * scale))
    kept = count // 1_000
    settings = new_settings(folder)
    now = time.time_ns() // 1_000_000
    fill(settings.database, count, ended_by=now - 3_600_000)
    before = resident_mb()
    async with running_engine(settings, working=False) as engine:
        done = await engine.backend.retention.collect([Rule(keep=kept)], now)
    assert done.executions == count - kept, f"{done.executions} removed"
    share = done.bytes_after / done.bytes_before
    return Report(
        name="retention-1m",
        rate=done.executions / done.duration_ms * 1000,
        unit="removed/s",
        rss_mb=resident_mb() - before,
        goal="file < 5 % of before, growth <= 50 MB",
        met=share < 0.05 and resident_mb() - before <= 50,
        details={
            "executions": count,
            "kept": kept,
            "seconds": round(done.duration_ms / 1000, 1),
            "mb_before": round(done.bytes_before / 1e6, 1),
            "mb_after": round(done.bytes_after / 1e6, 1),
            "longest_ms": done.longest_ms,
        },
    )


async def cold_start(folder: Path, scale: float) -> Report:
    """The time of `rune run examples/hello` in a new process, and of `import rune`."""
    runs = max(3, int(7 * scale))
    document = folder / "hello.json"
    document.write_bytes(
        msgspec.json.encode(
            {
                "id": "hello",
                "nodes": [
                    {"id": "start", "type": "input"},
                    {"id": "out", "type": "output", "parameters": {"value": "hello {{ $trigger.name }}"}},
                ],
                "edges": [{"src": "start", "dst": "out"}],
            }
        )
    )
    target = HELLO if HELLO.exists() else document
    command = [
        sys.executable,
        "-m",
        "rune.cli.main",
        "run",
        str(target),
        "--input",
        '{"name": "Ada"}',
        "--json",
    ]
    _run_timed(command, folder / "first")
    whole = [_run_timed(command, folder / str(i)) for i in range(runs)]
    imports = [_run_timed([sys.executable, "-c", "import rune"], folder) for _ in range(runs)]
    bare = [_run_timed([sys.executable, "-c", "pass"], folder) for _ in range(runs)]
    imported = min(imports) - min(bare)
    return Report(
        name="cold-start",
        p50_ms=percentile(whole, 0.5),
        limit=min(bare),
        unit="ms of a bare interpreter (limit)",
        ratio=min(bare) / percentile(whole, 0.5),
        goal="run <= 600 ms, import rune <= 150 ms",
        met=percentile(whole, 0.5) <= 600 and imported <= 150,
        details={"import_ms": round(imported, 1)},
    )


def _run_timed(command: list[str], home: Path) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env=_environment(home))
    return (time.perf_counter() - began) * 1000


def _environment(home: Path) -> dict[str, str]:
    """Return the environment of an installed program, which may use cached bytecode."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "RUNE_HOME": str(home)}


MEASURES: dict[str, Measure] = {
    **{name: partial(run_job, name) for name in JOBS},
    "sharing-5mb": sharing,
    "chain-2000": long_chain,
    "latency-1": latency_1,
    "latency-3": latency_3,
    "latency-10": latency_10,
    "latency-http-1": latency_http_1,
    "latency-http-3": latency_http_3,
    "waits-1m": waits,
    "waits-burst": waits_burst,
    "retention-1m": retention,
    "fair-share": fair_share,
    "http-64": http_64,
    "http-1000": http_1000,
    "cold-start": cold_start,
}


def summarized() -> dict[str, str]:
    """Return in a line what each measure runs."""
    return {name: JOBS[name].summary if name in JOBS else _summary(MEASURES[name]) for name in MEASURES}


def _summary(measure: Measure) -> str:
    return (measure.__doc__ or "").partition("\n")[0].rstrip(".")


class Server:
    """A web server that responds immediately, or holds requests until they are released."""

    def __init__(self) -> None:
        self.held = 0
        self.released = asyncio.Event()

    async def handle(self, request: web.BaseRequest) -> web.Response:
        """Serve `/` (a small object), `/hold` (after release), `/held` (number of held requests) and `/release`."""
        if request.path == "/hold":
            self.held += 1
            await self.released.wait()
        elif request.path == "/held":
            return web.Response(text=str(self.held))
        elif request.path == "/release":
            self.released.set()
        return web.Response(body=BODY, content_type="application/json")


async def serve() -> None:
    """Run the web server until standard input is closed."""
    many_files()
    server = web.Server(Server().handle)
    runner = web.ServerRunner(server)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=2048)
    await site.start()
    sys.stdout.write(f"{runner.addresses[0][1]}\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve())
