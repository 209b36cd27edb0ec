"""Read-only queries about executions: lists, pages of node runs and events; and bulk jobs: one action on many
executions, carried out in the background and resumed after a crash.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import msgspec

from rune.core.execution.fact import ExecutionEnded
from rune.core.execution.outcome import Error
from rune.core.execution.token import Frame
from rune.ports.journal import ExecutionRecord
from rune.ports.retention import ENDED

STATUSES = ("running", "paused", *ENDED)
"""The statuses that a list shows. Every filter knows these words, and no other."""

FAILED = ("failed", "halted")
"""What people mean by failed. A node whose failure ends its execution halts it; `failed` alone is the end by a timeout
or by items that no aggregator collects."""


def outcome_of(status: str) -> str:
    """Return the status by which ended executions are counted: `failed` for halted ones too."""
    return "failed" if status in FAILED else status


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


class NodeRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a node in one lineage. `output` is JSON text, or None; `pinned` if it was given instead of calling
    the node. If `size` is set, the output is a large value that the node passed on: `output` names where it comes from,
    and `size` is its length."""

    node_id: str
    lineage: tuple[Frame, ...]
    status: str
    attempts: int = 0
    output: bytes | None = None
    size: int | None = None
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
    What is left out selects all. The status `failed` selects halted executions too."""

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

    def __post_init__(self) -> None:
        if "failed" in self.statuses and "halted" not in self.statuses:
            msgspec.structs.force_setattr(self, "statuses", (*self.statuses, "halted"))


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


BulkAction = Literal["cancel", "pause", "resume", "retry", "retry_failed_items", "requeue"]
BulkStatus = Literal["running", "completed", "aborted"]
Outcome = Literal["done", "unchanged", "refused"]

KEPT_MS = 30 * 86_400_000
"""How long a job that is over is kept."""


class BulkJob(msgspec.Struct, frozen=True, kw_only=True):
    """One action on many executions, for the principal that requested it. `counts` has the number of executions by
    outcome; those that are not processed yet are in none. `request` is a digest of what was asked for."""

    id: str
    at: int
    principal: str
    action: BulkAction
    reason: str = ""
    total: int = 0
    status: BulkStatus = "running"
    counts: dict[str, int] = {}
    request: str = ""


class BulkTarget(msgspec.Struct, frozen=True):
    """An execution of a job by its place, from 0."""

    place: int
    execution: str


class BulkOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one execution. `started` is the id of the new execution of a retry; `code` and `detail` tell why
    it was refused."""

    place: int
    execution: str
    outcome: Outcome
    started: str = ""
    code: str = ""
    detail: str = ""


class BulkStore(Protocol):
    """Stores bulk jobs."""

    async def create(self, job: BulkJob, executions: Sequence[str]) -> BulkJob:
        """Store a job, or return the stored one with this id. Jobs that are over are deleted after KEPT_MS."""

    async def find(self, id: str) -> BulkJob | None:
        """Return a job."""

    async def list(self, limit: int) -> Sequence[BulkJob]:
        """Return jobs, newest first."""

    async def claim(self, now: int, until: int) -> BulkJob | None:
        """Return a running job that no process works on, and reserve it until a time."""

    async def pending(self, id: str, limit: int) -> Sequence[BulkTarget]:
        """Return executions of a job that are not processed yet, in order."""

    async def record(self, id: str, outcomes: Sequence[BulkOutcome], until: int) -> BulkStatus:
        """Store outcomes and extend the reservation. Return the status: `completed` once all have an outcome."""

    async def abort(self, id: str) -> bool:
        """Stop a job before its next execution; False if the job is over."""

    async def outcomes(
        self, id: str, *, after: int = -1, limit: int = 100, outcome: Outcome | None = None
    ) -> Sequence[BulkOutcome]:
        """Return the outcomes of a job after a place, in order."""
