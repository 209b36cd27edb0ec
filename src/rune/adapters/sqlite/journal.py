"""The row of a start that is more than a start: under a client key, for a parent, or with facts to begin with.

Children and parents: who waits for whose end, and who has to be told.

Dead letters: executions that ended because the engine could do no more.

The journal in SQLite. The primary key of the fact table is the write-once rule.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from rune.adapters.rows import letter_of, references
from rune.adapters.sqlite.access import check_start_limits
from rune.adapters.sqlite.database import Database, Row, Rows, Start, insert_facts
from rune.codec.facts import KINDS, decode_fact, encode_fact, encode_path, fact_columns
from rune.core.execution.fact import (
    AttemptFailed,
    ExecutionEnded,
    Fact,
    NodeResult,
    NodeSuspended,
    PauseChanged,
    SignalReceived,
    TokenFact,
)
from rune.core.execution.token import Path
from rune.ports.access import AppliedLimits, StartLimitError
from rune.ports.journal import (
    FORMAT,
    DeadLetter,
    ExecutionEndedError,
    ExecutionRecord,
    ExecutionRemovedError,
    IdempotencyConflictError,
    IdempotencyKeyExpiredError,
    NewerFormatError,
    Parent,
    StoredFact,
    StoreUnavailableError,
    TokenEndedError,
)

_ACCEPTED = msgspec.msgpack.Decoder(ExecutionRecord)
_END = msgspec.msgpack.Decoder(ExecutionEnded)
_KEYED = "INSERT INTO client_key (key, execution, digest, at) VALUES (?, ?, ?, ?)"
_OVER = (
    "SELECT 1 FROM fact WHERE execution = ? AND kind = ? AND node = ? AND path = ? AND number >= ? LIMIT 1"
)


def accept_row(
    db: sqlite3.Connection,
    execution: ExecutionRecord,
    row: tuple[Any, ...],
    facts: Sequence[Row],
    needed: Iterable[str],
    held: AppliedLimits | None = None,
) -> ExecutionRecord | StartLimitError | None:
    """Write it; answers the execution that was started before under the same key or id, or the limit that refuses it:
    raised, it would have the whole group written one by one."""
    known = db.execute("SELECT accepted FROM execution WHERE id = ?", (execution.id,)).fetchone()
    if known is not None:
        return _ACCEPTED.decode(known[0])
    if execution.key is not None:
        earlier = _find_by_key(db, execution, execution.key)
        if earlier is not None:
            return earlier
    if execution.parent is not None:
        _find_open(db, execution.parent)
    refused = check_start_limits(db, execution, held) if held is not None else None
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
        raise ExecutionRemovedError(f"{other} was removed, and {execution} would need its results")
    db.execute("INSERT INTO needs VALUES (?, ?)", (execution, other))


def _find_by_key(db: sqlite3.Connection, execution: ExecutionRecord, key: str) -> ExecutionRecord | None:
    # Past its time a key is free, whether or not it was dropped yet.
    db.execute("DELETE FROM client_key WHERE key = ? AND expires <= ?", (key, execution.at))
    known = db.execute("SELECT execution, digest, expires FROM client_key WHERE key = ?", (key,)).fetchone()
    if known is not None:
        if known[1] != _digest(execution):
            raise IdempotencyConflictError(f"key `{key}` was used before with another payload or workflow")
        if known[2] is not None:
            raise IdempotencyKeyExpiredError(key, known[0])
        stored = db.execute("SELECT accepted FROM execution WHERE id = ?", (known[0],)).fetchone()
        return _ACCEPTED.decode(stored[0])
    return None


def _digest(execution: ExecutionRecord) -> bytes:
    return hashlib.sha256(execution.hash.encode() + b"\0" + execution.input).digest()


def _find_open(db: sqlite3.Connection, parent: Parent) -> None:
    """A parent that has ended gets no more children, and neither does an attempt that is over: it is the end of the one
    or the other that cancels those that are there."""
    row = db.execute("SELECT n, end FROM execution WHERE id = ?", (parent.execution,)).fetchone()
    if row is None or row[1] is not None:
        raise ExecutionEndedError(ExecutionEnded(0, "cancelled") if row is None else _END.decode(row[1]))
    # One by one, so that each is a look into the key, however many facts the parent has.
    for kind, number in ((KINDS[NodeResult], 0), (KINDS[AttemptFailed], parent.attempt)):
        token = (row[0], kind, parent.node, encode_path(parent.path), number)
        if db.execute(_OVER, token).fetchone() is not None:
            raise TokenEndedError(f"attempt {parent.attempt} of a node of {parent.execution} is over")


def children(db: sqlite3.Connection, parent: str) -> list[str]:
    """The children of an execution that have not ended."""
    rows = db.execute(
        "SELECT id FROM execution WHERE parent = ? AND told = 0 AND ended_at IS NULL ORDER BY n", (parent,)
    )
    return [row[0] for row in rows]


def unreported_children(db: sqlite3.Connection, limit: int) -> list[str]:
    """Children that have ended without their parent knowing, and those whose parent has ended without them."""
    rows = db.execute(
        "SELECT child.id FROM execution child LEFT JOIN execution parent ON parent.id = child.parent"
        " WHERE child.parent IS NOT NULL AND child.told = 0"
        " AND (child.ended_at IS NOT NULL OR parent.id IS NULL OR parent.ended_at IS NOT NULL) LIMIT ?",
        (limit,),
    )
    return [row[0] for row in rows]


def list_dead_letters(db: sqlite3.Connection, limit: int, after: str | None) -> list[DeadLetter]:
    """Newest first, behind a given id."""
    rows = db.execute(
        "SELECT letter.execution, letter.code, letter.at, execution.workflow, execution.end"
        " FROM dead_letter letter JOIN execution ON execution.id = letter.execution"
        " WHERE letter.settled IS NULL AND (?1 IS NULL OR (letter.at, letter.execution) <"
        " (SELECT at, execution FROM dead_letter WHERE execution = ?1))"
        " ORDER BY letter.at DESC, letter.execution DESC LIMIT ?2",
        (after, limit),
    )
    return [letter_of(*row) for row in rows]


def resolve_dead_letter(db: sqlite3.Connection, letter: str, how: str) -> bool:
    """Note what became of a letter; False if there is none that is open."""
    changed = db.execute(
        "UPDATE dead_letter SET settled = ? WHERE execution = ? AND settled IS NULL", (how, letter)
    )
    return changed.rowcount > 0


_PACK = msgspec.msgpack.Encoder()
_RESULT = KINDS[NodeResult]
_OF_TOKEN = (_RESULT, KINDS[AttemptFailed], KINDS[NodeSuspended])
FACTS = "SELECT seq, body, late FROM fact WHERE execution = ? AND +seq > ? ORDER BY +seq LIMIT ?"
OF_TOKEN = (  # `+seq`: a few rows by their key, then sorted; along the order of the execution it would be all of them
    "SELECT body FROM fact WHERE execution = ? AND kind IN (?, ?, ?) AND node = ? AND path = ? AND NOT late"
    " ORDER BY +seq"
)
FACTS_BEHIND = "SELECT seq, body, late FROM fact WHERE execution = ? AND seq > ? ORDER BY seq LIMIT ?"
MAX_CACHED_IDS = 10_000
FACTS_BITS = 40
"""Facts are numbered from opening to opening of the file: so many of each are told apart."""


class SqliteJournal:
    """Facts by execution. The owner of the file is its only writer, so numbers are given out in memory."""

    def __init__(self, database: Database) -> None:
        self._database = database
        reader = database.reader
        # Rows of a removed execution may be left over: its number is not given out again.
        (self._next_execution,) = reader.execute(
            "SELECT max((SELECT coalesce(max(n), 0) FROM execution), (SELECT coalesce(max(n), 0) FROM removed)) + 1"
        ).fetchone()
        self._next_seq = database.opened << FACTS_BITS
        self._fences = itertools.count(1)
        self._numbers: dict[str, int] = {}
        self._learned: dict[str, None] = {}  # those of them that were read from the file, oldest first
        self._ended: dict[str, ExecutionEnded] = {}  # handed to the writer
        self._final: dict[str, ExecutionEnded] = {}  # durable
        self._sleeps: dict[str, int] = {}
        self._unheard: dict[str, set[str | int]] = {}  # signals and controls that no state was handed yet
        self._claims: list[tuple[Any, ...]] = []  # they go along with the next facts
        self.saved: set[str] = set()  # definitions that somebody in this process may be about to name

    async def save_definition(self, hash: str, canonical: bytes) -> None:
        self.saved.add(hash)
        await self._database.submit(
            lambda db: db.execute("INSERT OR IGNORE INTO definition VALUES (?, ?)", (hash, canonical))
        )

    async def definition(self, hash: str) -> bytes | None:
        row = self._database.reader.execute(
            "SELECT canonical FROM definition WHERE hash = ?", (hash,)
        ).fetchone()
        return row[0] if row else None

    async def accept(
        self, execution: ExecutionRecord, kept: Sequence[Fact] = (), held: AppliedLimits | None = None
    ) -> ExecutionRecord:
        number = self._next_execution
        self._next_execution += 1
        row = (
            number,
            execution.id,
            execution.workflow,
            execution.hash,
            execution.at,
            execution.at,
            _PACK.encode(execution),
        )
        known: ExecutionRecord | StartLimitError | None
        plain = execution.key is None and execution.parent is None and not kept and not execution.needs
        if plain and held is None:
            known = await self._start(row, execution.id)
        else:
            facts = self._rows(number, kept, late=0)
            known = await self._database.submit(
                lambda db: accept_row(db, execution, row, facts, references(execution, kept), held)
            )
        if isinstance(known, StartLimitError):
            raise known
        if known is not None:
            return known
        self._numbers[execution.id] = number  # not before: until then the id may be that of another row
        return execution

    async def _start(self, row: tuple[Any, ...], execution: str) -> ExecutionRecord | None:
        """Write a start that is no more than that; answers the one that was there before under the same id."""
        try:
            await self._database.submit(Start(row))
        except sqlite3.IntegrityError:
            return await self.accepted(execution)
        return None

    def _rows(self, number: int, facts: Sequence[Fact], late: int) -> list[Row]:
        seq = self._next_seq
        self._next_seq += len(facts)
        rows: list[Row] = []
        for fact in facts:
            kind, node, path, index = fact_columns(fact)
            rows.append((number, kind, node, path, index, seq, late, encode_fact(fact)))
            seq += 1
        return rows

    async def accepted(self, execution: str) -> ExecutionRecord | None:
        row = self._database.reader.execute(
            "SELECT n, accepted, end FROM execution WHERE id = ?", (execution,)
        ).fetchone()
        if row is None:
            return None
        self._cache_number(execution, row[0], row[2])
        found = _ACCEPTED.decode(row[1])
        if found.format > FORMAT:
            raise NewerFormatError(
                f"{execution} was written in format {found.format}, this Rune knows up to {FORMAT}"
            )
        return found

    async def record(self, execution: str, facts: Sequence[Fact]) -> Sequence[Fact]:
        number = self._number(execution)
        ended = self._ended.get(execution)
        last = facts[-1]
        if ended is not None and type(last) is ExecutionEnded:
            await self._database.submit(_nothing)  # durable together with the row that was first
            raise ExecutionEndedError(ended)
        if ended is None and type(last) is ExecutionEnded:
            self._ended[execution] = last
        if ended is None and (type(last) is SignalReceived or type(last) is PauseChanged):
            self._unheard.setdefault(execution, set()).add(_name(last))
        late = int(ended is not None)
        rows = self._rows(number, facts, late)
        try:
            claims, self._claims = self._claims, []
            await self._database.submit(
                Rows(
                    execution,
                    rows,
                    claims,
                    last if type(last) is ExecutionEnded and not late else None,
                    _wakes_at(last) or self._sleeps.pop(execution, None),
                    _status(last) if type(last) is PauseChanged and not late else None,
                )
            )
        except sqlite3.IntegrityError:
            self._take_back(execution, last)
            return await self._stored(execution, number, facts)
        except StoreUnavailableError:
            self._take_back(execution, last)
            if isinstance(last, SignalReceived | PauseChanged):
                self.heard(execution, last)
            raise
        if ended is not None:
            raise ExecutionEndedError(ended)
        if type(last) is ExecutionEnded:
            self._final[execution] = last
        return facts

    def _take_back(self, execution: str, last: Fact) -> None:
        if self._ended.get(execution) is last:
            del self._ended[execution]

    async def _stored(self, execution: str, number: int, facts: Sequence[Fact]) -> Sequence[Fact]:
        """The head was written before: what is stored counts. If it was a later one, the rest is written without it."""
        kind, node, path, index = fact_columns(facts[0])
        row = self._database.reader.execute(
            "SELECT body FROM fact WHERE execution = ? AND kind = ? AND node = ? AND path = ? AND number = ?",
            (number, kind, node, path, index),
        ).fetchone()
        if row is None:
            return await self.record(execution, facts[:1])
        return [decode_fact(row[0])]

    async def facts(self, execution: str, after: int = 0, limit: int | None = None) -> list[StoredFact]:
        # Without a limit all of it is wanted: reading along the primary key and sorting takes half the time then.
        rows = self._database.reader.execute(
            FACTS if limit is None and not after else FACTS_BEHIND,
            (self._number(execution), after, -1 if limit is None else limit),
        )
        return [StoredFact(seq, decode_fact(body), bool(late)) for seq, body, late in rows]

    async def signal(self, execution: str, id: str) -> SignalReceived | None:
        row = self._database.reader.execute(
            "SELECT body FROM fact WHERE execution = ? AND kind = ? AND node = -1 AND path = ? AND number = 0",
            (self._number(execution), KINDS[SignalReceived], id.encode()),
        ).fetchone()
        fact = decode_fact(row[0]) if row else None
        return fact if isinstance(fact, SignalReceived) else None

    async def children(self, parent: str) -> list[str]:
        return children(self._database.reader, parent)

    async def unreported_children(self, limit: int) -> list[str]:
        return unreported_children(self._database.reader, limit)

    async def mark_reported(self, execution: str) -> None:
        await self._database.submit(
            lambda db: db.execute("UPDATE execution SET told = 1 WHERE id = ?", (execution,))
        )

    async def dead_letters(self, limit: int, after: str | None = None) -> list[DeadLetter]:
        return list_dead_letters(self._database.reader, limit, after)

    async def resolve_dead_letter(self, letter: str, how: str) -> bool:
        settled: bool = await self._database.submit(lambda db: resolve_dead_letter(db, letter, how))
        return settled

    async def results(self, execution: str, keys: Sequence[tuple[int, Path]]) -> list[NodeResult | None]:
        number = self._number(execution)
        found: list[NodeResult | None] = []
        for node, path in keys:
            row = self._database.reader.execute(
                "SELECT body FROM fact WHERE execution = ? AND kind = ? AND node = ? AND path = ? AND number = 0",
                (number, _RESULT, node, encode_path(path)),
            ).fetchone()
            fact = decode_fact(row[0]) if row else None
            found.append(fact if isinstance(fact, NodeResult) else None)
        return found

    async def facts_of_token(self, execution: str, node: int, path: Path) -> list[TokenFact]:
        rows = self._database.reader.execute(
            OF_TOKEN, (self._number(execution), *_OF_TOKEN, node, encode_path(path))
        )
        return [decode_fact(row[0]) for row in rows]  # type: ignore[misc]

    async def count_claim(
        self, execution: str, node: int, path: Path, fence: tuple[int, int], at: int, *, durable: bool = False
    ) -> int:
        row = (self._number(execution), node, encode_path(path), fence[0] << 25 | fence[1] & 0x1FFFFFF, at)
        if not durable:
            self._claims.append(row)
            return 1
        count: int = await self._database.submit(lambda db: _claim(db, row))
        return count

    def next_fence(self) -> tuple[int, int]:
        """A fence that is higher than every one before it, also those of earlier owners of the file."""
        return self._database.opened, next(self._fences)

    async def end(self, execution: str) -> ExecutionEnded | None:
        if execution not in self._final and execution not in self._numbers:
            await self.accepted(execution)
        return self._final.get(execution)

    async def ends_of(self, executions: Sequence[str]) -> dict[str, ExecutionEnded]:
        found = {each: await self.end(each) for each in executions}
        return {execution: end for execution, end in found.items() if end is not None}

    async def count_results(self) -> int:
        """How many results the file holds."""
        (count,) = self._database.reader.execute(
            "SELECT count(*) FROM fact WHERE kind = ?", (_RESULT,)
        ).fetchone()
        return int(count)

    def sleep_until(self, execution: str, when: int) -> asyncio.Future[Any]:
        """Note when a sleeping execution needs attention again."""
        row = (when, self._number(execution))
        return self._database.submit(
            lambda db: db.execute("UPDATE execution SET wake_at = ? WHERE n = ? AND wake_at IS NOT NULL", row)
        )

    def has_undelivered_signal(self, execution: str) -> bool:
        """Whether something is written, or about to be, that the state does not know: until it does, it must not say
        that the execution sleeps."""
        return execution in self._unheard

    def heard(self, execution: str, fact: SignalReceived | PauseChanged) -> None:
        """The state knows."""
        unheard = self._unheard.get(execution, set())
        unheard.discard(_name(fact))
        if not unheard:
            self._unheard.pop(execution, None)

    def sleeps_with_next(self, execution: str, when: int) -> None:
        """The same, to go along with the facts that are recorded next."""
        self._sleeps[execution] = when

    def waking(self, cursor: tuple[int, int], until: int, limit: int) -> list[tuple[int, int, str]]:
        """Executions that need attention behind a cursor and up to a time: when, number, id."""
        return self._database.reader.execute(
            "SELECT wake_at, n, id FROM execution WHERE wake_at IS NOT NULL AND (wake_at, n) > (?, ?) AND wake_at <= ?"
            " ORDER BY wake_at, n LIMIT ?",
            (*cursor, until, limit),
        ).fetchall()

    def next_waking(self, cursor: tuple[int, int]) -> int | None:
        """When the next sleeping execution is due."""
        row = self._database.reader.execute(
            "SELECT wake_at FROM execution WHERE wake_at IS NOT NULL AND (wake_at, n) > (?, ?)"
            " ORDER BY wake_at, n LIMIT 1",
            cursor,
        ).fetchone()
        return row[0] if row else None

    def forget(self, execution: str) -> None:
        """Drop what memory holds of an execution."""
        self._numbers.pop(execution, None)
        self._learned.pop(execution, None)
        self._ended.pop(execution, None)
        self._final.pop(execution, None)

    def _number(self, execution: str) -> int:
        number = self._numbers.get(execution)
        if number is None:
            row = self._database.reader.execute(
                "SELECT n, end FROM execution WHERE id = ?", (execution,)
            ).fetchone()
            if row is None:
                raise KeyError(execution)
            number = self._cache_number(execution, *row)
        return number

    def _cache_number(self, execution: str, number: int, end: bytes | None) -> int:
        self._numbers[execution] = number
        self._learned[execution] = None
        if len(self._learned) > MAX_CACHED_IDS:
            self._uncache_number()
        if end is not None:
            self._ended[execution] = self._final[execution] = _END.decode(end)
        return number

    def _uncache_number(self) -> None:
        """Drop what was read longest ago: it can be read again. Not one whose end is still on its way to the file."""
        oldest = next(iter(self._learned))
        del self._learned[oldest]
        if oldest in self._ended and oldest not in self._final:
            self._learned[oldest] = None
        else:
            self.forget(oldest)

    async def close(self) -> None:
        self._database.close()


def _claim(db: sqlite3.Connection, row: tuple[Any, ...]) -> int:
    db.execute("INSERT OR IGNORE INTO claim VALUES (?, ?, ?, ?, ?)", row)
    (count,) = db.execute(
        "SELECT count(*) FROM claim WHERE execution = ? AND node = ? AND path = ?", row[:3]
    ).fetchone()
    return int(count)


def _nothing(db: sqlite3.Connection) -> None:
    """Only to be behind what was submitted before."""


def _wakes_at(fact: Fact) -> int | None:
    """A signal or a control touches an execution that may be asleep: whoever owns the file next must look at it."""
    return fact.at if type(fact) is SignalReceived or type(fact) is PauseChanged else None


def _name(fact: SignalReceived | PauseChanged) -> str | int:
    return fact.id if type(fact) is SignalReceived else fact.number


def _status(fact: PauseChanged) -> str:
    return "paused" if fact.paused else "running"
