"""Starts executions: records them in the journal, initialises their state and sends their first tokens.

Every start passes through here. A start needs the journal alone: once its row is written it is accepted, and what
follows (state, queue, messages) is repeated by the outbox relay if it fails. The caller learns of the row, not of the
rest: an error for an execution that runs would make the caller start it a second time.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import time
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from rune.codec.records import request_digest
from rune.core.definition.model import canonical
from rune.core.definition.parser import NO_PINS, Pins
from rune.core.execution.fact import Fact
from rune.core.execution.stored_value import Inline, Large
from rune.core.format import required_format
from rune.core.limits import LIMITS
from rune.core.plan.model import Plan
from rune.errors import RuneError
from rune.off_loop import off_loop
from rune.ports.access import AppliedLimits
from rune.ports.journal import (
    ExecutionRecord,
    IdempotencyConflictError,
    StoreUnavailableError,
)
from rune.ports.state import Applied
from rune.ports.workflows import ChosenVersion
from rune.runtime import failpoint
from rune.runtime.backend import Backend
from rune.runtime.execution_data import ExecutionDataCache
from rune.runtime.lifecycle.finisher import Finisher
from rune.runtime.lifecycle.outbox_marker import OutboxMarker
from rune.runtime.messaging.completion_publisher import ExternalExecutor, ExternalExecutorError
from rune.runtime.payloads import same_payload
from rune.runtime.plan_cache import PlanCache
from rune.runtime.stored_values import store_start
from rune.telemetry.counters import Instrumentation

log = logging.getLogger("rune.launcher")

ACTIVATION_WAIT_S = 0.5
"""How long a start waits for its activation before it returns; the activation continues in the background."""

MAX_ADMISSION_S = 10.0
"""An execution is activated from memory only within this time after the launcher began to record it. Later, another
process may have activated it and it may have ended, so its state is read from the journal."""

MAX_ACTIVATIONS = 1_000
"""Activations in flight in this process; beyond it starts are left to the relay."""

_PROCESS = secrets.token_hex(4)
_COUNTER = itertools.count(secrets.randbits(16))


class StartOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a start. A second start with the same idempotency `key` returns the first execution. The service
    compiles the `pins` into the plan that is started."""

    key: str | None = None
    labels: dict[str, str] = {}
    fake_time: bool = False
    pins: Pins = NO_PINS
    followed: bool = (
        False  # the caller waits for the end of the execution, which another engine does not report
    )


DEFAULT_OPTIONS = StartOptions()


class _Start(msgspec.Struct, frozen=True):
    """A record to store, the payload that was stored as a blob for it, and the digest of the request."""

    record: ExecutionRecord
    blob: bytes | None
    digest: bytes | None


class VirtualTimeError(RuneError):
    """The backend has no virtual clock that an execution and its children share."""

    code = "NO_SHARED_CLOCK"


def _same_request(earlier: ExecutionRecord, later: ExecutionRecord) -> bool:
    """Return whether two starts, payloads aside, are one request. An alias may name another version meanwhile."""
    if (earlier.workflow, earlier.retry_of) != (later.workflow, later.retry_of):
        return False
    return earlier.hash == later.hash or (later.alias is not None and earlier.alias == later.alias)


class Launcher:
    """Accepts and activates executions."""

    def __init__(
        self,
        backend: Backend,
        plans: PlanCache,
        data_cache: ExecutionDataCache,
        finisher: Finisher,
        outbox_marker: OutboxMarker,
        instrumentation: Instrumentation,
        external: ExternalExecutor | None = None,
    ) -> None:
        """With an `external` executor, executions of definitions that name it are handed over to it."""
        self._journal = backend.journal
        self._blob = backend.blob
        self._state = backend.state
        self._queue = backend.queue
        self._clock = backend.clock
        self._admission = backend.admission
        self._plans = plans
        self._data_cache = data_cache
        self._finisher = finisher
        self._outbox_marker = outbox_marker
        self._instrumentation = instrumentation
        self._external = external
        self._saved_definitions: set[str] = set()
        self._shared_clocks = backend.shared_clocks
        # Without an outbox, journal and state are one store, and an activation waits for no other server.
        self._bounded = backend.outbox is not None
        self._activations: set[asyncio.Task[None]] = set()
        self._late = 0

    def new_record(
        self,
        plan: Plan,
        input: bytes,
        options: StartOptions = DEFAULT_OPTIONS,
        *,
        execution: str | None = None,
        priority: int | None = None,
        chosen: ChosenVersion | None = None,
    ) -> ExecutionRecord:
        """Return the record of an execution that starts now, with a new id unless one is given. `chosen` is the version
        if the workflow is stored. Callers add what led to the start, such as its principal or its parent."""
        return ExecutionRecord(
            id=execution or new_execution_id(),
            workflow=plan.definition.id,
            hash=plan.hash,
            at=self._clock.now(),
            input=Inline(input),
            key=options.key,
            labels=options.labels,
            priority=plan.definition.settings.priority if priority is None else priority,
            fake_time=options.fake_time,
            trace=self._instrumentation.incoming_trace(),
            version=None if chosen is None else chosen.number,
            alias=None if chosen is None else chosen.alias,
            scopes=() if chosen is None else chosen.scopes,
        )

    async def start(
        self,
        record: ExecutionRecord,
        plan: Plan,
        *,
        held: AppliedLimits | None = None,
        new_id: bool = False,
        followed: bool = False,
    ) -> ExecutionRecord:
        """Accept an execution; it is durable when this returns. Raise StartLimitError if one of the limits in `held`
        rejects it. With `new_id`, the id of the record was generated for this start. `followed`: see StartOptions. A
        child, whose parent waits for it, runs in this engine whatever its definition names."""
        if self._external is not None and self._external.runs(plan) and record.parent is None:
            if followed:
                raise ExternalExecutorError(
                    f"{plan.definition.id} is run by another engine, so its end cannot be waited for here: nothing was"
                    " started; a start that does not wait, such as `rune start`, hands it over"
                )
            return await self._external.start(record, plan)
        self._check_time(plan, fake_time=record.fake_time and record.depth == 0)
        await self._save_definition(plan)
        accepted, _ = await self._admit(record, plan, held, new_id=new_id)
        return accepted

    async def start_unless_known(
        self, wanted: ExecutionRecord, plan: Plan, kept: Sequence[Fact] = ()
    ) -> ExecutionRecord | None:
        """Accept an execution whose id its caller chose, to run in this engine whatever its definition names. Return
        the execution that has this id already; None if there was none."""
        await self._save_definition(plan)
        if kept:
            accepted, is_new = await self._admit_with(wanted, plan, kept, None)
        else:
            accepted, is_new = await self._admit(wanted, plan, None, new_id=False)
        return None if is_new else accepted

    def can_fake_time(self, plan: Plan) -> bool:
        """Return whether executions of a definition can have a virtual clock here. On a cluster each execution has one
        of its own, so that a child would win every race against a timer of its parent."""
        return self._shared_clocks or not plan.launches

    def _check_time(self, plan: Plan, *, fake_time: bool) -> None:
        if fake_time and not self.can_fake_time(plan):
            raise VirtualTimeError(
                f"`{plan.definition.id}` starts children: on a cluster they do not share a virtual clock; run it"
                " without one, or in virtual time on the embedded backend"
            )

    async def _save_definition(self, plan: Plan) -> None:
        if plan.hash not in self._saved_definitions:
            await self._journal.save_definition(plan.hash, canonical(plan.definition))
            self._saved_definitions.add(plan.hash)
        self._plans.add(plan)

    async def start_again(
        self, wanted: ExecutionRecord, plan: Plan, kept: Sequence[Fact], held: AppliedLimits | None = None
    ) -> ExecutionRecord:
        """Accept an execution that starts with recorded results, such as those kept from an earlier execution."""
        self._check_time(plan, fake_time=wanted.fake_time)
        await self._save_definition(plan)
        accepted, _ = await self._admit_with(wanted, plan, kept, held)
        return accepted

    async def _admit_with(
        self, wanted: ExecutionRecord, plan: Plan, kept: Sequence[Fact], held: AppliedLimits | None
    ) -> tuple[ExecutionRecord, bool]:
        """Accept and activate an execution that starts with facts; return it, and whether it is new."""
        start = await self._prepare(wanted, plan)
        accepted = await self._accept(start, kept, held, new_id=wanted.retry_of is not None)
        failpoint.hit("accepted")
        is_new = accepted is start.record
        if is_new:
            self._instrumentation.accepted()
        if accepted.id == wanted.id:
            await self._follow_up(accepted.id, self.activate(accepted))
        return accepted, is_new

    async def _prepare(self, record: ExecutionRecord, plan: Plan) -> _Start:
        """Return a record as it is to be stored, with its start payload as a blob if it is large."""
        digest: bytes | None = None
        data = record.input.data if type(record.input) is Inline else None
        if data is not None and len(data) > LIMITS.inline_bytes:
            stored = await store_start(self._blob, record.id, data)
            record = replace(record, input=stored)
            failpoint.hit("start_stored")
            # crash here: the blob belongs to no execution; a start with the same id, such as of a child, uses it
            if record.key is not None:
                digest = await off_loop(partial(request_digest, record.hash, data))
        large = type(record.input) is Large
        scoped = plan.launches and bool(record.scopes)
        format = required_format(plan.definition, scoped=scoped, large_start=large)
        return _Start(replace(record, format=format), data if large else None, digest)

    async def _accept(
        self, start: _Start, facts: Sequence[Fact], held: AppliedLimits | None, *, new_id: bool
    ) -> ExecutionRecord:
        """Record a start. The blob of one that is not accepted is deleted if nobody else knows its id."""
        record = start.record
        try:
            accepted = await self._record(start, facts, held)
        except StoreUnavailableError:
            raise  # it may have been recorded
        except RuneError:
            await self._drop_blob(start, new_id=new_id)
            raise
        if accepted.id != record.id:
            await self._drop_blob(start, new_id=new_id)
        elif start.blob is not None and not new_id and type(record.input) is Large:
            # An execution that had this id may have been removed meanwhile, with all blobs under it.
            await self._blob.put(record.input.key, start.blob)
        return accepted

    async def _record(
        self, start: _Start, facts: Sequence[Fact], held: AppliedLimits | None
    ) -> ExecutionRecord:
        """Record a start, or return the one that its idempotency key was used for. The journal compares the texts of
        requests; only if they differ, and the first execution still exists, are their values compared."""
        try:
            return await self._journal.accept(start.record, facts, held, start.digest)
        except IdempotencyConflictError:
            earlier = await self._started_under(start.record.key)
            if earlier is None or not _same_request(earlier, start.record):
                raise
            payload = start.record.input if start.blob is None else Inline(start.blob)
            if not await same_payload(self._blob, earlier.input, payload):
                raise
            return earlier

    async def _started_under(self, key: str | None) -> ExecutionRecord | None:
        execution = None if key is None else await self._journal.keyed(key)
        return None if execution is None else await self._journal.accepted(execution)

    async def _drop_blob(self, start: _Start, *, new_id: bool) -> None:
        if start.blob is not None and new_id:
            with suppress(StoreUnavailableError):
                await self._blob.delete(start.record.id)

    async def activate(self, accepted: ExecutionRecord) -> None:
        """Initialise the state of a recorded execution and send its first tokens. Safe to repeat."""
        await self._send(accepted, await self._state.begin(accepted.id))

    async def _admit(
        self, record: ExecutionRecord, plan: Plan, held: AppliedLimits | None, *, new_id: bool
    ) -> tuple[ExecutionRecord, bool]:
        """Accept an execution and activate it from memory, which saves reading it back from the journal. Return it, and
        whether it is new."""
        start = await self._prepare(record, plan)
        record = start.record
        room = await self._admission.room()
        began = time.monotonic()
        with self._admission.arriving(record.id):
            accepted = await self._accept(start, (), held, new_id=new_id)
            # crash here: the row is marked as not activated; the relay, or the next owner of the file, activates it
            failpoint.hit("accepted")
            if accepted is record:
                self._instrumentation.accepted()
            # An execution with the same id may be running, and without room the state loads this one later.
            if accepted is not record or not room:
                return accepted, accepted is record
            self._data_cache.open(accepted, plan)
            if self._bounded:
                activation = self._activate_accepted(accepted, plan, began)
            else:
                activation = self._send(accepted, await self._admission.admit(accepted, plan))
        await self._follow_up(accepted.id, activation)
        return accepted, True

    async def _activate_accepted(self, accepted: ExecutionRecord, plan: Plan, began: float) -> None:
        """Activate an execution from memory or, if its record took too long, from the journal."""
        if time.monotonic() - began > MAX_ADMISSION_S:
            await self.activate(accepted)
        else:
            await self._send(accepted, await self._admission.admit(accepted, plan, began))

    async def _follow_up(self, execution: str, activation: Coroutine[Any, Any, None]) -> None:
        """Activate an accepted execution. Wait for it briefly, and not at all while another activation is late: the
        store that it waits for is away."""
        if not self._bounded:
            await self._try_activate(execution, activation)
            return
        if len(self._activations) >= MAX_ACTIVATIONS:
            activation.close()
            return
        task = asyncio.create_task(self._try_activate(execution, activation))
        self._activations.add(task)
        task.add_done_callback(self._activations.discard)
        if not self._late:
            await asyncio.wait({task}, timeout=ACTIVATION_WAIT_S)
        if not task.done():
            self._late += 1
            task.add_done_callback(self._one_less_late)

    def _one_less_late(self, _: asyncio.Task[None]) -> None:
        self._late -= 1

    async def _try_activate(self, execution: str, activation: Coroutine[Any, Any, None]) -> None:
        """Activate an accepted execution. If that fails, the relay, or the scheduler of an embedded engine, does it."""
        try:
            await activation
        except Exception as error:
            why = error.message if isinstance(error, RuneError) else f"{type(error).__name__}: {error}"
            # The same text for all executions, so that repeated lines are summarized.
            log.warning("an accepted execution is activated later: %s", why, extra={"execution": execution})

    async def close(self) -> None:
        """Wait briefly for activations in flight and give up the others, which the relay completes."""
        if self._activations:
            _, late = await asyncio.wait(self._activations, timeout=ACTIVATION_WAIT_S)
            for activation in late:
                activation.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _send(self, accepted: ExecutionRecord, applied: Applied) -> None:
        failpoint.hit("admitted")
        await self._queue.send(accepted.id, applied.emitted, accepted.priority)
        self._outbox_marker.mark_done(accepted.id, "start")
        if applied.finish is not None:
            await self._finisher.finish(accepted.id, applied.finish, applied.now)


def new_execution_id() -> str:
    """Return a unique id that sorts by time: a timestamp, a random id of this process and a counter."""
    return f"x{time.time_ns() // 1_000_000:012x}{_PROCESS}{next(_COUNTER) & 0xFFFFFF:06x}"
