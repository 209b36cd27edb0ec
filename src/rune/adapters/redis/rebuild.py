"""Folding: a state that is not there, or not of this run of the server, is made of the journal's facts.

Whoever folds holds a lease; meanwhile every verb waits. What was read is installed hidden, in bounded pieces. Facts
that came while it was being made are read once more before the last piece; who writes one later finds the new state.

Recovery: after a loss every execution that has not ended is to be looked at again, as the journal says.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from secrets import token_hex
from typing import Any, Protocol

import msgspec

from rune.adapters.redis.client import Client
from rune.adapters.redis.encoding import CachedExecution, encode_path
from rune.adapters.redis.keys import Keys
from rune.adapters.redis.snapshot import SnapshotContext, StateSnapshot, encode_state
from rune.adapters.redis.streams import StreamSender
from rune.core.execution import decision
from rune.core.execution.fact import ExecutionStarted
from rune.core.execution.fold import fold
from rune.core.execution.state import State
from rune.core.execution.token import ROOT, Token
from rune.core.execution.transition import start_execution
from rune.ports.journal import Journal, StoredFact, StoreUnavailableError
from rune.ports.state import Applied

REBUILD_LEASE_MS = 15_000  # ms
PIECE = 1_000  # fields, timers or listeners in one command
POLL = 0.02
MIN_SLEEP_MS = 2_000  # ms: shorter waits stay in the state
REBUILD_TIMEOUT_S = 40.0  # s
MAX_RESENT = 64  # tokens that are sent in the act that installs
RESEND = 60_000  # ms: what was to be sent and nobody has claimed by then is sent again

_PACK = msgspec.msgpack.Encoder().encode


class Scripts(Protocol):
    """Runs the scripts that act on one execution."""

    async def run(self, name: str, execution: str, *arguments: Any, streams: tuple[str, ...] = ()) -> Any: ...

    async def now(self) -> int: ...

    async def server(self) -> str: ...


class RebuiltState(msgspec.Struct):
    """What a fold found: the state, and what follows from it being there."""

    state: State
    applied: Applied
    due: int | None = None  # the nearest timer, by the clock of the execution


class StateRebuilder:
    """Folds executions, each by one process at a time."""

    def __init__(self, scripts: Scripts, journal: Journal) -> None:
        self._scripts = scripts
        self._journal = journal
        self._name = token_hex(8)
        self._numbers = count(1)
        self.folds = 0

    async def load(
        self,
        known: CachedExecution,
        *,
        behind: bool = False,
        owed: bool = False,
        outlet: StreamSender | None = None,
    ) -> RebuiltState | None:
        """Fold and install; None: somebody else did. `owed`: nobody here sends what follows, so the sweeper has to.
        With an outlet it is sent in the same act, if it is not much."""
        execution = known.accepted.id
        me = f"{self._name}:{next(self._numbers)}"
        until = time.monotonic() + REBUILD_TIMEOUT_S
        while True:
            answer = await self._scripts.run("fold", execution, me, REBUILD_LEASE_MS, int(behind))
            if answer == b"THERE":
                return None
            if answer != b"HELD":
                break
            if time.monotonic() > until:
                raise StoreUnavailableError(f"{execution} is being folded for too long")
            behind = False  # who is at it reads the journal now
            await asyncio.sleep(POLL)
        try:
            return await self._install(known, me, int(answer), owed=owed, outlet=outlet)
        except BaseException:
            with contextlib.suppress(StoreUnavailableError):
                await self._scripts.run("yield", execution, me)
            raise

    async def admit(self, known: CachedExecution, outlet: StreamSender | None = None) -> Applied | None:
        """Open an execution that was accepted this moment, without reading it back; None: it is there already. With an
        outlet what follows is sent in the same act."""
        accepted = known.accepted
        state = State()
        applied = start_execution(known.plan, state, accepted.at)
        # Asking for the time is a round trip; where nothing hangs on it the moment of the start will do.
        exact = outlet is None or accepted.fake_time or applied.finish is not None
        now = await self._scripts.now() if exact else accepted.at
        offset = max(0, accepted.at - now) if accepted.fake_time else 0
        around = SnapshotContext(await self._scripts.server(), MIN_SLEEP_MS, offset, accepted.fake_time)
        made = encode_state(known.plan, state, around, applied.armed)
        pieces = _pieces(made)
        if len(pieces) > 1:
            return None
        if outlet is None:
            owed = _pending_due(accepted.id, applied.emitted, now + RESEND)
            if not await self._write(accepted.id, "", pieces[0], "NEW", made, owed):
                return None
            return Applied(tuple(applied.emitted), applied.finish, now + offset)
        sent = outlet.opening(known, applied.emitted)
        if not await self._write(accepted.id, "", pieces[0], "NEW", made, sent=sent):
            return None
        return Applied((), applied.finish, now + offset)

    async def peek(self, known: CachedExecution) -> State:
        """The state as it would be, for whoever only looks."""
        now = await self._scripts.now()
        state, _, _ = await self._folded(known, await self._facts(known.accepted.id), now)
        return state

    async def _install(
        self, known: CachedExecution, me: str, now: int, *, owed: bool, outlet: StreamSender | None
    ) -> RebuiltState:
        execution = known.accepted.id
        stored = await self._facts(execution)
        self.folds += bool(stored)  # one that was only accepted is opened, there is nothing to fold
        while True:
            state, applied, around = await self._folded(known, stored, now)
            if state.ended:
                await self._scripts.run("end", execution)
                return RebuiltState(state, Applied(now=now))
            made = encode_state(known.plan, state, around, applied.armed)
            pieces = _pieces(made)
            for number, piece in enumerate(pieces[:-1]):
                await self._write(execution, me, piece, "FIRST" if number == 0 else "NEITHER")
            newer = await self._facts(execution, stored[-1].number if stored else 0)
            if not newer:
                break
            stored += newer
        last = "BOTH" if len(pieces) == 1 else "LAST"
        sent, tokens = None, _pending_due(execution, applied.emitted, now if owed else now + RESEND)
        if outlet is not None and len(applied.emitted) <= MAX_RESENT:
            sent, tokens = outlet.opening(known, applied.emitted), []
        if not await self._write(execution, me, pieces[-1], last, made, tokens, sent):
            raise StoreUnavailableError(f"the fold of {execution} took too long")
        emitted = tuple(applied.emitted) if sent is None else ()
        waits_until = min((due for due, _ in made.timers), default=None)
        told = Applied(emitted, applied.finish, now + around.offset)
        return RebuiltState(state, told, waits_until)

    async def _facts(self, execution: str, after: int = 0) -> list[StoredFact]:
        return [each for each in await self._journal.facts(execution, after) if not each.late]

    async def _folded(
        self, known: CachedExecution, stored: list[StoredFact], clock: int
    ) -> tuple[State, decision.Applied, SnapshotContext]:
        accepted = known.accepted
        facts = [ExecutionStarted(accepted.at), *(each.fact for each in stored)]
        latest = max(fact.at for fact in facts)
        offset = max(0, latest - clock) if accepted.fake_time else 0
        state, applied = fold(known.plan, facts, clock + offset)
        if accepted.fake_time and not state.ended:
            offset += _jump(state, applied, clock + offset)
        around = SnapshotContext(await self._scripts.server(), MIN_SLEEP_MS, offset, accepted.fake_time, True)
        return state, applied, around

    async def _write(
        self,
        execution: str,
        me: str,
        piece: StateSnapshot,
        which: str,
        whole: StateSnapshot | None = None,
        owed: Sequence[Any] = (),
        sent: tuple[tuple[str, ...], Sequence[Any]] | None = None,
    ) -> bool:
        fields = [part for pair in piece.fields for part in pair]
        timers = [part for pair in piece.timers for part in pair]
        ears = [part for member in piece.listeners for part in (0, member.decode())]
        nearest: Any = ""
        if whole is not None and whole.timers:
            nearest = min(due for due, _ in whole.timers) - whole.offset
        packed = (_PACK(fields), _PACK(timers), _PACK(ears), _PACK(owed))
        given = (me, REBUILD_LEASE_MS, which, *packed, nearest)
        if sent is None:
            return bool(await self._scripts.run("install", execution, *given))
        return bool(await self._scripts.run("install", execution, *given, *sent[1], streams=sent[0]))


def _pending_due(execution: str, tokens: Sequence[Token], when: int) -> list[Any]:
    """When to look after tokens that are to be sent by others, or, where there is nobody, by the sweeper."""
    members = (f"{execution}|{token.node}|{encode_path(token.path)}" for token in tokens)
    return [part for member in members for part in (when, member)]


def _jump(state: State, applied: decision.Applied, now: int) -> int:
    """An execution with a clock of its own that only waits goes on at its next timer."""
    nearest = min((due for _, due in applied.armed), default=now)
    waits = state.scopes[ROOT].active == 0 and state.paused_at is None and state.finish is None
    if not waits or any(name.startswith("child:") for name in state.waiting_for_signal):
        return 0
    return max(0, nearest - now)


def _pieces(made: StateSnapshot) -> list[StateSnapshot]:
    size = max(len(made.fields), len(made.timers), len(made.listeners))
    return [
        StateSnapshot(
            made.fields[start : start + PIECE],
            made.timers[start : start + PIECE],
            made.listeners[start : start + PIECE],
            made.offset,
        )
        for start in range(0, size, PIECE)
    ]


PAGE = 500
LEASE_MS = 10_000  # ms: who recovers has so long for a page
KEPT = (
    30 * 86_400
)  # s: servers that come and go leave no marks for good; to go through the roll again does no harm

RunningExecutions = Callable[[str, int], Awaitable[Sequence[tuple[str, int | None]]]]
"""Executions that have not ended, by id, behind an id, so many, and when each has to be looked at (epoch ms); None: as
soon as may be."""

THROUGH = "*"
"""Behind the last page; no id reads like this."""


class WipeRecovery:
    """Goes through the roll once in each run of the server, a page at a time, whoever is at it."""

    def __init__(self, client: Client, keys: Keys, roll: RunningExecutions | None) -> None:
        self._client = client
        self._keys = keys
        self._roll = roll

    async def is_due(self) -> bool:
        """Whether some of the roll is still to be read; a server that was emptied has forgotten that it was."""
        return (
            self._roll is not None and await self._client.call("GET", await self._place()) != THROUGH.encode()
        )

    async def _place(self) -> str:
        return f"{self._keys.prefix}:recovered:{(await self._client.incarnation())[0]}"

    async def work(self) -> None:
        """Go on until the roll is through, if nobody else is at it. What is due earlier stays so."""
        while await self.is_due():
            place = await self._place()
            mine = await self._client.call("SET", f"{place}:lease", "1", "NX", "PX", LEASE_MS)
            if mine is None:
                return
            await self._page(place, (await self._client.call("GET", place) or b"").decode())
            await self._client.call("DEL", f"{place}:lease")

    async def _page(self, place: str, after: str) -> None:
        assert self._roll is not None
        rows = await self._roll(after, PAGE)
        times: dict[str, list[str | int]] = {}
        for execution, when in rows:
            key = self._keys.due(self._keys.partition(execution))
            times.setdefault(key, []).extend((when or 0, execution))
        for key, pairs in times.items():
            await self._client.call("ZADD", key, "LT", *pairs)
        reached = rows[-1][0] if len(rows) == PAGE else THROUGH
        await self._client.call("SET", place, reached, "EX", KEPT)
