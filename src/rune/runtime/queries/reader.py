"""Answers queries about executions from the journal alone, also while another process owns the database."""

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
from rune.ports.queries import (
    ALL_EXECUTIONS,
    Event,
    ExecutionCount,
    ExecutionFilter,
    Executions,
    ExecutionsFound,
    NodeRun,
    Statistics,
    Summary,
)
from rune.ports.workflows import WorkflowStore
from rune.runtime.plan_cache import PlanCache
from rune.runtime.queries.attempts import AttemptReader
from rune.runtime.queries.history import History
from rune.runtime.queries.stuck import StuckExecutions
from rune.runtime.values import ExecutionNotFoundError

BATCH = 1_000


class ExecutionIndex(Executions, Protocol):
    """Lists executions, and answers what is known of them without reading their facts."""

    @property
    def statistics(self) -> Statistics:
        """Counts of executions."""

    async def matching(self, prefix: str, limit: int) -> list[str]:
        """Return up to `limit` ids that start with a prefix."""

    async def claims(self, execution: str) -> dict[tuple[int, Path], int]:
        """Return how often each token was claimed."""

    async def last_progress(self, execution: str) -> int | None:
        """Return the time of the newest row of an execution (epoch ms); None if it has none."""


class ReadSnapshot(Protocol):
    """How a reader notices the writes of other processes."""

    async def version(self) -> int:
        """Return a number that changes with every write."""

    def snapshot(self) -> AbstractAsyncContextManager[None]:
        """Read from one snapshot while the block runs."""


class ExecutionReader:
    """Read-only queries over a journal that another process may be writing."""

    def __init__(
        self,
        index: ExecutionIndex,
        journal: Journal,
        blob: BlobStore,
        plans: PlanCache,
        snapshots: ReadSnapshot,
        workflows: WorkflowStore,
    ) -> None:
        self._index = index
        self._journal = journal
        self._blob = blob
        self._plans = plans
        self.version = snapshots.version
        self.snapshot = snapshots.snapshot
        self.execution = index.execution
        self.statistics = index.statistics
        self.matching = index.matching
        self.claims = index.claims
        self.last_progress = index.last_progress
        self.stuck = StuckExecutions(index, self)
        self.workflows = workflows
        self.definition = journal.definition
        self.dead_letters = journal.dead_letters

    async def executions(
        self, wanted: ExecutionFilter = ALL_EXECUTIONS, *, after: str | None = None, limit: int = 50
    ) -> list[Summary]:
        """Return executions, newest first, starting after the one with id `after`."""
        if wanted.stuck:
            return await self.stuck.all(wanted, after=after, limit=limit)
        return await self._index.executions(wanted, after=after, limit=limit)

    async def search(
        self, wanted: ExecutionFilter, *, after: str | None = None, limit: int = 50
    ) -> ExecutionsFound:
        """Return a page of executions, newest first; it may be short and still have a next one."""
        source = self.stuck if wanted.stuck else self._index
        return await source.search(wanted, after=after, limit=limit)

    async def count(self, wanted: ExecutionFilter) -> ExecutionCount:
        """Count executions, exactly up to some thousand."""
        return await (self.stuck if wanted.stuck else self._index).count(wanted)

    async def accepted(self, execution: str) -> ExecutionRecord:
        """Return the record of an execution."""
        found = await self._journal.accepted(execution)
        if found is None:
            raise ExecutionNotFoundError(f"no execution has the id {execution}")
        return found

    async def plan(self, execution: str) -> Plan:
        """Return the plan of an execution."""
        return await self._plans.plan((await self.accepted(execution)).hash)

    async def facts(self, execution: str, after: int = 0, limit: int | None = None) -> list[StoredFact]:
        """Return up to `limit` facts after a number, in commit order."""
        return await self._journal.facts(execution, after, limit)

    async def fact_batches(
        self, execution: str, after: int = 0, *, size: int = BATCH
    ) -> AsyncIterator[list[StoredFact]]:
        """Yield all facts after a number in batches, and let other tasks run in between."""
        while stored := await self.facts(execution, after, size):
            yield stored
            if len(stored) < size:
                return
            after = stored[-1].number
            await asyncio.sleep(0)

    async def history(self, execution: str, *, empty: bool = False) -> History:
        """Return the history of an execution. With `empty`, the caller adds the facts one by one."""
        accepted = await self.accepted(execution)
        plan = await self._plans.plan(accepted.hash)
        history = History(accepted, plan, self._journal, self._blob, ())
        if not empty:
            async for stored in self.fact_batches(execution):
                history.add(stored)
            await self.add_claims(history)
        return history

    async def attempts(self, execution: str) -> AttemptReader:
        """Return the reader of the attempts of an execution."""
        accepted = await self.accepted(execution)
        return AttemptReader(accepted, await self._plans.plan(accepted.hash), self._journal, self._blob)

    async def add_claims(self, history: History) -> None:
        """Add what workers claimed to a history whose facts are complete: an execution that did not complete may have
        runs without a fact."""
        if history.end is not None and history.end.status != "completed":
            history.claimed = await self.claims(history.accepted.id)

    async def node_runs(self, execution: str, *, after: int = 0, limit: int = 1000) -> list[NodeRun]:
        """Return a page of node runs in the order they ended."""
        return (await (await self.history(execution)).node_runs())[after : after + limit]

    async def events(self, execution: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        """Return up to `limit` events after a number."""
        history = await self.history(execution, empty=True)
        found = [history.beginning] if after < 1 else []
        async for stored in self.fact_batches(execution):
            found += [event for event in map(history.follow, stored) if event.number > after]
            if len(found) >= limit:
                break
        return found[:limit]

    async def state(self, execution: str, now: int) -> tuple[Plan, State]:
        """Return the state of an execution, rebuilt from its facts. Under fake time its clock may be ahead of ours."""
        accepted = await self.accepted(execution)
        plan = await self._plans.plan(accepted.hash)
        facts = [
            each.fact async for stored in self.fact_batches(execution) for each in stored if not each.late
        ]
        latest = max((each.at for each in facts), default=0)
        ended = any(isinstance(each, ExecutionEnded) for each in facts)
        moment = max(now, latest) if accepted.fake_time and not ended else now
        state, _ = fold(plan, [ExecutionStarted(accepted.at), *facts], moment)
        return plan, state
