"""The schema of the database file: its migrations, and files before their first execution."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import cache
from importlib.resources import files
from pathlib import Path

from rune.adapters.private_files import create_private_file, make_private_folder
from rune.adapters.rows import WAITING, stored_terms
from rune.ports.journal import NewerFormatError


def _read_migration(name: str) -> Callable[[], str]:
    return lambda: files(__package__).joinpath("migrations", f"{name}.sql").read_text()


MIGRATIONS: tuple[Callable[[], str], ...] = tuple(
    _read_migration(name)
    for name in (
        "0001_schema",
        "0002_lists",
        "0003_access",
        "0004_triggers",
        "0005_limits",
        "0006_sources",
        "0007_sessions",
        "0008_search",
        "0009_bulk",
        "0010_counts",
        "0011_scopes",
        "0012_origins",
        "0013_hooks",
        "0014_handlers",
        "0015_default_handlers",
        "0016_expectations",
    )
)
"""Migration i takes a file from version i to version i + 1."""

SEARCH_VERSION = 8


def migrate(connection: sqlite3.Connection) -> None:
    """Migrate a file to the schema of this program; NewerFormatError if it has a newer one.

    Each step runs in one transaction with its version, so a crash leaves a complete version.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > len(MIGRATIONS):
        raise NewerFormatError(
            f"the file has schema version {version}; this version of Rune supports up to {len(MIGRATIONS)}"
        )
    for number in range(version, len(MIGRATIONS)):
        connection.executescript(
            f"BEGIN IMMEDIATE;\n{MIGRATIONS[number]()}\nPRAGMA user_version = {number + 1};"
        )
        if number + 1 == SEARCH_VERSION:
            _add_terms(connection)
        connection.execute("COMMIT")


@cache
def _empty_file() -> bytes:
    """Return the content of a file without executions."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        migrate(connection)
        return connection.serialize()


@cache
def begun_file() -> bytes:
    """Return the content of a file without any table. It is not empty: an empty file has lost its content."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA user_version = 0")
        return connection.serialize()


def create_empty_file(path: Path) -> None:
    """Create a migrated file at once, unless it exists. For tests, which open many."""
    if not path.exists():
        make_private_folder(path.parent, lambda name: False)
        create_private_file(path, _empty_file())


def _add_terms(connection: sqlite3.Connection) -> None:
    """Add the terms that the executions of an older version are found by."""
    last = 0
    while rows := connection.execute(
        "SELECT n, accepted, end FROM execution WHERE n > ? ORDER BY n LIMIT 1000", (last,)
    ).fetchall():
        last = rows[-1][0]
        connection.executemany(
            "INSERT OR IGNORE INTO execution_term (term, n) VALUES (?, ?)",
            [(term, n) for n, *body in rows for term in stored_terms(*body)],
        )
    connection.execute(
        "INSERT OR IGNORE INTO execution_term (term, n) SELECT ?, e.n FROM execution AS e"
        " JOIN fact AS f ON f.execution = e.n AND f.kind = 3"
        " WHERE e.ended_at IS NULL AND instr(f.body, CAST('signal' AS BLOB)) > 0",
        (WAITING,),
    )
