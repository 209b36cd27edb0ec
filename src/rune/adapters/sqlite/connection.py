"""Connections on which whatever a damaged file makes `sqlite3` raise is an error of SQLite.

The module raises UnicodeDecodeError if a message of SQLite names something in the file that is not UTF-8, MemoryError
if a length in the file exceeds the memory, and OverflowError if a size exceeds what it can hold.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Any, NoReturn, Self

_RAISED = (UnicodeDecodeError, MemoryError, OverflowError)


def _reraise(error: Exception) -> NoReturn:
    if isinstance(error, OverflowError) and "SQLite INTEGER" in str(error):
        raise error  # a number of the caller
    wrong = sqlite3.DatabaseError(f"{type(error).__name__}: {error}")
    wrong.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    wrong.sqlite_errorname = "SQLITE_CORRUPT"
    raise wrong from error


class Cursor(sqlite3.Cursor):
    """A cursor that raises no other errors than those of SQLite."""

    def execute(self, sql: str, parameters: Any = (), /) -> Self:
        try:
            super().execute(sql, parameters)
        except _RAISED as error:
            _reraise(error)
        return self

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> Self:
        try:
            super().executemany(sql, parameters)
        except _RAISED as error:
            _reraise(error)
        return self

    def executescript(self, script: str, /) -> Self:
        try:
            super().executescript(script)
        except _RAISED as error:
            _reraise(error)
        return self

    def fetchone(self) -> Any:
        try:
            return super().fetchone()
        except _RAISED as error:
            _reraise(error)

    def fetchmany(self, size: int | None = 1) -> list[Any]:
        try:
            return super().fetchmany(size)
        except _RAISED as error:
            _reraise(error)

    def fetchall(self) -> list[Any]:
        try:
            return super().fetchall()
        except _RAISED as error:
            _reraise(error)

    def __next__(self) -> Any:
        try:
            return super().__next__()
        except _RAISED as error:
            _reraise(error)


class Connection(sqlite3.Connection):
    """A connection that raises no other errors than those of SQLite."""

    def cursor(self, factory: Any = Cursor) -> Any:
        return super().cursor(factory)

    def execute(self, sql: str, parameters: Any = (), /) -> Any:
        return self.cursor().execute(sql, parameters)

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> Any:
        return self.cursor().executemany(sql, parameters)

    def executescript(self, script: str, /) -> Any:
        return self.cursor().executescript(script)

    def backup(self, target: sqlite3.Connection, **options: Any) -> None:
        try:
            super().backup(target, **options)
        except _RAISED as error:
            _reraise(error)


def connect(path: str, **options: Any) -> sqlite3.Connection:
    """Open a connection, as `sqlite3.connect` does."""
    return sqlite3.connect(path, factory=Connection, **options)
