"""Pages of node runs, read from the journal; the cost of a page does not depend on the length of the execution.

Skipped, cancelled and unreached nodes are derived from the facts of all others, so they are computed once per execution
and cached.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence

import msgspec

from rune.core.execution.fact import NodeResult
from rune.core.execution.token import Path, parse_path, within
from rune.core.plan.model import Plan
from rune.errors import RuneError
from rune.ports.journal import StoredFact
from rune.ports.queries import NodeRun
from rune.runtime.engine import Engine
from rune.runtime.queries.history import MAX_INLINE_FACTS, STATUS, History, replay
from rune.runtime.queries.reader import ExecutionReader
from rune.runtime.queries.value_parts import JsonText, ValueCache
from rune.runtime.services.executions import RequestRefusedError
from rune.server.responses import ApiError

MAX_CACHED_SKIPS = 400_000  # of all executions together
MAX_CACHED_EXECUTIONS = 200
BATCH_SIZE = 500  # facts per read
MAX_SCANNED = 1_500  # facts per request
CLAIMS_WRITTEN_S = 10.0  # after an end, by when workers have written what they claimed before it
RECENT_S = 1.0  # how long derived runs are kept until then

DERIVED = ("cancelled", "skipped", "not_reached")
Key = tuple[int, Path]


class _Derived(msgspec.Struct, frozen=True):
    runs: list[tuple[Key, str, NodeRun | None]]  # key, status, and the run unless it is a skipped one
    last: int  # number of the last fact that was considered
    final: bool
    until: float | None = None  # of the monotonic clock: claims of workers may still be written


class DerivedRuns:
    """Runs without a result by execution: cancelled by its end, skipped, not reached. For an execution that is still
    running they are computed only while it is short."""

    def __init__(self, reader: ExecutionReader) -> None:
        self._reader = reader
        self._cached: OrderedDict[str, _Derived] = OrderedDict()
        self._lock = asyncio.Lock()

    async def is_cheap(self, execution: str) -> bool:
        """Whether the derived runs are cached or quick to compute."""
        if execution in self._cached:
            return True
        return len(await self._reader.facts(execution, 0, MAX_INLINE_FACTS + 1)) <= MAX_INLINE_FACTS

    async def of(self, execution: str) -> list[tuple[Key, str, NodeRun | None]]:
        """Return the cancelled runs, the skipped ones ordered by lineage, then the nodes that were not reached."""
        async with self._lock:
            known = self._cached.get(execution)
            if known is None or not (known.final or await self._is_current(execution, known)):
                known = await self._compute(execution)
                self._cache(execution, known)
            self._cached.move_to_end(execution)
            return known.runs

    async def _is_current(self, execution: str, known: _Derived) -> bool:
        if known.until is not None and time.monotonic() > known.until:
            return False
        return not await self._reader.facts(execution, known.last, 1)

    async def _compute(self, execution: str) -> _Derived:
        history = await self._history(execution)
        if history is None:
            return _Derived([], 0, False)
        await history.load_claims()
        runs = await replay(history.size, lambda: _derive(history))
        # Runs that were cancelled may still write late facts.
        end = history.end
        final = end is not None and end.status == "completed"
        recent = end is not None and abs(time.time() * 1000 - end.at) < CLAIMS_WRITTEN_S * 1000
        return _Derived(runs, history.last, final, time.monotonic() + RECENT_S if recent else None)

    async def _history(self, execution: str) -> History | None:
        """Load the history in batches; None if it is long and the execution has not ended."""
        summary = await self._reader.execution(execution)
        ended = summary is not None and summary.ended_at is not None
        history = await self._reader.history(execution, empty=True)
        async for stored in self._reader.fact_batches(execution, size=BATCH_SIZE):
            history.add(stored)
            if history.size > MAX_INLINE_FACTS and not ended:
                return None
        return history

    def _cache(self, execution: str, known: _Derived) -> None:
        self._cached[execution] = known
        self._cached.move_to_end(execution)
        total = sum(len(each.runs) for each in self._cached.values())
        while len(self._cached) > 1 and (
            total > MAX_CACHED_SKIPS or len(self._cached) > MAX_CACHED_EXECUTIONS
        ):
            _, dropped = self._cached.popitem(last=False)
            total -= len(dropped.runs)


def _derive(history: History) -> list[tuple[Key, str, NodeRun | None]]:
    found: list[tuple[Key, str, NodeRun | None]] = [
        (key, run.status, run) for key, run in history.cancelled()
    ]
    found += [(key, "skipped", None) for key in history.skipped()]
    return found + [((node, ()), run.status, run) for node, run in history.not_reached()]


class NodeRunNotFoundError(RuneError):
    """A node has not ended in this lineage."""

    code = "UNKNOWN_RUN"


class NodeRunFilter(msgspec.Struct, frozen=True, kw_only=True):
    node: str | None = None
    status: str | None = None
    lineage: str | None = None


class Place(msgspec.Struct, frozen=True):
    """The start of a page. Triggers come first (`t`), then nodes in the order they ended, after the number of a fact
    (`n`), then skipped nodes (`s`)."""

    part: str
    number: int

    def __str__(self) -> str:
        return f"{self.part}{self.number}"


BEGINNING = Place("t", 0)


def place_of(cursor: str | None) -> Place:
    if cursor is None:
        return BEGINNING
    part, number = cursor[:1], cursor[1:]
    if part not in {"t", "n", "s"} or not (number.isascii() and number.isdecimal() and len(number) < 19):
        raise ApiError(f"`{cursor[:60]}` is not a cursor of this list", code="BAD_CURSOR")
    return Place(part, int(number))


class _Page:
    """A page under construction. It collects one run more than fits, which shows whether another page follows."""

    def __init__(self, plan: Plan, filter: NodeRunFilter, place: Place, limit: int) -> None:
        self.found: list[tuple[Place, Key, NodeResult | NodeRun | None]] = []  # each with the place after it
        self.place = place
        self.status = filter.status
        self._scope = parse_scope(filter.lineage, plan)
        self._node = None if filter.node is None else plan.index.get(filter.node, -1)
        self._limit = limit

    @property
    def full(self) -> bool:
        return len(self.found) > self._limit

    @property
    def room(self) -> int:
        return self._limit + 1 - len(self.found)

    @property
    def unfiltered(self) -> bool:
        return self._node is None and self.status is None and not self._scope

    @property
    def token(self) -> Key:
        return -1 if self._node is None else self._node, self._scope

    def offer(self, after: Place, key: Key, status: str, result: NodeResult | NodeRun | None = None) -> None:
        """Add a run if it matches the filter."""
        self.place = after
        if (
            (self._node is None or key[0] == self._node)
            and (self.status is None or status == self.status)
            and within(key[1], self._scope)
        ):
            self.found.append((after, key, result))

    def cut(self, more: bool) -> Place | None:
        """Drop the extra run. Return the place of the next page, if there is one."""
        if self.full:
            del self.found[self._limit :]
            return self.found[-1][0]
        return self.place if more else None


class NodeRuns:
    """Node runs of executions."""

    def __init__(self, engine: Engine, reader: ExecutionReader) -> None:
        self._backend = engine.backend
        self._catalogue = engine.plans.catalogue
        self._reader = reader
        self._derived = DerivedRuns(reader)

    async def page(
        self, execution: str, filter: NodeRunFilter, *, cursor: str | None = None, limit: int
    ) -> tuple[list[NodeRun], str | None]:
        """Return a page of runs and the cursor of the next page; None on the last one."""
        plan = await self._reader.plan(execution)
        page = _Page(plan, filter, place_of(cursor), limit)
        if cursor is None and filter.node is not None and await self._offer_only(execution, page):
            page.place = Place("e", 0)
        more = False
        if page.place.part == "t":
            _offer_triggers(page, plan)
        if page.place.part == "n" and not page.full:
            more = await self._offer_ended(execution, page)
        if page.place.part == "s" and not page.full:
            more = await self._offer_derived(execution, page)
        following = page.cut(more)
        runs = await self._runs(execution, [(key, result) for _, key, result in page.found])
        return runs, None if following is None else str(following)

    async def all(self, execution: str, most: int) -> list[NodeRun] | None:
        """Return every run; None if there are more than `most`."""
        found, cursor = await self.page(execution, NodeRunFilter(), limit=BATCH_SIZE)
        while cursor is not None and len(found) <= most:
            await asyncio.sleep(0)  # reads of an embedded file do not suspend
            more, cursor = await self.page(execution, NodeRunFilter(), cursor=cursor, limit=BATCH_SIZE)
            found += more
        return found if len(found) <= most else None

    async def one(self, execution: str, node: str, lineage: str | None) -> NodeRun:
        """Return the run of one node in one lineage, with its output."""
        plan = await self._reader.plan(execution)
        path, number = parse_scope(lineage, plan), plan.index.get(node, -1)
        result = await self._result(execution, number, path)
        if result is not None or (number in plan.triggers and not path):
            return (await self._runs(execution, [((number, path), result)], whole=True))[0]
        for key, status, run in await self._derived.of(execution):
            if key == (number, path) and status != "not_reached":
                return (await self._runs(execution, [(key, run)]))[0]
        raise NodeRunNotFoundError(f"`{node}` has not ended in this lineage")

    async def output(self, execution: str, node: str, lineage: str | None, values: ValueCache) -> JsonText:
        """Return the output of a node in one lineage, from the values that are kept if it is one of them."""
        plan = await self._reader.plan(execution)
        path, number = parse_scope(lineage, plan), plan.index.get(node, -1)

        async def load() -> bytes:
            return (await self.one(execution, node, lineage)).output or b"null"

        result = await self._result(execution, number, path)
        if result is None:
            return JsonText(await load())
        accepted = await self._reader.accepted(execution)
        facts = [StoredFact(0, result)]
        history = History(accepted, plan, self._backend.journal, self._backend.blob, facts)
        return await values.node_value(history, number, path, load)

    async def _result(self, execution: str, node: int, path: Path) -> NodeResult | None:
        facts = await self._backend.journal.facts_of_token(execution, node, path)
        return next(
            (each for each in facts if isinstance(each, NodeResult) and each.status != "skipped"), None
        )

    async def _offer_only(self, execution: str, page: _Page) -> bool:
        """Offer the run of the requested node in exactly the requested lineage. If there is one, no other run can
        match, because a node belongs to one scope."""
        result = await self._result(execution, *page.token)
        if result is not None:
            page.offer(page.place, page.token, STATUS.get(result.status, result.status), result)
        return result is not None

    async def _offer_ended(self, execution: str, page: _Page) -> bool:
        """Offer nodes in the order they ended. Return whether the scan stopped before the end of the journal."""
        if page.status in ("skipped", "not_reached"):
            page.place = Place("s", 0)
            return False
        scanned = 0
        while scanned < MAX_SCANNED:
            # Besides its result a node may have other facts: effect started, suspended, attempt failed.
            size = min(BATCH_SIZE, 2 * page.room) if page.unfiltered else BATCH_SIZE
            stored = await self._reader.facts(execution, page.place.number, size)
            for each in stored:
                after = Place("n", each.number)
                fact = each.fact
                if isinstance(fact, NodeResult) and not each.late and fact.status != "skipped":
                    page.offer(after, (fact.node, fact.path), STATUS.get(fact.status, fact.status), fact)
                else:
                    page.place = after
                if page.full:
                    return True
            scanned += size
            if len(stored) < size:
                page.place = Place("s", 0)
                return False
        return True

    async def _offer_derived(self, execution: str, page: _Page) -> bool:
        """Offer runs without a result; they come last because they are the most expensive to compute. Nodes that were
        not reached are offered only if the filter names them."""
        if page.status not in (None, *DERIVED):
            return False
        if page.room == 1 and page.found and not await self._derived.is_cheap(execution):
            return True
        derived = await self._derived.of(execution)
        for number in range(page.place.number, len(derived)):
            key, status, run = derived[number]
            if page.status is not None or status != "not_reached":
                page.offer(Place("s", number + 1), key, status, run)
            if page.full:
                break
        return False

    async def _runs(
        self,
        execution: str,
        found: Sequence[tuple[Key, NodeResult | NodeRun | None]],
        *,
        whole: bool = False,
    ) -> list[NodeRun]:
        accepted, plan = await self._reader.accepted(execution), await self._reader.plan(execution)
        results = [result for _, result in found if isinstance(result, NodeResult)]
        related = await self._load_related(execution, plan, [key for key, _ in found], results)
        history = History(accepted, plan, self._backend.journal, self._backend.blob, related)
        runs: list[NodeRun] = []
        for (node, path), result in found:
            if result is not None:
                known = result if isinstance(result, NodeRun) else None
                runs.append(known or await history.node_run(result, whole=whole))  # type: ignore[arg-type]
                continue
            trigger = node in plan.triggers and not path
            runs.append(
                NodeRun(
                    node_id=plan.ids[node],
                    lineage=history.lineage(path),
                    status="success" if trigger else "skipped",
                    attempts=1 if trigger else 0,
                    output=await history.encoded_start() if trigger else None,
                    started_at=accepted.at if trigger else None,
                )
            )
        return runs

    async def _load_related(
        self, execution: str, plan: Plan, keys: Iterable[Key], results: Sequence[NodeResult]
    ) -> list[StoredFact]:
        """Load the other facts that some runs need: the results of the splits around them, for the number of items, and
        the earlier facts of nodes that waited or were retried, for the time they started."""
        fans = {(path[cut], path[:cut]) for _, path in keys for cut in range(0, len(path), 2)}
        known = await self._backend.journal.results(execution, list(fans)) if fans else []
        slow = [
            each for each in results if each.attempt > 1 or each.signal or self._may_wait(plan, each.node)
        ]
        earlier = await asyncio.gather(
            *(self._backend.journal.facts_of_token(execution, each.node, each.path) for each in slow)
        )
        facts = [each for each in known if each is not None]
        return [StoredFact(0, each) for each in (*facts, *(fact for facts in earlier for fact in facts))]

    def _may_wait(self, plan: Plan, node: int) -> bool:
        kind = self._catalogue.get(plan.definition.nodes[node].type)
        return kind is None or kind.suspends or kind.launches


def _offer_triggers(page: _Page, plan: Plan) -> None:
    for number, node in enumerate(sorted(plan.triggers)):
        if number >= page.place.number and not page.full:
            page.offer(Place("t", number + 1), (node, ()), "success")
    if not page.full:
        page.place = Place("n", 0)


def parse_scope(lineage: str | None, plan: Plan) -> Path:
    """Return the path of an item such as `users:5`; the root if none is named."""
    if lineage is None or not lineage.strip("/"):
        return ()
    path = parse_path(lineage, plan.index)
    if path is None:
        raise RequestRefusedError(
            f"`{lineage[:120]}` is not an item of this workflow; an example is `users:5`", code="BAD_ITEM"
        )
    return path
