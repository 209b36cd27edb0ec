"""Skips: nodes that were skipped follow from everything else, so they are worked out once and kept for a while.

Node runs in pages, straight from the journal: a page costs what it shows, however long the execution is.
"""

from __future__ import annotations

import asyncio
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
from rune.runtime.queries.history import STATUS, History
from rune.runtime.queries.reader import ExecutionReader
from rune.runtime.services.executions import RequestRefusedError
from rune.server.responses import ApiError

MAX_CACHED_SKIPS = 400_000  # skipped nodes, of all executions together
MAX_CACHED_EXECUTIONS = 200
FEW = 2_000  # facts that are worked through at once
AT_ONCE = 500

Key = tuple[int, Path]


class _Known(msgspec.Struct, frozen=True):
    skipped: list[Key]
    seen: int  # the number of the last fact it follows from
    final: bool


class SkippedNodes:
    """What was skipped, by execution. Of one that goes on it is worked out only while that is little work."""

    def __init__(self, reader: ExecutionReader) -> None:
        self._reader = reader
        self._kept: OrderedDict[str, _Known] = OrderedDict()
        self._working = asyncio.Lock()

    async def at_hand(self, execution: str) -> bool:
        """Whether the answer costs little."""
        if execution in self._kept:
            return True
        return len(await self._reader.facts(execution, 0, FEW + 1)) <= FEW

    async def of(self, execution: str) -> list[Key]:
        """Which nodes were skipped, in the order of their lineages."""
        async with self._working:
            known = self._kept.get(execution)
            if known is None or not (known.final or await self._holds(execution, known)):
                known = await self._worked_out(execution)
                self._keep(execution, known)
            self._kept.move_to_end(execution)
            return known.skipped

    async def _holds(self, execution: str, known: _Known) -> bool:
        """Whether nothing was written since."""
        return not await self._reader.facts(execution, known.seen, 1)

    async def _worked_out(self, execution: str) -> _Known:
        history = await self._history(execution)
        if history is None:
            return _Known([], 0, False)
        few = history.size <= FEW
        skipped = history.skipped() if few else await asyncio.to_thread(history.skipped)
        return _Known(skipped, history.last, history.end is not None)

    async def _history(self, execution: str) -> History | None:
        """All of the past, read piece by piece; None if there is much and more to come."""
        summary = await self._reader.execution(execution)
        ended = summary is not None and summary.ended_at is not None
        history = await self._reader.history(execution, empty=True)
        async for stored in self._reader.pieces(execution, size=AT_ONCE):
            history.add(stored)
            if history.size > FEW and not ended:
                return None
        return history

    def _keep(self, execution: str, known: _Known) -> None:
        self._kept[execution] = known
        self._kept.move_to_end(execution)
        total = sum(len(each.skipped) for each in self._kept.values())
        while len(self._kept) > 1 and (total > MAX_CACHED_SKIPS or len(self._kept) > MAX_CACHED_EXECUTIONS):
            _, dropped = self._kept.popitem(last=False)
            total -= len(dropped.skipped)


MAX_SCANNED = 1_500  # facts to a request


class NodeRunNotFoundError(RuneError):
    """A node that has not ended in this lineage."""

    code = "UNKNOWN_RUN"


class FewResults(History):
    """A history of a few results."""

    async def run(self, result: NodeResult) -> NodeRun:
        """What became of one node."""
        return await self._node_run(result)


class NodeRunFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs are wanted."""

    node: str | None = None
    status: str | None = None
    lineage: str | None = None


class Place(msgspec.Struct, frozen=True):
    """Where a page begins: first come the triggers, then what ended behind the number of a fact, then what was
    skipped."""

    part: str
    number: int

    def __str__(self) -> str:
        return f"{self.part}{self.number}"


BEGINNING = Place("t", 0)


def place_of(cursor: str | None) -> Place:
    """The place that a cursor stands for."""
    if cursor is None:
        return BEGINNING
    part, number = cursor[:1], cursor[1:]
    if part not in {"t", "n", "s"} or not (number.isascii() and number.isdecimal() and len(number) < 19):
        raise ApiError(f"`{cursor[:60]}` is no cursor of this list", code="BAD_CURSOR")
    return Place(part, int(number))


class _Page:
    """A page that is being filled: one more than fits is looked for, which says whether there is a next."""

    def __init__(self, plan: Plan, wanted: NodeRunFilter, place: Place, limit: int) -> None:
        self.found: list[tuple[Place, Key, NodeResult | None]] = []  # each with the place behind it
        self.place = place
        self.status = wanted.status
        self._inside = _inside(wanted.lineage, plan)
        self._node = None if wanted.node is None else plan.index.get(wanted.node, -1)
        self._limit = limit

    @property
    def full(self) -> bool:
        return len(self.found) > self._limit

    @property
    def room(self) -> int:
        return self._limit + 1 - len(self.found)

    @property
    def anything(self) -> bool:
        return self._node is None and self.status is None and not self._inside

    @property
    def token(self) -> Key:
        return -1 if self._node is None else self._node, self._inside

    def offer(self, behind: Place, key: Key, status: str, result: NodeResult | None = None) -> None:
        """Take it if it is wanted."""
        self.place = behind
        if (
            (self._node is None or key[0] == self._node)
            and (self.status is None or status == self.status)
            and within(key[1], self._inside)
        ):
            self.found.append((behind, key, result))

    def cut(self, more: bool) -> Place | None:
        """The place of the next page, once this one is as full as it gets."""
        if self.full:
            del self.found[self._limit :]
            return self.found[-1][0]
        return self.place if more else None


class NodeRuns:
    """Pages of node runs."""

    def __init__(self, engine: Engine, reader: ExecutionReader) -> None:
        self._backend = engine.backend
        self._catalogue = engine.plans.catalogue
        self._reader = reader
        self._skips = SkippedNodes(reader)

    async def page(
        self, execution: str, wanted: NodeRunFilter, *, cursor: str | None = None, limit: int
    ) -> tuple[list[NodeRun], str | None]:
        """Runs from a place on, and the place behind them; None if there are no more."""
        plan = await self._reader.plan(execution)
        page = _Page(plan, wanted, place_of(cursor), limit)
        if cursor is None and wanted.node is not None and await self._offer_only(execution, page):
            page.place = Place("e", 0)
        more = False
        if page.place.part == "t":
            _offer_triggers(page, plan)
        if page.place.part == "n" and not page.full:
            more = await self._offer_ended(execution, page)
        if page.place.part == "s" and not page.full:
            more = await self._offer_skipped(execution, page)
        following = page.cut(more)
        runs = await self._runs(execution, [(key, result) for _, key, result in page.found])
        return runs, None if following is None else str(following)

    async def all(self, execution: str, most: int) -> list[NodeRun] | None:
        """Every run; None if there are more than so many."""
        found, cursor = await self.page(execution, NodeRunFilter(), limit=AT_ONCE)
        while cursor is not None and len(found) <= most:
            more, cursor = await self.page(execution, NodeRunFilter(), cursor=cursor, limit=AT_ONCE)
            found += more
        return found if len(found) <= most else None

    async def one(self, execution: str, node: str, lineage: str | None) -> NodeRun:
        """What became of one node in one lineage, with its output."""
        plan = await self._reader.plan(execution)
        path, number = _inside(lineage, plan), plan.index.get(node, -1)
        result = await self._result(execution, number, path)
        if result is not None or (number in plan.triggers and not path):
            return (await self._runs(execution, [((number, path), result)]))[0]
        if (number, path) in await self._skips.of(execution):
            return (await self._runs(execution, [((number, path), None)]))[0]
        raise NodeRunNotFoundError(f"`{node}` has not ended in this lineage")

    async def _result(self, execution: str, node: int, path: Path) -> NodeResult | None:
        facts = await self._backend.journal.facts_of_token(execution, node, path)
        return next(
            (each for each in facts if isinstance(each, NodeResult) and each.status != "skipped"), None
        )

    async def _offer_only(self, execution: str, page: _Page) -> bool:
        """A node is in one scope. If it ended in the very lineage that is asked for, there are no other runs inside."""
        result = await self._result(execution, *page.token)
        if result is not None:
            page.offer(page.place, page.token, STATUS.get(result.status, result.status), result)
        return result is not None

    async def _offer_ended(self, execution: str, page: _Page) -> bool:
        """Look through what ended, in that order; True if there was too much to look at."""
        if page.status == "skipped":
            page.place = Place("s", 0)
            return False
        looked_at = 0
        while looked_at < MAX_SCANNED:
            # Beside each result there may be other facts: of one that began, waited or failed before.
            size = min(AT_ONCE, 2 * page.room) if page.anything else AT_ONCE
            stored = await self._reader.facts(execution, page.place.number, size)
            for each in stored:
                behind = Place("n", each.number)
                fact = each.fact
                if isinstance(fact, NodeResult) and not each.late and fact.status != "skipped":
                    page.offer(behind, (fact.node, fact.path), STATUS.get(fact.status, fact.status), fact)
                else:
                    page.place = behind
                if page.full:
                    return True
            looked_at += size
            if len(stored) < size:
                page.place = Place("s", 0)
                return False
        return True

    async def _offer_skipped(self, execution: str, page: _Page) -> bool:
        """What was skipped comes last: it costs more to find out than all the rest."""
        if page.status not in (None, "skipped"):
            return False
        if page.room == 1 and page.found and not await self._skips.at_hand(execution):
            return True
        skipped = await self._skips.of(execution)
        for number in range(page.place.number, len(skipped)):
            page.offer(Place("s", number + 1), skipped[number], "skipped")
            if page.full:
                break
        return False

    async def _runs(self, execution: str, found: Sequence[tuple[Key, NodeResult | None]]) -> list[NodeRun]:
        accepted, plan = await self._reader.accepted(execution), await self._reader.plan(execution)
        results = [result for _, result in found if result is not None]
        around = await self._around(execution, plan, [key for key, _ in found], results)
        told = FewResults(accepted, plan, self._backend.journal, self._backend.blob, around)
        runs: list[NodeRun] = []
        for (node, path), result in found:
            if result is not None:
                runs.append(await told.run(result))
                continue
            trigger = node in plan.triggers and not path
            runs.append(
                NodeRun(
                    node_id=plan.ids[node],
                    lineage=told.lineage(path),
                    status="success" if trigger else "skipped",
                    attempts=1 if trigger else 0,
                    output=accepted.input if trigger else None,
                    started_at=accepted.at if trigger else None,
                )
            )
        return runs

    async def _around(
        self, execution: str, plan: Plan, keys: Iterable[Key], results: Sequence[NodeResult]
    ) -> list[StoredFact]:
        """What else is needed to tell of some runs: how many items each fan-out around them has, and when those began
        that waited or were tried before."""
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


def _inside(lineage: str | None, plan: Plan) -> Path:
    if lineage is None or not lineage.strip("/"):
        return ()
    path = parse_path(lineage, plan.index)
    if path is None:
        raise RequestRefusedError(
            f"`{lineage[:120]}` is no item of this workflow; for example `users:5`", code="BAD_ITEM"
        )
    return path
