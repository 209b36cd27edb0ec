"""The launcher: the only way in. A start that was acknowledged is never lost."""

from __future__ import annotations

import itertools
import secrets
import time

from rune.core.definition import canonical
from rune.core.plan import Plan
from rune.ports.clock import Clock
from rune.ports.journal import Accepted, Journal
from rune.ports.queue import Queue
from rune.ports.state import Applied, State
from rune.runtime import failpoint
from rune.runtime.attempt import Attempt
from rune.runtime.backend import Admission
from rune.runtime.books import Books
from rune.runtime.planbook import Planbook

_PROCESS = secrets.token_hex(4)
_COUNTER = itertools.count(secrets.randbits(16))


def new_execution_id() -> str:
    """Sorts by time, unique without asking anybody: a moment, this process, a count."""
    return f"x{time.time_ns() // 1_000_000:012x}{_PROCESS}{next(_COUNTER) & 0xFFFFFF:06x}"


class Launcher:
    """Accepts executions and opens them."""

    def __init__(
        self,
        journal: Journal,
        state: State,
        queue: Queue,
        plans: Planbook,
        books: Books,
        attempt: Attempt,
        clock: Clock,
        admission: Admission | None = None,
    ) -> None:
        self._journal = journal
        self._state = state
        self._queue = queue
        self._plans = plans
        self._books = books
        self._attempt = attempt
        self._clock = clock
        self._admission = admission
        self._saved: set[str] = set()

    async def start(
        self,
        plan: Plan,
        input: bytes,
        *,
        key: str | None = None,
        labels: dict[str, str] | None = None,
        fake_time: bool = False,
        execution: str | None = None,
    ) -> Accepted:
        """Accept an execution; durable when this returns."""
        if plan.hash not in self._saved:
            await self._journal.save_definition(plan.hash, canonical(plan.definition))
            self._saved.add(plan.hash)
        self._plans.add(plan)
        wanted = Accepted(
            id=execution or new_execution_id(),
            workflow=plan.definition.id,
            hash=plan.hash,
            at=self._clock.now(),
            input=input,
            key=key,
            labels=labels or {},
            priority=plan.definition.settings.priority,
            fake_time=fake_time,
        )
        if self._admission is None:
            accepted = await self._journal.accept(wanted)
            if accepted.id == wanted.id:
                await self._send(accepted, await self._state.begin(accepted.id))
            return accepted
        return await self._admitted(self._admission, wanted, plan)

    async def _admitted(self, admission: Admission, wanted: Accepted, plan: Plan) -> Accepted:
        """Accept, and open at once what would otherwise have to be read back."""
        room = await admission.room()
        with admission.arriving(wanted.id):
            accepted = await self._journal.accept(wanted)
            failpoint.hit(
                "accepted"
            )  # crash here: the row says it needs attention; the next owner of the file opens it
            if accepted.id != wanted.id or not room:
                return accepted
            self._books.open(accepted, plan)
            applied = admission.admit(accepted, plan)
        await self._send(accepted, applied)
        return accepted

    async def _send(self, accepted: Accepted, applied: Applied) -> None:
        failpoint.hit("admitted")
        await self._queue.send(accepted.id, applied.emitted, accepted.priority)
        if applied.finish is not None:
            await self._attempt.finish(accepted.id, applied.finish, applied.now)
