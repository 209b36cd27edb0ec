"""The launcher: the only way in. A start that was acknowledged is never lost.

Executions that another engine runs: their definition says so, and their start is handed over to it.
"""

from __future__ import annotations

import hashlib
import itertools
import secrets
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from rune.codec.messages import MAX_FULL_BYTES, MessageTooLargeError, NodeExecutionMessage, encode_message
from rune.core.definition.model import canonical
from rune.core.execution.fact import Fact
from rune.core.permissions import LOCAL
from rune.core.plan.model import Plan
from rune.errors import RuneError
from rune.ports.access import AppliedLimits
from rune.ports.journal import FORMAT, ExecutionRecord, Parent
from rune.ports.outbox import EventPublisher
from rune.ports.state import Applied
from rune.runtime import failpoint
from rune.runtime.backend import Backend
from rune.runtime.instrumentation import Instrumentation
from rune.runtime.lifecycle.finisher import Finisher
from rune.runtime.lifecycle.outbox import OutboxMarker
from rune.runtime.plan_cache import PlanCache
from rune.runtime.values import ExecutionDataCache

_PROCESS = secrets.token_hex(4)
_COUNTER = itertools.count(secrets.randbits(16))


def new_execution_id() -> str:
    """Sorts by time, unique without asking anybody: a moment, this process, a count."""
    return f"x{time.time_ns() // 1_000_000:012x}{_PROCESS}{next(_COUNTER) & 0xFFFFFF:06x}"


class StartOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What whoever starts an execution may say of it. `key`: asked for again under it, the same one is answered."""

    key: str | None = None
    labels: dict[str, str] = {}
    fake_time: bool = False


DEFAULT_OPTIONS = StartOptions()


class Launcher:
    """Accepts executions and opens them."""

    def __init__(
        self,
        backend: Backend,
        plans: PlanCache,
        books: ExecutionDataCache,
        endings: Finisher,
        notices: OutboxMarker,
        witness: Instrumentation,
    ) -> None:
        self._journal = backend.journal
        self._state = backend.state
        self._queue = backend.queue
        self._clock = backend.clock
        self._admission = backend.admission
        self._plans = plans
        self._books = books
        self._endings = endings
        self._notices = notices
        self._witness = witness
        self._saved: set[str] = set()

    async def start(
        self,
        plan: Plan,
        input: bytes,
        options: StartOptions = DEFAULT_OPTIONS,
        *,
        priority: int | None = None,
        execution: str | None = None,
        parent: Parent | None = None,
        depth: int = 0,
        needs: tuple[str, ...] = (),
        at: int | None = None,
        principal: str = LOCAL,
        trace: str | None = None,
        held: AppliedLimits | None = None,
    ) -> ExecutionRecord:
        """Accept an execution; durable when this returns. TooMany where a limit that it is held to refuses it."""
        await self._save(plan)
        wanted = ExecutionRecord(
            id=execution or new_execution_id(),
            workflow=plan.definition.id,
            hash=plan.hash,
            at=self._clock.now() if at is None else at,
            input=input,
            key=options.key,
            labels=options.labels,
            priority=plan.definition.settings.priority if priority is None else priority,
            fake_time=options.fake_time,
            parent=parent,
            depth=depth,
            needs=needs,
            principal=principal,
            trace=self._witness.incoming_trace() if trace is None else trace,
            format=FORMAT,
        )
        return await self._admit(wanted, plan, held)

    async def _save(self, plan: Plan) -> None:
        if plan.hash not in self._saved:
            await self._journal.save_definition(plan.hash, canonical(plan.definition))
            self._saved.add(plan.hash)
        self._plans.add(plan)

    async def start_again(
        self, wanted: ExecutionRecord, plan: Plan, kept: Sequence[Fact], held: AppliedLimits | None = None
    ) -> ExecutionRecord:
        """Accept an execution that begins with results of another one."""
        await self._save(plan)
        accepted = await self._journal.accept(wanted, kept, held)
        failpoint.hit("accepted")
        if accepted.id == wanted.id:
            self._witness.accepted()
            await self.activate(accepted)
        return accepted

    async def activate(self, accepted: ExecutionRecord) -> None:
        """Open an execution that has its row."""
        await self._send(accepted, await self._state.begin(accepted.id))

    async def _admit(
        self, wanted: ExecutionRecord, plan: Plan, held: AppliedLimits | None
    ) -> ExecutionRecord:
        """Accept, and open at once what would otherwise have to be read back."""
        room = await self._admission.room()
        with self._admission.arriving(wanted.id):
            accepted = await self._journal.accept(wanted, held=held)
            failpoint.hit(
                "accepted"
            )  # crash here: the row says it needs attention; the next owner of the file opens it
            if accepted is wanted:
                self._witness.accepted()
            if accepted is not wanted or not room:  # one of the same id may be under way
                return accepted
            self._books.open(accepted, plan)
            applied = await self._admission.admit(accepted, plan)
        await self._send(accepted, applied)
        return accepted

    async def _send(self, accepted: ExecutionRecord, applied: Applied) -> None:
        failpoint.hit("admitted")
        await self._queue.send(accepted.id, applied.emitted, accepted.priority)
        self._notices.mark_done(accepted.id, "start")
        if applied.finish is not None:
            await self._endings.finish(accepted.id, applied.finish, applied.now)


class ExternalExecutorError(RuneError):
    """Somebody wants to see an execution through that is not run here."""

    code = "RUNS_ELSEWHERE"


class LegacyLauncher(Launcher):
    """Hands over what is to be run elsewhere, once it knows where to; opens everything else."""

    _elsewhere: EventPublisher | None = None

    def hands_over(self, herald: EventPublisher) -> None:
        """Who takes what is to be run elsewhere."""
        self._elsewhere = herald

    def leaves(self, plan: Plan) -> bool:
        """Whether an execution of this plan is run elsewhere."""
        return self._elsewhere is not None and plan.definition.settings.executor == "legacy"

    async def start(
        self, plan: Plan, input: bytes, options: StartOptions = DEFAULT_OPTIONS, **about: Any
    ) -> ExecutionRecord:
        """A child is run here whatever its definition says: its parent waits for it."""
        if self._elsewhere is None or not self.leaves(plan) or about.get("parent") is not None:
            return await super().start(plan, input, options, **about)
        key = options.key
        execution = about.get("execution") or new_execution_id()
        if key is not None:  # the same key must be the same execution, and only its id is known there
            said = f"{plan.definition.id}\x1f{key}".encode()
            execution = "k" + hashlib.blake2b(said, digest_size=15).hexdigest()
        priority = about.get("priority")
        await self._elsewhere.hand_over(_message(plan, input, execution, priority))
        return ExecutionRecord(
            id=execution,
            workflow=plan.definition.id,
            hash=plan.hash,
            at=self._clock.now(),
            input=input,
            key=key,
            priority=plan.definition.settings.priority if priority is None else priority,
            format=FORMAT,
        )

    async def start_here(self, plan: Plan, input: bytes, **about: Any) -> ExecutionRecord:
        """Open an execution here whatever its definition says."""
        return await super().start(plan, input, **about)


def _message(plan: Plan, input: bytes, execution: str, priority: int | None) -> bytes:
    """The start of an execution for somebody without access to our stores."""
    behind = [node for each in sorted(plan.triggers) for node in plan.graph.successors(each)]
    message = NodeExecutionMessage(
        workflow_id=plan.definition.id,
        execution_id=execution,
        current_node=plan.ids[(behind or list(plan.entries))[0]],
        definition=msgspec.Raw(canonical(plan.definition)),
        context=msgspec.Raw(b'{"$trigger":' + input + b"}"),
        priority=priority,
    )
    body = encode_message(message)
    if len(body) > MAX_FULL_BYTES:
        raise MessageTooLargeError(f"the start of {plan.definition.id}", len(body), MAX_FULL_BYTES)
    return body
