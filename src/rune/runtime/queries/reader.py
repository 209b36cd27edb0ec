"""Answers queries about executions from the journal alone, also while another process owns the database.

Among them: which executions make no progress although nothing they wait for is still to come.

Attempts of node runs and their logs are read from the journal and the blob store.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeGuard, TypeVar

import msgspec
from msgspec.structs import replace

from rune.core.execution.explain import explain
from rune.core.execution.fact import (
    AttemptFailed,
    ExecutionEnded,
    ExecutionStarted,
    Fact,
    NodeResult,
    NodeSuspended,
    TokenFact,
)
from rune.core.execution.fold import fold
from rune.core.execution.outcome import Error
from rune.core.execution.state import State
from rune.core.execution.stored_value import Inline, Large
from rune.core.execution.token import Path, idempotency_key, token_name
from rune.core.json_decoder import read_json
from rune.core.plan.model import Plan
from rune.errors import RuneError
from rune.nodes.attempt_log import LogLine, StoredLog, decode_log, shortened
from rune.nodes.redaction import SECRETS_IN_USE
from rune.off_loop import off_loop
from rune.ports.journal import BlobStore, ExecutionRecord, Journal, StoreDamagedError, StoredFact
from rune.ports.processes import RunningNode
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
from rune.runtime.execution_data import ExecutionNotFoundError
from rune.runtime.plan_cache import PlanCache
from rune.runtime.queries import history as replays
from rune.runtime.queries.history import STATUS, History
from rune.runtime.worker.attempt_logs import log_key

LOG_BATCH_SIZE = 500
MAX_FOLDED = 4
"""States of large executions that are kept until a new fact of theirs is recorded."""

T = TypeVar("T")
Peek = Callable[[str], Awaitable[State | None]]
"""Returns the state of an execution that a process or server has; None if it has none."""


async def no_state(execution: str) -> State | None:
    """Return no state: only the journal is read."""
    return None


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of a node run. `ended_at` is None while it runs or waits."""

    attempt: int
    status: str
    started_at: int
    ended_at: int | None = None
    error: Error | None = None
    worker: str = ""
    logged: bool = False


class NodeLog(msgspec.Struct, frozen=True, kw_only=True):
    """The log of one attempt."""

    node: int
    path: Path
    attempt: int
    dropped: int
    lines: list[LogLine]


def attempts_of(
    facts: Sequence[TokenFact], end: ExecutionEnded | None, running: RunningNode | None = None
) -> list[Attempt]:
    """Return the attempts of a token, given its facts, the end of its execution and what a worker runs now."""
    found: dict[int, Attempt] = {}
    for fact in facts:
        if isinstance(fact, NodeSuspended):
            began = fact.began or fact.at
            found[fact.attempt] = Attempt(
                attempt=fact.attempt, status="waiting", started_at=began, logged=fact.logged
            )
        elif isinstance(fact, AttemptFailed | NodeResult):
            known = found.get(fact.attempt)
            began = fact.began or fact.at
            status = "failed" if isinstance(fact, AttemptFailed) else STATUS.get(fact.status, fact.status)
            found[fact.attempt] = Attempt(
                attempt=fact.attempt,
                status=status,
                started_at=began if known is None else known.started_at,
                ended_at=fact.at,
                error=fact.failure,
                worker=fact.worker,
                logged=fact.logged or (known is not None and known.logged),
            )
    if running is not None and found.get(running.attempt, _NONE).ended_at is None:
        found[running.attempt] = Attempt(
            attempt=running.attempt, status="running", started_at=running.since, worker=running.worker
        )
    attempts = [found[number] for number in sorted(found)]
    if end is not None and attempts and attempts[-1].ended_at is None:
        attempts[-1] = msgspec.structs.replace(attempts[-1], status="cancelled", ended_at=end.at)
    return attempts


_NONE = Attempt(attempt=0, status="", started_at=0)


class AttemptReader:
    """Reads the attempts of one execution and their logs."""

    def __init__(self, accepted: ExecutionRecord, plan: Plan, journal: Journal, blob: BlobStore) -> None:
        self.execution = accepted.id
        self.plan = plan
        self.history = History(accepted, plan, journal, blob, ())
        """Computes lineages. They lack the number of items."""
        self._journal = journal
        self._blob = blob
        self._root = accepted.root or accepted.id

    def idempotency_key(self, node: int, path: Path) -> str:
        """Return the key that a node with effects sends; empty for one that sends none."""
        found = self.plan.nodes[node]
        if found.pure or not found.node.idempotency_key:
            return ""
        return idempotency_key(self._root, token_name(node, path, self.plan.ids))

    async def attempts(self, node: int, path: Path, running: Sequence[RunningNode] = ()) -> list[Attempt]:
        """Return the attempts of a token, oldest first."""
        facts = await self._journal.facts_of_token(self.execution, node, path)
        now = next((each for each in running if (each.node, each.path) == (node, path)), None)
        return attempts_of(facts, await self._journal.end(self.execution), now)

    async def log(self, node: int, path: Path, attempt: int) -> NodeLog:
        """Return the log of an attempt; without lines if it logged nothing."""
        if self.plan.nodes[node].type.logs_output:
            for fact in await self._journal.facts_of_token(self.execution, node, path):
                if self.is_line(fact) and fact.attempt == attempt:
                    return await self.output_line(fact)
        data = await self._blob.get(log_key(self.execution, self.plan, node, path, attempt))
        stored = StoredLog() if data is None else decode_log(data)
        return NodeLog(node=node, path=path, attempt=attempt, dropped=stored.dropped, lines=stored.lines)

    async def logs(
        self, after: int = 0, node: int | None = None
    ) -> AsyncIterator[tuple[int, NodeLog | None]]:
        """Yield the logs of all attempts that have ended or wait, in the order of their facts, each with the number of
        its fact; None for a fact without a log. `after` is the number of a fact, `node` selects one node."""
        while stored := await self._journal.facts(self.execution, after, LOG_BATCH_SIZE):
            for each in stored:
                yield each.number, await self._log_of(each.fact, node)
            if len(stored) < LOG_BATCH_SIZE:
                return
            after = stored[-1].number

    async def _log_of(self, fact: Fact, node: int | None) -> NodeLog | None:
        if not isinstance(fact, NodeResult | AttemptFailed | NodeSuspended) or node not in (None, fact.node):
            return None
        if self.is_line(fact):
            return await self.output_line(fact)
        return await self.log(fact.node, fact.path, fact.attempt) if fact.logged else None

    def is_line(self, fact: Fact | None) -> TypeGuard[NodeResult]:
        """Return whether a fact is the result of a node whose output is what it logs."""
        if not isinstance(fact, NodeResult) or fact.status != "ok":
            return False
        return self.plan.nodes[fact.node].type.logs_output

    async def output_line(self, fact: NodeResult) -> NodeLog:
        """Return the line of a node whose output is what it logs."""
        run = await self.history.node_run(fact, whole=True)
        message = read_json(run.output) if run.output is not None else None
        text = message if isinstance(message, str) else (run.output or b"null").decode()
        level = str(self.plan.definition.nodes[fact.node].parameters.get("level", "info"))
        line = LogLine(fact.at, level, SECRETS_IN_USE.text(shortened(text)))
        return NodeLog(node=fact.node, path=fact.path, attempt=fact.attempt, dropped=0, lines=[line])


BATCH = 1_000

STUCK_AFTER_MS = 15 * 60_000
"""An execution without a new row for this long is stuck, unless each of its tokens waits for a time or a signal."""

BATCH_SIZE = 200
MAX_COUNTED = 1_000
"""Running executions that are checked in order to count the stuck ones. Each may have to be folded."""


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
        self.open_claims = journal.open_claims
        self.dead_letters = journal.dead_letters
        self._turn = asyncio.Lock()
        self._folded: OrderedDict[str, tuple[int, State]] = OrderedDict()

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

    async def start_payload(self, execution: str) -> bytes:
        """Return the start payload of an execution as JSON."""
        stored = (await self.accepted(execution)).input
        if type(stored) is Inline:
            return stored.data
        data = await self._blob.get(stored.key) if type(stored) is Large else None
        if data is None:
            raise StoreDamagedError(f"the start payload of {execution} is not in the blob store")
        return data

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
            await history.load_claims()
        return history

    async def attempts(self, execution: str) -> AttemptReader:
        """Return the reader of the attempts of an execution."""
        accepted = await self.accepted(execution)
        return AttemptReader(accepted, await self._plans.plan(accepted.hash), self._journal, self._blob)

    async def node_runs(self, execution: str, *, after: int = 0, limit: int = 1000) -> list[NodeRun]:
        """Return a page of node runs in the order they ended."""
        return (await (await self.history(execution)).node_runs())[after : after + limit]

    async def events(self, execution: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        """Return up to `limit` events after a number."""
        history = await self.history(execution, empty=True)
        found = [history.beginning] if after < 1 else []
        async for stored in self.fact_batches(execution):
            await history.load_claims(stored)
            found += [event for event in map(history.follow, stored) if event.number > after]
            if len(found) >= limit:
                break
        return found[:limit]

    async def replayed(
        self,
        execution: str,
        of_facts: Callable[[Sequence[StoredFact]], T],
        of_state: Callable[[State], T],
        peek: Peek = no_state,
    ) -> T:
        """Return what a function makes of the facts of an execution. If there are many, of its state, if that is known
        without them; else one execution is read at a time, and its facts are replayed in a thread."""
        found: list[StoredFact] = []
        async for stored in self.fact_batches(execution):
            found += stored
            if len(found) > replays.MAX_INLINE_FACTS:
                break
        else:
            return of_facts(found)
        state = await peek(execution)
        if state is not None:
            return of_state(state)
        async with self._turn:
            async for stored in self.fact_batches(execution, found[-1].number):
                found += stored
            return await off_loop(lambda: of_facts(found))

    async def state(self, execution: str, now: int, peek: Peek = no_state) -> tuple[Plan, State]:
        """Return the state of an execution, rebuilt from its facts, or that which `peek` returns if there are many.
        Under fake time its clock may be ahead of ours."""
        accepted = await self.accepted(execution)
        plan = await self._plans.plan(accepted.hash)
        end = await self._journal.end(execution)
        if end is not None:  # nothing is open any more, whatever was recorded before
            state, _ = fold(plan, [ExecutionStarted(accepted.at), end], now)
            return plan, state
        known = self._folded.get(execution)
        if known is not None:
            if not await self.facts(execution, known[0], 1):
                return plan, known[1]
            del self._folded[execution]

        def folded(stored: Sequence[StoredFact]) -> State:
            facts = [each.fact for each in stored if not each.late]
            latest = max((each.at for each in facts), default=0)
            ended = any(isinstance(each, ExecutionEnded) for each in facts)
            moment = max(now, latest) if accepted.fake_time and not ended else now
            state, _ = fold(plan, [ExecutionStarted(accepted.at), *facts], moment)
            if len(stored) > replays.MAX_INLINE_FACTS:
                self._keep(execution, stored[-1].number, state)
            return state

        return plan, await self.replayed(execution, folded, lambda state: state, peek)

    async def open_state(self, execution: str, now: int, peek: Peek = no_state) -> State | None:
        """Return the state of an execution; None if it has ended."""
        if await self._journal.end(execution) is not None:
            return None
        return await peek(execution) or (await self.state(execution, now))[1]

    def _keep(self, execution: str, last: int, state: State) -> None:
        self._folded[execution] = last, state
        while len(self._folded) > MAX_FOLDED:
            self._folded.popitem(last=False)


class Progress(Protocol):
    """Reads how far an execution is."""

    async def last_progress(self, execution: str) -> int | None:
        """Return the time of the newest row of an execution (epoch ms); None if it has none."""

    async def state(self, execution: str, now: int) -> tuple[Plan, State]:
        """Return the state of an execution."""


class StuckExecutions:
    """Selects the executions without progress among the running ones."""

    def __init__(self, index: Executions, progress: Progress) -> None:
        self._index = index
        self._progress = progress

    async def search(self, wanted: ExecutionFilter, *, after: str | None, limit: int) -> ExecutionsFound:
        """Return a page of executions without progress, newest first, out of up to BATCH_SIZE running ones."""
        if wanted.statuses and "running" not in wanted.statuses:
            return ExecutionsFound([], None)
        now = time.time_ns() // 1_000_000
        latest = now - STUCK_AFTER_MS + 1
        until = latest if wanted.until is None else min(wanted.until, latest)
        running = replace(wanted, statuses=("running",), stuck=False, until=until)
        page = await self._index.search(running, after=after, limit=BATCH_SIZE)
        found: list[Summary] = []
        for each in page.executions:
            if await self.is_stuck(each, now):
                found.append(each)
                if len(found) == limit:
                    return ExecutionsFound(found, each.id)
            await asyncio.sleep(0)  # reads of an embedded file do not suspend
        return ExecutionsFound(found, page.next)

    async def all(self, wanted: ExecutionFilter, *, after: str | None, limit: int) -> list[Summary]:
        """Return up to `limit` executions without progress."""
        found: list[Summary] = []
        while True:
            page = await self.search(wanted, after=after, limit=limit - len(found))
            found += page.executions
            after = page.next
            if after is None or len(found) >= limit:
                return found

    async def count(self, wanted: ExecutionFilter) -> ExecutionCount:
        """Count the executions without progress among the newest running ones."""
        count, after = 0, None
        for _ in range(MAX_COUNTED // BATCH_SIZE):
            page = await self.search(wanted, after=after, limit=BATCH_SIZE)
            count += len(page.executions)
            after = page.next
            if after is None:
                return ExecutionCount(count, exact=True)
        return ExecutionCount(count, exact=False)

    async def is_stuck(self, execution: Summary, now: int) -> bool:
        """Return whether a running execution has no new row although a token of it is ready, whatever its other tokens
        wait for, or although it waits for no signal and no timer that is still to fire. A node that runs for longer
        than STUCK_AFTER_MS has no row either, and counts; a paused execution does not."""
        oldest = now - STUCK_AFTER_MS
        if execution.status != "running" or execution.started_at > oldest:
            return False
        progress = await self._progress.last_progress(execution.id)
        if progress is not None and progress > oldest:
            return False
        try:
            plan, state = await self._progress.state(execution.id, now)
        except RuneError:
            return True  # no process can continue it either
        if state.paused_at is not None:
            return False
        if any(not each.waiting for scope in state.scopes.values() for each in scope.live.values()):
            return True
        if any(state.waiting_for_signal.values()):
            return False
        return all(each.due is None or each.due <= oldest for each in explain(plan, state))
