"""The reader: answers questions about executions from the journal alone, whoever owns it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from rune.core.execution.fact import ExecutionEnded, ExecutionStarted
from rune.core.execution.fold import fold
from rune.core.execution.state import State
from rune.core.execution.token import Path
from rune.core.plan.model import Plan
from rune.ports.blobs import BlobStore
from rune.ports.journal import ExecutionRecord, Journal, StoredFact
from rune.ports.queries import Event, Executions, NodeRun
from rune.ports.workflows import WorkflowStore
from rune.runtime.plan_cache import PlanCache
from rune.runtime.queries.history import History
from rune.runtime.values import ExecutionNotFoundError

PIECE = 1_000


class ExecutionIndex(Executions, Protocol):
    """Executions as a list, and what else is known of them without their facts."""

    async def matching(self, prefix: str, limit: int) -> list[str]:
        """Ids that begin like this, at most so many."""

    async def claims(self, execution: str) -> dict[tuple[int, Path], int]:
        """How often each token was claimed."""


class ReadSnapshot(Protocol):
    """How the reader sees what others write."""

    async def version(self) -> int:
        """A number that differs when somebody has written since."""

    def snapshot(self) -> AbstractAsyncContextManager[None]:
        """While the block runs, what is read does not change."""


class ExecutionReader:
    """The store's verbs over a journal that somebody else may be writing."""

    def __init__(
        self,
        index: ExecutionIndex,
        journal: Journal,
        blob: BlobStore,
        plans: PlanCache,
        sight: ReadSnapshot,
        library: WorkflowStore,
    ) -> None:
        self._index = index
        self._journal = journal
        self._blob = blob
        self._plans = plans
        self.change = sight.version
        self.still = sight.snapshot
        self.executions = index.executions
        self.execution = index.execution
        self.matching = index.matching
        self.claims = index.claims
        self.library = library
        self.definition = journal.definition
        self.dead_letters = journal.dead_letters

    async def accepted(self, execution: str) -> ExecutionRecord:
        """How an execution was started."""
        found = await self._journal.accepted(execution)
        if found is None:
            raise ExecutionNotFoundError(f"no execution has the id {execution}")
        return found

    async def plan(self, execution: str) -> Plan:
        """The plan of an execution."""
        return await self._plans.plan((await self.accepted(execution)).hash)

    async def facts(self, execution: str, after: int = 0, limit: int | None = None) -> list[StoredFact]:
        """Facts in commit order, behind a number; the first so many of them."""
        return await self._journal.facts(execution, after, limit)

    async def pieces(
        self, execution: str, after: int = 0, *, size: int = PIECE
    ) -> AsyncIterator[list[StoredFact]]:
        """The same, all of them, piece by piece: others get their turn in between."""
        while stored := await self.facts(execution, after, size):
            yield stored
            if len(stored) < size:
                return
            after = stored[-1].number
            await asyncio.sleep(0)

    async def history(self, execution: str, *, empty: bool = False) -> History:
        """The past of an execution; an empty one is given its facts one by one."""
        accepted = await self.accepted(execution)
        plan = await self._plans.plan(accepted.hash)
        history = History(accepted, plan, self._journal, self._blob, ())
        if not empty:
            async for stored in self.pieces(execution):
                history.add(stored)
        return history

    async def node_runs(self, execution: str, *, after: int = 0, limit: int = 1000) -> list[NodeRun]:
        """A page of node runs in the order they ended."""
        return (await (await self.history(execution)).node_runs())[after : after + limit]

    async def events(self, execution: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        """Events behind a number."""
        history = await self.history(execution, empty=True)
        found = [history.beginning] if after < 1 else []
        async for stored in self.pieces(execution):
            found += [event for event in map(history.follow, stored) if event.number > after]
            if len(found) >= limit:
                break
        return found[:limit]

    async def state(self, execution: str, now: int) -> tuple[Plan, State]:
        """The state of an execution, folded from its facts; a clock of its own may be ahead of ours."""
        accepted = await self.accepted(execution)
        plan = await self._plans.plan(accepted.hash)
        facts = [each.fact async for stored in self.pieces(execution) for each in stored if not each.late]
        latest = max((each.at for each in facts), default=0)
        ended = any(isinstance(each, ExecutionEnded) for each in facts)
        moment = max(now, latest) if accepted.fake_time and not ended else now
        state, _ = fold(plan, [ExecutionStarted(accepted.at), *facts], moment)
        return plan, state
