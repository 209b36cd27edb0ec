"""The journal in SQLite. The primary key of the fact table makes facts write-once."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, cast

import msgspec

from rune.adapters.rows import letter_of, references, run_terms, start_terms
from rune.adapters.sqlite.access import check_start_limits
from rune.adapters.sqlite.database import Database, Row, Rows, Start, insert_facts
from rune.codec.facts import KINDS, decode_fact, decode_path, encode_fact, encode_path, fact_columns
from rune.codec.records import decode_record, encode_record, record_digest
from rune.core.execution.fact import (
    AttemptFailed,
    ExecutionEnded,
    ExecutionLate,
    Fact,
    NodeResult,
    NodeSuspended,
    PauseChanged,
    SignalReceived,
    TokenFact,
)
from rune.core.execution.token import Path
from rune.ports.access import AppliedLimits, StartLimitError
from rune.ports.clock import Clock
from rune.ports.journal import (
    AnyFact,
    DeadLetter,
    ExecutionEndedError,
    ExecutionRecord,
    ExecutionRemovedError,
    IdempotencyKeyExpiredError,
    Parent,
    StoredFact,
    StoreUnavailableError,
    TokenEndedError,
    UnknownExecutionError,
    key_conflict,
)

_END_DECODER = msgspec.msgpack.Decoder(ExecutionEnded)
_RESULT = KINDS[NodeResult]
_TOKEN_KINDS = (_RESULT, KINDS[AttemptFailed], KINDS[NodeSuspended])
MAX_CACHED_IDS = 10_000
SEQUENCE_BITS = 40
"""Bits of a sequence number that count facts; the bits above count how often the file was opened for writing."""

# `+seq` makes SQLite read along the primary key and sort: all facts of an execution, or the few of a token. Along the
# index on `seq` it would read every fact of the execution.
DECODED_PER_TURN = 2_000  # facts between two turns of the event loop
FACTS = "SELECT seq, body, late FROM fact WHERE execution = ? AND +seq > ? ORDER BY +seq LIMIT ?"
OF_TOKEN = (
    "SELECT body FROM fact WHERE execution = ? AND kind IN (?, ?, ?) AND node = ? AND path = ? AND NOT late"
    " ORDER BY +seq"
)
CLAIMS_OF = (
    "SELECT count(*) FROM claim WHERE execution = (SELECT n FROM execution WHERE id = ?)"
    " AND node = ? AND path = ?"
)
OPEN_CLAIMS = (
    "SELECT node, path, min(at), max(at) FROM claim AS c WHERE execution = (SELECT n FROM execution WHERE id = ?)"
    " AND NOT EXISTS (SELECT 1 FROM fact AS f WHERE f.execution = c.execution AND f.kind = ? AND f.node = c.node"
    " AND f.path = c.path AND NOT f.late) GROUP BY node, path"
)
FACTS_BEHIND = "SELECT seq, body, late FROM fact WHERE execution = ? AND seq > ? ORDER BY seq LIMIT ?"
_INSERT_KEY = "INSERT INTO client_key (key, execution, digest, at) VALUES (?, ?, ?, ?)"
_IS_OVER = (
    "SELECT 1 FROM fact WHERE execution = ? AND kind = ? AND node = ? AND path = ? AND number >= ? LIMIT 1"
)


class SqliteJournal:
    """Implements the journal port. The owner process is the only writer, so it assigns numbers in memory."""

    def __init__(self, database: Database, clock: Clock | None = None) -> None:
        """`clock` is needed to write only."""
        self._database = database
        self._clock = clock
        reader = database.reader
        # The number of a removed execution is not reused, because some of its rows may still exist.
        (self._next_execution,) = reader.execute(
            "SELECT max((SELECT coalesce(max(n), 0) FROM execution), (SELECT coalesce(max(n), 0) FROM removed)) + 1"
        ).fetchone()
        self._next_seq = database.opened << SEQUENCE_BITS
        self._fences = itertools.count(1)
        self._numbers: dict[str, int] = {}
        self._cached_from_file: dict[
            str, None
        ] = {}  # ids in `_numbers` that were read from the file, oldest first
        self._ended: dict[str, ExecutionEnded] = {}  # submitted to the writer
        self._final: dict[str, ExecutionEnded] = {}  # durable
        self._next_wake_at: dict[str, int] = {}  # written with the next facts
        self._undelivered: dict[
            str, set[str | int]
        ] = {}  # recorded signals and pauses that the state has not applied
        self._claims: list[tuple[Any, ...]] = []  # written with the next facts
        self.saved: set[str] = set()  # definitions that a start in this process may be about to refer to

    async def check_writable(self) -> None:
        await self._database.check_writable()

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
        self,
        execution: ExecutionRecord,
        kept: Sequence[Fact] = (),
        held: AppliedLimits | None = None,
        digest: bytes | None = None,
    ) -> ExecutionRecord:
        number = self._next_execution
        self._next_execution += 1
        row = (
            number,
            execution.id,
            execution.workflow,
            execution.hash,
            execution.at,
            self._not_later(execution.at),
            encode_record(execution),
        )
        answer: ExecutionRecord | StartLimitError | None
        plain = execution.key is None and execution.parent is None and not kept and not execution.needs
        if plain and held is None:
            answer = await self._insert_start(row, execution)
        else:
            fact_rows = self._rows(number, kept, late=0)
            request = b"" if execution.key is None else digest or record_digest(execution)
            answer = await self._database.submit(
                lambda db: accept_row(
                    db, execution, row, fact_rows, references(execution, kept), request, held
                )
            )
        if isinstance(answer, StartLimitError):
            raise answer
        if answer is not None:
            return answer
        # Only now: before the write succeeded, the id could belong to another row.
        self._numbers[execution.id] = number
        return execution

    async def _insert_start(self, row: tuple[Any, ...], execution: ExecutionRecord) -> ExecutionRecord | None:
        """Write a plain start; return the execution that has the same id, if there is one."""
        try:
            await self._database.submit(Start(row, start_terms(execution)))
        except sqlite3.IntegrityError:
            return await self.accepted(execution.id)
        return None

    def _wakes_at(self, fact: Fact) -> int | None:
        """Return the wake-up time that a signal or pause implies: the execution may be unloaded, and if this process
        crashes, the next owner has to load it."""
        return (
            self._not_later(fact.at) if type(fact) is SignalReceived or type(fact) is PauseChanged else None
        )

    def _not_later(self, at: int) -> int:
        """Return a time, at most now: the simulated time of an execution may be ahead of the clock."""
        return at if self._clock is None else min(at, self._clock.now())

    def _rows(self, number: int, facts: Sequence[Fact], late: int) -> list[Row]:
        seq = self._next_seq
        self._next_seq += len(facts)
        rows: list[Row] = []
        for fact in facts:
            kind, node, path, index = fact_columns(fact)
            rows.append((number, kind, node, path, index, seq, late, encode_fact(fact)))
            seq += 1
        return rows

    async def keyed(self, key: str) -> str | None:
        row = self._database.reader.execute(
            "SELECT execution FROM client_key WHERE key = ?", (key,)
        ).fetchone()
        return None if row is None else str(row[0])

    async def accepted(self, execution: str) -> ExecutionRecord | None:
        row = self._database.reader.execute(
            "SELECT n, accepted, end FROM execution WHERE id = ?", (execution,)
        ).fetchone()
        if row is None:
            return None
        self._cache_number(execution, row[0], row[2])
        return decode_record(row[1])

    async def record(
        self, execution: str, facts: Sequence[AnyFact], *, hooked: bool = False
    ) -> Sequence[AnyFact]:
        number = self._number(execution)
        ended = self._ended.get(execution)
        if ended is not None and execution not in self._final:
            ended = await self._wait_for_end(execution, number)
        last: Fact = facts[-1]
        if ended is not None and type(last) is ExecutionEnded:
            raise ExecutionEndedError(ended)
        if ended is None and type(last) is ExecutionEnded:
            self._ended[execution] = last
        if ended is None and (type(last) is SignalReceived or type(last) is PauseChanged):
            self._undelivered.setdefault(execution, set()).add(_fact_id(last))
        late = int(ended is not None)
        rows = self._rows(number, facts, late)
        claims, self._claims = self._claims, []
        write = Rows(execution, rows, claims, None)
        if type(last) is not NodeResult or len(facts) > 1:
            self._add_columns(write, facts, late)
            write.hooked = hooked
        try:
            await self._database.submit(write)
        except sqlite3.IntegrityError:
            self._withdraw_end(execution, last)
            return await self._stored_or_retry(execution, number, facts)
        except StoreUnavailableError:
            self._withdraw_end(execution, last)
            if isinstance(last, SignalReceived | PauseChanged):
                self.mark_delivered(execution, last)
            raise
        if ended is not None:
            raise ExecutionEndedError(ended)
        if type(last) is ExecutionEnded:
            self._final[execution] = last
        return facts

    def _add_columns(self, write: Rows, facts: Sequence[Fact], late: int) -> None:
        """Add what these facts change in the row of their execution. A single result changes nothing."""
        last = facts[-1]
        if type(last) is ExecutionEnded and not late:
            write.end = last
        elif type(last) is PauseChanged and not late:
            write.status = _pause_status(last)
        elif type(last) is ExecutionLate and not late:
            write.late_at = last.at
        write.wake_at = self._wakes_at(last) or self._next_wake_at.pop(write.execution, None)
        write.terms = run_terms(facts)

    async def record_all(
        self, execution: str, runs: Sequence[Sequence[AnyFact]]
    ) -> list[Sequence[AnyFact] | BaseException]:
        number = self._number(execution)
        if execution not in self._ended:
            facts = [fact for run in runs for fact in run]
            claims, self._claims = self._claims, []
            rows = Rows(execution, self._rows(number, facts, late=0), claims, None, terms=run_terms(facts))
            with suppress(sqlite3.IntegrityError):
                await self._database.submit(rows)
                return list(runs)
        # One of the facts was recorded before, or the execution has ended: each run has its own answer.
        return await asyncio.gather(*(self.record(execution, run) for run in runs), return_exceptions=True)

    async def _wait_for_end(self, execution: str, number: int) -> ExecutionEnded | None:
        """Return the end of an execution once the write of it is over; None if that write failed.

        Until then it is open whether later facts are late: marked as late for an end that is not stored, they would
        be lost.
        """
        while (ended := self._ended.get(execution)) is not None and execution not in self._final:
            await self._database.submit(_no_write)
            row = self._database.reader.execute("SELECT end FROM execution WHERE n = ?", (number,)).fetchone()
            if row is not None and row[0] is not None:
                self._final[execution] = self._ended[execution] = _END_DECODER.decode(row[0])
            else:
                self._withdraw_end(execution, ended)
        return ended

    def _withdraw_end(self, execution: str, last: Fact) -> None:
        if self._ended.get(execution) is last:
            del self._ended[execution]

    async def _stored_or_retry(
        self, execution: str, number: int, facts: Sequence[AnyFact]
    ) -> Sequence[AnyFact]:
        """Return the stored version of the first fact. If only a later fact was stored before, record the first one
        alone."""
        kind, node, path, index = fact_columns(facts[0])
        row = self._database.reader.execute(
            "SELECT body FROM fact WHERE execution = ? AND kind = ? AND node = ? AND path = ? AND number = ?",
            (number, kind, node, path, index),
        ).fetchone()
        if row is None:
            return await self.record(execution, facts[:1])
        return [cast("AnyFact", decode_fact(row[0]))]

    async def facts(self, execution: str, after: int = 0, limit: int | None = None) -> list[StoredFact]:
        # To read all facts, reading along the primary key and sorting takes half the time.
        rows = self._database.reader.execute(
            FACTS if limit is None and not after else FACTS_BEHIND,
            (self._number(execution), after, -1 if limit is None else limit),
        ).fetchall()
        stored: list[StoredFact] = []
        for start in range(0, len(rows), DECODED_PER_TURN):
            if start:
                await asyncio.sleep(0)
            batch = rows[start : start + DECODED_PER_TURN]
            stored += [StoredFact(seq, decode_fact(body), bool(late)) for seq, body, late in batch]
        return stored

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
        results: list[NodeResult | None] = []
        for node, path in keys:
            row = self._database.reader.execute(
                "SELECT body FROM fact WHERE execution = ? AND kind = ? AND node = ? AND path = ? AND number = 0",
                (number, _RESULT, node, encode_path(path)),
            ).fetchone()
            fact = decode_fact(row[0]) if row else None
            results.append(fact if isinstance(fact, NodeResult) else None)
        return results

    async def facts_of_token(self, execution: str, node: int, path: Path) -> list[TokenFact]:
        rows = self._database.reader.execute(
            OF_TOKEN, (self._number(execution), *_TOKEN_KINDS, node, encode_path(path))
        )
        return [decode_fact(row[0]) for row in rows]  # type: ignore[misc]

    async def count_claim(
        self, execution: str, node: int, path: Path, fence: tuple[int, int], at: int, *, durable: bool = False
    ) -> int:
        row = (self._number(execution), node, encode_path(path), fence[0] << 25 | fence[1] & 0x1FFFFFF, at)
        if not durable:
            self._claims.append(row)
            return 1
        count: int = await self._database.submit(lambda db: _insert_claim(db, row))
        return count

    async def open_claims(self, execution: str) -> dict[tuple[int, Path], int]:
        rows = self._database.reader.execute(OPEN_CLAIMS, (execution, _RESULT))
        return {(node, decode_path(path)): first for node, path, first, _ in rows}

    async def claims_of(self, execution: str, node: int, path: Path) -> int:
        key = (execution, node, encode_path(path))
        ((count,),) = self._database.reader.execute(CLAIMS_OF, key)
        return int(count)

    async def last_claims(self, execution: str) -> dict[tuple[int, Path], int]:
        rows = self._database.reader.execute(OPEN_CLAIMS, (execution, _RESULT))
        return {(node, decode_path(path)): last for node, path, _, last in rows}

    def next_fence(self) -> tuple[int, int]:
        """Return a fence that is higher than all earlier ones, including those of earlier owner processes."""
        return self._database.opened, next(self._fences)

    async def end(self, execution: str) -> ExecutionEnded | None:
        if execution not in self._final and execution not in self._numbers:
            await self.accepted(execution)
        return self._final.get(execution)

    async def ends_of(self, executions: Sequence[str]) -> dict[str, ExecutionEnded]:
        ends = {each: await self.end(each) for each in executions}
        return {execution: end for execution, end in ends.items() if end is not None}

    async def count_results(self) -> int:
        """Return the number of results in the file."""
        (count,) = self._database.reader.execute(
            "SELECT count(*) FROM fact WHERE kind = ?", (_RESULT,)
        ).fetchone()
        return int(count)

    def sleep_until(self, execution: str, when: int) -> asyncio.Future[Any]:
        """Store the wake-up time of an execution that is unloaded."""
        row = (when, self._number(execution))
        return self._database.submit(
            lambda db: db.execute("UPDATE execution SET wake_at = ? WHERE n = ? AND wake_at IS NOT NULL", row)
        )

    def has_undelivered_signal(self, execution: str) -> bool:
        """Return whether a signal or pause is recorded, or being recorded, that the state has not applied. Until it
        has, the execution must not be unloaded."""
        return execution in self._undelivered

    def mark_delivered(self, execution: str, fact: SignalReceived | PauseChanged) -> None:
        """Note that the state has applied a signal or pause."""
        undelivered = self._undelivered.get(execution, set())
        undelivered.discard(_fact_id(fact))
        if not undelivered:
            self._undelivered.pop(execution, None)

    def sleeps_with_next(self, execution: str, when: int) -> None:
        """Store the wake-up time of an execution together with the facts that are recorded next."""
        self._next_wake_at[execution] = when

    def waking(self, cursor: tuple[int, int], until: int, limit: int) -> list[tuple[int, int, str]]:
        """Return wake-up time, number and id of executions due after a cursor and up to a time."""
        return self._database.reader.execute(
            "SELECT wake_at, n, id FROM execution WHERE wake_at IS NOT NULL AND (wake_at, n) > (?, ?) AND wake_at <= ?"
            " ORDER BY wake_at, n LIMIT ?",
            (*cursor, until, limit),
        ).fetchall()

    def next_waking(self, cursor: tuple[int, int]) -> int | None:
        """Return the next wake-up time after a cursor."""
        row = self._database.reader.execute(
            "SELECT wake_at FROM execution WHERE wake_at IS NOT NULL AND (wake_at, n) > (?, ?)"
            " ORDER BY wake_at, n LIMIT 1",
            cursor,
        ).fetchone()
        return row[0] if row else None

    def forget(self, execution: str) -> None:
        """Remove an execution from the caches."""
        self._numbers.pop(execution, None)
        self._cached_from_file.pop(execution, None)
        self._ended.pop(execution, None)
        self._final.pop(execution, None)

    def _number(self, execution: str) -> int:
        number = self._numbers.get(execution)
        if number is None:
            row = self._database.reader.execute(
                "SELECT n, end FROM execution WHERE id = ?", (execution,)
            ).fetchone()
            if row is None:
                raise UnknownExecutionError(execution)
            number = self._cache_number(execution, *row)
        return number

    def _cache_number(self, execution: str, number: int, end: bytes | None) -> int:
        self._numbers[execution] = number
        self._cached_from_file[execution] = None
        if len(self._cached_from_file) > MAX_CACHED_IDS:
            self._uncache_number()
        if end is not None:
            self._ended[execution] = self._final[execution] = _END_DECODER.decode(end)
        return number

    def _uncache_number(self) -> None:
        """Evict the oldest id, unless its end is not durable yet."""
        oldest = next(iter(self._cached_from_file))
        del self._cached_from_file[oldest]
        if oldest in self._ended and oldest not in self._final:
            self._cached_from_file[oldest] = None
        else:
            self.forget(oldest)

    async def close(self) -> None:
        self._database.close()


def accept_row(
    db: sqlite3.Connection,
    execution: ExecutionRecord,
    row: tuple[Any, ...],
    facts: Sequence[Row],
    needed: Iterable[str],
    digest: bytes,
    held: AppliedLimits | None = None,
) -> ExecutionRecord | StartLimitError | None:
    """Write a start with an idempotency key, a parent, initial facts or limits.

    Return the execution that was started before under the same key or id, if there is one. A StartLimitError is
    returned, not raised: an exception would make the writer repeat the whole group one by one.
    """
    stored = db.execute("SELECT accepted FROM execution WHERE id = ?", (execution.id,)).fetchone()
    if stored is not None:
        return decode_record(stored[0])
    if execution.key is not None:
        earlier = _find_by_key(db, execution, execution.key, digest)
        if earlier is not None:
            return earlier
    if execution.parent is not None:
        _check_parent_open(db, execution.parent)
    refused = check_start_limits(db, execution, held) if held is not None else None
    if refused is not None:
        return refused
    if execution.key is not None:
        db.execute(_INSERT_KEY, (execution.key, execution.id, digest, execution.at))
    Start(row, start_terms(execution))(db)
    if execution.parent is not None:
        db.execute("UPDATE execution SET parent = ? WHERE n = ?", (execution.parent.execution, row[0]))
    insert_facts(db, facts)
    for needed_id in needed:
        _insert_need(db, execution.id, needed_id)
    return None


def _insert_need(db: sqlite3.Connection, execution: str, needed_id: str) -> None:
    """Protect an execution from removal while this one exists. It may have been removed since its facts were read."""
    if db.execute("SELECT 1 FROM execution WHERE id = ?", (needed_id,)).fetchone() is None:
        raise ExecutionRemovedError(f"{needed_id} was removed, and {execution} refers to its results")
    db.execute("INSERT INTO needs VALUES (?, ?)", (execution, needed_id))


def _find_by_key(
    db: sqlite3.Connection, execution: ExecutionRecord, key: str, digest: bytes
) -> ExecutionRecord | None:
    # An expired key can be reused even if retention has not deleted it yet.
    db.execute("DELETE FROM client_key WHERE key = ? AND expires <= ?", (key, execution.at))
    key_row = db.execute("SELECT execution, digest, expires FROM client_key WHERE key = ?", (key,)).fetchone()
    if key_row is not None:
        if key_row[1] != digest:
            raise key_conflict(key)
        if key_row[2] is not None:
            raise IdempotencyKeyExpiredError(key, key_row[0])
        stored = db.execute("SELECT accepted FROM execution WHERE id = ?", (key_row[0],)).fetchone()
        return decode_record(stored[0])
    return None


def _check_parent_open(db: sqlite3.Connection, parent: Parent) -> None:
    """Reject a child whose parent, or whose starting attempt, has ended. That end has cancelled the existing children,
    so nothing would cancel a later one."""
    row = db.execute("SELECT n, end FROM execution WHERE id = ?", (parent.execution,)).fetchone()
    if row is None or row[1] is not None:
        raise ExecutionEndedError(
            ExecutionEnded(0, "cancelled") if row is None else _END_DECODER.decode(row[1])
        )
    # Separate queries, so that each is one lookup in the primary key, however many facts the parent has.
    for kind, number in ((KINDS[NodeResult], 0), (KINDS[AttemptFailed], parent.attempt)):
        fact_key = (row[0], kind, parent.node, encode_path(parent.path), number)
        if db.execute(_IS_OVER, fact_key).fetchone() is not None:
            raise TokenEndedError(f"attempt {parent.attempt} of a node of {parent.execution} is over")


def children(db: sqlite3.Connection, parent: str) -> list[str]:
    rows = db.execute(
        "SELECT id FROM execution WHERE parent = ? AND told = 0 AND ended_at IS NULL ORDER BY n", (parent,)
    )
    return [row[0] for row in rows]


def unreported_children(db: sqlite3.Connection, limit: int) -> list[str]:
    rows = db.execute(
        "SELECT child.id FROM execution child LEFT JOIN execution parent ON parent.id = child.parent"
        " WHERE child.parent IS NOT NULL AND child.told = 0"
        " AND (child.ended_at IS NOT NULL OR parent.id IS NULL OR parent.ended_at IS NOT NULL) LIMIT ?",
        (limit,),
    )
    return [row[0] for row in rows]


def list_dead_letters(db: sqlite3.Connection, limit: int, after: str | None) -> list[DeadLetter]:
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
    changed = db.execute(
        "UPDATE dead_letter SET settled = ? WHERE execution = ? AND settled IS NULL", (how, letter)
    )
    return changed.rowcount > 0


def _insert_claim(db: sqlite3.Connection, row: tuple[Any, ...]) -> int:
    db.execute("INSERT OR IGNORE INTO claim VALUES (?, ?, ?, ?, ?)", row)
    (count,) = db.execute(
        "SELECT count(*) FROM claim WHERE execution = ? AND node = ? AND path = ?", row[:3]
    ).fetchone()
    return int(count)


def _no_write(db: sqlite3.Connection) -> None:
    """Write nothing: the caller waits for the writes that were submitted before."""


def _fact_id(fact: SignalReceived | PauseChanged) -> str | int:
    return fact.id if type(fact) is SignalReceived else fact.number


def _pause_status(fact: PauseChanged) -> str:
    return "paused" if fact.paused else "running"
