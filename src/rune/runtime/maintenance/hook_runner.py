"""Starts the handlers of hooks: the workflow that the definition of a failed, late or missing execution names.

The row of a hook is written with the end that it follows from, and deleted when the handler was started under an id and
a key that follow from the execution: whoever repeats it finds the handler. Executions of handlers, and what they start,
have no handlers, so that a handler that fails does not start itself.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from typing import Any

import msgspec
from msgspec.structs import replace

from rune.core.definition.model import NO_HANDLER, HookHandler
from rune.core.execution.fact import ExecutionEnded
from rune.core.permissions import may_call
from rune.core.start_keys import HOOK
from rune.errors import RuneError
from rune.ports.clock import iso
from rune.ports.journal import (
    ExecutionRecord,
    HookRow,
    IdempotencyConflictError,
    IdempotencyKeyExpiredError,
    Missing,
    StoreUnavailableError,
)
from rune.ports.workflows import child_forbidden, chosen_by
from rune.runtime import failpoint
from rune.runtime.backend import Backend
from rune.runtime.lifecycle.finisher import hook_status
from rune.runtime.lifecycle.launcher import Launcher, StartOptions
from rune.runtime.payloads import check_start
from rune.runtime.plan_cache import PlanCache
from rune.telemetry.counters import Counters

log = logging.getLogger("rune.hooks")

LATE = "late"
"""The kind of hooks of executions that are late; the others of executions are of ends."""

MISSING = "missing"
"""The kind of hooks of executions that are missing. These have no record."""

BATCH = 100
POLL_S = 1.0
MAX_TRIES = 32
"""Tries to start a handler. With their growing delays they take a day."""

KEPT_MS = 30 * 24 * 3_600_000
"""How long it is listed that a handler was given up."""

FORGET_PERIOD_S = 3_600.0
MAX_ERROR_CHARS = 500
MAX_MESSAGE_CHARS = 2_000
MAX_LABELS_BYTES = 8 * 1024
"""Longer messages are cut and more labels left out: the input of a handler stays below 32 KiB."""


class _Subject(msgspec.Struct, frozen=True):
    """What a handler is started for."""

    workflow: str
    scopes: tuple[str, ...]
    input: dict[str, Any]
    fake_time: bool = False


class HookRunner:
    """Starts one handler per execution and kind of hook."""

    def __init__(
        self, backend: Backend, plans: PlanCache, launcher: Launcher, counters: Counters, public_url: str = ""
    ) -> None:
        self._public_url = public_url.rstrip("/")
        self._counters = counters
        self._clock = backend.clock
        self._forgot_at = -FORGET_PERIOD_S
        self._hooks = backend.hooks
        self._journal = backend.journal
        self._workflows = backend.workflows
        self._plans = plans
        self._launcher = launcher

    async def run(self) -> None:
        """Start handlers until cancelled."""
        while True:
            full = False
            try:
                full = await self.turn()
                await self._forget()
            except StoreUnavailableError as error:
                log.warning("store unavailable, handlers are started later: %s", error.message)
            except Exception:
                log.exception("starting handlers failed")
            if not full:
                await asyncio.sleep(POLL_S)

    async def turn(self) -> bool:
        """Serve one batch of rows. Return whether there may be more."""
        rows = await self._hooks.take(BATCH)
        served = await asyncio.gather(*map(self._try_serve, rows))
        numbers = [row.number for row, is_served in zip(rows, served, strict=True) if is_served]
        if numbers:
            # crash here: another process takes the rows again and finds the handlers
            failpoint.hit("handled")
            await self._hooks.done(numbers)
        return len(rows) == BATCH

    async def _forget(self) -> None:
        """Drop what was given up long ago, once an hour."""
        if time.monotonic() - self._forgot_at >= FORGET_PERIOD_S:
            self._forgot_at = time.monotonic()
            await self._hooks.forget(self._clock.now() - KEPT_MS)

    async def _try_serve(self, row: HookRow) -> bool:
        """Serve a row and return whether it is done. One that fails is taken again later and does not hold up the
        others."""
        if row.tries > MAX_TRIES:
            await self._give_up(row, "each process that tried to start it ended meanwhile")
            return False
        try:
            await self._serve(row)
        except StoreUnavailableError:
            return False
        except Exception as error:
            why = error.message if isinstance(error, RuneError) else f"{type(error).__name__}: {error}"
            if row.tries == MAX_TRIES:
                await self._give_up(row, why)
            else:
                log.warning("no handler was started yet for %s: %s", row.execution, why)
                await self._hooks.fail(row.number, why[:MAX_ERROR_CHARS])
            return False
        return True

    async def _give_up(self, row: HookRow, why: str) -> None:
        log.error("no handler is started for %s after %s tries: %s", row.execution, row.tries, why)
        await self._hooks.fail(row.number, why[:MAX_ERROR_CHARS], self._clock.now())
        self._count("given_up")

    def _count(self, result: str) -> None:
        self._counters.handlers[result] = self._counters.handlers.get(result, 0) + 1

    async def _serve(self, row: HookRow) -> None:
        if row.missing is not None:
            await self._serve_missing(row, row.missing)
            return
        accepted = await self._journal.accepted(row.execution)
        if accepted is None or accepted.hook_of is not None:
            return
        settings = (await self._plans.definition(accepted.hash)).settings
        end = None if row.kind == LATE else await self._journal.end(row.execution)
        handler = settings.on_failure if row.kind != LATE else settings.on_late
        is_own = handler is not None
        if handler is None and _has_defaults(accepted):
            defaults = await self._hooks.defaults()
            handler = defaults.on_failure if row.kind != LATE else defaults.on_late
        if handler is None or handler.workflow == NO_HANDLER:
            return
        if row.kind == LATE or (end is not None and handler.handles(hook_status(end))):
            input = hook_input(row.kind, accepted, end, self._public_url)
            subject = _Subject(accepted.workflow, accepted.scopes, input, accepted.fake_time)
            await self._start(row, handler, subject, is_own=is_own)

    async def _serve_missing(self, row: HookRow, missing: Missing) -> None:
        own = (await self._plans.definition(missing.hash)).settings.on_missing
        handler = (await self._hooks.defaults()).on_missing if own is None else own
        if handler is None or handler.workflow == NO_HANDLER:
            return
        subject = _Subject(missing.workflow, missing.scopes, missing_input(missing, self._public_url))
        await self._start(row, handler, subject, is_own=own is not None)

    async def _start(self, row: HookRow, handler: HookHandler, subject: _Subject, *, is_own: bool) -> None:
        which = None if handler.version is None else str(handler.version)
        execution = handler_id(row.execution, row.kind)
        version = await self._workflows.find(handler.workflow, which, by=execution)
        plan = await self._plans.plan(version.hash)
        callers = plan.definition.settings.callable_by
        if is_own and not may_call(subject.scopes, subject.workflow, handler.workflow, callers):
            raise child_forbidden(subject.workflow, handler.workflow)
        input = msgspec.json.encode(subject.input)
        await check_start(plan.definition, input)
        fake_time = subject.fake_time and self._launcher.can_fake_time(plan)
        options = StartOptions(key=f"{HOOK}{row.kind}:{row.execution}", fake_time=fake_time)
        chosen = chosen_by(which, version)
        record = self._launcher.new_record(plan, input, options, execution=execution, chosen=chosen)
        record = replace(record, principal=f"handler:{subject.workflow}", hook_of=row.execution)
        failpoint.hit("handling")
        try:
            await self._launcher.start(record, plan)
        except (IdempotencyKeyExpiredError, IdempotencyConflictError):
            return  # it was started before, perhaps in another version
        self._count("started")


def _has_defaults(accepted: ExecutionRecord) -> bool:
    """Return whether the default handlers are for this execution: of a deployed workflow, without pins, in real time,
    and without a parent that waits for its end and fails with it."""
    return accepted.version is not None and accepted.parent is None and not accepted.fake_time


def handler_id(execution: str, kind: str) -> str:
    """Return the id of the execution that handles a hook."""
    return "f" + hashlib.blake2b(f"{execution}\x1f{kind}".encode(), digest_size=15).hexdigest()


def hook_input(
    kind: str, accepted: ExecutionRecord, end: ExecutionEnded | None, public_url: str = ""
) -> dict[str, Any]:
    """Return the input of a handler. It contains no payloads. Without an end the execution is late: whatever became of
    it meanwhile, the input is the same each time."""
    error = None if end is None else end.error
    origin = None if error is None else error.origin
    labels = accepted.labels if len(msgspec.json.encode(accepted.labels)) <= MAX_LABELS_BYTES else {}
    return {
        "kind": kind,
        "execution": {
            "id": accepted.id,
            "workflow": accepted.workflow,
            "version": accepted.version,
            "status": "running" if end is None else end.status,
            "labels": labels,
            "started_at": iso(accepted.at),
            "url": f"{public_url}/executions/{accepted.id}" if public_url else None,
            "ended_at": None if end is None else iso(end.at),
        },
        "node": None
        if origin is None
        else {
            "id": origin.node_id,
            "type": origin.node_type,
            "lineage": [{"split_node_id": split, "item_index": item} for split, item in origin.lineage],
            "attempt": origin.attempt,
        },
        "error": None
        if error is None
        else {"code": error.code, "message": error.message[:MAX_MESSAGE_CHARS]},
        "failed_items": 0 if end is None else end.failed_items,
    }


def missing_input(missing: Missing, public_url: str = "") -> dict[str, Any]:
    """Return the input of a handler for a missing execution: the same shape, without what only an execution has."""
    return {
        "kind": MISSING,
        "execution": {
            "id": None,
            "workflow": missing.workflow,
            "version": missing.version,
            "status": MISSING,
            "labels": {},
            "started_at": None,
            "url": f"{public_url}/workflows/{missing.workflow}" if public_url else None,
            "ended_at": None,
        },
        "node": None
        if missing.node is None
        else {"id": missing.node, "type": "schedule", "lineage": [], "attempt": None},
        "error": {"code": missing.code, "message": missing.message[:MAX_MESSAGE_CHARS]},
        "failed_items": 0,
    }
