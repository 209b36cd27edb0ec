"""Read-only queries about executions: lists, pages of node runs and events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from rune.core.execution.fact import ExecutionEnded
from rune.core.execution.outcome import Error
from rune.ports.journal import ExecutionRecord

STATUSES = ("running", "paused", "completed", "failed", "halted", "cancelled")
"""The statuses that a list shows."""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """One execution in a list. `failed_items` is None until it has ended; `version` is None if its definition was not
    started as a deployed workflow, `alias` if the start named the number of the version."""

    id: str
    workflow: str
    hash: str
    status: str
    started_at: int
    ended_at: int | None = None
    error: Error | None = None
    labels: dict[str, str] = {}
    failed_items: int | None = None
    version: int | None = None
    alias: str | None = None


def ended_summary(accepted: ExecutionRecord, end: ExecutionEnded) -> Summary:
    """Return the summary of an execution that has ended, as the index returns it."""
    return Summary(
        id=accepted.id,
        workflow=accepted.workflow,
        hash=accepted.hash,
        status=end.status,
        started_at=accepted.at,
        ended_at=end.at,
        error=end.error,
        labels=accepted.labels,
        failed_items=end.failed_items,
        version=accepted.version,
        alias=accepted.alias,
    )


class Frame(msgspec.Struct, frozen=True):
    """One level of a lineage: an item of a split."""

    split_node_id: str
    branch_id: str
    item_index: int
    total_items: int


class NodeRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a node in one lineage. `output` is JSON text, or None; `pinned` if it was given instead of calling
    the node."""

    node_id: str
    lineage: tuple[Frame, ...]
    status: str
    attempts: int = 0
    output: bytes | None = None
    error: Error | None = None
    started_at: int | None = None
    duration_ms: int = 0
    pinned: bool = False


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event of an execution. Numbers have no gaps within an execution."""

    number: int
    at: int
    kind: str
    node_id: str | None = None
    lineage: tuple[Frame, ...] = ()
    details: dict[str, Any] = {}


class ExecutionFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which executions to list: with one of these statuses, of a workflow, of a definition, with failed items, running
    without progress, started in a period (epoch ms, `until` excluded), that ended with an error code, that a principal
    started, children of an execution, retries of one, with all of these labels, of workflows in one of these scopes.
    What is left out selects all."""

    statuses: tuple[str, ...] = ()
    workflow: str | None = None
    hash: str | None = None
    failed_items: bool = False
    stuck: bool = False
    since: int | None = None
    until: int | None = None
    code: str | None = None
    principal: str | None = None
    parent: str | None = None
    retry_of: str | None = None
    labels: dict[str, str] = {}
    scopes: tuple[str, ...] = ()
    waiting: bool = False  # only executions in which a node has waited for a signal


ALL_EXECUTIONS = ExecutionFilter()


class ExecutionsFound(msgspec.Struct, frozen=True):
    """A page of executions, and the id of the execution to continue after; None on the last page."""

    executions: list[Summary]
    next: str | None


class ExecutionCount(msgspec.Struct, frozen=True):
    """A number of executions; an estimate if there are many."""

    count: int
    exact: bool


class StatusCount(msgspec.Struct, frozen=True):
    """How many executions of a workflow have a status."""

    workflow: str
    status: str
    count: int


class RecentExecution(msgspec.Struct, frozen=True):
    """An execution in the outcomes of a workflow."""

    id: str
    status: str
    started_at: int
    ended_at: int | None


COUNTED_MS = 300_000
"""The length of the periods in which ended executions are counted once and for all."""


class StoredCounts(msgspec.Struct, frozen=True):
    """Stored counts of ended executions: everything that ended from `low` to before `high` is counted."""

    low: int = 0
    high: int = 0
    counts: dict[int, list[StatusCount]] = {}


class CountStore(Protocol):
    """Stores how many executions ended in each period."""

    async def add(self, begin: int, counts: Sequence[StatusCount]) -> bool:
        """Store the counts of the period of COUNTED_MS that begins at a time and adjoins those that are counted. False
        if it does not: another process has stored it."""


class Statistics(Protocol):
    """Counts executions."""

    async def stored(self, since: int, until: int, step: int) -> StoredCounts:
        """Return the stored counts of a period, summed up by the beginning of steps, which are multiples of
        COUNTED_MS."""

    async def first_end(self) -> int | None:
        """Return the end time of the stored execution that ended first."""

    async def ended(self, since: int, until: int) -> list[StatusCount]:
        """Count the executions that ended in a period, by workflow and status."""

    async def open(self) -> list[StatusCount]:
        """Count the executions that have not ended, by workflow and status."""

    async def recent(self, workflow: str, limit: int) -> list[RecentExecution]:
        """Return the newest executions of a workflow, newest first."""

    async def durations(self, workflow: str, limit: int) -> list[int]:
        """Return how long the executions of a workflow that ended last took, in ms."""


class Executions(Protocol):
    """Lists executions."""

    async def executions(
        self, wanted: ExecutionFilter = ALL_EXECUTIONS, *, after: str | None = None, limit: int = 50
    ) -> list[Summary]:
        """Return executions, newest first, starting after the one with id `after`."""

    async def search(
        self, wanted: ExecutionFilter, *, after: str | None = None, limit: int = 50
    ) -> ExecutionsFound:
        """Return a page of executions, newest first. The work for a page is limited: it may hold fewer than `limit` and
        still have a next one."""

    async def count(self, wanted: ExecutionFilter) -> ExecutionCount:
        """Count executions, exactly up to some thousand."""

    async def execution(self, execution: str) -> Summary | None:
        """Return one execution."""


class Store(Executions, Protocol):
    """Lists executions, their node runs and their events."""

    async def node_runs(self, execution: str, *, after: int = 0, limit: int = 1000) -> list[NodeRun]:
        """Return a page of node runs in the order in which they ended."""

    async def events(self, execution: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        """Return events with numbers above `after`."""
