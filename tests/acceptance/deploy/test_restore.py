"""PostgreSQL alone is enough: put back from a dump, beside an empty Redis, everything that was under way goes on."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rune.adapters.postgres.database import migrations
from rune.adapters.postgres.migrations import migrate
from rune.bootstrap import open_reader, running_engine
from rune.ports.journal import NewerFormatError
from rune.runtime.engine import Engine
from rune.runtime.queries.reader import ExecutionReader
from rune.runtime.queries.verify import verify_execution
from rune.settings import Settings
from rune.testing.harness import Harness, Run
from tests.integration.cluster.commands import GATED, named
from tests.integration.cluster.standing import stores
from tests.support.services.postgres import Server, _as_server, new_server, programs, server
from tests.support.services.redis_server import RedisServer
from tests.support.waiting import until
from tests.support.whole import WHOLE
from tests.unit.core.documents import document, keep, node

PATIENCE = 180.0
LATER = (
    "9999_later.sql",
    "CREATE TABLE later (n integer); ALTER TABLE execution ADD COLUMN later integer;"
    " CREATE INDEX later_at ON execution (at)",
)
NAPS = document(
    [
        node("start", "input"),
        keep("first", 1),
        node("nap", "wait", parameters={"amount": 2}),
        node("out", "output", parameters={"value": "$first"}),
    ],
    "start>first",
    "first>nap",
    "nap>out",
    id="naps",
)


def dumped(source: Server, database: str) -> str:
    """What an operator does, while others write; answers where the copy is."""
    place = ["-h", str(source.folder), "-p", str(source.port), "-U", "rune"]
    dump = subprocess.run(
        [str(programs() / "pg_dump"), *place, "--format=custom", database], check=True, capture_output=True
    ).stdout
    to = f"{database}_back"
    source.create(to)
    restore = [str(programs() / "pg_restore"), *place, "--exit-on-error", "-d", to]
    subprocess.run(restore, input=dump, check=True, capture_output=True)
    return source.dsn(to)


def cloned(source: Server, database: str) -> str:
    """The same with a copy of the whole server, which becomes one of its own."""
    made = new_server()
    made.stop()
    shutil.rmtree(made.data)
    place = ["-h", str(source.folder), "-p", str(source.port), "-U", "rune"]
    base = [str(programs() / "pg_basebackup"), *place, "-D", str(made.data), "--checkpoint=fast"]
    subprocess.run(_as_server(*base), check=True, capture_output=True, cwd="/")
    with (made.data / "postgresql.conf").open("a") as file:
        file.write(f"port = {made.port}\nunix_socket_directories = '{made.folder}'\n")
    made.start()
    return made.dsn(database)


WAYS: dict[str, Callable[[Server, str], str]] = {"pg_dump": dumped}
if WHOLE:
    WAYS["pg_basebackup"] = cloned


async def at_their_gates(engine: Engine, runs: list[Run]) -> None:
    """Until each waits for its signal, and the journal knows."""
    for run in runs:
        gate = run.plan.index["gate"]

        async def waits(run: Run = run, gate: int = gate) -> bool:
            return any(getattr(each.fact, "node", None) == gate for each in await run.facts())

        await until(waits, f"{run.id} waits", PATIENCE)


async def output(look: ExecutionReader, engine: Engine, execution: str) -> Any:
    """Of an execution that has ended, or does so soon."""
    async with asyncio.timeout(PATIENCE):
        await (await engine.wait_for(execution))
    return (await (await look.history(execution)).document())["output"]


async def violations(look: ExecutionReader) -> list[Any]:
    """What the audit finds in all of them."""
    found: list[Any] = []
    for each in await look.executions(limit=1000):
        known = await look.plan(each.id), await look.accepted(each.id)
        found += verify_execution(
            *known, await look.facts(each.id), await look.claims(each.id), each
        ).violations
    return found


async def half_done(settings: Settings, copy: Callable[[], str]) -> tuple[str, list[str], list[str]]:
    """Executions that wait for a signal, and others that sleep; a copy is made while they do."""
    async with running_engine(settings) as engine:
        made = Harness(engine, None)
        gated = [await made.start(named(GATED, "gated"), {"n": number}) for number in range(5)]
        napping = [await made.start(NAPS) for _ in range(3)]
        await at_their_gates(engine, gated)
        await engine.services.executions.signal(gated[0].id, "go", b"0")  # one has ended before
        await gated[0].end(PATIENCE)
        where = await asyncio.to_thread(copy)
        for run in gated[1:]:  # and the others afterwards, which the copy knows nothing of
            await engine.services.executions.signal(run.id, "go", b"-1")
            await run.end(PATIENCE)
        return where, [run.id for run in gated], [run.id for run in napping]


@pytest.mark.parametrize("way", WAYS)
def test_a_copy_beside_an_empty_redis_goes_on(way: str, tmp_path: Path) -> None:
    source = server()
    before = stores(tmp_path)
    if way == "pg_basebackup":
        source = new_server(wal_level="replica", max_wal_senders="4")
        before = replace(before, journal=source.create("whole"))
    database = before.journal.rpartition("/")[2]
    empty = RedisServer()

    async def go() -> None:
        where, gated, napping = await half_done(before, lambda: WAYS[way](source, database))
        after = replace(before, journal=where, state=empty.url, queue=empty.url)
        async with running_engine(after) as engine, open_reader(after) as look:
            for execution in gated[1:]:
                await engine.services.executions.signal(execution, "go", b"7")
            assert await output(look, engine, gated[0]) == [0, 0]
            assert [await output(look, engine, each) for each in gated[1:]] == [[n, 7] for n in range(1, 5)]
            assert [await output(look, engine, each) for each in napping] == [{"k": 1}] * 3
            fresh = await Harness(engine, None).start(NAPS)
            await fresh.end(PATIENCE)
            assert await violations(look) == []

    try:
        asyncio.run(go())
    finally:
        empty.stop()


def test_whoever_runs_goes_on_while_a_later_version_changes_the_schema(tmp_path: Path) -> None:
    """And whoever of the version before is started after that is turned away."""
    settings = stores(tmp_path)

    async def go() -> None:
        async with running_engine(settings) as engine, open_reader(settings) as look:
            made = Harness(engine, None)
            before = [await made.start(named(GATED, "gated"), {"n": number}) for number in range(4)]
            await at_their_gates(engine, before)
            napping = [await made.start(NAPS) for _ in range(4)]
            assert await migrate(settings.journal, [*migrations(), LATER]) == [LATER[0]]
            for run in before:
                await engine.services.executions.signal(run.id, "go", b"7")
            after = await made.start(named(GATED, "gated"), {"n": 9})
            await at_their_gates(engine, [after])
            await engine.services.executions.signal(after.id, "go", b"7")
            for run in (*before, *napping, after):
                assert (await run.end(PATIENCE)).status == "completed"
            assert await violations(look) == []
        with pytest.raises(NewerFormatError):
            async with running_engine(settings):
                pass

    asyncio.run(go())
