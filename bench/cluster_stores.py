"""The servers, worker processes and bare client of `bench/cluster.py`."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]

from bench.bare import INSERT
from rune.adapters.postgres.journal_writes import Columns, arrays, columns
from rune.adapters.postgres.schema import migrate
from rune.adapters.redis.client import Client, info
from rune.bootstrap import cluster
from rune.cli.bench.place import NODES
from rune.core.execution.fact import NodeResult
from rune.core.execution.stored_value import Inline
from rune.runtime.engine import Engine
from rune.runtime.queries.verify import verify_execution
from rune.settings import Settings
from tests.support.services.fleet import Fleet, fleet
from tests.support.services.postgres import Server, new_server
from tests.support.services.redis_server import RedisServer

SOURCES = str(Path(__file__).resolve().parents[1] / "src")
SLOW_COMMAND_US = 1_000
LONG_COMMAND_US = 5_000
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
NO_ROLES: frozenset[str] = frozenset()
BARE = """
DROP TABLE IF EXISTS bare, bare_claim;
CREATE TABLE bare (LIKE fact INCLUDING ALL);
CREATE TABLE bare_claim (LIKE claim INCLUDING ALL)
"""
CLAIM = """
INSERT INTO bare_claim (execution, incarnation, fence, at, node, path)
SELECT g.execution, 1, 1, 1, g.node, '' FROM unnest($1::bigint[], $2::integer[]) AS g (execution, node)
"""
SCRIPT = """
redis.call('HSET', KEYS[1], ARGV[1], '1')
redis.call('XADD', KEYS[2], '*', 'x', ARGV[1])
redis.call('XTRIM', KEYS[2], 'MAXLEN', '1000')
"""


class Stores:
    """The servers of a run; each measure gets a new database and key prefix."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.postgres: Server = new_server(folder, shared_buffers="256MB", max_wal_size="1GB")
        slow = ("--slowlog-log-slower-than", str(SLOW_COMMAND_US), "--slowlog-max-len", "1000")
        self.redis = RedisServer("--appendonly", "yes", "--appendfsync", "everysec", *slow)
        self._count = 0
        self._redis_id = 0

    async def fresh(self) -> Settings:
        self._count += 1
        name = f"bench{self._count}"
        dsn = self.postgres.create(name)
        await migrate(dsn)
        client = Client(self.redis.url)
        self._redis_id = int(info(await client.call("INFO", "server"))["process_id"])
        await client.call("FLUSHALL")
        await client.call("CONFIG", "RESETSTAT")
        await client.call("SLOWLOG", "RESET")
        await client.close()
        home = self.folder / name
        home.mkdir()
        return Settings(
            home=str(home),
            journal=dsn,
            state=self.redis.url,
            queue=self.redis.url,
            prefix=f"b{self._count}",
            nodes=NODES,
        )

    def stop(self) -> None:
        self.redis.stop()
        self.postgres.stop()

    def processes(self, workers: Fleet) -> dict[str, float]:
        """Return the CPU seconds used so far by each kind of process."""
        main = int((self.postgres.data / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{main}/task/{main}/children").read_text().split()
        return {
            "worker": sum(cpu_seconds(each.process.pid) for each in workers.of("worker")),
            "scheduler": sum(cpu_seconds(each.process.pid) for each in workers.of("scheduler")),
            "api": sum(cpu_seconds(each.process.pid) for each in workers.of("api")),
            "load": cpu_seconds(os.getpid()),
            "postgres": cpu_seconds(main, children=True) + sum(cpu_seconds(int(each)) for each in children),
            "redis": cpu_seconds(self._redis_id),
        }


def cpu_seconds(process: int, *, children: bool = False) -> float:
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(map(int, fields[11 : 15 if children else 13])) / TICKS_PER_S


class Usage:
    """Wall-clock seconds of a measurement, and CPU seconds by kind of process."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.cpu: dict[str, float] = {}

    def cpu_us_per_unit(self, count: int) -> dict[str, float]:
        return {name: round(used / count * 1e6, 1) for name, used in self.cpu.items() if used}


class Bench:
    """A running cluster and the engine that puts load on it."""

    def __init__(self, stores: Stores, settings: Settings, workers: Fleet, engine: Engine) -> None:
        self.stores = stores
        self.settings = settings
        self.workers = workers
        self.engine = engine
        self.catalogue = engine.registry.catalogue

    @asynccontextmanager
    async def measured(self) -> AsyncIterator[Usage]:
        usage = Usage()
        before = self.stores.processes(self.workers)
        began = time.perf_counter()
        yield usage
        usage.seconds = time.perf_counter() - began
        after = self.stores.processes(self.workers)
        usage.cpu = {name: after[name] - before[name] for name in before}

    async def traffic(self) -> dict[str, float]:
        """Return how often the stores were called so far: transactions, and commands of Redis and the reads from its
        sockets that brought them. Commands per read and units per transaction tell how large the batches are."""
        connection = await asyncpg.connect(self.settings.journal)
        commits = await connection.fetchval(
            "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
        )
        await connection.close()
        client = Client(self.stores.redis.url)
        stats = info(await client.call("INFO", "stats"))
        await client.close()
        return {
            "transactions": float(commits),
            "redis_commands": float(stats["total_commands_processed"]),
            "redis_reads": float(stats["total_reads_processed"]),
        }

    async def audited(self, results: int, claims: int | None = None) -> None:
        """Verify all executions and the total number of results, and of claims if one is expected."""
        found = claimed = 0
        async with cluster.open_reader(self.settings) as reader:
            after: str | None = None
            while page := await reader.executions(after=after, limit=200):
                after = page[-1].id
                for each in page:
                    execution_claims = await reader.claims(each.id)
                    facts = await reader.facts(each.id)
                    plan, accepted = await reader.plan(each.id), await reader.accepted(each.id)
                    seen = verify_execution(plan, accepted, facts, execution_claims, each)
                    assert not seen.violations, seen
                    assert not seen.repeated, seen
                    found += seen.results
                    claimed += seen.claims
        expected = (results, claimed if claims is None else claims)
        assert (found, claimed) == expected, f"{found} results and {claimed} claims"


@asynccontextmanager
async def running(stores: Stores, *, workers: int = 1, schedulers: int = 1) -> AsyncIterator[Bench]:
    settings = await stores.fresh()
    path = os.pathsep.join((SOURCES, os.environ.get("PYTHONPATH", "")))
    environment = {
        "PYTHONPATH": path,
        "RUNE_QUEUE_KIND": settings.queue_kind,
        "RUNE_STATUSES": settings.statuses,
        "RUNE_NODES": ",".join(settings.nodes),
    }
    folder = Path(settings.home)
    with fleet(
        folder, settings, workers=workers, schedulers=schedulers, environment=environment
    ) as processes:
        async with cluster.running_engine(settings, roles=NO_ROLES) as engine:
            yield Bench(stores, settings, processes, engine)


async def slowest(stores: Stores) -> dict[str, float | str]:
    """Return the slowest Redis command of the measure and the numbers of commands above one and five milliseconds."""
    client = Client(stores.redis.url)
    seen = await client.call("SLOWLOG", "GET", 1000)
    await client.close()
    if not seen:
        return {"longest_ms": SLOW_COMMAND_US / 1000}
    longest = max(seen, key=lambda each: int(each[2]))
    name = b" ".join(longest[3][:2]).decode(errors="replace").split("_")[0]
    over = sum(int(each[2]) > LONG_COMMAND_US for each in seen)
    return {
        "longest_ms": int(longest[2]) / 1000,
        "longest": name,
        "over_1_ms": len(seen),
        "over_5_ms": over,
    }


async def limit(settings: Settings, *, nodes: int, group: int, claims: bool, scripts: float) -> float:
    """Return the nodes per second of a client without an engine: grouped rows, then small scripts, in two lanes."""
    fact = columns(NodeResult(1, (), 1_700_000_000_000, "ok", value=Inline(b"x" * 40)))
    pool = await asyncpg.create_pool(settings.journal, min_size=2, max_size=2)
    await pool.execute(BARE)
    client = Client(settings.state)
    sha = await client.call("SCRIPT", "LOAD", SCRIPT)
    starts = iter(range(0, nodes, group))

    async def lane() -> None:
        for start in starts:
            ids = list(range(start, min(start + group, nodes)))
            rows: list[Columns] = [fact] * len(ids)
            async with pool.acquire() as connection, connection.transaction():
                await connection.execute(INSERT, ids, *arrays(rows))
                if claims:
                    await connection.execute(CLAIM, ids, [1] * len(ids))
            count = round(len(ids) * scripts)
            calls = (client.call("EVALSHA", sha, 2, "bare:h", "bare:s", str(n)) for n in range(count))
            await asyncio.gather(*calls)

    began = time.perf_counter()
    await asyncio.gather(lane(), lane())
    rate = nodes / (time.perf_counter() - began)
    await pool.close()
    await client.close()
    return rate
