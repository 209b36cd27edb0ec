"""The states of all nodes, edges and items of one execution, folded from its facts into a few bytes per item.

This is the one fold for display: the counts of `runtime.queries.counts` are sums over it, and every screen, roll-up and
progress display shows those. Facts may be added in any order and repeatedly. Nothing is decided from it.

The facts of an execution with 100,000 items are read once; afterwards only new ones are. An overview of an ended
execution can be encoded, so that it is not computed again. Skipped nodes have no facts, they follow from the results
around them; items with the same outcomes have the same states, so each combination, the shape of an item, is computed
once. The items of each shape are counted again only where facts were added.

The items of a split are sent as one byte each: state, error code, duration or attempts, of the item or of a node in
it.
"""

from __future__ import annotations

import math
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Literal, TypeVar

import msgspec

from rune.core.execution.fact import (
    CHILD_SIGNAL,
    AttemptFailed,
    EffectStarted,
    ExecutionEnded,
    Fact,
    NodeResult,
    NodeSuspended,
    PauseChanged,
    RaceWinner,
)
from rune.core.execution.retry import retry_due
from rune.core.execution.token import ROOT, Path, token_name, within
from rune.core.plan.model import Plan
from rune.ports.journal import StoredFact
from rune.runtime.queries.scope_states import (
    CANCELLED,
    FAILED,
    FIXED_OUTCOMES,
    NOT_REACHED,
    OPENED,
    PENDING,
    QUEUED,
    RETRYING,
    RUNNING,
    SKIPPED,
    SUCCESS,
    WAITING,
    Outcome,
    ScopeStates,
    states_of,
)

FORMAT = 3
MAX_OUTCOMES = 255
MAX_CODES = 65_535
MAX_MS = 2**32 - 2
MAX_FAILURES = 10  # that are listed for each split
NESTED, NESTED_OPEN, NESTED_FAILED = 1, 2, 4
"""What an item shows of a split inside it: it has fanned out, items of it are not done, items of it have failed."""

FIRST_RESULT = len(FIXED_OUTCOMES)
"""Outcomes from this number on are results."""

RATE_WINDOW_S = 10
CHANGED_SHARE = 4
"""If more than one of so many items of a split have changed, all are counted, otherwise those one by one."""


class Run(msgspec.Struct, array_like=True):
    """The run of a node outside of items, or a run inside an item that has not ended."""

    attempts: int = 0
    began: int = 0
    ended: int = 0
    due: int | None = None
    code: str = ""
    signal: str | None = None
    since: int = 0  # when it began to wait
    latest: int = 0  # time of the newest fact about it


class Failure(msgspec.Struct, frozen=True, array_like=True):
    """A node that failed in one item."""

    node: int
    path: Path
    code: str
    message: str


class Column(msgspec.Struct):
    """One node in all items of a table: an outcome, a duration, a number of attempts and an error code for each."""

    outcomes: bytearray
    durations: array[int]
    attempts: bytearray
    codes: array[int]


class Items:
    """The items of one split in one lineage. `path` is the scope of the split."""

    def __init__(self, split: int, path: Path, nodes: Sequence[int], nested: Sequence[int]) -> None:
        self.split = split
        self.path = path
        self.count = 0
        self.nodes = tuple(nodes)
        self.nested = tuple(nested)
        self.columns = {node: Column(bytearray(), array("I"), bytearray(), array("H")) for node in nodes}
        self.starts: array[int] = array("I")  # ms after the start of the execution, plus one; 0: not started
        self.ends: array[int] = array("I")
        self.packed: dict[tuple[str, int | None], tuple[int, bytes]] = {}
        """Bytes of the items by what they show, with the number of the overview that they are of."""
        self.shapes: array[int] = array("I")
        """The shape of each item, as of the last count."""
        self.shape_counts: Counter[int] = Counter()
        self.changed = bytearray()
        """A 1 for each item whose outcomes have changed since the last count; the item may be new."""

    def take_changed(self) -> list[int] | None:
        """Return the items that changed since the last count; None: count all."""
        changed, self.changed = self.changed, bytearray(self.count)
        if changed.count(1) > self.count // CHANGED_SHARE:
            return None
        found: list[int] = []
        item = changed.find(1)
        while item >= 0:
            found.append(item)
            item = changed.find(1, item + 1)
        return found

    def grow(self, count: int) -> None:
        """Make room for a number of items."""
        added = count - self.count
        if added <= 0:
            return
        self.count = count
        self.changed.extend(b"\1" * added)
        for column in self.columns.values():
            column.outcomes.extend(bytes(added))
            column.durations.extend(array("I", bytes(4 * added)))
            column.attempts.extend(bytes(added))
            column.codes.extend(array("H", bytes(2 * added)))
        self.starts.extend(array("I", bytes(4 * added)))
        self.ends.extend(array("I", bytes(4 * added)))


class Overview:
    """The overview of one execution up to an event. `last` is the number of the last fact that it includes."""

    def __init__(self, plan: Plan, started_at: int) -> None:
        self.plan = plan
        self.started_at = started_at
        self.number = 1
        self.last = 0
        self.end: ExecutionEnded | None = None
        self.paused = False
        self.codes: list[str] = [""]
        self.failures: dict[int, list[Failure]] = {}
        self._outcomes: list[Outcome] = list(FIXED_OUTCOMES)
        self._outcome_ids: dict[tuple[str, str | None, bool], int] = {}
        self._code_ids: dict[str, int] = {"": 0}
        self._root: dict[int, int] = {}  # node outside of items -> outcome
        self._runs: dict[tuple[int, Path], Run] = {}
        self._tables: dict[tuple[int, Path], Items] = {}
        self._shapes: list[ScopeStates] = []
        self._shape_ids: dict[tuple[int, tuple[int, ...]], int] = {}
        self._pauses = -1  # number of the newest change of the pause
        self._seconds: dict[int, dict[int, int]] = {}  # split -> second -> results, of the newest seconds
        self._bodies = _bodies(plan)

    def add(self, stored: StoredFact) -> None:
        """Add a fact. `number` and `last` are meaningful if facts are added in commit order."""
        self.number += 1
        self.last = stored.number
        if stored.late:
            self._add_late(stored.fact)
        else:
            self.add_fact(stored.fact)

    def add_fact(self, fact: Fact) -> None:
        """Add a fact that was not recorded after the end."""
        if isinstance(fact, NodeResult):
            self._add_result(fact)
        elif isinstance(fact, AttemptFailed | NodeSuspended | EffectStarted | RaceWinner):
            self._add_progress(fact)
        elif isinstance(fact, ExecutionEnded):
            self.end = self.end or fact
        elif isinstance(fact, PauseChanged) and fact.number >= self._pauses:
            self._pauses, self.paused = fact.number, fact.paused

    def _add_late(self, fact: Fact) -> None:
        """Add a fact that was recorded after the end. It shows that its node had begun, which is all that counts."""
        if isinstance(fact, NodeResult | AttemptFailed | NodeSuspended | EffectStarted):
            key = (fact.node, fact.path)
            if self._outcome(*key) in (0, OPENED):
                began = fact.at if isinstance(fact, EffectStarted) else fact.began or fact.at
                self._set(*key, RUNNING)
                self._runs[key] = Run(attempts=fact.attempt, began=began, ended=fact.at, latest=fact.at)

    def has_ended(self, node: int, path: Path) -> bool:
        """Whether the result of a node is recorded."""
        return self._outcome(node, path) >= FIRST_RESULT

    def _add_result(self, fact: NodeResult) -> None:
        if fact.items is not None:
            self._table(fact.node, fact.path).grow(fact.items)
        key_of_outcome = (fact.status, fact.outlet, fact.items == 0)
        outcome = self._outcome_ids.get(key_of_outcome)
        if outcome is None:
            outcome = self._new_outcome(key_of_outcome)
        if fact.path:
            self._add_to_item(fact, outcome)
        elif self._root.get(fact.node, 0) < FIRST_RESULT:
            self._root[fact.node] = outcome
            run = self._runs.setdefault((fact.node, ROOT), Run())
            run.began = _earlier(fact.began or fact.at, run.began)
            run.attempts, run.ended, run.due = fact.attempt, fact.at, None
            run.code = "" if fact.failure is None else fact.failure.code

    def _add_to_item(self, fact: NodeResult, outcome: int) -> None:
        """Add a result inside an item. Nearly all facts of a large execution are such results: it takes few steps."""
        items, item = self._cell(fact.path)
        column = items.columns.get(fact.node)
        if column is None or column.outcomes[item] >= FIRST_RESULT:
            return
        run, at = self._runs.pop((fact.node, fact.path), None), fact.at
        began = fact.began or at
        if run is not None:
            began = _earlier(began, run.began)
        column.outcomes[item] = outcome
        column.attempts[item] = fact.attempt if fact.attempt < MAX_BYTE else MAX_BYTE
        if began < at:
            column.durations[item] = min(MAX_MS, at - began)
        if fact.failure is not None:
            self._add_failure(fact, column, items, item)
        items.changed[item] = 1
        if items.path:
            self._mark(*self._cell(items.path))
        self._count_second(items.split, at // 1_000)
        self._extend(items, item, began, at)

    def _add_failure(self, fact: NodeResult, column: Column, items: Items, item: int) -> None:
        assert fact.failure is not None
        column.codes[item] = self._code(fact.failure.code)
        known = self.failures.setdefault(items.split, [])
        if len(known) < MAX_FAILURES:
            known.append(Failure(fact.node, fact.path, fact.failure.code, fact.failure.message))

    def _add_progress(self, fact: AttemptFailed | NodeSuspended | EffectStarted | RaceWinner) -> None:
        known = self._outcome(fact.node, fact.path)
        if known >= FIRST_RESULT:
            return
        run = self._runs.setdefault((fact.node, fact.path), Run())
        if isinstance(fact, RaceWinner):
            if not known:
                self._set(fact.node, fact.path, OPENED)
            return
        began = fact.at if isinstance(fact, EffectStarted) else fact.began or fact.at
        run.began = min(run.began or began, began)
        failed = isinstance(fact, AttemptFailed)
        if (fact.attempt, failed, fact.at) < (run.attempts, known == RETRYING, run.latest):
            return
        run.attempts, run.latest = fact.attempt, fact.at
        run.due, run.signal = None, None
        if isinstance(fact, AttemptFailed):
            run.code, run.due = fact.failure.code, self._retry_due(fact)
        elif isinstance(fact, NodeSuspended):
            dues = [each for each in (fact.due, fact.deadline) if each is not None]
            run.due, run.signal, run.since = min(dues, default=None), fact.signal, fact.at
        outcome = RETRYING if isinstance(fact, AttemptFailed) else WAITING
        self._set(fact.node, fact.path, RUNNING if isinstance(fact, EffectStarted) else outcome)
        if fact.path:
            items, item = self._cell(fact.path)
            self._extend(items, item, run.began, fact.at)

    def _retry_due(self, fact: AttemptFailed) -> int:
        earliest = fact.failure.details.get("retry_at")
        name = token_name(fact.node, fact.path, self.plan.ids)
        retry = self.plan.nodes[fact.node].retry
        return retry_due(retry, fact.attempt, fact.at, name, earliest if type(earliest) is int else 0)

    def _count_second(self, split: int, second: int) -> None:
        seconds = self._seconds.get(split)
        if seconds is None:
            seconds = self._seconds[split] = {}
        elif second in seconds:
            seconds[second] += 1
            return
        seconds[second] = 1
        if len(seconds) > RATE_WINDOW_S:
            del seconds[min(seconds)]

    def rate(self, split: int, now: int) -> float:
        """Return how many results per second the nodes directly inside a split had in the last seconds."""
        since = now // 1_000 - RATE_WINDOW_S
        recent = sum(count for second, count in self._seconds.get(split, {}).items() if second > since)
        return 0.0 if self.final else recent / RATE_WINDOW_S

    def add_claims(self, claims: Mapping[tuple[int, Path], int]) -> None:
        """Add the runs that workers had begun when the execution ended and that left no fact, with when they began."""
        end = self.end
        if end is None or end.status == "completed":
            return
        for (node, path), began in claims.items():
            if self._outcome(node, path):
                continue
            self._set(node, path, RUNNING)
            self._runs[(node, path)] = Run(attempts=1, began=began, ended=end.at)
            if path:
                self._extend(*self._cell(path), began, end.at)
        if claims:
            for table in self._tables.values():
                table.packed.clear()

    def _outcome(self, node: int, path: Path) -> int:
        if not path:
            return self._root.get(node, 0)
        items, item = self._cell(path)
        return items.columns[node].outcomes[item] if node in items.columns else 0

    def _set(self, node: int, path: Path, outcome: int) -> None:
        if not path:
            self._root[node] = outcome
            return
        items, item = self._cell(path)
        if node in items.columns:
            items.columns[node].outcomes[item] = outcome
            self._mark(items, item)

    def _mark(self, items: Items, item: int) -> None:
        """Note that an item has changed, and the items around it, whose states depend on it."""
        items.changed[item] = 1
        while items.path:
            items, item = self._cell(items.path)
            items.changed[item] = 1

    def _extend(self, items: Items, item: int, began: int, until: int) -> None:
        start, end = began - self.started_at, until - self.started_at
        if start < 0 or end < 0 or start > MAX_MS or end > MAX_MS:
            start, end = min(MAX_MS, max(0, start)), min(MAX_MS, max(0, end))
        if start < (items.starts[item] or MAX_MS + 2) - 1:
            items.starts[item] = start + 1
        if end >= items.ends[item]:
            items.ends[item] = end + 1

    def _cell(self, path: Path) -> tuple[Items, int]:
        item = path[-1]
        items = self._tables.get((path[-2], path[:-2])) or self._table(path[-2], path[:-2])
        if item >= items.count:
            items.grow(item + 1)
        return items, item

    def _table(self, split: int, path: Path) -> Items:
        items = self._tables.get((split, path))
        if items is None:
            nodes, nested = self._bodies.get(split, ((), ()))
            items = self._tables[(split, path)] = Items(split, path, nodes, nested)
        return items

    def _new_outcome(self, key: tuple[str, str | None, bool]) -> int:
        if len(self._outcomes) >= MAX_OUTCOMES:
            return self._outcome_ids.get((key[0], None, False), SUCCESS)
        found = self._outcome_ids[key] = len(self._outcomes)
        self._outcomes.append(Outcome(*key))
        return found

    def _code(self, code: str) -> int:
        found = self._code_ids.get(code)
        if found is None:
            if len(self.codes) >= MAX_CODES:
                return 0
            found = self._code_ids[code] = len(self.codes)
            self.codes.append(code)
        return found

    @property
    def final(self) -> bool:
        return self.end is not None

    def items_of(self, split: int, path: Path = ROOT) -> Items | None:
        """Return the items of a split in one lineage; None if it has not fanned out there."""
        return self._tables.get((split, path))

    def tables(self, split: int, around: Path = ROOT) -> Iterator[Items]:
        """Yield the items of a split in all lineages inside a scope."""
        for (node, path), items in self._tables.items():
            if node == split and within(path, around):
                yield items

    def splits(self) -> list[int]:
        """Return the splits that have fanned out."""
        return sorted({split for split, _ in self._tables})

    def nodes_in(self, split: int) -> tuple[int, ...]:
        """Return the nodes directly inside a split, in topological order; -1: outside of all splits."""
        return self._bodies.get(split, ((), ()))[0]

    def run(self, node: int, path: Path) -> Run | None:
        """Return the run of a node outside of items, or one inside an item that has not ended."""
        return self._runs.get((node, path))

    def waiting(self) -> Iterator[tuple[int, Path, Run]]:
        """Yield the runs that wait for a signal of a user."""
        for (node, path), run in self._runs.items():
            named = run.signal is not None and not run.signal.startswith(CHILD_SIGNAL)
            if named and not run.ended and not self.final:
                yield node, path, run

    def root_states(self) -> ScopeStates:
        """Return the states of the nodes outside of items, and of the edges between them."""
        nodes, _ = self._bodies[-1]
        open_splits = {
            split
            for split, path in self._tables
            if not path and not self._complete(self._tables[(split, path)])
        }
        outcomes = [self._outcomes[self._root.get(node, 0)] for node in nodes]
        return self._ended(states_of(self.plan, nodes, outcomes, started=True, open_splits=open_splits))

    def item_states(self, items: Items, item: int) -> ScopeStates:
        """Return the states of the nodes of one item, and of the edges between them."""
        return self._ended(self._shapes[self._shape(items.split, self._signature(items, item))])

    def _signature(self, items: Items, item: int) -> tuple[int, ...]:
        row = tuple(column.outcomes[item] for column in items.columns.values())
        return row + tuple(self._nested(split, (*items.path, items.split, item)) for split in items.nested)

    def _signatures(self, items: Items, some: Sequence[int] | None = None) -> Iterator[tuple[int, ...]]:
        """Yield the outcomes of all items, or of some. Items with the same outcomes have the same states."""
        chosen = range(items.count) if some is None else some
        if not items.nodes:
            return iter([()] * len(chosen))
        if items.nested:
            return (self._signature(items, item) for item in chosen)
        outcomes = [column.outcomes for column in items.columns.values()]
        if some is not None:
            return zip(*(map(each.__getitem__, some) for each in outcomes), strict=True)
        return zip(*outcomes, strict=True)

    def shapes(self, items: Items) -> array[int]:
        """Return the shape of each item."""
        changed = items.take_changed()
        if changed is None:
            ids = _Memo(partial(self._shape, items.split))
            items.shapes = array("I", map(ids.__getitem__, self._signatures(items)))
            items.shape_counts = Counter(items.shapes)
            return items.shapes
        added = items.count - len(items.shapes)
        if added:
            untouched = self._shape(items.split, (0,) * (len(items.nodes) + len(items.nested)))
            items.shapes.extend(array("I", [untouched]) * added)
            items.shape_counts[untouched] += added
        if not changed:
            return items.shapes
        ids = _Memo(partial(self._shape, items.split))
        after = [ids[each] for each in self._signatures(items, changed)]
        items.shape_counts.subtract(items.shapes[item] for item in changed)
        items.shape_counts.update(after)
        for item, shape in zip(changed, after, strict=True):
            items.shapes[item] = shape
        return items.shapes

    def counts(self, items: Items) -> list[tuple[ScopeStates, int]]:
        """Return how many items have the same states."""
        return [(self.shape(each), count) for each, count in self._shape_counts(items)]

    def _shape_counts(self, items: Items) -> Iterator[tuple[int, int]]:
        self.shapes(items)
        return ((shape, count) for shape, count in items.shape_counts.items() if count)

    def shape(self, shape: int) -> ScopeStates:
        """Return the states of the items of one shape."""
        return self._ended(self._shapes[shape])

    def _shape(self, split: int, signature: tuple[int, ...]) -> int:
        known = self._shape_ids.get((split, signature))
        if known is None:
            known = self._shape_ids[(split, signature)] = len(self._shapes)
            self._shapes.append(self._states(split, signature))
        return known

    def _states(self, split: int, signature: tuple[int, ...]) -> ScopeStates:
        nodes, splits = self._bodies.get(split, ((), ()))
        outcomes = [self._outcomes[each] for each in signature[: len(nodes)]]
        nested = dict(zip(splits, signature[len(nodes) :], strict=True))
        open_splits = {inner for inner, shown in nested.items() if shown & NESTED_OPEN}
        found = states_of(
            self.plan, nodes, outcomes, started=any(signature), open_splits=open_splits, split=split
        )
        worst = found.worst
        if any(shown & NESTED_FAILED for shown in nested.values()):
            worst = FAILED
        elif open_splits and worst == SUCCESS:
            worst = RUNNING
        return msgspec.structs.replace(found, worst=worst, open=found.open or bool(open_splits))

    def _ended(self, found: ScopeStates) -> ScopeStates:
        """Return states as they are once the execution has ended: what was open was cancelled or never reached."""
        if self.end is None or (found.worst == SUCCESS and not found.open):
            return found
        rest = SKIPPED if self.end.status == "completed" else NOT_REACHED
        closed = {PENDING: rest, QUEUED: rest, RUNNING: CANCELLED, WAITING: CANCELLED, RETRYING: CANCELLED}
        states = tuple(closed.get(each, each) for each in found.states)
        worst = closed.get(found.worst, found.worst)
        return msgspec.structs.replace(found, states=states, worst=worst, open=False)

    def _nested(self, split: int, path: Path) -> int:
        items = self._tables.get((split, path))
        if items is None:
            return 0
        shown = NESTED
        for shape, _ in self._shape_counts(items):
            states = self._shapes[shape]
            shown |= (NESTED_OPEN if states.open else 0) | (NESTED_FAILED if states.worst == FAILED else 0)
        return shown

    def _complete(self, items: Items) -> bool:
        return not any(self._shapes[shape].open for shape, _ in self._shape_counts(items))

    def encode(self) -> bytes:
        """Encode the overview of an ended execution."""
        tables = [
            _Table(
                each.split,
                each.path,
                each.count,
                each.starts.tobytes(),
                each.ends.tobytes(),
                [
                    (node, bytes(c.outcomes), c.durations.tobytes(), bytes(c.attempts), c.codes.tobytes())
                    for node, c in each.columns.items()
                ],
            )
            for each in self._tables.values()
        ]
        body = _Encoded(
            format=FORMAT,
            number=self.number,
            last=self.last,
            paused=self.paused,
            end=self.end,
            codes=self.codes,
            outcomes=[(each.status, each.outlet, each.empty) for each in self._outcomes],
            root=self._root,
            runs=[(node, path, run) for (node, path), run in self._runs.items()],
            failures=[(split, each) for split, found in self.failures.items() for each in found],
            tables=tables,
        )
        return zlib.compress(msgspec.msgpack.encode(body), 1)

    @staticmethod
    def decode(plan: Plan, started_at: int, data: bytes) -> Overview | None:
        """Decode an overview; None if another version of Rune encoded it."""
        try:
            body = msgspec.msgpack.decode(zlib.decompress(data), type=_Encoded)
        except (zlib.error, msgspec.MsgspecError):
            return None
        if body.format != FORMAT:
            return None
        made = Overview(plan, started_at)
        made.number, made.last, made.paused, made.end = body.number, body.last, body.paused, body.end
        made.codes = body.codes
        made._code_ids = {each: at for at, each in enumerate(body.codes)}
        made._outcomes = [Outcome(status, outlet, empty) for status, outlet, empty in body.outcomes]
        made._outcome_ids = {each: at for at, each in enumerate(body.outcomes) if at >= len(FIXED_OUTCOMES)}
        made._root = dict(body.root)
        made._runs = {(node, path): run for node, path, run in body.runs}
        for split, each in body.failures:
            made.failures.setdefault(split, []).append(each)
        for table in body.tables:
            made._restore(table)
        return made

    def _restore(self, table: _Table) -> None:
        items = self._table(table.split, table.path)
        items.count, items.changed = table.count, bytearray(b"\1" * table.count)
        items.starts, items.ends = array("I", table.starts), array("I", table.ends)
        for node, outcomes, durations, attempts, codes in table.columns:
            items.columns[node] = Column(
                bytearray(outcomes), array("I", durations), bytearray(attempts), array("H", codes)
            )

    @property
    def size(self) -> int:
        """About how many bytes it needs."""
        cells = sum(each.count * (8 * len(each.nodes) + 13) for each in self._tables.values())
        return 20_000 + cells + 400 * (len(self._runs) + len(self._tables))


class _Table(msgspec.Struct, array_like=True):
    split: int
    path: Path
    count: int
    starts: bytes
    ends: bytes
    columns: list[tuple[int, bytes, bytes, bytes, bytes]]


class _Encoded(msgspec.Struct):
    format: int
    number: int
    last: int
    paused: bool
    end: ExecutionEnded | None
    codes: list[str]
    outcomes: list[tuple[str, str | None, bool]]
    root: dict[int, int]
    runs: list[tuple[int, Path, Run]]
    failures: list[tuple[int, Failure]]
    tables: list[_Table]


def _earlier(began: int, known: int) -> int:
    """Return the earlier of two beginnings, of which the second may be unknown, 0."""
    return known if 0 < known < began else began


def _bodies(plan: Plan) -> Mapping[int, tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return the nodes directly inside each split, in topological order, and the splits among them; -1: outside."""
    found: dict[int, tuple[list[int], list[int]]] = {-1: ([], [])}
    for node in plan.graph.order:
        nodes, splits = found.setdefault(plan.nodes[node].split, ([], []))
        nodes.append(node)
        if plan.nodes[node].fans_out:
            splits.append(node)
    return {split: (tuple(nodes), tuple(splits)) for split, (nodes, splits) in found.items()}


Property = Literal["state", "duration", "attempts", "code"]
MAX_BYTE = 255
STEPS_PER_DOUBLING = 8
"""A duration of d ms is the byte 1 + round(8 * log2(d + 1)), at most 255; 0 is unknown."""

MAX_KEPT = 8
"""Sets of bytes that are kept for the items of one split."""

K = TypeVar("K", bound=Hashable)


class _Memo(dict[K, int]):
    """Bytes by key, computed when they are first needed; `map` looks them up without a call in Python."""

    def __init__(self, make: Callable[[K], int]) -> None:
        self._make = make

    def __missing__(self, key: K) -> int:
        value = self[key] = self._make(key)
        return value


def item_bytes(overview: Overview, items: Items, by: Property, node: int | None = None) -> bytes:
    """Return one byte per item, in the order of the items. They are kept until the next fact."""
    known = items.packed.get((by, node))
    if known is None or known[0] != overview.number:
        if len(items.packed) >= MAX_KEPT:
            items.packed.clear()
        known = items.packed[(by, node)] = overview.number, _pack(overview, items, by, node)
    return known[1]


def _pack(overview: Overview, items: Items, by: Property, node: int | None) -> bytes:
    if by == "state":
        return _states(overview, items, node)
    if by == "code":
        return _codes(items, node)
    if by == "attempts":
        columns = [each.attempts for at, each in items.columns.items() if node in (None, at)]
        return bytes(columns[0]) if len(columns) == 1 else bytes(map(max, zip(*columns, strict=True)))
    return _durations(items, node)


def _states(overview: Overview, items: Items, node: int | None) -> bytes:
    at = None if node is None else items.nodes.index(node)

    def state(shape: int) -> int:
        found = overview.shape(shape)
        return found.worst if at is None else found.states[at]

    return bytes(map(_Memo(state).__getitem__, overview.shapes(items)))


def _codes(items: Items, node: int | None) -> bytes:
    columns = [each.codes for at, each in items.columns.items() if node in (None, at)]
    if len(columns) == 1:
        return bytes(map(_Memo(_capped).__getitem__, columns[0]))
    return bytes(map(_Memo(_first_code).__getitem__, zip(*columns, strict=True)))


def _durations(items: Items, node: int | None) -> bytes:
    byte = _Memo(duration_byte)
    if node is None:
        spans = (end - start if start else -1 for start, end in zip(items.starts, items.ends, strict=True))
        return bytes(map(byte.__getitem__, spans))
    column = items.columns[node]
    spans = (ms if attempts else -1 for ms, attempts in zip(column.durations, column.attempts, strict=True))
    return bytes(map(byte.__getitem__, spans))


def duration_byte(ms: int) -> int:
    """Return the byte of a duration; a negative one is unknown."""
    return 0 if ms < 0 else min(MAX_BYTE, 1 + round(STEPS_PER_DOUBLING * math.log2(ms + 1)))


def _first_code(row: tuple[int, ...]) -> int:
    return _capped(next((each for each in row if each), 0))


def _capped(value: int) -> int:
    return min(MAX_BYTE, value)


def tally(found: Iterable[int]) -> dict[int, int]:
    """Return how often each byte occurs."""
    return dict(sorted(Counter(found).items()))


STEPS = 60
"""Steps of equal length between the first start and the last end."""


class Times(msgspec.Struct, frozen=True):
    """The times of the items that have begun. `began` and `ended` are ms after the start of the execution."""

    count: int
    began: int
    ended: int
    shortest: int
    median: int
    p95: int
    longest: int
    density: list[int]


def item_times(items: Items) -> Times | None:
    """Return the times of the items of a split; None if none has begun."""
    pairs = [(start, end) for start, end in zip(items.starts, items.ends, strict=True) if start]
    if not pairs:
        return None
    durations = sorted(end - start for start, end in pairs)
    began, ended = min(pairs)[0], max(end for _, end in pairs)
    return Times(
        count=len(pairs),
        began=began - 1,
        ended=ended - 1,
        shortest=durations[0],
        median=_quantile(durations, 0.5),
        p95=_quantile(durations, 0.95),
        longest=durations[-1],
        density=_density(pairs, began, ended),
    )


def _quantile(ordered: list[int], share: float) -> int:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _density(pairs: list[tuple[int, int]], began: int, ended: int) -> list[int]:
    """Count the items that were under way in each step, by what changes from one step to the next."""
    width = (ended - began) / STEPS or 1
    changes = [0] * (STEPS + 1)
    for start, end in pairs:
        changes[min(STEPS - 1, int((start - began) / width))] += 1
        changes[min(STEPS - 1, int((end - began) / width)) + 1] -= 1
    return list(accumulate(changes[:STEPS]))
