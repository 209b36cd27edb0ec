"""Bulk jobs: one action on many executions. The process that claims a job carries it out; if it crashes, another one
continues. An action that is repeated changes nothing, because retries use an idempotency key of the job."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from rune.core.start_keys import BULK, check_key
from rune.errors import RuneError
from rune.ports.clock import Clock
from rune.ports.journal import ExecutionEndedError, StoreUnavailableError
from rune.ports.queries import BulkAction, BulkJob, BulkOutcome, BulkStore, BulkTarget, Outcome
from rune.runtime.services.audit_log import AuditLog, audited
from rune.runtime.services.dead_letters import DeadLetterService
from rune.runtime.services.executions import ExecutionService, RequestRefusedError
from rune.runtime.services.principal import as_principal, current_principal

log = logging.getLogger("rune.bulk")

BATCH_SIZE = 32
LEASE_MS = 30_000
POLL_INTERVAL_S = 5.0
FINISH_INTERVAL_S = 0.1
MAX_BULK_TARGETS = 10_000


class BulkJobNotFoundError(RuneError):
    """No bulk job has this id."""

    code = "UNKNOWN_BULK_JOB"


class BulkService:
    """Creates, shows and aborts bulk jobs."""

    def __init__(
        self,
        store: BulkStore,
        executions: ExecutionService,
        dead_letters: DeadLetterService,
        clock: Clock,
        audit_log: AuditLog,
    ) -> None:
        self.audit_log = audit_log
        self._store = store
        self._executions = executions
        self._dead_letters = dead_letters
        self._clock = clock
        self._created = asyncio.Event()

    @audited(
        "bulk.create", "action", ("reason", "filter"), counted="executions", made=lambda job: {"job": job.id}
    )
    async def create(
        self,
        action: BulkAction,
        executions: Sequence[str],
        *,
        reason: str = "",
        filter: str = "",
        key: str | None = None,
        request: str = "",
    ) -> BulkJob:
        """Store a job. `filter` describes how the executions were selected, for the audit log. Under an idempotency key
        a second call returns the first job, if the `request` is the same: the text of the selection, or without one
        the executions."""
        check_key(key)
        if len(executions) > MAX_BULK_TARGETS:
            raise RequestRefusedError(
                f"a bulk job has at most {MAX_BULK_TARGETS:,} executions", code="BAD_BODY"
            )
        principal = current_principal()
        job = BulkJob(
            id=_id_of(principal, key),
            at=self._clock.now(),
            principal=principal,
            action=action,
            reason=reason,
            total=len(executions),
            status="running" if executions else "completed",
            request=_digest_of(action, reason, request or [*executions]),
        )
        stored = await self._store.create(job, executions)
        same = (stored.action, stored.reason) == (action, reason)
        if not same or stored.request not in ("", job.request):  # empty: of an earlier version
            raise RequestRefusedError(
                f"key `{key}` was used before with another action, or for other executions",
                code="KEY_CONFLICT",
            )
        self._created.set()
        return stored

    async def find(self, id: str) -> BulkJob:
        """Return a job."""
        found = await self._store.find(id)
        if found is None:
            raise BulkJobNotFoundError(f"there is no bulk job `{id}`")
        return found

    async def list(self, limit: int = 100) -> Sequence[BulkJob]:
        """Return jobs, newest first."""
        return await self._store.list(limit)

    async def outcomes(
        self, id: str, *, after: int = -1, limit: int = 100, outcome: Outcome | None = None
    ) -> Sequence[BulkOutcome]:
        """Return the outcomes of a job in order."""
        return await self._store.outcomes(id, after=after, limit=limit, outcome=outcome)

    @audited("bulk.abort", "id")
    async def abort(self, id: str) -> BulkJob:
        """Stop a job before its next execution. Actions that were carried out are not undone."""
        await self.find(id)
        await self._store.abort(id)
        return await self.find(id)

    async def finish(self, id: str) -> BulkJob:
        """Carry out jobs until this one has ended; wait for it while another process carries it out."""
        while True:
            job = await self.find(id)
            if job.status != "running":
                return job
            if not await self._carry_out_next():
                await asyncio.sleep(FINISH_INTERVAL_S)

    async def run(self) -> None:
        """Carry out jobs until cancelled."""
        while True:
            self._created.clear()
            try:
                if await self._carry_out_next():
                    continue
            except StoreUnavailableError as error:
                log.warning("bulk jobs pause, because a store is unavailable: %s", error)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._created.wait(), POLL_INTERVAL_S)

    async def _carry_out_next(self) -> bool:
        """Claim a job and carry it out; return False if there is none to claim."""
        now = self._clock.now()
        job = await self._store.claim(now, now + LEASE_MS)
        if job is not None:
            await self._carry_out(job)
        return job is not None

    async def _carry_out(self, job: BulkJob) -> None:
        status = job.status
        while status == "running":
            targets = await self._store.pending(job.id, BATCH_SIZE)
            with as_principal(job.principal):
                outcomes = await asyncio.gather(*(self._act(job, each) for each in targets))
            status = await self._store.record(job.id, outcomes, self._clock.now() + LEASE_MS)
        log.info("bulk job %s (%s of %d executions) is %s", job.id, job.action, job.total, status)

    async def _act(self, job: BulkJob, target: BulkTarget) -> BulkOutcome:
        try:
            outcome, started = await self._apply(job, target.execution)
        except StoreUnavailableError:
            raise
        except RuneError as error:
            return BulkOutcome(
                place=target.place,
                execution=target.execution,
                outcome="refused",
                code=error.code,
                detail=error.message,
            )
        return BulkOutcome(place=target.place, execution=target.execution, outcome=outcome, started=started)

    async def _apply(self, job: BulkJob, execution: str) -> tuple[Outcome, str]:
        match job.action:
            case "cancel":
                return await self._cancel(execution, job.reason)
            case "pause":
                return _changed(await self._executions.pause(execution))
            case "resume":
                return _changed(await self._executions.resume(execution))
            case "requeue":
                return "done", (await self._dead_letters.requeue(execution)).id
            case "retry" | "retry_failed_items":
                accepted = await self._executions.retry(
                    execution,
                    failed_items=job.action == "retry_failed_items",
                    key=f"{BULK}{job.id}:{execution}",
                    own_key=True,
                )
                return "done", accepted.id

    async def _cancel(self, execution: str, reason: str) -> tuple[Outcome, str]:
        try:
            return _changed(await self._executions.cancel(execution, reason) == "cancelled")
        except ExecutionEndedError as ended:
            # Cancelled before, perhaps by this job before a crash.
            if ended.end.status != "cancelled":
                raise
            return "unchanged", ""


def _changed(changed: bool) -> tuple[Outcome, str]:
    return ("done" if changed else "unchanged"), ""


def _digest_of(action: str, reason: str, selection: str | list[str]) -> str:
    """Return a digest by which two requests under one key are compared."""
    return hashlib.sha256(msgspec.json.encode([action, reason, selection])).hexdigest()


def _id_of(principal: str, key: str | None) -> str:
    """Return the id of a new job; the same for the same key of a principal."""
    if key is None:
        return f"b{secrets.token_hex(12)}"
    text = msgspec.json.encode([principal, key])
    return f"b{hashlib.blake2b(text, digest_size=12).hexdigest()}"
