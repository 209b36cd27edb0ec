"""Recording: runs of facts on their way into the journal, many of them in one act."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from rune.adapters.postgres.columns import Columns, arrays, columns, integers
from rune.adapters.postgres.database import Database, Row
from rune.adapters.postgres.failing import Refused
from rune.adapters.postgres.grouping import Groups
from rune.adapters.postgres.sql import query
from rune.adapters.rowforms import LETTERS
from rune.core.fact import Attempt, Control, End, Fact, Result
from rune.ports.journal import Ended, StoreAway
from rune.wire.codec import decode_fact

LANES = 2
MOST_RUNS = 256
MOST_BYTES = 4 * 1024 * 1024
MOST_UNSURE = 10_000
MOST_CLAIMS = 10_000
MOST_ENDED = 1_000
TAKEN = 9
"""A row that is no fact: which fact has taken a signal, by the signal."""

_END = msgspec.msgpack.Decoder(End)
_PACK = msgspec.msgpack.Encoder()
_NOTHING: list[list[Any]] = [[], [], [], [], []]
_BASE = secrets.randbits(31)
_COUNTER = itertools.count()

Claim = tuple[str, int, bytes, int, int, int]
"""Execution, node, path, incarnation, fence, at."""


def new_mark() -> int:
    """Tells apart who wrote a row, among the few who could have."""
    return (_BASE + next(_COUNTER)) & 0x7FFFFFFF


class Run:
    """Facts of one execution that hang on their first."""

    __slots__ = ("ending", "execution", "facts", "future", "mark", "rows", "size", "status")

    def __init__(self, execution: str, facts: Sequence[Fact], mark: int) -> None:
        self.execution = execution
        self.facts = facts
        self.mark = mark
        self.rows: list[Columns] = list(map(columns, facts))
        head = facts[0]
        if (type(head) is Result or type(head) is Attempt) and head.signal is not None:
            # Two states of which one was lost may each have given a signal to another token: the first row keeps it.
            self.rows.insert(1, (TAKEN, -1, 0, None, head.signal.encode(), self.rows[0][5]))
        self.size = sum(map(_size, self.rows))
        self.ending: End | None = None
        self.status: str | None = None
        last = facts[-1]
        if type(last) is End:
            self.ending = last
            self.status = last.status
        elif type(last) is Control:
            self.status = "paused" if last.paused else "running"
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def names(self) -> Iterable[object]:
        return (self.execution,)


def _size(row: Columns) -> int:
    return len(row[5])


def gathering() -> Callable[[Run], bool]:
    """A group: nobody names a fact that another one names, and nobody comes behind a change of status."""
    facts: set[tuple[Any, ...]] = set()
    settled: set[str] = set()
    size = 0

    def admits(run: Run) -> bool:
        nonlocal size
        if run.execution in settled or (size and size + run.size > MOST_BYTES):
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


class Recorder:
    """Writes runs in groups. Claims that were made meanwhile go along."""

    def __init__(self, database: Database, *, lanes: int = LANES) -> None:
        self._database = database
        self._groups: Groups[Run] = Groups(self._write, gathering, lanes=lanes, most=MOST_RUNS)
        self._claims: list[Claim] = []
        self._unsure: dict[int, tuple[Fact, int]] = {}
        self.ended: dict[str, End] = {}
        """The terminal rows that were written here last: whoever wrote one is about to ask for it, once."""
        self._statement = query("record")

    async def record(self, execution: str, facts: Sequence[Fact]) -> Sequence[Fact]:
        """Write a run. If the store goes away meanwhile it may or may not be written; who asks again with the same
        fact is told then that it was their own."""
        head = facts[0]
        known = self._unsure.pop(id(head), None)
        run = Run(execution, facts, known[1] if known is not None else new_mark())
        try:
            answer: Sequence[Fact] = await self._groups.submit(run)
        except StoreAway:
            self._remember(head, run.mark)
            raise
        if run.ending is not None and answer[-1] is run.ending:
            self._remember_end(execution, run.ending)
        return answer

    def _remember_end(self, execution: str, end: End) -> None:
        if len(self.ended) >= MOST_ENDED:
            del self.ended[next(iter(self.ended))]
        self.ended[execution] = end

    def _remember(self, head: Fact, mark: int) -> None:
        while len(self._unsure) >= MOST_UNSURE:
            del self._unsure[next(iter(self._unsure))]
        self._unsure[id(head)] = (head, mark)  # holds the fact, so that the number stays its own

    def claimed(self, claim: Claim) -> None:
        """A claim that goes along with whatever is written next."""
        self._claims.append(claim)

    async def _write(self, group: Sequence[Run]) -> list[Any]:
        claims, self._claims = self._claims, []
        try:
            rows = await self._database.fetch(self._statement, *_arguments(group, claims))
        except StoreAway:
            self._claims = [*claims, *self._claims][:MOST_CLAIMS]
            raise
        verdicts = {row["run"]: row for row in rows}
        return [_answer(run, verdicts.get(number)) for number, run in enumerate(group, 1)]

    async def close(self) -> None:
        """Write what is under way, and take nothing more."""
        await self._groups.close()
        if self._claims:
            await self._write([])


def _arguments(group: Sequence[Run], claims: Sequence[Claim] = ()) -> list[Any]:
    runs: list[int] = []
    rows: list[Columns] = []
    settled: list[tuple[int, str, int | None, bytes | None, str | None]] = []
    for number, run in enumerate(group, 1):
        runs.extend([number] * len(run.rows))
        rows.extend(run.rows)
        if run.status is not None:
            end = run.ending
            ending = (end.at, _PACK.encode(end)) if end is not None else (None, None)
            settled.append((number, run.status, *ending, _letter(end)))
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


def _letter(end: End | None) -> str | None:
    error = end.error if end is not None else None
    return error.code if error is not None and error.code in LETTERS else None


def _answer(run: Run, row: Row | None) -> Sequence[Fact] | BaseException:
    if row is None:
        return run.facts
    match row["verdict"]:
        case "unknown":
            return KeyError(run.execution)
        case "stored":
            return [decode_fact(row["answer"])]
        case "ended":
            return Ended(_END.decode(row["answer"]))
        case "mine" if row["answer"] is not None:
            return Ended(_END.decode(row["answer"]))
        case "mine":
            return run.facts if row["whole"] else run.facts[:1]
        case "head":
            return run.facts[:1]
        case verdict:
            return Refused(
                f"{run.execution}: the database answers `{verdict}`, which this Rune does not know"
            )
