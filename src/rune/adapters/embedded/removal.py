"""Removal: what the writer does to make executions disappear, in acts that are short whatever the executions hold.

An execution that is small goes whole in one transaction. A large one is taken off the list of executions in one
transaction, which is the moment at which it is gone for everybody; its number is noted in `removed`, and its rows
follow in pieces. A process that dies in between leaves the note, and the next collection goes on from it.

An execution that ended moments ago may still have a node that lets go of its last result. Its number is noted too and
looked at again later, so that nothing is left behind.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Container, Sequence

import msgspec

from rune.adapters.embedded.selection import FREE, Candidate
from rune.adapters.rowforms import LATE
from rune.ports.retention import KEY_LIFE

BUDGET = 0.010
"""Seconds that one act may take of the writer before it commits."""

AT_ONCE = 64
FIRST = 16
MOST_ROWS = 2_000
MOST_BLOBS = 64
MOST_BYTES = 8 * 1024 * 1024
PIECE = 500
BLOB_PIECE = 16


class Removed(msgspec.Struct):
    """What one act did. `taken`: how much of its page is dealt with."""

    taken: int = 0
    ids: list[str] = []
    needed: int = 0  # could not go
    freed: int = 0  # references that are gone, so that others may go
    facts: int = 0
    blobs: int = 0


def remove(db: sqlite3.Connection, page: Sequence[Candidate], now: int, budget: float = BUDGET) -> Removed:
    """Remove as many of a page as the budget allows, at least one. What the last few took tells how many more fit."""
    done = Removed()
    began = before = time.perf_counter()
    size = FIRST
    while done.taken < len(page) and size:
        chunk = page[done.taken : done.taken + size]
        free = _free(db, chunk)
        small = not free or _small(db, free)
        if not small and len(chunk) > 1:
            size = max(1, len(chunk) // 4)
            continue
        if free:
            _take(db, free, now, done, small=small)
        done.needed += len(chunk) - len(free)
        done.taken += len(chunk)
        moment = time.perf_counter()
        left = began + budget - moment
        size = min(AT_ONCE, size * 2, int(left / (moment - before) * len(chunk))) if left > 0 else 0
        before = moment
    return done


def sweep(db: sqlite3.Connection, now: int, budget: float = BUDGET) -> Removed:
    """Remove what was left over of executions that are off the list; `taken` is 0 when nothing is."""
    done = Removed()
    ends = time.perf_counter() + budget
    while done.taken == 0 or time.perf_counter() < ends:
        row = db.execute(
            "SELECT n, id, ended_at FROM removed WHERE until <= ? ORDER BY until LIMIT 1", (now,)
        ).fetchone()
        if row is None:
            break
        done.taken += 1
        each = Candidate(*row)
        if not _piece(db, each, done):
            continue
        if _recent(each, now):
            db.execute("UPDATE removed SET until = ? WHERE n = ?", (now + LATE, each.n))
        else:
            db.execute("DELETE FROM removed WHERE n = ?", (each.n,))
    return done


def forget_keys(db: sqlite3.Connection, now: int) -> int:
    """Drop some of the client keys whose time is over."""
    return db.execute(
        "DELETE FROM client_key WHERE key IN"
        " (SELECT key FROM client_key WHERE expires IS NOT NULL AND expires <= ? LIMIT ?)",
        (now, PIECE),
    ).rowcount


def unused_definitions(db: sqlite3.Connection, after: str, limit: int) -> list[str]:
    """Hashes of definitions that no execution and no stored version names, behind a hash."""
    rows = db.execute(
        f"SELECT hash FROM definition WHERE hash > ? AND {_UNUSED} ORDER BY hash LIMIT ?", (after, limit)
    )
    return [row[0] for row in rows]


def drop_definitions(db: sqlite3.Connection, hashes: Sequence[str], spared: Container[str]) -> int:
    """Drop those that are still unused, but for the ones that somebody is about to name."""
    count = 0
    for hash in hashes:
        if hash not in spared:
            count += db.execute(f"DELETE FROM definition WHERE hash = ? AND {_UNUSED}", (hash,)).rowcount
    return count


_UNUSED = (
    "NOT EXISTS (SELECT 1 FROM execution WHERE execution.hash = definition.hash)"
    " AND NOT EXISTS (SELECT 1 FROM version WHERE version.hash = definition.hash)"
)


def _free(db: sqlite3.Connection, chunk: Sequence[Candidate]) -> list[Candidate]:
    """Those that may go at this moment: between the choice and this act a lot can have happened."""
    rows = db.execute(
        f"SELECT n, id, ended_at FROM execution candidate WHERE n IN ({_marks(chunk)}) AND {FREE}",
        [each.n for each in chunk],
    )
    return [Candidate(*row) for row in rows]


def _small(db: sqlite3.Connection, group: Sequence[Candidate]) -> bool:
    """Whether everything of a group can go in one act."""
    marks = _marks(group)
    numbers = [each.n for each in group]
    rows = 0
    for table in ("fact", "claim"):
        (count,) = db.execute(
            f"SELECT count(*) FROM (SELECT 1 FROM {table} WHERE execution IN ({marks}) LIMIT ?)",
            (*numbers, MOST_ROWS + 1),
        ).fetchone()
        rows += count
    blobs, size = db.execute(
        "SELECT count(*), coalesce(sum(size), 0) FROM"
        f" (SELECT length(data) AS size FROM blob WHERE execution IN ({marks}) LIMIT ?)",
        (*(each.id for each in group), MOST_BLOBS + 1),
    ).fetchone()
    return bool(rows <= MOST_ROWS and blobs <= MOST_BLOBS and size <= MOST_BYTES)


def _take(
    db: sqlite3.Connection, group: Sequence[Candidate], now: int, done: Removed, *, small: bool
) -> None:
    """Take executions off the list, with their rows if there are few."""
    marks = _marks(group)
    numbers, ids = [each.n for each in group], [each.id for each in group]
    db.execute(f"DELETE FROM execution WHERE n IN ({marks})", numbers)
    db.execute(f"DELETE FROM dead_letter WHERE execution IN ({marks})", ids)
    done.freed += db.execute(f"DELETE FROM needs WHERE execution IN ({marks})", ids).rowcount
    db.execute(
        f"UPDATE client_key SET expires = ? WHERE execution IN ({marks}) AND expires IS NULL",
        (now + KEY_LIFE, *ids),
    )
    if small:
        done.facts += db.execute(f"DELETE FROM fact WHERE execution IN ({marks})", numbers).rowcount
        db.execute(f"DELETE FROM claim WHERE execution IN ({marks})", numbers)
        done.blobs += db.execute(f"DELETE FROM blob WHERE execution IN ({marks})", ids).rowcount
    noted = [(*each, now + LATE if small else 0) for each in group if not small or _recent(each, now)]
    db.executemany("INSERT INTO removed (n, id, ended_at, until) VALUES (?, ?, ?, ?)", noted)
    done.ids += ids


def _piece(db: sqlite3.Connection, each: Candidate, done: Removed) -> bool:
    """Remove some rows of an execution that is off the list; whether these were the last."""
    facts = _some(db, "fact", "kind, node, path, number", each.n)
    claims = _some(db, "claim", "node, path, fence", each.n)
    # A new execution may have been given the same id: the blobs are now its own.
    blobs = db.execute(
        "DELETE FROM blob WHERE rowid IN (SELECT rowid FROM blob WHERE execution = ?1 LIMIT ?2)"
        " AND NOT EXISTS (SELECT 1 FROM execution WHERE id = ?1)",
        (each.id, BLOB_PIECE),
    ).rowcount
    done.facts += facts
    done.blobs += blobs
    return facts < PIECE and claims < PIECE and blobs < BLOB_PIECE


def _some(db: sqlite3.Connection, table: str, key: str, n: int) -> int:
    """Remove the first rows of an execution. By a bound, because a list of keys would be looked up one by one among
    all rows of a node."""
    bound = db.execute(
        f"SELECT {key} FROM {table} WHERE execution = ? ORDER BY {key} LIMIT 1 OFFSET ?", (n, PIECE)
    ).fetchone()
    if bound is None:
        return db.execute(f"DELETE FROM {table} WHERE execution = ?", (n,)).rowcount
    marks = ", ".join("?" * len(bound))
    return db.execute(
        f"DELETE FROM {table} WHERE execution = ? AND ({key}) < ({marks})", (n, *bound)
    ).rowcount


def _recent(each: Candidate, now: int) -> bool:
    return now - each.ended_at < LATE


def _marks(group: Sequence[Candidate]) -> str:
    return ", ".join("?" * len(group))
