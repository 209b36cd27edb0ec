"""Facts as columns: what the write-once key is made of, and what is kept beside it.

Accepting: starts on their way into the journal, many of them in one act.

Recording: runs of facts on their way into the journal, many of them in one act.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from rune.adapters.postgres.batching import Batcher
from rune.adapters.postgres.database import Database, DatabaseRefusedError, Row, query
from rune.adapters.rows import LETTERS, references
from rune.codec.facts import decode_fact, encode_fact, encode_path, fact_columns
from rune.core.execution.fact import (
    AttemptFailed,
    ExecutionEnded,
    Fact,
    NodeResult,
    NodeSuspended,
    PauseChanged,
)
from rune.ports.access import FULL, RATE, RUNNING, AppliedLimits, start_limit_error
from rune.ports.journal import (
    ExecutionEndedError,
    ExecutionRecord,
    ExecutionRemovedError,
    IdempotencyConflictError,
    IdempotencyKeyExpiredError,
    Parent,
    StoreUnavailableError,
    TokenEndedError,
)

Columns = tuple[int, int, int, int | None, bytes, bytes]
"""Kind, node, number, due, path, body."""


def columns(fact: Fact) -> Columns:
    """The columns of a fact."""
    kind, node, path, number = fact_columns(fact)
    return kind, node, number, None if type(fact) is NodeResult else _due(fact), path, encode_fact(fact)


def _due(fact: Fact) -> int | None:
    """Not later than when the token has to be looked at again. When exactly an attempt is repeated, the plan knows."""
    if isinstance(fact, NodeSuspended):
        times = [each for each in (fact.due, fact.deadline) if each is not None]
        return min(times, default=None)
    if isinstance(fact, AttemptFailed):
        asked: Any = fact.failure.details.get("retry_at")
        return max(fact.at, asked) if type(asked) is int and asked < 1 << 62 else fact.at
    return None


def arrays(rows: Sequence[Columns]) -> list[str | list[bytes]]:
    """The same, column by column: kinds, nodes, numbers, dues, paths, bodies."""
    if not rows:
        return ["{}", "{}", "{}", "{}", [], []]
    kinds, nodes, numbers, dues, paths, bodies = zip(*rows, strict=True)
    return [integers(kinds), integers(nodes), integers(numbers), integers(dues), list(paths), list(bodies)]


def integers(values: Iterable[int | None]) -> str:
    """Numbers as the database reads a list of them."""
    return f"{{{','.join(map(str, values))}}}".replace("None", "NULL")


LANES = 2
MAX_STARTS = 128
MAX_BYTES = 4 * 1024 * 1024
SAVED_BYTES = 64 * 1024 * 1024
ACTIVATION_MS = 5_000
"""How long whoever accepted an execution has to open it before the relay does, in ms."""

RETRY_TIMEOUT_S, RETRY_DELAY_S = (
    10.0,
    0.1,
)  # s: how long somebody waits for an id to become free, and between two tries

ACCEPTED = msgspec.msgpack.Decoder(ExecutionRecord)
_END = msgspec.msgpack.Decoder(ExecutionEnded)
_PACK = msgspec.msgpack.Encoder()
_NO_PARENT = (None, None, None, None)


class MissingDefinitionError(Exception):
    """The definition was removed since it was saved."""


class DefinitionLeavingError(Exception):
    """Blobs of an execution that had this id are being removed: those of the next one must not be among them."""


class PendingStart:
    """One execution, and the facts it begins with."""

    __slots__ = ("body", "defined", "digest", "execution", "future", "needed", "rows", "size")

    def __init__(self, execution: ExecutionRecord, kept: Sequence[Fact], *, defined: bool) -> None:
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


def start_batch() -> Callable[[PendingStart], bool]:
    """A group: every id and every key once."""
    named: set[object] = set()
    size = 0

    def admits(start: PendingStart) -> bool:
        nonlocal size
        if not named.isdisjoint(start.names()) or (size and size + start.size > MAX_BYTES):
            return False
        named.update(start.names())
        size += start.size
        return True

    return admits


class StartWriter:
    """Writes starts in groups."""

    def __init__(self, database: Database, *, lanes: int = LANES) -> None:
        self._database = database
        self._groups: Batcher[PendingStart] = Batcher(self._write, start_batch, lanes=lanes, most=MAX_STARTS)
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
        self, execution: ExecutionRecord, kept: Sequence[Fact] = (), held: AppliedLimits | None = None
    ) -> ExecutionRecord:
        """Write a start; answers the execution that was started before under the same key or id."""
        until = time.monotonic() + RETRY_TIMEOUT_S
        while True:
            start = PendingStart(execution, kept, defined=execution.hash in self._saved)
            try:
                answer: ExecutionRecord
                if held is None:
                    answer = await self._groups.submit(start)
                else:
                    answer = await self._write_limited(start, held)
            except MissingDefinitionError:
                await self.save(execution.hash, self._saved[execution.hash])
                continue
            except DefinitionLeavingError:
                if time.monotonic() > until:
                    raise StoreUnavailableError(
                        f"what another execution had under the id {execution.id} is being removed"
                    ) from None
                await asyncio.sleep(RETRY_DELAY_S)
                continue
            return answer

    async def _write(self, group: Sequence[PendingStart]) -> list[Any]:
        rows = await self._database.fetch(self._statement, *_start_arguments(group), ACTIVATION_MS)
        verdicts = {row["start"]: row for row in rows}
        return [_start_answer(start, verdicts.get(number)) for number, start in enumerate(group, 1)]

    async def _write_limited(self, start: PendingStart, held: AppliedLimits) -> ExecutionRecord:
        """In an act of its own: the locks of limits are held until it is durable, and others must not wait for them."""
        given = _start_arguments([start])
        statement, subjects = query("accept_limited"), sorted(held.subjects)
        async with self._limited:
            rows = await self._database.fetch(statement, subjects, bool(held.full), *given, ACTIVATION_MS)
        row = rows[0] if rows else None
        if row is not None and row["verdict"] in (FULL, RATE, RUNNING):
            raise start_limit_error(row["verdict"], row["name"], row["pause"] or 0, held.full)
        answer = _start_answer(start, row)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def close(self) -> None:
        """Write what is under way, and take nothing more."""
        await self._groups.close()


def _start_arguments(group: Sequence[PendingStart]) -> list[Any]:
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
        (each.execution, each.node, encode_path(each.path), each.attempt) if each else _NO_PARENT
        for each in parents
    ]
    return [list(column) for column in zip(*rows, strict=True)]


def _digest(execution: ExecutionRecord) -> bytes:
    return hashlib.sha256(execution.hash.encode() + b"\0" + execution.input).digest()


def _start_answer(start: PendingStart, row: Row | None) -> ExecutionRecord | BaseException:
    execution = start.execution
    if row is None:
        return execution
    match row["verdict"]:
        case "known":
            return ACCEPTED.decode(row["answer"])
        case "conflict":
            return IdempotencyConflictError(
                f"key `{execution.key}` was used before with another payload or workflow"
            )
        case "spent":
            return IdempotencyKeyExpiredError(execution.key or "", row["name"])
        case "leaving":
            return DefinitionLeavingError(execution.id)
        case "undefined":
            return MissingDefinitionError(execution.hash)
        case "orphan":
            return ExecutionEndedError(
                ExecutionEnded(0, "cancelled") if row["answer"] is None else _END.decode(row["answer"])
            )
        case "over":
            return TokenEndedError(f"{execution.id} would be the child of an attempt that is over")
        case "gone":
            return ExecutionRemovedError(
                f"{row['name']} was removed, and {execution.id} would need its results"
            )
        case verdict:
            return DatabaseRefusedError(
                f"{execution.id}: the database answers `{verdict}`, which this Rune does not know"
            )


MAX_RUNS = 256
MAX_UNCONFIRMED = 10_000
MAX_CLAIMS = 10_000
MAX_ENDED = 1_000
TAKEN = 9
"""A row that is no fact: which fact has taken a signal, by the signal."""

_NOTHING: list[list[Any]] = [[], [], [], [], []]
_BASE = secrets.randbits(31)
_COUNTER = itertools.count()

Claim = tuple[str, int, bytes, int, int, int]
"""Execution, node, path, incarnation, fence, at."""


def new_mark() -> int:
    """Tells apart who wrote a row, among the few who could have."""
    return (_BASE + next(_COUNTER)) & 0x7FFFFFFF


class FactRun:
    """Facts of one execution that hang on their first."""

    __slots__ = ("ending", "execution", "facts", "future", "mark", "rows", "size", "status")

    def __init__(self, execution: str, facts: Sequence[Fact], mark: int) -> None:
        self.execution = execution
        self.facts = facts
        self.mark = mark
        self.rows: list[Columns] = list(map(columns, facts))
        head = facts[0]
        if (type(head) is NodeResult or type(head) is AttemptFailed) and head.signal is not None:
            # Two states of which one was lost may each have given a signal to another token: the first row keeps it.
            self.rows.insert(1, (TAKEN, -1, 0, None, head.signal.encode(), self.rows[0][5]))
        self.size = sum(map(_size, self.rows))
        self.ending: ExecutionEnded | None = None
        self.status: str | None = None
        last = facts[-1]
        if type(last) is ExecutionEnded:
            self.ending = last
            self.status = last.status
        elif type(last) is PauseChanged:
            self.status = "paused" if last.paused else "running"
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def names(self) -> Iterable[object]:
        return (self.execution,)


def _size(row: Columns) -> int:
    return len(row[5])


def fact_batch() -> Callable[[FactRun], bool]:
    """A group: nobody names a fact that another one names, and nobody comes behind a change of status."""
    facts: set[tuple[Any, ...]] = set()
    settled: set[str] = set()
    size = 0

    def admits(run: FactRun) -> bool:
        nonlocal size
        if run.execution in settled or (size and size + run.size > MAX_BYTES):
            return False
        named = [(run.execution, kind, node, number, path) for kind, node, number, _, path, _ in run.rows]
        if not facts.isdisjoint(named):
            return False
        facts.update(named)
        size += run.size
        if run.status is not None:
            settled.add(run.execution)
        return True

    return admits


class FactWriter:
    """Writes runs in groups. Claims that were made meanwhile go along."""

    def __init__(self, database: Database, *, lanes: int = LANES) -> None:
        self._database = database
        self._groups: Batcher[FactRun] = Batcher(self._write, fact_batch, lanes=lanes, most=MAX_RUNS)
        self._claims: list[Claim] = []
        self._unsure: dict[int, tuple[Fact, int]] = {}
        self.ended: dict[str, ExecutionEnded] = {}
        """The terminal rows that were written here last: whoever wrote one is about to ask for it, once."""
        self._statement = query("record")

    async def record(self, execution: str, facts: Sequence[Fact]) -> Sequence[Fact]:
        """Write a run. If the store goes away meanwhile it may or may not be written; who asks again with the same
        fact is told then that it was their own."""
        head = facts[0]
        known = self._unsure.pop(id(head), None)
        run = FactRun(execution, facts, known[1] if known is not None else new_mark())
        try:
            answer: Sequence[Fact] = await self._groups.submit(run)
        except StoreUnavailableError:
            self._remember(head, run.mark)
            raise
        if run.ending is not None and answer[-1] is run.ending:
            self._remember_end(execution, run.ending)
        return answer

    def _remember_end(self, execution: str, end: ExecutionEnded) -> None:
        if len(self.ended) >= MAX_ENDED:
            del self.ended[next(iter(self.ended))]
        self.ended[execution] = end

    def _remember(self, head: Fact, mark: int) -> None:
        while len(self._unsure) >= MAX_UNCONFIRMED:
            del self._unsure[next(iter(self._unsure))]
        self._unsure[id(head)] = (head, mark)  # holds the fact, so that the number stays its own

    def count_claim(self, claim: Claim) -> None:
        """A claim that goes along with whatever is written next."""
        self._claims.append(claim)

    async def _write(self, group: Sequence[FactRun]) -> list[Any]:
        claims, self._claims = self._claims, []
        try:
            rows = await self._database.fetch(self._statement, *_fact_arguments(group, claims))
        except StoreUnavailableError:
            self._claims = [*claims, *self._claims][:MAX_CLAIMS]
            raise
        verdicts = {row["run"]: row for row in rows}
        return [_fact_answer(run, verdicts.get(number)) for number, run in enumerate(group, 1)]

    async def close(self) -> None:
        """Write what is under way, and take nothing more."""
        await self._groups.close()
        if self._claims:
            await self._write([])


def _fact_arguments(group: Sequence[FactRun], claims: Sequence[Claim] = ()) -> list[Any]:
    runs: list[int] = []
    rows: list[Columns] = []
    settled: list[tuple[int, str, int | None, bytes | None, str | None]] = []
    for number, run in enumerate(group, 1):
        runs.extend([number] * len(run.rows))
        rows.extend(run.rows)
        if run.status is not None:
            end = run.ending
            ending = (end.at, _PACK.encode(end)) if end is not None else (None, None)
            settled.append((number, run.status, *ending, _dead_letter(end)))
    return [
        [run.execution for run in group],
        integers(run.mark for run in group),
        *([list(each) for each in zip(*settled, strict=True)] if settled else _NOTHING),
        integers(runs),
        *arrays(rows),
        *_claimed(claims),
    ]


def _claimed(claims: Sequence[Claim]) -> list[Any]:
    if not claims:
        return [[], "{}", [], "{}", "{}", "{}"]
    executions, nodes, paths, *numbers = zip(*claims, strict=True)
    return [list(executions), integers(nodes), list(paths), *map(integers, numbers)]


def _dead_letter(end: ExecutionEnded | None) -> str | None:
    error = end.error if end is not None else None
    return error.code if error is not None and error.code in LETTERS else None


def _fact_answer(run: FactRun, row: Row | None) -> Sequence[Fact] | BaseException:
    if row is None:
        return run.facts
    match row["verdict"]:
        case "unknown":
            return KeyError(run.execution)
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
                f"{run.execution}: the database answers `{verdict}`, which this Rune does not know"
            )
