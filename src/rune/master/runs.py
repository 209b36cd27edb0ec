"""Node runs in pages: which nodes ended, in which order, kept by execution for as long as somebody leafs through."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence

from rune.core.fact import Attempt, End, Result, Suspension
from rune.core.lineage import Path, parse_path, within
from rune.errors import RuneError
from rune.ports.journal import Stored
from rune.ports.store import NodeRun
from rune.runtime.desk import Refused
from rune.runtime.engine import Engine
from rune.runtime.history import STATUS, History
from rune.runtime.reader import Reader

MOST_KEPT = 400_000  # runs, of all executions together
AT_ONCE = 2_000
FEW = 2_000

Key = tuple[int, Path, str]


class UnknownRun(RuneError):
    """A node that has not ended in this lineage."""

    code = "UNKNOWN_RUN"


class FewResults(History):
    """A history of a few results."""

    async def run(self, result: Result) -> NodeRun:
        """What became of one node."""
        return await self._node_run(result)


class Index:
    """The order in which the nodes of one execution ended; grows with the journal."""

    def __init__(self) -> None:
        self.ended: list[Key] = []
        self.skipped: list[Key] | None = None
        self.fans: list[Stored] = []
        self.first: dict[tuple[int, Path], Stored] = {}
        self.complete = False
        self.seen = 0

    async def grow(self, stored: Sequence[Stored]) -> None:
        """Take in what was written since."""
        for at, each in enumerate(stored, start=1):
            self.seen = each.number
            fact = each.fact
            if each.late:
                continue
            if isinstance(fact, Result):
                if fact.status != "skipped":
                    self.ended.append((fact.node, fact.path, STATUS.get(fact.status, fact.status)))
                if fact.items is not None:
                    self.fans.append(each)
            elif isinstance(fact, Attempt | Suspension):
                self.first.setdefault((fact.node, fact.path), each)
            elif isinstance(fact, End):
                self.complete = True
            if at % AT_ONCE == 0:
                await asyncio.sleep(0)


class Runs:
    """Pages of node runs."""

    def __init__(self, engine: Engine, reader: Reader) -> None:
        self._backend = engine.backend
        self._reader = reader
        self._kept: OrderedDict[str, Index] = OrderedDict()
        self._lock = asyncio.Lock()

    async def page(
        self,
        execution: str,
        *,
        offset: int,
        limit: int,
        node: str | None = None,
        status: str | None = None,
        lineage: str | None = None,
    ) -> tuple[list[NodeRun], int | None]:
        """Runs from a place on, and the place behind them; None if there are no more."""
        accepted = await self._reader.accepted(execution)
        plan = await self._reader.plan(execution)
        index = await self._index(execution)
        found: list[Key] = [(each, (), "success") for each in sorted(plan.triggers)]
        found += index.ended
        plain = node is None and status is None and lineage is None
        ended_alone = (plain and offset + limit < len(found)) or status not in (None, "skipped")
        if not ended_alone:  # what was skipped comes last, and costs more to find out than all the rest
            found += await self._skipped(execution, index)
        if not plain:
            inside = _inside(lineage, plan.index)
            number = plan.index.get(node) if node is not None else None
            found = [
                each
                for each in found
                if (node is None or each[0] == number)
                and (status is None or each[2] == status)
                and within(each[1], inside)
            ]
        page = found[offset : offset + limit]
        told = FewResults(accepted, plan, self._backend.journal, self._backend.blob, list(index.fans))
        runs = await self._runs(told, index, page)
        return runs, offset + limit if offset + limit < len(found) else None

    async def one(self, execution: str, node: str, lineage: str | None) -> NodeRun:
        """What became of one node in one lineage, with its output."""
        plan = await self._reader.plan(execution)
        path = _inside(lineage, plan.index)
        runs, _ = await self.page(execution, offset=0, limit=1, node=node, lineage=lineage)
        if not runs or len(runs[0].lineage) != len(path) // 2:
            raise UnknownRun(f"`{node}` has not ended in this lineage")
        return runs[0]

    async def _runs(self, told: FewResults, index: Index, page: Sequence[Key]) -> list[NodeRun]:
        accepted, plan = told.accepted, told.plan
        wanted = [(node, path) for node, path, status in page if status != "skipped"]
        results = await self._backend.journal.results(accepted.id, wanted)
        known = dict(zip(wanted, results, strict=True))
        early = [index.first[key] for key in wanted if key in index.first]
        if early:
            told = FewResults(
                accepted, plan, self._backend.journal, self._backend.blob, [*index.fans, *early]
            )
        runs: list[NodeRun] = []
        for node, path, status in page:
            result = known.get((node, path))
            if result is not None:
                runs.append(await told.run(result))
                continue
            trigger = node in plan.triggers and not path
            runs.append(
                NodeRun(
                    node_id=plan.ids[node],
                    lineage=told.lineage(path),
                    status=status,
                    attempts=1 if trigger else 0,
                    output=accepted.input if trigger else None,
                    started_at=accepted.at if trigger else None,
                )
            )
        return runs

    async def _index(self, execution: str) -> Index:
        async with self._lock:
            index = self._kept.setdefault(execution, Index())
            self._kept.move_to_end(execution)
            await index.grow(await self._reader.facts(execution, index.seen))
            total = sum(len(each.ended) for each in self._kept.values())
            while total > MOST_KEPT and len(self._kept) > 1:
                _, dropped = self._kept.popitem(last=False)
                total -= len(dropped.ended)
            while len(self._kept) > 100:
                self._kept.popitem(last=False)
            return index

    async def _skipped(self, execution: str, index: Index) -> list[Key]:
        """What was skipped follows from everything else. It is kept once all is there; of an execution that goes on
        it is looked for only while that is little work."""
        if index.skipped is not None:
            return index.skipped
        if not index.complete and len(index.ended) > FEW:
            return []
        history = await self._reader.history(execution)
        few = len(index.ended) <= FEW
        skipped = history.skipped() if few else await asyncio.to_thread(history.skipped)
        found: list[Key] = [(node, path, "skipped") for node, path in skipped]
        if index.complete:
            index.skipped = found
        return found


def _inside(lineage: str | None, known: Mapping[str, int]) -> Path:
    if lineage is None or not lineage.strip("/"):
        return ()
    path = parse_path(lineage, known)
    if path is None:
        raise Refused(
            f"`{lineage[:120]}` is no item of this workflow; for example `users:5`", code="BAD_ITEM"
        )
    return path
