"""Bulk jobs: one action on many executions, carried out in the background and resumed after a crash."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

BulkAction = Literal["cancel", "pause", "resume", "retry", "retry_failed_items", "requeue"]
BulkStatus = Literal["running", "completed", "aborted"]
Outcome = Literal["done", "unchanged", "refused"]

KEPT_MS = 30 * 86_400_000
"""How long a job that is over is kept."""


class BulkJob(msgspec.Struct, frozen=True, kw_only=True):
    """One action on many executions, for the principal that requested it. `counts` has the number of executions by
    outcome; those that are not processed yet are in none."""

    id: str
    at: int
    principal: str
    action: BulkAction
    reason: str = ""
    total: int = 0
    status: BulkStatus = "running"
    counts: dict[str, int] = {}


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
