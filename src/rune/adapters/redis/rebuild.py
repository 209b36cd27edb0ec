"""Rebuilds the state of executions from the journal, one at a time on demand and all of them after data loss.

A process that rebuilds a state holds a lease, and every other operation on that execution waits. The state is written
to a hidden key in bounded pieces. Facts recorded meanwhile are read before the last piece, which makes the state
visible; later facts find the new state. After the server lost its data, `WipeRecovery` enters every execution that has
not ended into the timer index, so that the scheduler rebuilds it when it is due.
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
from rune.adapters.redis.confirmations import unsent_mark
from rune.adapters.redis.encoding import CachedExecution, encode_path
from rune.adapters.redis.keys import KeySpace
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

REBUILD_LEASE_MS = 15_000
REBUILD_TIMEOUT_S = 40.0
POLL_INTERVAL_S = 0.02
PIECE_SIZE = 500
"""Fields, timers or listeners in one command: more would block the server for milliseconds."""

MIN_SLEEP_MS = 2_000
"""An execution whose tokens all wait longer than this is unloaded."""

MAX_RESENT = 64
"""Most tokens that are sent by the call that installs a state."""

UNSENT_MS = 5_000
"""Tokens whose sending was not confirmed for this long are sent again."""

PAGE_SIZE = 500
RECOVERY_LEASE_MS = 10_000
"""How long a process may take to recover one page."""

PROGRESS_TTL_S = 30 * 86_400
"""Progress of past server runs expires; to recover a run twice does no harm."""

COMPLETE = "*"
"""Progress after the last page; no execution id equals it."""

RunningExecutions = Callable[[str, int], Awaitable[Sequence[tuple[str, int | None]]]]
"""Returns up to `limit` executions that have not ended, ordered by id, after an id, each with the time (epoch ms) at
which it is due; None: at once."""

_PACK = msgspec.msgpack.Encoder().encode


class Scripts(Protocol):
    """Calls the Lua functions that change one execution."""

    async def run(self, name: str, execution: str, *arguments: Any, streams: tuple[str, ...] = ()) -> Any: ...

    async def now(self) -> int: ...

    async def server(self) -> str: ...


class RebuiltState(msgspec.Struct):
    """A rebuilt state and the effect of installing it. `due` is its next timer by the clock of the execution."""

    state: State
    applied: Applied
    due: int | None = None


class StateRebuilder:
    """Rebuilds executions, each in one process at a time."""

    def __init__(self, scripts: Scripts, journal: Journal) -> None:
        self._scripts = scripts
        self._journal = journal
        self._name = token_hex(8)
        self._numbers = count(1)
        self.rebuilds = 0

    async def load(
        self,
        known: CachedExecution,
        *,
        behind: bool = False,
        owed: bool = False,
        waits: bool = True,
        sender: StreamSender | None = None,
    ) -> RebuiltState | None:
        """Rebuild and install a state; return None if another process did or, unless the caller `waits`, still does.
        `behind` drops a state that lacks recorded facts. `owed` leaves the emitted tokens to the sweeper because the
        caller does not send them. With a sender the installing call sends them, unless there are too many."""
        execution = known.accepted.id
        owner = f"{self._name}:{next(self._numbers)}"
        deadline = time.monotonic() + REBUILD_TIMEOUT_S
        while True:
            reply = await self._scripts.run("fold", execution, owner, REBUILD_LEASE_MS, int(behind))
            if reply == b"THERE" or (reply == b"HELD" and not waits):
                return None
            if reply != b"HELD":
                break
            if time.monotonic() > deadline:
                raise StoreUnavailableError(
                    f"the state of {execution} was not rebuilt within {REBUILD_TIMEOUT_S:g} s"
                )
            # The process that rebuilds it reads the journal now, so its state is not behind.
            behind = False
            await asyncio.sleep(POLL_INTERVAL_S)
        try:
            return await self._install(known, owner, int(reply), owed=owed, sender=sender)
        except BaseException:
            with contextlib.suppress(StoreUnavailableError):
                await self._scripts.run("release", execution, owner)
            raise

    async def admit(self, known: CachedExecution, sender: StreamSender | None = None) -> Applied | None:
        """Install the state of an execution that was just accepted, without reading it back; return None if it exists
        already. With a sender the emitted tokens are sent in the same call."""
        accepted = known.accepted
        state = State()
        applied = start_execution(known.plan, state, accepted.at)
        # Reading the server's time costs a round trip; use the start time where no exact time is needed.
        exact = sender is None or accepted.fake_time or applied.finish is not None
        now = await self._scripts.now() if exact else accepted.at
        offset = max(0, accepted.at - now) if accepted.fake_time else 0
        context = SnapshotContext(await self._scripts.server(), MIN_SLEEP_MS, offset, accepted.fake_time)
        snapshot = encode_state(known.plan, state, context, applied.armed)
        pieces = _split(snapshot)
        if len(pieces) > 1:
            return None
        if sender is None:
            owed = _resend_times(accepted.id, applied.emitted, now + UNSENT_MS)
            if not await self._write(accepted.id, "", pieces[0], "NEW", snapshot, owed):
                return None
            return Applied(tuple(applied.emitted), applied.finish, now + offset)
        sent = sender.initial_sends(known, applied.emitted)
        if not await self._write(accepted.id, "", pieces[0], "NEW", snapshot, sent=sent):
            return None
        return Applied((), applied.finish, now + offset)

    async def peek(self, known: CachedExecution) -> State:
        """Return the state that the journal yields, without installing it."""
        now = await self._scripts.now()
        state, _, _ = await self._fold(known, await self._facts(known.accepted.id), now)
        return state

    async def _install(
        self, known: CachedExecution, owner: str, now: int, *, owed: bool, sender: StreamSender | None
    ) -> RebuiltState:
        execution = known.accepted.id
        stored = await self._facts(execution)
        # An execution without facts is activated, not rebuilt.
        self.rebuilds += bool(stored)
        while True:
            state, applied, context = await self._fold(known, stored, now)
            if state.ended:
                await self._scripts.run("end", execution)
                return RebuiltState(state, Applied(now=now))
            snapshot = encode_state(known.plan, state, context, applied.armed)
            pieces = _split(snapshot)
            for number, piece in enumerate(pieces[:-1]):
                await self._write(execution, owner, piece, "FIRST" if number == 0 else "NEITHER")
            newer = await self._facts(execution, stored[-1].number if stored else 0)
            if not newer:
                break
            stored += newer
        last = "BOTH" if len(pieces) == 1 else "LAST"
        sent, tokens = None, _resend_times(execution, applied.emitted, now if owed else now + UNSENT_MS)
        if sender is not None and len(applied.emitted) <= MAX_RESENT:
            sent, tokens = sender.initial_sends(known, applied.emitted), []
        if not await self._write(execution, owner, pieces[-1], last, snapshot, tokens, sent):
            raise StoreUnavailableError(f"the lease expired while the state of {execution} was rebuilt")
        emitted = tuple(applied.emitted) if sent is None else ()
        waits_until = min((due for due, _ in snapshot.timers), default=None)
        effect = Applied(emitted, applied.finish, now + context.offset)
        return RebuiltState(state, effect, waits_until)

    async def _facts(self, execution: str, after: int = 0) -> list[StoredFact]:
        return [each for each in await self._journal.facts(execution, after) if not each.late]

    async def _fold(
        self, known: CachedExecution, stored: list[StoredFact], clock: int
    ) -> tuple[State, decision.Applied, SnapshotContext]:
        accepted = known.accepted
        facts = [ExecutionStarted(accepted.at), *(each.fact for each in stored)]
        latest = max(fact.at for fact in facts)
        offset = max(0, latest - clock) if accepted.fake_time else 0
        state, applied = fold(known.plan, facts, clock + offset)
        if accepted.fake_time and not state.ended:
            offset += _skipped_wait(state, applied, clock + offset)
        context = SnapshotContext(
            await self._scripts.server(), MIN_SLEEP_MS, offset, accepted.fake_time, True
        )
        return state, applied, context

    async def _write(
        self,
        execution: str,
        owner: str,
        piece: StateSnapshot,
        which: str,
        whole: StateSnapshot | None = None,
        owed: Sequence[Any] = (),
        sent: tuple[tuple[str, ...], Sequence[Any]] | None = None,
    ) -> bool:
        fields = [part for pair in piece.fields for part in pair]
        timers = [part for pair in piece.timers for part in pair]
        listeners = [part for member in piece.listeners for part in (0, member.decode())]
        nearest: Any = ""
        if whole is not None and whole.timers:
            nearest = min(due for due, _ in whole.timers) - whole.offset
        packed = (_PACK(fields), _PACK(timers), _PACK(listeners), _PACK(owed))
        arguments = (owner, REBUILD_LEASE_MS, which, *packed, nearest)
        if sent is None:
            return bool(await self._scripts.run("install", execution, *arguments))
        return bool(await self._scripts.run("install", execution, *arguments, *sent[1], streams=sent[0]))


def _resend_times(execution: str, tokens: Sequence[Token], when: int) -> list[Any]:
    """Return the entries by which the sweeper sends tokens whose sending was not confirmed at `when`."""
    return [
        part
        for token in tokens
        for part in (
            when + unsent_mark(token.attempt, resumed=token.resumed),
            f"{execution}|{token.node}|{encode_path(token.path)}",
        )
    ]


def _skipped_wait(state: State, applied: decision.Applied, now: int) -> int:
    """Return by how much a simulated clock advances: an execution that only waits resumes at its next timer."""
    nearest = min((due for _, due in applied.armed), default=now)
    waits = state.scopes[ROOT].active == 0 and state.paused_at is None and state.finish is None
    if not waits or any(name.startswith("child:") for name in state.waiting_for_signal):
        return 0
    return max(0, nearest - now)


def _split(snapshot: StateSnapshot) -> list[StateSnapshot]:
    size = max(len(snapshot.fields), len(snapshot.timers), len(snapshot.listeners))
    return [
        StateSnapshot(
            snapshot.fields[start : start + PIECE_SIZE],
            snapshot.timers[start : start + PIECE_SIZE],
            snapshot.listeners[start : start + PIECE_SIZE],
            snapshot.offset,
        )
        for start in range(0, size, PIECE_SIZE)
    ]


class WipeRecovery:
    """Schedules all running executions once in each run of the server, page by page, by any process."""

    def __init__(self, client: Client, keys: KeySpace, running_executions: RunningExecutions | None) -> None:
        self._client = client
        self._keys = keys
        self._running_executions = running_executions

    async def is_due(self) -> bool:
        """Return whether pages are left. A wiped server has lost the recorded progress too, so recovery restarts."""
        if self._running_executions is None:
            return False
        return bool(await self._client.call("GET", await self._progress_key()) != COMPLETE.encode())

    async def _progress_key(self) -> str:
        return f"{self._keys.prefix}:recovered:{(await self._client.server_run())[0]}"

    async def work(self) -> None:
        """Recover the remaining pages unless another process does. Executions that are due earlier stay so."""
        while await self.is_due():
            key = await self._progress_key()
            leased = await self._client.call("SET", f"{key}:lease", "1", "NX", "PX", RECOVERY_LEASE_MS)
            if leased is None:
                return
            await self._recover_page(key, (await self._client.call("GET", key) or b"").decode())
            await self._client.call("DEL", f"{key}:lease")

    async def _recover_page(self, progress_key: str, after: str) -> None:
        assert self._running_executions is not None
        rows = await self._running_executions(after, PAGE_SIZE)
        times: dict[str, list[str | int]] = {}
        for execution, when in rows:
            key = self._keys.due(self._keys.partition(execution))
            times.setdefault(key, []).extend((when or 0, execution))
        for key, pairs in times.items():
            await self._client.call("ZADD", key, "LT", *pairs)
        reached = rows[-1][0] if len(rows) == PAGE_SIZE else COMPLETE
        await self._client.call("SET", progress_key, reached, "EX", PROGRESS_TTL_S)
