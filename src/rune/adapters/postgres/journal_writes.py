"""Writes to the journal: starts of executions and runs of facts, batched into few transactions.

Each fact becomes the columns of its write-once key and its encoded body. Concurrent writers of one batch share one
round trip and one disk sync.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import msgspec

from rune.adapters.postgres.database import Database, DatabaseRefusedError, Row, query, splitting
from rune.adapters.rows import end_terms, references, run_terms, start_terms
from rune.batcher import Batcher
from rune.codec.facts import decode_fact, encode_fact, encode_path, fact_columns
from rune.codec.records import decode_record, encode_record, record_digest
from rune.core.execution.fact import (
    AttemptFailed,
    ExecutionEnded,
    ExecutionLate,
    Fact,
    NodeResult,
    NodeSuspended,
    PauseChanged,
)
from rune.ports.access import FULL, RATE, RUNNING, AppliedLimits, start_limit_error
from rune.ports.journal import (
    AnyFact,
    ExecutionEndedError,
    ExecutionRecord,
    ExecutionRemovedError,
    IdempotencyKeyExpiredError,
    Parent,
    StoreUnavailableError,
    TokenEndedError,
    UnknownExecutionError,
    dead_letter_code,
    key_conflict,
)

log = logging.getLogger("rune.postgres")

LANES = 2
MAX_STARTS = 128
MAX_RUNS = 256
MAX_BATCH_BYTES = 4 * 1024 * 1024
MAX_SAVED_BYTES = 64 * 1024 * 1024
MAX_UNCONFIRMED = 10_000
MAX_CLAIMS = 10_000
CLAIM_DELAY_S = 1.0  # after which a claim is written without facts
MAX_ENDED = 1_000

ACTIVATION_MS = 5_000
"""How long the process that accepted an execution has to activate it before the outbox relay does."""

ID_RELEASE_TIMEOUT_S = 10.0
"""How long a start waits for its id while blobs of an earlier execution with this id are deleted."""

ID_RELEASE_POLL_S = 0.1

TAKEN_SIGNAL = 9
"""Kind of a row that is no fact: it records which fact consumed a signal, keyed by the signal."""

_END = msgspec.msgpack.Decoder(ExecutionEnded)
_PACK = msgspec.msgpack.Encoder()
_NO_PARENT = (None, None, None, None)
_NO_END = (None, None, None)
_NO_STATUS_CHANGES: list[list[Any]] = [[], [], [], [], []]
_FIRST_MARK = secrets.randbits(31)
_MARK_COUNTER = itertools.count()

Columns = tuple[int, int, int, int | None, bytes, bytes]
"""Kind, node, number, due, path, body."""

Claim = tuple[str, int, bytes, int, int, int]
"""Execution, node, path, server run, fence, at."""


def columns(fact: Fact) -> Columns:
    kind, node, path, number = fact_columns(fact)
    return kind, node, number, None if type(fact) is NodeResult else _due(fact), path, encode_fact(fact)


def _due(fact: Fact) -> int | None:
    """Return a lower bound of when the token is due again; the exact time of a retry depends on the plan."""
    if isinstance(fact, NodeSuspended):
        times = [each for each in (fact.due, fact.deadline) if each is not None]
        return min(times, default=None)
    if isinstance(fact, AttemptFailed):
        retry_at: Any = fact.failure.details.get("retry_at")
        return max(fact.at, retry_at) if type(retry_at) is int and retry_at < 1 << 62 else fact.at
    return None


def arrays(rows: Sequence[Columns]) -> list[str | list[bytes]]:
    """Return rows column by column: kinds, nodes, numbers, dues, paths, bodies."""
    if not rows:
        return ["{}", "{}", "{}", "{}", [], []]
    kinds, nodes, numbers, dues, paths, bodies = zip(*rows, strict=True)
    return [integers(kinds), integers(nodes), integers(numbers), integers(dues), list(paths), list(bodies)]


def integers(values: Iterable[int | None]) -> str:
    """Return integers as the text of a PostgreSQL array, which is faster than encoding them one by one."""
    return f"{{{','.join(map(str, values))}}}".replace("None", "NULL")


class MissingDefinitionError(Exception):
    """The definition was removed since it was saved."""


class IdBeingReleasedError(Exception):
    """Blobs of a removed execution with this id are still being deleted; blobs of a new one would be deleted too."""


class PendingStart:
    """A start in a batch: the execution and its initial facts."""

    __slots__ = ("body", "defined", "digest", "execution", "needed", "rows", "size", "terms")

    def __init__(
        self, execution: ExecutionRecord, kept: Sequence[Fact], digest: bytes | None = None, *, defined: bool
    ) -> None:
        self.execution = execution
        self.body = encode_record(execution)
        self.defined = defined
        self.digest = None if execution.key is None else digest or record_digest(execution)
        self.rows: list[Columns] = [columns(fact) for fact in kept]
        self.needed = sorted(references(execution, kept))
        self.terms = start_terms(execution)
        self.size = len(self.body) + sum(len(row[5]) for row in self.rows)

    def names(self) -> Iterable[object]:
        if self.execution.key is None:
            return (self.execution.id,)
        return self.execution.id, (self.execution.key,)


def start_batch() -> Callable[[PendingStart], bool]:
    """Return the admission rule of a batch: every id and every idempotency key at most once, bounded in bytes."""
    named: set[object] = set()
    size = 0

    def admits(start: PendingStart) -> bool:
        nonlocal size
        if not named.isdisjoint(start.names()) or (size and size + start.size > MAX_BATCH_BYTES):
            return False
        named.update(start.names())
        size += start.size
        return True

    return admits


class StartWriter:
    """Writes starts in batches."""

    def __init__(self, database: Database, *, lanes: int = LANES) -> None:
        self._database = database
        self._batches: Batcher[PendingStart, ExecutionRecord] = Batcher(
            splitting(self._write),
            max_requests=MAX_STARTS,
            lanes=lanes,
            new_batch=start_batch,
            names=PendingStart.names,
        )
        self._saved: OrderedDict[str, bytes] = OrderedDict()
        self._saved_bytes = 0
        self._statement = query("accept")
        # Limited starts block each other on row locks; without a bound they would take every connection of the pool.
        self._limited = asyncio.Semaphore(lanes)

    @property
    def saved(self) -> Iterable[str]:
        """Hashes of definitions that this process saved and may still start executions of."""
        return self._saved.keys()

    async def save(self, hash: str, canonical: bytes) -> None:
        """Store a definition. It is also cached, because another process may remove it before the first execution
        references it."""
        if hash not in self._saved:
            self._saved[hash] = canonical
            self._saved_bytes += len(canonical)
        self._saved.move_to_end(hash)
        while self._saved_bytes > MAX_SAVED_BYTES and len(self._saved) > 1:
            _, dropped = self._saved.popitem(last=False)
            self._saved_bytes -= len(dropped)
        await self._database.fetch(query("save_definition"), hash, canonical)

    async def accept(
        self,
        execution: ExecutionRecord,
        kept: Sequence[Fact] = (),
        held: AppliedLimits | None = None,
        digest: bytes | None = None,
    ) -> ExecutionRecord:
        """Write a start and return its execution, or the one that was accepted before with the same key or id."""
        deadline = time.monotonic() + ID_RELEASE_TIMEOUT_S
        while True:
            start = PendingStart(execution, kept, digest, defined=execution.hash in self._saved)
            try:
                accepted: ExecutionRecord
                if held is None:
                    accepted = await self._batches.submit(start)
                else:
                    accepted = await self._write_limited(start, held)
            except MissingDefinitionError:
                await self.save(execution.hash, self._saved[execution.hash])
                continue
            except IdBeingReleasedError:
                if time.monotonic() > deadline:
                    raise StoreUnavailableError(
                        f"blobs of a removed execution with the id {execution.id} are still being deleted"
                    ) from None
                await asyncio.sleep(ID_RELEASE_POLL_S)
                continue
            return accepted

    async def _write(self, group: Sequence[PendingStart]) -> list[Any]:
        arguments = [*_start_arguments(group), ACTIVATION_MS]
        statement = self._statement
        if any(start.terms for start in group):
            statement = query("accept_with_terms")
            arguments += _term_columns([start.terms for start in group])
        rows = await self._database.fetch(statement, *arguments)
        verdicts = {row["start"]: row for row in rows}
        return [_start_result(start, verdicts.get(number)) for number, start in enumerate(group, 1)]

    async def _write_limited(self, start: PendingStart, held: AppliedLimits) -> ExecutionRecord:
        """Write one start in its own transaction, because limits stay locked until it is durable and starts without
        limits must not wait for them."""
        arguments = [sorted(held.subjects), bool(held.full), *_start_arguments([start]), ACTIVATION_MS]
        statement = query("accept_limited")
        if start.terms:
            statement = query("accept_limited_with_terms")
            arguments += _term_columns([start.terms])
        async with self._limited:
            rows = await self._database.fetch(statement, *arguments)
        row = rows[0] if rows else None
        if row is not None and row["verdict"] in (FULL, RATE, RUNNING):
            raise start_limit_error(row["verdict"], row["name"], row["pause"] or 0, held.full)
        result = _start_result(start, row)
        if isinstance(result, BaseException):
            raise result
        return result

    async def close(self) -> None:
        """Write pending starts and reject new ones."""
        await self._batches.close()


def _start_arguments(group: Sequence[PendingStart]) -> list[Any]:
    executions = [start.execution for start in group]
    needs = [(number, needed) for number, start in enumerate(group, 1) for needed in start.needed]
    return [
        [execution.id for execution in executions],
        [execution.workflow for execution in executions],
        [execution.hash for execution in executions],
        [execution.at for execution in executions],
        [start.body for start in group],
        [execution.key for execution in executions],
        [start.digest for start in group],
        *_parents([execution.parent for execution in executions]),
        [start.defined for start in group],
        [number for number, _ in needs],
        [needed for _, needed in needs],
        [number for number, start in enumerate(group, 1) for _ in start.rows],
        *arrays([row for start in group for row in start.rows]),
    ]


def _term_columns(group: Sequence[Sequence[str]]) -> list[Any]:
    """Return which element of a group each term belongs to, from 1, and the terms."""
    rows = [(number, term) for number, terms in enumerate(group, 1) for term in terms]
    return [[number for number, _ in rows], [term for _, term in rows]]


def _parents(parents: Sequence[Parent | None]) -> list[list[Any]]:
    """Return the columns of parent tokens: execution, node, path and attempt."""
    rows = [
        (parent.execution, parent.node, encode_path(parent.path), parent.attempt) if parent else _NO_PARENT
        for parent in parents
    ]
    return [list(column) for column in zip(*rows, strict=True)]


def _start_result(start: PendingStart, row: Row | None) -> ExecutionRecord | BaseException:
    execution = start.execution
    if row is None:
        return execution
    match row["verdict"]:
        case "known":
            return decode_record(row["answer"])
        case "conflict":
            return key_conflict(execution.key or "")
        case "spent":
            return IdempotencyKeyExpiredError(execution.key or "", row["name"])
        case "leaving":
            return IdBeingReleasedError(execution.id)
        case "undefined":
            return MissingDefinitionError(execution.hash)
        case "orphan":
            return ExecutionEndedError(
                ExecutionEnded(0, "cancelled") if row["answer"] is None else _END.decode(row["answer"])
            )
        case "over":
            return TokenEndedError(f"{execution.id} would be the child of an attempt that has ended")
        case "gone":
            return ExecutionRemovedError(
                f"{row['name']} was removed, and {execution.id} would need its results"
            )
        case verdict:
            return DatabaseRefusedError(
                f"{execution.id}: the database returned `{verdict}`, which this Rune does not know"
            )


def new_mark() -> int:
    """Return a number that tells whether a row was written by this run of facts or by another writer."""
    return (_FIRST_MARK + next(_MARK_COUNTER)) & 0x7FFFFFFF


class FactRun:
    """Facts of one execution that are written only if the first of them is new."""

    __slots__ = ("ending", "execution", "facts", "hooked", "late_at", "mark", "rows", "size", "status")

    def __init__(self, execution: str, facts: Sequence[Fact], mark: int, *, hooked: bool = False) -> None:
        self.execution = execution
        self.hooked = hooked
        self.facts = facts
        self.mark = mark
        self.rows: list[Columns] = list(map(columns, facts))
        head = facts[0]
        if (type(head) is NodeResult or type(head) is AttemptFailed) and head.signal is not None:
            # A state and the one rebuilt after its loss may give a signal to different tokens: the first row wins.
            self.rows.insert(1, (TAKEN_SIGNAL, -1, 0, None, head.signal.encode(), self.rows[0][5]))
        self.size = sum(map(_size, self.rows))
        self.ending: ExecutionEnded | None = None
        self.status: str | None = None
        self.late_at: int | None = None
        last = facts[-1]
        if type(last) is ExecutionEnded:
            self.ending = last
            self.status = last.status
        elif type(last) is PauseChanged:
            self.status = "paused" if last.paused else "running"
        elif type(last) is ExecutionLate:
            self.late_at = last.at

    def names(self) -> Iterable[object]:
        return (self.execution,)


def _size(row: Columns) -> int:
    return len(row[5])


def fact_batch() -> Callable[[FactRun], bool]:
    """Return the admission rule of a batch: no fact twice, and no run after a status change of its execution."""
    facts: set[tuple[Any, ...]] = set()
    settled: set[str] = set()
    size = 0

    def admits(run: FactRun) -> bool:
        nonlocal size
        if run.execution in settled or (size and size + run.size > MAX_BATCH_BYTES):
            return False
        keys = [(run.execution, kind, node, number, path) for kind, node, number, _, path, _ in run.rows]
        if not facts.isdisjoint(keys):
            return False
        facts.update(keys)
        size += run.size
        if run.status is not None:
            settled.add(run.execution)
        return True

    return admits


class FactWriter:
    """Writes runs of facts in batches, together with the claims counted since the last batch."""

    def __init__(self, database: Database, *, lanes: int = LANES) -> None:
        self._database = database
        self._batches: Batcher[FactRun, Sequence[Fact]] = Batcher(
            splitting(self._write),
            max_requests=MAX_RUNS,
            lanes=lanes,
            new_batch=fact_batch,
            names=FactRun.names,
        )
        self._claims: list[Claim] = []
        self._flush: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._unconfirmed: dict[int, tuple[Fact, int]] = {}
        self.ended: dict[str, ExecutionEnded] = {}
        """Terminal rows written last by this process; its finisher reads each of them once."""
        self._statement = query("record")

    async def record(
        self, execution: str, facts: Sequence[AnyFact], *, hooked: bool = False
    ) -> Sequence[AnyFact]:
        """Write a run of facts and return the facts that are stored. If the store becomes unavailable, the run may or
        may not have been written; a retry with the same fact object recognises its own rows."""
        run = self._run(execution, facts, hooked=hooked)
        try:
            stored = await self._batches.submit(run)
        except StoreUnavailableError:
            self._remember_mark(facts[0], run.mark)
            raise
        if run.ending is not None and stored[-1] is run.ending:
            self._remember_end(execution, run.ending)
        return cast("Sequence[AnyFact]", stored)

    async def record_all(
        self, execution: str, runs: Sequence[Sequence[AnyFact]]
    ) -> list[Sequence[AnyFact] | BaseException]:
        """Write several runs, none of which ends the execution; the batches write them together."""
        fact_runs = [self._run(execution, facts) for facts in runs]
        answers = await asyncio.gather(*map(self._batches.submit, fact_runs), return_exceptions=True)
        for run, answer in zip(fact_runs, answers, strict=True):
            if isinstance(answer, StoreUnavailableError):
                self._remember_mark(run.facts[0], run.mark)
        return cast("list[Sequence[AnyFact] | BaseException]", answers)

    def _run(self, execution: str, facts: Sequence[Fact], *, hooked: bool = False) -> FactRun:
        entry = self._unconfirmed.pop(id(facts[0]), None)
        return FactRun(execution, facts, entry[1] if entry is not None else new_mark(), hooked=hooked)

    def _remember_end(self, execution: str, end: ExecutionEnded) -> None:
        if len(self.ended) >= MAX_ENDED:
            del self.ended[next(iter(self.ended))]
        self.ended[execution] = end

    def _remember_mark(self, head: Fact, mark: int) -> None:
        while len(self._unconfirmed) >= MAX_UNCONFIRMED:
            del self._unconfirmed[next(iter(self._unconfirmed))]
        # The entry references the fact, so that its id() is not reused.
        self._unconfirmed[id(head)] = (head, mark)

    def count_claim(self, claim: Claim) -> None:
        """Queue a claim to be written with the next batch, or alone if there is none for a while: an execution that
        another process ends shows the nodes that had begun."""
        self._claims.append(claim)
        if self._flush is None:
            self._flush = asyncio.get_running_loop().call_later(CLAIM_DELAY_S, self._flush_claims, claim)

    def _flush_claims(self, oldest: Claim) -> None:
        """Write the claims if no batch has taken the oldest of them."""
        self._flush = None
        if not self._claims:
            return
        if self._claims[0] is oldest:
            self._flushing = asyncio.create_task(self._write_claims())
        else:
            loop = asyncio.get_running_loop()
            self._flush = loop.call_later(CLAIM_DELAY_S, self._flush_claims, self._claims[0])

    async def _write_claims(self) -> None:
        try:
            await self._write([])
        except StoreUnavailableError as error:
            log.info("claims are written later: %s", error.message)

    async def _write(self, group: Sequence[FactRun]) -> list[Any]:
        claims, self._claims = self._claims, []
        try:
            statement, arguments = self._statement, _fact_arguments(group, claims)
            terms = [run_terms(run.facts) if run.ending is None else end_terms(run.ending) for run in group]
            late = [(number, run.late_at) for number, run in enumerate(group, 1) if run.late_at is not None]
            if any(terms) or late:
                statement = query("record_with_terms")
                arguments += _term_columns(terms)
            if late:
                statement = query("record_late")
                arguments += map(list, zip(*late, strict=True))
            rows = await self._database.fetch(statement, *arguments)
        except StoreUnavailableError:
            self._claims = [*claims, *self._claims][:MAX_CLAIMS]
            raise
        verdicts = {row["run"]: row for row in rows}
        return [_fact_result(run, verdicts.get(number)) for number, run in enumerate(group, 1)]

    async def close(self) -> None:
        """Write pending facts and claims and reject new ones."""
        if self._flush is not None:
            self._flush.cancel()
        await self._batches.close()
        if self._flushing is not None:
            await self._flushing
        if self._claims:
            await self._write([])


def _fact_arguments(group: Sequence[FactRun], claims: Sequence[Claim] = ()) -> list[Any]:
    runs: list[int] = []
    rows: list[Columns] = []
    changes: list[tuple[int, str, int | None, bytes | None, str | None]] = []
    for number, run in enumerate(group, 1):
        runs.extend([number] * len(run.rows))
        rows.extend(run.rows)
        if run.status is not None:
            end = run.ending
            ending = (end.at, _PACK.encode(end), dead_letter_code(end)) if end is not None else _NO_END
            changes.append((number, run.status, *ending))
    return [
        [run.execution for run in group],
        integers(run.mark for run in group),
        *([list(column) for column in zip(*changes, strict=True)] if changes else _NO_STATUS_CHANGES),
        integers(runs),
        *arrays(rows),
        *_claim_columns(claims),
        integers(number for number, run in enumerate(group, 1) if run.hooked),
    ]


def _claim_columns(claims: Sequence[Claim]) -> list[Any]:
    if not claims:
        return [[], "{}", [], "{}", "{}", "{}"]
    executions, nodes, paths, *numbers = zip(*claims, strict=True)
    return [list(executions), integers(nodes), list(paths), *map(integers, numbers)]


def _fact_result(run: FactRun, row: Row | None) -> Sequence[Fact] | BaseException:
    if row is None:
        return run.facts
    match row["verdict"]:
        case "unknown":
            return UnknownExecutionError(run.execution)
        case "stored":
            return [decode_fact(row["answer"])]
        case "ended":
            return ExecutionEndedError(_END.decode(row["answer"]))
        case "mine" if row["answer"] is not None:
            return ExecutionEndedError(_END.decode(row["answer"]))
        case "mine":
            return run.facts if row["whole"] else run.facts[:1]
        case "head":
            return run.facts[:1]
        case verdict:
            return DatabaseRefusedError(
                f"{run.execution}: the database returned `{verdict}`, which this Rune does not know"
            )
