"""The launcher: the only way in. A start that was acknowledged is never lost."""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Sequence

import msgspec

from rune.core.definition import canonical
from rune.core.fact import Fact
from rune.core.plan import Plan
from rune.core.rights import LOCAL
from rune.ports.journal import FORMAT, Accepted, Parent
from rune.ports.limits import Held
from rune.ports.state import Applied
from rune.runtime import failpoint
from rune.runtime.backend import Backend
from rune.runtime.books import Books
from rune.runtime.endings import Endings
from rune.runtime.notices import Notices
from rune.runtime.planbook import Planbook
from rune.runtime.witness import Witness

_PROCESS = secrets.token_hex(4)
_COUNTER = itertools.count(secrets.randbits(16))


def new_execution_id() -> str:
    """Sorts by time, unique without asking anybody: a moment, this process, a count."""
    return f"x{time.time_ns() // 1_000_000:012x}{_PROCESS}{next(_COUNTER) & 0xFFFFFF:06x}"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What whoever starts an execution may say of it. `key`: asked for again under it, the same one is answered."""

    key: str | None = None
    labels: dict[str, str] = {}
    fake_time: bool = False


PLAIN = Options()


class Launcher:
    """Accepts executions and opens them."""

    def __init__(
        self,
        backend: Backend,
        plans: Planbook,
        books: Books,
        endings: Endings,
        notices: Notices,
        witness: Witness,
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
        options: Options = PLAIN,
        *,
        priority: int | None = None,
        execution: str | None = None,
        parent: Parent | None = None,
        depth: int = 0,
        needs: tuple[str, ...] = (),
        at: int | None = None,
        principal: str = LOCAL,
        trace: str | None = None,
        held: Held | None = None,
    ) -> Accepted:
        """Accept an execution; durable when this returns. TooMany where a limit that it is held to refuses it."""
        await self._save(plan)
        wanted = Accepted(
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
            trace=self._witness.starting() if trace is None else trace,
            format=FORMAT,
        )
        return await self._admitted(wanted, plan, held)

    async def _save(self, plan: Plan) -> None:
        if plan.hash not in self._saved:
            await self._journal.save_definition(plan.hash, canonical(plan.definition))
            self._saved.add(plan.hash)
        self._plans.add(plan)

    async def start_again(
        self, wanted: Accepted, plan: Plan, kept: Sequence[Fact], held: Held | None = None
    ) -> Accepted:
        """Accept an execution that begins with results of another one."""
        await self._save(plan)
        accepted = await self._journal.accept(wanted, kept, held)
        failpoint.hit("accepted")
        if accepted.id == wanted.id:
            self._witness.accepted()
            await self.open(accepted)
        return accepted

    async def open(self, accepted: Accepted) -> None:
        """Open an execution that has its row."""
        await self._send(accepted, await self._state.begin(accepted.id))

    async def _admitted(self, wanted: Accepted, plan: Plan, held: Held | None) -> Accepted:
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

    async def _send(self, accepted: Accepted, applied: Applied) -> None:
        failpoint.hit("admitted")
        await self._queue.send(accepted.id, applied.emitted, accepted.priority)
        self._notices.settled(accepted.id, "start")
        if applied.finish is not None:
            await self._endings.finish(accepted.id, applied.finish, applied.now)
