"""What a cluster does: real worker processes on stores of their own, beside a bare client in the same run.

    python bench/cluster.py [--quick] [--json] [--only NAME ...]

The load comes from a process without a role, which starts executions the public way and waits for their ends. What is
counted has completed; afterwards every execution is audited. The limit is a client without an engine that inserts
the same rows in the same groups and runs as many small scripts.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import asyncpg
import msgspec

from rune.adapters.postgres.columns import Columns, arrays, columns
from rune.adapters.postgres.migrating import migrate
from rune.adapters.redis.client import Client, info
from rune.adapters.redis.keys import Keys
from rune.bench import documents
from rune.bench.load import completed
from rune.bench.report import percentile
from rune.cli.serving import quick_loop
from rune.compose import cluster
from rune.core.fact import Result
from rune.core.plan import Plan
from rune.runtime.audit import audit
from rune.runtime.engine import Engine
from rune.settings import Settings
from rune.wire.codec import Inline
from tests.services.fleet import Fleet, fleet
from tests.services.postgres import Server, new_server
from tests.services.redis_server import RedisServer

SOURCES = str(Path(__file__).resolve().parents[1] / "src")
AT_ONCE = 200
SLOW = 1_000  # µs: what is slower is noted by the server
TICKS = os.sysconf("SC_CLK_TCK")
NOBODY: frozenset[str] = frozenset()
BARE = "CREATE TABLE bare (LIKE fact INCLUDING ALL); CREATE TABLE bare_claim (LIKE claim INCLUDING ALL)"
INSERT = """
INSERT INTO bare (execution, seq, due, node, number, mark, kind, late, path, body)
SELECT g.execution, nextval('fact_seq'), g.due, g.node, g.number, 0, g.kind, false, g.path, g.body
FROM unnest($1::bigint[], $2::text::smallint[], $3::text::integer[], $4::text::integer[], $5::text::bigint[],
    $6::bytea[], $7::bytea[]) AS g (execution, kind, node, number, due, path, body)
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


class Figure(msgspec.Struct, kw_only=True):
    """One line of the table. `cpu`: µs of each kind of process for one of what is counted."""

    name: str
    measured: float
    unit: str
    goal: str
    met: bool
    limit: float | None = None
    cpu: dict[str, float] = {}
    notes: dict[str, float | str] = {}


class Stores:
    """The servers of this run, and a database and a prefix for each measure."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.postgres: Server = new_server(folder, shared_buffers="256MB", max_wal_size="1GB")
        slow = ("--slowlog-log-slower-than", str(SLOW), "--slowlog-max-len", "1000")
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
            home=str(home), journal=dsn, state=self.redis.url, queue=self.redis.url, prefix=f"b{self._count}"
        )

    def stop(self) -> None:
        self.redis.stop()
        self.postgres.stop()

    def processes(self, workers: Fleet) -> dict[str, float]:
        """Seconds of the processor that each kind of process has used."""
        main = int((self.postgres.data / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{main}/task/{main}/children").read_text().split()
        return {
            "worker": sum(_cpu(each.process.pid) for each in workers.of("worker")),
            "scheduler": sum(_cpu(each.process.pid) for each in workers.of("scheduler")),
            "load": _cpu(os.getpid()),
            "postgres": _cpu(main, children=True) + sum(_cpu(int(each)) for each in children),
            "redis": _cpu(self._redis_id),
        }


def _cpu(process: int, *, children: bool = False) -> float:
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(map(int, fields[11 : 15 if children else 13])) / TICKS


class Taken:
    """What a measured stretch took: seconds, and processor time of each kind of process."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.cpu: dict[str, float] = {}

    def each(self, count: int) -> dict[str, float]:
        return {name: round(used / count * 1e6, 1) for name, used in self.cpu.items() if used}


class Bench:
    """A cluster under load."""

    def __init__(self, stores: Stores, settings: Settings, workers: Fleet, engine: Engine) -> None:
        self.stores = stores
        self.settings = settings
        self.workers = workers
        self.engine = engine
        self.catalogue = engine.registry.catalogue

    @asynccontextmanager
    async def measured(self) -> AsyncIterator[Taken]:
        taken = Taken()
        before = self.stores.processes(self.workers)
        began = time.perf_counter()
        yield taken
        taken.seconds = time.perf_counter() - began
        after = self.stores.processes(self.workers)
        taken.cpu = {name: after[name] - before[name] for name in before}

    async def audited(self, results: int, claims: int) -> None:
        """One result and one claim per node, and nothing that the rules could not have written."""
        found = claimed = 0
        async with cluster.reader(self.settings) as reader:
            after: str | None = None
            while page := await reader.executions(after=after, limit=200):
                after = page[-1].id
                for each in page:
                    claimed_here = await reader.claims(each.id)
                    facts = await reader.facts(each.id)
                    plan, accepted = await reader.plan(each.id), await reader.accepted(each.id)
                    seen = audit(plan, accepted, facts, claimed_here, each)
                    assert not seen.violations, seen
                    assert not seen.repeated, seen
                    found += seen.results
                    claimed += seen.claims
        assert (found, claimed) == (results, claims), f"{found} results and {claimed} claims"


@asynccontextmanager
async def running(stores: Stores, *, workers: int = 1, schedulers: int = 1) -> AsyncIterator[Bench]:
    settings = await stores.fresh()
    path = os.pathsep.join((SOURCES, os.environ.get("PYTHONPATH", "")))
    folder, more = Path(settings.home), {"PYTHONPATH": path}
    with fleet(folder, settings, workers=workers, schedulers=schedulers, environment=more) as made:
        async with cluster.running_engine(settings, roles=NOBODY) as engine:
            yield Bench(stores, settings, made, engine)


async def slowest(stores: Stores) -> dict[str, float | str]:
    """The longest command of the measure, as the server saw it, and how many were longer than a millisecond."""
    client = Client(stores.redis.url)
    seen = await client.call("SLOWLOG", "GET", 1000)
    await client.close()
    if not seen:
        return {"longest_ms": SLOW / 1000}
    longest = max(seen, key=lambda each: int(each[2]))
    name = b" ".join(longest[3][:2]).decode(errors="replace").split("_")[0]
    return {"longest_ms": int(longest[2]) / 1000, "longest": name, "over_1_ms": len(seen)}


async def limit(settings: Settings, *, nodes: int, group: int, claims: bool, scripts: float) -> float:
    """Nodes a second of a client without an engine: rows in groups, then small scripts, two groups at a time."""
    fact = columns(Result(1, (), 1_700_000_000_000, "ok", value=Inline(b"x" * 40)))
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


async def chains(stores: Stores, scale: float, *, effectful: bool, workers: int = 1) -> Figure:
    """10-node chains, 200 at once."""
    count = max(400, int((2_000 if effectful else 6_000) * scale))
    goal = 4_000 if effectful else 12_000
    async with running(stores, workers=workers) as bench:
        plan = documents.chain(10, bench.catalogue, effectful=effectful)
        await completed(bench.engine, plan, [b"{}"] * AT_ONCE * 2, AT_ONCE)
        async with bench.measured() as taken:
            took = await completed(bench.engine, plan, [b'{"x": 1}'] * count, AT_ONCE)
        slow = await slowest(stores)
        every = (count + AT_ONCE * 2) * 10
        await bench.audited(every, every if effectful else 0)
        if effectful:
            bare = await limit(bench.settings, nodes=count * 10, group=AT_ONCE, claims=True, scripts=2)
        else:
            bare = await limit(bench.settings, nodes=count * 10, group=AT_ONCE * 10, claims=False, scripts=0.4)
    rate = count * 10 / taken.seconds
    name = f"chain-{'effectful' if effectful else 'pure'}{'' if workers == 1 else f', {workers} workers'}"
    return Figure(
        name=name,
        measured=rate,
        unit="nodes/s",
        goal=f">= {goal:,}",
        met=rate >= goal,
        limit=bare,
        cpu=taken.each(count * 10),
        notes={"p50_ms": percentile(took, 0.5), "p99_ms": percentile(took, 0.99), **slow},
    )


async def fan(stores: Stores, scale: float) -> Figure:
    """10,000 items: split, a node each, aggregator."""
    items = max(1_000, int(10_000 * scale))
    async with running(stores) as bench:
        plan = documents.fan(items, bench.catalogue)
        await completed(bench.engine, plan, [b'{"xs": [1, 2, 3]}'], 1)
        payload = msgspec.json.encode({"xs": list(range(items))})
        async with bench.measured() as taken:
            await completed(bench.engine, plan, [payload], 1)
        slow = await slowest(stores)
        await bench.audited(items + 3 + 2 * 3, 0)
        bare = await limit(bench.settings, nodes=items, group=256, claims=False, scripts=2)
    rate = items / taken.seconds
    return Figure(
        name="fan-10k",
        measured=rate,
        unit="items/s",
        goal=">= 3,000",
        met=rate >= 3_000,
        limit=bare,
        cpu=taken.each(items),
        notes=slow,
    )


async def latency(stores: Stores, scale: float) -> Figure:
    """One node, nothing else going on: start to completed, as whoever started it sees it."""
    count = max(50, int(300 * scale))
    async with running(stores) as bench:
        plan = documents.chain(1, bench.catalogue, effectful=False)
        await completed(bench.engine, plan, [b"{}"] * 20, 1)
        async with bench.measured() as taken:
            took = await completed(bench.engine, plan, [b'{"x": 1}'] * count, 1)
        slow = await slowest(stores)
        await bench.audited(count + 20, 0)
        commit = 1000 / await limit(bench.settings, nodes=100, group=1, claims=False, scripts=4)
    p50 = percentile(took, 0.5)
    return Figure(
        name="latency-1",
        measured=p50,
        unit="ms p50",
        goal="<= 10",
        met=p50 <= 10,
        limit=commit * 2,
        cpu=taken.each(count),
        notes={"p99_ms": percentile(took, 0.99), **slow},
    )


async def idle(stores: Stores, scale: float) -> Figure:
    """Nothing to do: what a worker and a scheduler use of a core."""
    async with running(stores) as bench:
        plan = documents.chain(1, bench.catalogue, effectful=False)
        await completed(bench.engine, plan, [b"{}"] * 20, 1)
        async with bench.measured() as taken:
            await asyncio.sleep(10)
    shares = {name: used / taken.seconds * 100 for name, used in taken.cpu.items()}
    worst = max(shares["worker"], shares["scheduler"])
    rounded = {name: round(share, 2) for name, share in shares.items()}
    return Figure(
        name="idle", measured=worst, unit="% of a core", goal="<= 1", met=worst <= 1, notes=dict(rounded)
    )


async def timers(stores: Stores, scale: float) -> Figure:
    """Executions that wait in Redis beside so many that wait for years; then 1,000 a second are due."""
    waiting, woken = int(1_000_000 * min(1.0, scale)), max(2_000, int(10_000 * scale))
    async with running(stores) as bench:
        client = Client(stores.redis.url)
        plan = documents.waiting(bench.catalogue)
        far = [msgspec.json.encode({"when": "2099-01-01T00:00:00Z"})] * 1_000
        empty = await _memory(client)
        await _started(bench.engine, plan, far)
        await _resting(client, bench.settings, len(far))
        used = await _memory(client) - empty
        await _fill(client, bench.settings, waiting - len(far))
        full = await _memory(client) - empty
        soon = time.time() + woken / 300 + 5
        late: list[float] = []
        async with asyncio.TaskGroup() as group:
            await _arm(bench.engine, plan, [soon + i / 1_000 for i in range(woken)], late, group)
            assert time.time() < soon, "it took too long to start them"
            await asyncio.sleep(soon - time.time())
            before = stores.processes(bench.workers)
        after = stores.processes(bench.workers)
        slow = await slowest(stores)
        await client.close()
    p99, mb = percentile(late, 0.99), full / 1e6 * 1_000_000 / waiting
    notes: dict[str, float | str] = {
        "p50_ms": percentile(late, 0.5),
        "mb_of_a_million": mb,
        "bytes_each": used / len(far),
        "waiting": waiting,
        "woken": woken,
        **slow,
    }
    return Figure(
        name="timers",
        measured=p99,
        unit="ms late, p99",
        goal="<= 250, <= 700 MB",
        met=p99 <= 250 and mb <= 700,
        cpu={name: round((after[name] - before[name]) / woken * 1e6, 1) for name in before},
        notes=notes,
    )


async def _memory(client: Client) -> int:
    return int(info(await client.call("INFO", "memory"))["used_memory"])


async def _started(engine: Engine, plan: Plan, payloads: Sequence[bytes]) -> None:
    waiting = iter(payloads)

    async def lane() -> None:
        for payload in waiting:
            await engine.launcher.start(plan, payload)

    await asyncio.gather(*(lane() for _ in range(AT_ONCE)))


async def _resting(client: Client, settings: Settings, count: int) -> None:
    """Until nothing is left of them but when they are due."""
    keys = Keys(settings.prefix, settings.partitions)
    while True:
        due = [int(await client.call("ZCARD", keys.due(each))) for each in range(keys.partitions)]
        fields = await client.call("KEYS", f"{settings.prefix}:*:x:*")
        if sum(due) == count and not fields:
            return
        await asyncio.sleep(0.05)


async def _fill(client: Client, settings: Settings, count: int) -> None:
    """The rest of the million, as those that were started have left it behind."""
    keys = Keys(settings.prefix, settings.partitions)
    years = int((time.time() + 3e9) * 1000)
    for start in range(0, count, 10_000):
        pairs: dict[str, list[str | int]] = {}
        for number in range(start, min(start + 10_000, count)):
            execution = f"x{years:012x}{0:08x}{number:06x}"
            pairs.setdefault(keys.due(keys.partition(execution)), []).extend((years + number, execution))
        await asyncio.gather(*(client.call("ZADD", key, *each) for key, each in pairs.items()))


async def _arm(
    engine: Engine, plan: Plan, moments: Sequence[float], late: list[float], group: asyncio.TaskGroup
) -> None:
    """Start executions that wait until these moments; the group watches how late each is."""
    waiting = iter(moments)

    async def one(moment: float, ending: asyncio.Future[Any]) -> None:
        await ending
        late.append((time.time() - moment) * 1000)

    async def lane() -> None:
        for moment in waiting:
            when = datetime.fromtimestamp(moment, UTC).isoformat()
            _, ending = await engine.start(plan, msgspec.json.encode({"when": when}))
            group.create_task(one(moment, ending))

    await asyncio.gather(*(lane() for _ in range(AT_ONCE)))


Measure = Callable[[Stores, float], Coroutine[Any, Any, Figure]]
MEASURES: dict[str, Measure] = {
    "chain-effectful": lambda stores, scale: chains(stores, scale, effectful=True),
    "chain-effectful-2": lambda stores, scale: chains(stores, scale, effectful=True, workers=2),
    "chain-pure": lambda stores, scale: chains(stores, scale, effectful=False),
    "chain-pure-2": lambda stores, scale: chains(stores, scale, effectful=False, workers=2),
    "fan-10k": fan,
    "latency-1": latency,
    "idle": idle,
    "timers": timers,
}


def shown(figure: Figure) -> str:
    bare = "" if figure.limit is None else f"{figure.limit:,.1f}"
    cpu = ", ".join(f"{name} {each:,.0f}" for name, each in figure.cpu.items())
    notes = ", ".join(
        f"{name} {each:,.1f}" if isinstance(each, float) else f"{name} {each}"
        for name, each in figure.notes.items()
    )
    met = "met" if figure.met else "missed"
    line = f"{figure.name:28} {figure.measured:10,.1f} {figure.unit:13} limit {bare:>10}"
    line += f"  goal {figure.goal:18} {met}"
    return f"{line}\n    cpu µs: {cpu}\n    {notes}"


async def measure(names: Sequence[str], scale: float, *, as_json: bool) -> int:
    figures = []
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rune-cluster-")))
        os.chmod(folder, 0o755)  # noqa: ASYNC240, PTH101 - once, before anything is measured
        stores = Stores(folder)
        stack.callback(stores.stop)
        for name in names:
            figures.append(await MEASURES[name](stores, scale))
            if not as_json:
                print(shown(figures[-1]), flush=True)
    if as_json:
        print(msgspec.json.encode(figures).decode())
    return 0 if all(each.met for each in figures) else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    parser.add_argument("--json", action="store_true", help="for machines")
    parser.add_argument("--only", nargs="+", choices=sorted(MEASURES), default=list(MEASURES))
    given = parser.parse_args()
    return quick_loop(measure(given.only, 0.1 if given.quick else 1.0, as_json=given.json))


if __name__ == "__main__":
    sys.exit(main())
