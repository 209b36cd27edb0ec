"""Migrations: the schema, version by version, each step in one transaction with its mark."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from importlib.resources import files

from rune.ports.journal import NewerFormat


def _step(name: str) -> Callable[[], str]:
    return lambda: files(__package__).joinpath(name).read_text()


STEPS: tuple[Callable[[], str], ...] = tuple(
    _step(name) for name in ("schema.sql", "lists.sql", "access.sql", "triggers.sql", "limits.sql")
)
"""Step i brings a file from version i to version i + 1."""


def migrate(connection: sqlite3.Connection) -> None:
    """Bring a file to the version of this program. A file of a newer program is left alone."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > len(STEPS):
        raise NewerFormat(f"the file has schema version {version}, this Rune knows up to {len(STEPS)}")
    for number in range(version, len(STEPS)):
        connection.executescript(
            f"BEGIN IMMEDIATE;\n{STEPS[number]()}\nPRAGMA user_version = {number + 1};\nCOMMIT;"
        )
