"""The row of a start that is more than a start: under a client key, for a parent, or with facts to begin with."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from rune.adapters.embedded.limits import held_back
from rune.adapters.embedded.rows import Row, Start, insert_facts
from rune.core.fact import Attempt, End, Result
from rune.ports.journal import Accepted, Ended, Gone, KeyConflict, KeySpent, Parent, TokenEnded
from rune.ports.limits import Held, TooMany
from rune.wire.codec import KINDS, encode_path

_ACCEPTED = msgspec.msgpack.Decoder(Accepted)
_END = msgspec.msgpack.Decoder(End)
_KEYED = "INSERT INTO client_key (key, execution, digest, at) VALUES (?, ?, ?, ?)"
_OVER = (
    "SELECT 1 FROM fact WHERE execution = ? AND kind = ? AND node = ? AND path = ? AND number >= ? LIMIT 1"
)


def accept_row(
    db: sqlite3.Connection,
    execution: Accepted,
    row: tuple[Any, ...],
    facts: Sequence[Row],
    needed: Iterable[str],
    held: Held | None = None,
) -> Accepted | TooMany | None:
    """Write it; answers the execution that was started before under the same key or id, or the limit that refuses it:
    raised, it would have the whole group written one by one."""
    known = db.execute("SELECT accepted FROM execution WHERE id = ?", (execution.id,)).fetchone()
    if known is not None:
        return _ACCEPTED.decode(known[0])
    if execution.key is not None:
        earlier = _under_key(db, execution, execution.key)
        if earlier is not None:
            return earlier
    if execution.parent is not None:
        _find_open(db, execution.parent)
    refused = held_back(db, execution, held) if held is not None else None
    if refused is not None:
        return refused
    if execution.key is not None:
        db.execute(_KEYED, (execution.key, execution.id, _digest(execution), execution.at))
    Start(row)(db)
    if execution.parent is not None:
        db.execute("UPDATE execution SET parent = ? WHERE n = ?", (execution.parent.execution, row[0]))
    insert_facts(db, facts)
    for each in needed:
        _need(db, execution.id, each)
    return None


def _need(db: sqlite3.Connection, execution: str, other: str) -> None:
    """From this row on the other one stays; it may have been removed since its facts were read."""
    if db.execute("SELECT 1 FROM execution WHERE id = ?", (other,)).fetchone() is None:
        raise Gone(f"{other} was removed, and {execution} would need its results")
    db.execute("INSERT INTO needs VALUES (?, ?)", (execution, other))


def _under_key(db: sqlite3.Connection, execution: Accepted, key: str) -> Accepted | None:
    # Past its time a key is free, whether or not it was dropped yet.
    db.execute("DELETE FROM client_key WHERE key = ? AND expires <= ?", (key, execution.at))
    known = db.execute("SELECT execution, digest, expires FROM client_key WHERE key = ?", (key,)).fetchone()
    if known is not None:
        if known[1] != _digest(execution):
            raise KeyConflict(f"key `{key}` was used before with another payload or workflow")
        if known[2] is not None:
            raise KeySpent(key, known[0])
        stored = db.execute("SELECT accepted FROM execution WHERE id = ?", (known[0],)).fetchone()
        return _ACCEPTED.decode(stored[0])
    return None


def _digest(execution: Accepted) -> bytes:
    return hashlib.sha256(execution.hash.encode() + b"\0" + execution.input).digest()


def _find_open(db: sqlite3.Connection, parent: Parent) -> None:
    """A parent that has ended gets no more children, and neither does an attempt that is over: it is the end of the one
    or the other that cancels those that are there."""
    row = db.execute("SELECT n, end FROM execution WHERE id = ?", (parent.execution,)).fetchone()
    if row is None or row[1] is not None:
        raise Ended(End(0, "cancelled") if row is None else _END.decode(row[1]))
    # One by one, so that each is a look into the key, however many facts the parent has.
    for kind, number in ((KINDS[Result], 0), (KINDS[Attempt], parent.attempt)):
        token = (row[0], kind, parent.node, encode_path(parent.path), number)
        if db.execute(_OVER, token).fetchone() is not None:
            raise TokenEnded(f"attempt {parent.attempt} of a node of {parent.execution} is over")
