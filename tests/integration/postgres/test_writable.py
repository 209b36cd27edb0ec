"""The readiness probe notices that PostgreSQL cannot be written."""

from __future__ import annotations

import pwd
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rune.adapters.postgres import database as module
from rune.adapters.postgres.stores import postgres
from rune.ports.inspection import ChecksWrites
from rune.ports.journal import StoreUnavailableError
from tests.support.async_test import async_test
from tests.support.ledger_nodes import fill_disk
from tests.support.services.databases import dsn_of, ready
from tests.support.services.postgres import database_of, server


@pytest.fixture(autouse=True, scope="module")
def _running() -> None:
    ready()


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of four megabytes that PostgreSQL can use."""
    mount = Path(tempfile.mkdtemp(prefix="small-", dir=server().folder))
    owner = pwd.getpwnam("postgres").pw_uid
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size=4m,uid={owner},mode=0700", "tmpfs", str(mount)], check=True
    )
    try:
        yield mount
    finally:
        subprocess.run(["umount", "--lazy", str(mount)], check=True)
        mount.rmdir()


@async_test
async def test_read_only_database_is_not_writable_until_it_accepts_writes(tmp_path: Path) -> None:
    dsn, name = dsn_of(tmp_path), database_of(tmp_path)
    async with postgres(dsn) as stores:
        assert isinstance(stores.journal, ChecksWrites)
        await stores.journal.check_writable()

        server().sql(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
        server().sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
        with pytest.raises(StoreUnavailableError, match="read-only transaction"):
            await stores.journal.check_writable()

        server().sql(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
        await stores.journal.check_writable()


@async_test
async def test_full_disk_is_not_writable_until_space_is_free(
    tmp_path: Path, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WRITE_PROBE_PERIOD_S", 0.0)
    dsn, name = dsn_of(tmp_path), database_of(tmp_path)
    server().sql(f"CREATE TABLESPACE \"{name}\" LOCATION '{small_disk}'")
    try:
        server().sql(f'ALTER TABLE blob SET TABLESPACE "{name}"', name)
        async with postgres(dsn) as stores:
            await stores.journal.check_writable()
            fill_disk(small_disk / "filler")
            with pytest.raises(StoreUnavailableError, match="No space left on device"):
                await stores.journal.check_writable()

            (small_disk / "filler").unlink()
            await stores.journal.check_writable()
            assert await stores.database.fetch("SELECT FROM blob") == []
    finally:
        server().sql("ALTER TABLE blob SET TABLESPACE pg_default", name)
        server().sql(f'DROP TABLESPACE "{name}"')


@async_test
async def test_rows_of_the_check_are_stored_at_most_once_per_period(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = 0
    store = module._store_and_roll_back

    async def count(connection: module.Connection) -> None:
        nonlocal stored
        stored += 1
        await store(connection)

    monkeypatch.setattr(module, "_store_and_roll_back", count)
    async with postgres(dsn_of(tmp_path)) as stores:
        for _ in range(10):
            await stores.journal.check_writable()
    assert stored == 1
