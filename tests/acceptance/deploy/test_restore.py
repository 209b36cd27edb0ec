"""A restored copy of PostgreSQL with an empty Redis resumes all open executions."""

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
from rune.adapters.postgres.schema import migrate
from rune.bootstrap import open_reader, running_engine
from rune.ports.journal import NewerFormatError
from rune.runtime.engine import Engine
from rune.runtime.queries.reader import ExecutionReader
from rune.runtime.queries.verify import verify_execution
from rune.settings import Settings
from rune.testing.harness import Harness, Run
from tests.support.backends import stores
from tests.support.cluster_cli import GATED, with_id
from tests.support.documents import document, edit, node
from tests.support.services.postgres import Server, _as_server, new_server, programs, server
from tests.support.services.redis_server import RedisServer
from tests.support.waiting import until
from tests.support.whole import WHOLE
from tests.support.written import as_written

TIMEOUT_S = 180.0
LATER = (
    "9999_later.sql",
    "CREATE TABLE later (n integer); ALTER TABLE execution ADD COLUMN later integer;"
    " CREATE INDEX later_at ON execution (at)",
)
NAPS = document(
    [
        node("start", "input"),
        edit("first", 1),
        node("nap", "wait", parameters={"amount": 2}),
        node("out", "output", parameters={"value": "$first"}),
    ],
    "start>first",
    "first>nap",
    "nap>out",
    id="naps",
)


def dump_and_restore(source: Server, database: str) -> str:
    """Copy a database with pg_dump while it is in use; return the DSN of the copy."""
    place = ["-h", str(source.folder), "-p", str(source.port), "-U", "rune"]
    dump = subprocess.run(
        [str(programs() / "pg_dump"), *place, "--format=custom", database], check=True, capture_output=True
    ).stdout
    to = f"{database}_back"
    source.create(to)
    restore = [str(programs() / "pg_restore"), *place, "--exit-on-error", "-d", to]
    subprocess.run(restore, input=dump, check=True, capture_output=True)
    return source.dsn(to)


def clone_server(source: Server, database: str) -> str:
    """Copy the server with pg_basebackup; return the DSN of the database in the copy."""
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


METHODS: dict[str, Callable[[Server, str], str]] = {"pg_dump": dump_and_restore}
if WHOLE:
    METHODS["pg_basebackup"] = clone_server


async def wait_at_gates(engine: Engine, runs: list[Run]) -> None:
    """Wait until the journal shows that each run waits for its signal."""
    for run in runs:
        gate = run.plan.index["gate"]

        async def waits(run: Run = run, gate: int = gate) -> bool:
            return any(getattr(each.fact, "node", None) == gate for each in await run.facts())

        await until(waits, f"{run.id} waits", TIMEOUT_S)


async def output(reader: ExecutionReader, engine: Engine, execution: str) -> Any:
    """Wait for the end of an execution and return its output."""
    async with asyncio.timeout(TIMEOUT_S):
        await (await engine.wait_for(execution))
    return as_written(await (await reader.history(execution)).document())["output"]


async def violations(reader: ExecutionReader) -> list[Any]:
    """The violations that the audit finds in all executions."""
    found: list[Any] = []
    for each in await reader.executions(limit=1000):
        known = await reader.plan(each.id), await reader.accepted(each.id)
        found += verify_execution(
            *known, await reader.facts(each.id), await reader.claims(each.id), each
        ).violations
    return found


async def copy_while_open(settings: Settings, copy: Callable[[], str]) -> tuple[str, list[str], list[str]]:
    """Start executions that wait for a signal or a timer, and copy the database while they wait."""
    async with running_engine(settings) as engine:
        made = Harness(engine, None)
        gated = [await made.start(with_id(GATED, "gated"), {"n": number}) for number in range(5)]
        napping = [await made.start(NAPS) for _ in range(3)]
        await wait_at_gates(engine, gated)
        await engine.services.executions.signal(gated[0].id, "go", b"0")  # one ends before the copy
        await gated[0].end(TIMEOUT_S)
        where = await asyncio.to_thread(copy)
        for run in gated[1:]:  # the others end after the copy
            await engine.services.executions.signal(run.id, "go", b"-1")
            await run.end(TIMEOUT_S)
        return where, [run.id for run in gated], [run.id for run in napping]


@pytest.mark.parametrize("method", METHODS)
def test_restored_journal_with_empty_redis_resumes(method: str, tmp_path: Path) -> None:
    source = server()
    before = stores(tmp_path)
    if method == "pg_basebackup":
        source = new_server(wal_level="replica", max_wal_senders="4")
        before = replace(before, journal=source.create("whole"))
    database = before.journal.rpartition("/")[2]
    empty = RedisServer()

    async def go() -> None:
        where, gated, napping = await copy_while_open(before, lambda: METHODS[method](source, database))
        after = replace(before, journal=where, state=empty.url, queue=empty.url)
        async with running_engine(after) as engine, open_reader(after) as reader:
            for execution in gated[1:]:
                await engine.services.executions.signal(execution, "go", b"7")
            assert await output(reader, engine, gated[0]) == [0, 0]
            assert [await output(reader, engine, each) for each in gated[1:]] == [[n, 7] for n in range(1, 5)]
            assert [await output(reader, engine, each) for each in napping] == [{"k": 1}] * 3
            fresh = await Harness(engine, None).start(NAPS)
            await fresh.end(TIMEOUT_S)
            assert await violations(reader) == []

    try:
        asyncio.run(go())
    finally:
        empty.stop()


def test_running_engine_survives_newer_migration(tmp_path: Path) -> None:
    """An engine of the old version that starts after the migration is rejected."""
    settings = stores(tmp_path)

    async def go() -> None:
        async with running_engine(settings) as engine, open_reader(settings) as reader:
            made = Harness(engine, None)
            before = [await made.start(with_id(GATED, "gated"), {"n": number}) for number in range(4)]
            await wait_at_gates(engine, before)
            napping = [await made.start(NAPS) for _ in range(4)]
            assert await migrate(settings.journal, [*migrations(), LATER]) == [LATER[0]]
            for run in before:
                await engine.services.executions.signal(run.id, "go", b"7")
            after = await made.start(with_id(GATED, "gated"), {"n": 9})
            await wait_at_gates(engine, [after])
            await engine.services.executions.signal(after.id, "go", b"7")
            for run in (*before, *napping, after):
                assert (await run.end(TIMEOUT_S)).status == "completed"
            assert await violations(reader) == []
        with pytest.raises(NewerFormatError):
            async with running_engine(settings):
                pass

    asyncio.run(go())
