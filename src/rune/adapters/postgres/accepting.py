"""Accepting: starts on their way into the journal, many of them in one act."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from rune.adapters.postgres.columns import Columns, arrays, columns
from rune.adapters.postgres.database import Database, Row
from rune.adapters.postgres.failing import Refused
from rune.adapters.postgres.grouping import Groups
from rune.adapters.postgres.sql import query
from rune.adapters.rowforms import references
from rune.core.fact import End, Fact
from rune.ports.journal import Accepted, Ended, Gone, KeyConflict, KeySpent, Parent, StoreAway, TokenEnded
from rune.ports.limits import FULL, RATE, RUNNING, Held, too_many
from rune.wire.codec import encode_path

LANES = 2
MOST_STARTS = 128
MOST_BYTES = 4 * 1024 * 1024
SAVED_BYTES = 64 * 1024 * 1024
OPENED_WITHIN = 5_000
"""How long whoever accepted an execution has to open it before the relay does, in ms."""

PATIENCE, PAUSE = 10.0, 0.1  # s: how long somebody waits for an id to become free, and between two tries

ACCEPTED = msgspec.msgpack.Decoder(Accepted)
_END = msgspec.msgpack.Decoder(End)
_PACK = msgspec.msgpack.Encoder()
_NOBODY = (None, None, None, None)


class Undefined(Exception):
    """The definition was removed since it was saved."""


class Leaving(Exception):
    """Blobs of an execution that had this id are being removed: those of the next one must not be among them."""


class Start:
    """One execution, and the facts it begins with."""

    __slots__ = ("body", "defined", "digest", "execution", "future", "needed", "rows", "size")

    def __init__(self, execution: Accepted, kept: Sequence[Fact], *, defined: bool) -> None:
        self.execution = execution
        self.body = _PACK.encode(execution)
        self.defined = defined
        self.digest = _digest(execution) if execution.key is not None else None
        self.rows: list[Columns] = [columns(fact) for fact in kept]
        self.needed = sorted(references(execution, kept))
        self.size = len(self.body) + sum(len(row[5]) for row in self.rows)
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def names(self) -> Iterable[object]:
        if self.execution.key is None:
            return (self.execution.id,)
        return self.execution.id, (self.execution.key,)


def gathering() -> Callable[[Start], bool]:
    """A group: every id and every key once."""
    named: set[object] = set()
    size = 0

    def admits(start: Start) -> bool:
        nonlocal size
        if not named.isdisjoint(start.names()) or (size and size + start.size > MOST_BYTES):
            return False
        named.update(start.names())
        size += start.size
        return True

    return admits


class Acceptor:
    """Writes starts in groups."""

    def __init__(self, database: Database, *, lanes: int = LANES) -> None:
        self._database = database
        self._groups: Groups[Start] = Groups(self._write, gathering, lanes=lanes, most=MOST_STARTS)
        self._saved: OrderedDict[str, bytes] = OrderedDict()
        self._saved_bytes = 0
        self._statement = query("accept")
        # They wait for each other in the database: all of its connections would be theirs soon.
        self._limited = asyncio.Semaphore(lanes)

    @property
    def saved(self) -> Iterable[str]:
        """Definitions that somebody in this process may be about to name."""
        return self._saved.keys()

    async def save(self, hash: str, canonical: bytes) -> None:
        """Keep a definition. It is remembered: another process may remove it before an execution names it."""
        if hash not in self._saved:
            self._saved[hash] = canonical
            self._saved_bytes += len(canonical)
        self._saved.move_to_end(hash)
        while self._saved_bytes > SAVED_BYTES and len(self._saved) > 1:
            _, dropped = self._saved.popitem(last=False)
            self._saved_bytes -= len(dropped)
        await self._database.fetch(query("save_definition"), hash, canonical)

    async def accept(
        self, execution: Accepted, kept: Sequence[Fact] = (), held: Held | None = None
    ) -> Accepted:
        """Write a start; answers the execution that was started before under the same key or id."""
        until = time.monotonic() + PATIENCE
        while True:
            start = Start(execution, kept, defined=execution.hash in self._saved)
            try:
                answer: Accepted
                if held is None:
                    answer = await self._groups.submit(start)
                else:
                    answer = await self._write_limited(start, held)
            except Undefined:
                await self.save(execution.hash, self._saved[execution.hash])
                continue
            except Leaving:
                if time.monotonic() > until:
                    raise StoreAway(
                        f"what another execution had under the id {execution.id} is being removed"
                    ) from None
                await asyncio.sleep(PAUSE)
                continue
            return answer

    async def _write(self, group: Sequence[Start]) -> list[Any]:
        rows = await self._database.fetch(self._statement, *_arguments(group), OPENED_WITHIN)
        verdicts = {row["start"]: row for row in rows}
        return [_answer(start, verdicts.get(number)) for number, start in enumerate(group, 1)]

    async def _write_limited(self, start: Start, held: Held) -> Accepted:
        """In an act of its own: the locks of limits are held until it is durable, and others must not wait for them."""
        given = _arguments([start])
        statement, subjects = query("accept_limited"), sorted(held.subjects)
        async with self._limited:
            rows = await self._database.fetch(statement, subjects, bool(held.full), *given, OPENED_WITHIN)
        row = rows[0] if rows else None
        if row is not None and row["verdict"] in (FULL, RATE, RUNNING):
            raise too_many(row["verdict"], row["name"], row["pause"] or 0, held.full)
        answer = _answer(start, row)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def close(self) -> None:
        """Write what is under way, and take nothing more."""
        await self._groups.close()


def _arguments(group: Sequence[Start]) -> list[Any]:
    executions = [start.execution for start in group]
    needs = [(number, each) for number, start in enumerate(group, 1) for each in start.needed]
    return [
        [each.id for each in executions],
        [each.workflow for each in executions],
        [each.hash for each in executions],
        [each.at for each in executions],
        [start.body for start in group],
        [each.key for each in executions],
        [start.digest for start in group],
        *_parents([each.parent for each in executions]),
        [start.defined for start in group],
        [number for number, _ in needs],
        [other for _, other in needs],
        [number for number, start in enumerate(group, 1) for _ in start.rows],
        *arrays([row for start in group for row in start.rows]),
    ]


def _parents(parents: Sequence[Parent | None]) -> list[list[Any]]:
    """Whose token waits: execution, node, path and attempt."""
    rows = [
        (each.execution, each.node, encode_path(each.path), each.attempt) if each else _NOBODY
        for each in parents
    ]
    return [list(column) for column in zip(*rows, strict=True)]


def _digest(execution: Accepted) -> bytes:
    return hashlib.sha256(execution.hash.encode() + b"\0" + execution.input).digest()


def _answer(start: Start, row: Row | None) -> Accepted | BaseException:
    execution = start.execution
    if row is None:
        return execution
    match row["verdict"]:
        case "known":
            return ACCEPTED.decode(row["answer"])
        case "conflict":
            return KeyConflict(f"key `{execution.key}` was used before with another payload or workflow")
        case "spent":
            return KeySpent(execution.key or "", row["name"])
        case "leaving":
            return Leaving(execution.id)
        case "undefined":
            return Undefined(execution.hash)
        case "orphan":
            return Ended(End(0, "cancelled") if row["answer"] is None else _END.decode(row["answer"]))
        case "over":
            return TokenEnded(f"{execution.id} would be the child of an attempt that is over")
        case "gone":
            return Gone(f"{row['name']} was removed, and {execution.id} would need its results")
        case verdict:
            return Refused(f"{execution.id}: the database answers `{verdict}`, which this Rune does not know")
