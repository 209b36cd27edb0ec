"""Rebuilds the state of executions from the journal, on demand.

A process that rebuilds a state holds a lease, and every other operation on that execution waits. The state is written
to a hidden key in bounded pieces. Facts recorded meanwhile are read before the last piece, which makes the state
visible; later facts find the new state.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable, Sequence
from itertools import count
from secrets import token_hex
from typing import Any, Protocol

import msgspec

from rune.adapters.redis.encoding import (
    SEND_MARKS,
    UNSENT_MS,
    CachedExecution,
    KeySpace,
    encode_path,
    unsent_mark,
)
from rune.adapters.redis.snapshot import SnapshotContext, StateSnapshot, encode_state
from rune.adapters.redis.streams import StreamSender
from rune.codec.messages import encode_record
from rune.core.execution import decision
from rune.core.execution.fact import CHILD_SIGNAL, AttemptFailed, ExecutionStarted, NodeSuspended
from rune.core.execution.fold import due_after_loss, fold
from rune.core.execution.state import State
from rune.core.execution.token import ROOT, Path, Token, TokenPurpose
from rune.core.execution.transition import start_execution
from rune.ports.journal import Journal, StoredFact, StoreUnavailableError, UnknownExecutionError
from rune.ports.state import LEASE_MS, Applied

REBUILD_LEASE_MS = 6_000
"""After this time another process rebuilds the state, if the process that does it died: tokens have to move again
within 10 s of the death of a worker."""

RENEWAL_S = 2.0
MAX_INLINE_FACTS = 2_000
"""More facts are replayed in a thread, so that the lease is renewed meanwhile."""

REBUILD_TIMEOUT_S = 40.0
POLL_INTERVAL_S = 0.02
PIECE_SIZE = 500
"""Fields, timers or listeners in one command: more would block the server for milliseconds."""

MIN_SLEEP_MS = 2_000
"""An execution whose tokens all wait longer than this is unloaded."""

MAX_RESENT = 64
"""Most tokens that are sent by the call that installs a state."""

MAX_DUE_FACTS = 500
"""An execution with more facts is rebuilt at once: to find out when it is due would take as long."""

_PACK = msgspec.msgpack.Encoder().encode


class Scripts(Protocol):
    """Calls the Lua functions that change one execution."""

    async def run(
        self,
        name: str,
        execution: str,
        *arguments: Any,
        streams: tuple[str, ...] = (),
        since: float | None = None,
    ) -> Any: ...

    async def now(self) -> int: ...

    async def server(self, execution: str) -> str: ...


class RebuiltState(msgspec.Struct):
    """A rebuilt state and the effect of installing it. `due` is its next timer by the clock of the execution."""

    state: State
    applied: Applied
    due: int | None = None


class StateRebuilder:
    """Rebuilds executions, each in one process at a time."""

    def __init__(self, scripts: Scripts, keys: KeySpace, journal: Journal) -> None:
        self._scripts = scripts
        self._keys = keys
        self._journal = journal
        self._name = token_hex(8)
        self._numbers = count(1)
        self.rebuilds = 0

    async def load(
        self,
        known: CachedExecution,
        *,
        behind: bool = False,
        left_to_sweeper: bool = False,
        waits: bool = True,
        sender: StreamSender | None = None,
    ) -> RebuiltState | None:
        """Rebuild and install a state; return None if another process did or, unless the caller `waits`, still does.
        `behind` drops a state that lacks recorded facts. `left_to_sweeper` leaves the emitted tokens to the sweeper
        because the caller does not send them. With a sender the installing call sends them, unless there are too
        many."""
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
        renewal = asyncio.create_task(self._renew(execution, owner))
        try:
            return await self._install(
                known, owner, int(reply), left_to_sweeper=left_to_sweeper, sender=sender
            )
        except BaseException:
            with contextlib.suppress(StoreUnavailableError):
                await self._scripts.run("release", execution, owner)
            raise
        finally:
            renewal.cancel()

    async def _renew(self, execution: str, owner: str) -> None:
        """Renew the lease of a rebuild that takes long, by a piece without content."""
        while True:
            await asyncio.sleep(RENEWAL_S)
            with contextlib.suppress(StoreUnavailableError):
                await self._write(execution, owner, StateSnapshot([], [], [], 0), "NEITHER")

    async def admit(
        self, known: CachedExecution, sender: StreamSender | None = None, since: float | None = None
    ) -> Applied | None:
        """Install the state of an execution that was accepted after `since` (monotonic), without reading it back;
        return None if another process has activated it already. With a sender the emitted tokens are sent in the same
        call."""
        accepted = known.accepted
        state = State()
        applied = start_execution(known.plan, state, accepted.at)
        # Reading the server's time costs a round trip; use the start time where no exact time is needed.
        exact = accepted.fake_time or applied.finish is not None
        now = await self._scripts.now() if exact else accepted.at
        offset = max(0, accepted.at - now) if accepted.fake_time else 0
        context = SnapshotContext(
            await self._scripts.server(accepted.id), MIN_SLEEP_MS, offset, accepted.fake_time
        )
        snapshot = encode_state(known.plan, state, context, applied.armed)
        pieces = _split(snapshot)
        if len(pieces) > 1:
            return None
        if sender is None:
            unsent = _resend_times(accepted.id, applied.emitted, UNSENT_MS)  # from the time of the call on
            if not await self._write(accepted.id, "", pieces[0], "NEW", snapshot, unsent, since=since):
                return None
            return Applied(tuple(applied.emitted), applied.finish, now + offset)
        sent = sender.initial_sends(known, applied.emitted)
        record = encode_record(accepted)
        if not await self._write(
            accepted.id, "", pieces[0], "NEW", snapshot, sent=sent, record=record, since=since
        ):
            return None
        return Applied((), applied.finish, now + offset)

    async def peek(self, known: CachedExecution) -> State:
        """Return the state that the journal yields, without installing it."""
        now = await self._scripts.now()
        state, _, _ = await self._fold(known, await self._facts(known.accepted.id), now)
        return state

    async def due_time(self, known: CachedExecution) -> int | None:
        """Return when an execution is due, all of whose tokens wait; None if it has to be rebuilt at once."""
        accepted = known.accepted
        stored = await self._journal.facts(accepted.id, limit=MAX_DUE_FACTS + 1)
        # A due time of a virtual clock may be due already.
        if accepted.fake_time or len(stored) > MAX_DUE_FACTS:
            return None
        facts = [each for each in stored if not each.late]
        state, applied, _ = await self._fold(known, facts, await self._scripts.now())
        return due_after_loss(state, applied)

    async def _install(
        self,
        known: CachedExecution,
        owner: str,
        now: int,
        *,
        left_to_sweeper: bool,
        sender: StreamSender | None,
    ) -> RebuiltState:
        execution = known.accepted.id
        stored = await self._facts(execution)
        # The record may be the copy of a stream entry, and the execution removed from the journal since.
        if not stored and await self._journal.accepted(execution) is None:
            raise UnknownExecutionError(execution)
        # An execution without facts is activated, not rebuilt.
        self.rebuilds += bool(stored)
        while True:
            state, applied, context = await self._fold(known, stored, now)
            if state.ended:
                await self._scripts.run("end", execution)
                return RebuiltState(state, Applied(now=now))
            leased = await self._leased(known, state, stored)
            context.leased, context.leased_until = leased, now + context.offset + LEASE_MS
            snapshot = encode_state(known.plan, state, context, applied.armed)
            pieces = _split(snapshot)
            for number, piece in enumerate(pieces[:-1]):
                await self._write(execution, owner, piece, "FIRST" if number == 0 else "NEITHER")
            newer = await self._facts(execution, stored[-1].number if stored else 0)
            if not newer:
                break
            stored += newer
        last = "BOTH" if len(pieces) == 1 else "LAST"
        emitted = tuple(each for each in applied.emitted if each.key not in leased)
        sent, tokens = None, _resend_times(execution, emitted, now if left_to_sweeper else now + UNSENT_MS)
        if sender is not None and len(emitted) <= MAX_RESENT:
            sent, tokens = sender.initial_sends(known, emitted), []
        tokens += _lease_ends(execution, leased, now + LEASE_MS)
        if not await self._write(execution, owner, pieces[-1], last, snapshot, tokens, sent):
            raise StoreUnavailableError(f"the lease expired while the state of {execution} was rebuilt")
        waits_until = min((due for due, _ in snapshot.timers), default=None)
        effect = Applied(emitted if sent is None else (), applied.finish, now + context.offset)
        return RebuiltState(state, effect, waits_until)

    async def _leased(
        self, known: CachedExecution, state: State, stored: Sequence[StoredFact]
    ) -> frozenset[tuple[int, Path]]:
        """Return the tokens that a worker may be running: those with effects whose attempt was claimed. Whoever lost
        the state did not end these runs."""
        nodes = known.plan.nodes
        open_tokens = {
            live.token.key
            for scope in state.scopes.values()
            for live in scope.live.values()
            if not live.waiting and live.token.fate is TokenPurpose.RUN and not nodes[live.token.node].pure
        }
        if not open_tokens:
            return frozenset()
        claimed = await self._journal.last_claims(known.accepted.id)
        over = {
            (each.fact.node, each.fact.path): each.fact.at
            for each in stored
            if isinstance(each.fact, AttemptFailed | NodeSuspended)
        }
        return frozenset(key for key in open_tokens if claimed.get(key, 0) > over.get(key, 0))

    async def _facts(self, execution: str, after: int = 0) -> list[StoredFact]:
        return [each for each in await self._journal.facts(execution, after) if not each.late]

    async def _fold(
        self, known: CachedExecution, stored: list[StoredFact], clock: int
    ) -> tuple[State, decision.Applied, SnapshotContext]:
        accepted = known.accepted
        facts = [ExecutionStarted(accepted.at), *(each.fact for each in stored)]
        latest = max(fact.at for fact in facts)
        offset = max(0, latest - clock) if accepted.fake_time else 0
        now = clock + offset
        if len(facts) <= MAX_INLINE_FACTS:
            state, applied = fold(known.plan, facts, now)
        else:
            state, applied = await asyncio.to_thread(fold, known.plan, facts, now)
        if accepted.fake_time and not state.ended:
            offset += _skipped_wait(state, applied, now)
        context = SnapshotContext(
            await self._scripts.server(accepted.id), MIN_SLEEP_MS, offset, accepted.fake_time, True
        )
        return state, applied, context

    async def _write(
        self,
        execution: str,
        owner: str,
        piece: StateSnapshot,
        which: str,
        whole: StateSnapshot | None = None,
        unsent: Sequence[Any] = (),
        sent: tuple[tuple[str, ...], Sequence[Any]] | None = None,
        record: bytes = b"",
        since: float | None = None,
    ) -> bool:
        fields = [part for pair in piece.fields for part in pair]
        timers = [part for pair in piece.timers for part in pair]
        listeners = [part for member in piece.listeners for part in (0, member.decode())]
        nearest: Any = ""
        if whole is not None and whole.timers:
            nearest = min(due for due, _ in whole.timers) - whole.offset
        packed = (_PACK(fields), _PACK(timers), _PACK(listeners), _PACK(unsent))
        streams, sends = sent or ((), ())
        arguments = (owner, REBUILD_LEASE_MS, which, *packed, nearest, record, *sends)
        return bool(await self._scripts.run("install", execution, *arguments, streams=streams, since=since))


def _resend_times(execution: str, tokens: Sequence[Token], when: int) -> list[Any]:
    """Return the entries by which the sweeper sends tokens whose sending was not confirmed at `when`."""
    return [
        part
        for token in tokens
        for part in (
            when - when % SEND_MARKS + unsent_mark(token.attempt, resumed=token.resumed),
            f"{execution}|{token.node}|{encode_path(token.path)}",
        )
    ]


def _lease_ends(execution: str, tokens: Iterable[tuple[int, Path]], when: int) -> list[Any]:
    """Return the entries by which the sweeper sends tokens whose lease nobody has renewed."""
    return [
        part for node, path in tokens for part in (when - when % 2, f"{execution}|{node}|{encode_path(path)}")
    ]


def _skipped_wait(state: State, applied: decision.Applied, now: int) -> int:
    """Return by how much a simulated clock advances: an execution that only waits resumes at its next timer."""
    nearest = min((due for timer, due in applied.armed if timer.kind != "late"), default=now)
    waits = state.scopes[ROOT].active == 0 and state.paused_at is None and state.finish is None
    if not waits or any(name.startswith(CHILD_SIGNAL) for name in state.waiting_for_signal):
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
