"""An execution in memory: what the journal knows of it, folded, and what only this moment knows.

Arrivals: executions that are being accepted. While they are, nobody else opens them.

The crowd before the door: starts that wait a moment for executions in memory to leave.

The timers of the executions in memory, by the time they are due.

The state in memory. It is a fold of the journal, so nothing of it is written: after a restart, or after a sleep,
an execution is folded when it is touched. Executions whose tokens all wait cost a row, not memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Container, Sequence
from heapq import heappop, heappush

import msgspec

from rune.adapters.sqlite.journal import SqliteJournal
from rune.core.execution import decision as effect
from rune.core.execution.control import change_pause, claim_verdict, deliver_signal, end_execution
from rune.core.execution.decision import Decision, FinishExecution, Timer
from rune.core.execution.explain import Waiting, explain
from rune.core.execution.fact import (
    ExecutionEnded,
    ExecutionStarted,
    PauseChanged,
    RaceWinner,
    SignalReceived,
)
from rune.core.execution.fold import fold
from rune.core.execution.inline_run import predict_end, predict_sleep
from rune.core.execution.state import State, in_cancelled_region
from rune.core.execution.timers import fire_timer
from rune.core.execution.token import Path, Token, TokenPurpose
from rune.core.execution.transition import apply, start_execution
from rune.core.plan.model import Plan
from rune.ports.clock import Clock
from rune.ports.journal import ExecutionRecord, StoreUnavailableError
from rune.ports.state import Applied, Claim, DueTimer, Fence, Listener


class Lease(msgspec.Struct):
    """Who may run a token, until when."""

    owner: str
    fence: Fence
    until: int


class LoadedExecution(msgspec.Struct):
    """One execution in memory."""

    accepted: ExecutionRecord
    plan: Plan
    state: State
    offset: int = 0  # of an execution with its own clock
    timers: dict[Timer, int] = {}
    leases: dict[tuple[int, Path], Lease] = {}
    claimed: set[tuple[int, Path]] = set()
    waited: dict[tuple[int, Path], int] = {}
    acts: int = 0
    held_back: dict[tuple[int, Path], Token] = {}  # as many run as may run at once
    asleep_until: int = 0  # what the file knows of its next waking
    foreseen: tuple[Sequence[Decision], int] | None = None  # it sleeps after these, unless it acts before
    recovered: bool = False  # read back from the journal: somebody may have died on one of its tokens

    def first(self, token: Token) -> int | None:
        """When the first party arrived at the join whose token this is."""
        scope = self.state.scopes.get(token.path) if token.arrived else None
        barrier = None if scope is None else scope.barriers.get(token.node)
        return None if barrier is None else barrier.first

    def is_full(self, token: Token) -> bool:
        """Whether as many nodes run as may run at once."""
        most = self.plan.max_parallel
        return most is not None and token.fate is TokenPurpose.RUN and len(self.claimed) >= most

    def claim(self, key: tuple[int, Path]) -> None:
        """A token is in somebody's hands."""
        self.claimed.add(key)
        self.held_back.pop(key, None)

    def let_in(self) -> list[Token]:
        """Somebody is done: whoever was held back may try again. One that has become void takes nobody's place."""
        free = max(0, (self.plan.max_parallel or 0) - len(self.claimed))
        found: list[Token] = []
        while self.held_back and len(found) < free:
            token = self.held_back.pop(next(iter(self.held_back)))
            if claim_verdict(self.plan, self.state, token) in ("run", "cancelled"):
                found.append(token)
        return found

    def sleeps_after(self, decisions: Sequence[Decision]) -> bool:
        """Whether these decisions, written down together with the time of the next waking, are all there is."""
        return self.foreseen is not None and self.foreseen[0] is decisions and self.foreseen[1] == self.acts

    def done(self, key: tuple[int, Path]) -> None:
        """A token is no longer in anybody's hands."""
        self.claimed.discard(key)
        self.leases.pop(key, None)


class PendingStarts:
    """`loaded` are the executions in memory; `wake` has somebody look at those that did not get there."""

    def __init__(self, loaded: Container[str], wake: Callable[[], None]) -> None:
        self.loaded = loaded
        self.wake = wake
        self.under_way: set[str] = set()
        self.missed: list[str] = []

    def __contains__(self, execution: object) -> bool:
        return execution in self.under_way

    def arriving(self, execution: str) -> PendingStart:
        """While this lasts the execution arrives."""
        return PendingStart(self, execution)


class PendingStart:
    """One of them; if it was not admitted, it is read back."""

    __slots__ = ("_arrivals", "_execution")

    def __init__(self, arrivals: PendingStarts, execution: str) -> None:
        self._arrivals = arrivals
        self._execution = execution

    def __enter__(self) -> None:
        self._arrivals.under_way.add(self._execution)

    def __exit__(self, *failure: object) -> None:
        arrivals = self._arrivals
        arrivals.under_way.discard(self._execution)
        if self._execution not in arrivals.loaded:
            arrivals.missed.append(self._execution)
            arrivals.wake()


MAX_ADMITTED = 1_000  # above it, starts wait a moment: reading an execution back later costs more
ADMISSION_TIMEOUT_S = 0.2  # s


class AdmissionGate:
    """`size` tells how many executions are in memory."""

    def __init__(self, size: Callable[[], int]) -> None:
        self._size = size
        self._waiting: deque[tuple[asyncio.Future[None], float]] = deque()
        self._watched = False

    async def wait(self) -> None:
        """Until there is room, but not long."""
        if self._size() < MAX_ADMITTED:
            return
        loop = asyncio.get_running_loop()
        leaving = loop.create_future()
        self._waiting.append((leaving, loop.time() + ADMISSION_TIMEOUT_S))
        if not self._watched:
            self._watched = True
            loop.call_later(ADMISSION_TIMEOUT_S, self._watch, loop)
        await leaving

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let in who has waited long enough. One timer does for all: who came first loses patience first."""
        now = loop.time()
        while self._waiting and (self._waiting[0][0].done() or self._waiting[0][1] <= now):
            _admit(self._waiting.popleft()[0])
        self._watched = bool(self._waiting)
        if self._watched:
            loop.call_at(self._waiting[0][1], self._watch, loop)

    def release(self) -> None:
        """Somebody has gone: the next may come in."""
        while self._waiting and self._size() < MAX_ADMITTED:
            if _admit(self._waiting.popleft()[0]):
                return


def _admit(waiting: asyncio.Future[None]) -> bool:
    if waiting.done():
        return False
    waiting.set_result(None)
    return True


DueTime = Callable[[str, Timer], int | None]
"""When a timer of an execution is due by the clock of this process; None if it is not armed."""


class Timers:
    """A timer that was armed again is here twice; only the entry that its execution agrees with counts."""

    def __init__(self, due: DueTime) -> None:
        self._due = due
        self._heap: list[tuple[int, int, str, Timer]] = []
        self._pushed = 0

    def set(self, when: int, execution: str, timer: Timer) -> bool:
        """Add one; whether it is now the first to ring."""
        self._pushed += 1
        heappush(self._heap, (when, self._pushed, execution, timer))
        return self._heap[0][1] == self._pushed

    def next(self) -> int | None:
        """When the first one rings."""
        while self._heap and self._due(self._heap[0][2], self._heap[0][3]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def ring(self, now: int) -> tuple[str, Timer] | None:
        """Take out the first one, if its time has come."""
        when = self.next()
        if when is None or when > now:
            return None
        _, _, execution, timer = heappop(self._heap)
        return execution, timer


log = logging.getLogger("rune.state")

LEASE_MS = 9_000
MIN_SLEEP_MS = 2_000  # ms: shorter waits stay in memory
MAX_LOADED = 8_000
NEVER = 2**62
CHILD = "child:"
"""How the signals begin by which children tell their end."""

Plans = Callable[[str], Awaitable[Plan]]


class SqliteState:
    """Tokens, joins, leases and timers of the executions that are awake."""

    def __init__(self, journal: SqliteJournal, plans: Plans, clock: Clock) -> None:
        self._journal = journal
        self._plans = plans
        self._clock = clock
        self._running: OrderedDict[str, LoadedExecution] = OrderedDict()
        self._arrivals = PendingStarts(self._running, clock.wake)
        self._pending_due: list[DueTimer] = []
        self._crowd = AdmissionGate(self._running.__len__)
        self._timers = Timers(self._armed)
        self._cursor = (-1, 0)
        self.folds = 0

    @property
    def loaded(self) -> int:
        """How many executions are in memory."""
        return len(self._running)

    async def begin(self, execution: str) -> Applied:
        running, applied = await self._load(execution)
        return applied if applied is not None else Applied(now=self._now(running))

    def arriving(self, execution: str) -> PendingStart:
        """While an execution is being accepted nobody else opens it; if it was not admitted, it is read back."""
        return self._arrivals.arriving(execution)

    async def admit(self, accepted: ExecutionRecord, plan: Plan) -> Applied:
        """Open an execution that was accepted this moment, without reading it back."""
        running = LoadedExecution(accepted, plan, State(), self._ahead(accepted, accepted.at))
        self._running[accepted.id] = running
        return self._after_change(running, start_execution(plan, running.state, accepted.at))

    async def room(self) -> bool:
        """Whether one more execution may be opened right away; waits a moment for others to leave."""
        await self._crowd.wait()
        return len(self._running) < MAX_LOADED

    async def _load(self, execution: str) -> tuple[LoadedExecution, Applied | None]:
        running = self._running.get(execution)
        if running is not None:
            return running, None
        accepted = await self._journal.accepted(execution)
        if accepted is None:
            raise KeyError(execution)
        stored = [each for each in await self._journal.facts(execution) if not each.late]
        plan = await self._plans(accepted.hash)
        running = self._running.get(execution)
        if running is not None:
            return running, None
        running = LoadedExecution(accepted, plan, State(), recovered=True)
        facts = [ExecutionStarted(accepted.at), *(each.fact for each in stored)]
        running.offset = self._ahead(accepted, max(fact.at for fact in facts))
        running.state, applied = fold(plan, facts, self._now(running))
        self.folds += bool(stored)
        if running.state.ended:
            return running, Applied(now=self._now(running))
        self._running[execution] = running
        return running, self._after_change(running, applied)

    async def _load_readonly(self, execution: str) -> LoadedExecution:
        """Load an execution for somebody who sends nothing: what follows from the loading is left to the scheduler."""
        running, applied = await self._load(execution)
        if applied is not None and (applied.emitted or applied.finish):
            self._pending_due.append(self._due(running, Timer("wait"), applied))
            self._clock.wake()
        return running

    def _due(
        self, running: LoadedExecution, timer: Timer, applied: Applied, due: int | None = None
    ) -> DueTimer:
        of = running.accepted
        return DueTimer(of.id, timer, applied.emitted, applied.finish, applied.now, of.priority, due)

    def _ahead(self, accepted: ExecutionRecord, latest: int) -> int:
        """How far the clock of an execution with a clock of its own is before this one."""
        return max(0, latest - self._clock.now()) if accepted.fake_time else 0

    def _now(self, running: LoadedExecution) -> int:
        return self._clock.now() + running.offset

    async def claim(self, execution: str, token: Token, owner: str, *, leased: bool) -> Claim:
        running = self._running.get(execution) or await self._load_readonly(execution)
        now = self._now(running)
        verdict = claim_verdict(running.plan, running.state, token)
        if verdict not in ("run", "cancelled"):
            return Claim(verdict, token, now)
        live = running.state.scopes[token.path].live.get(token.node)
        mine = live.token if live is not None else token
        again = token.key in running.claimed
        if not again and running.is_full(mine):
            running.held_back[token.key] = mine
            return Claim("held back", mine, now)
        due = running.waited.pop(token.key, None) if mine.resumed else None
        if not leased and not again:
            running.claim(token.key)
            return Claim(verdict, mine, now, due=due, first=running.first(mine))
        held = running.leases.get(token.key)
        if held is not None and held.until > now:
            return Claim("held", mine, now)
        fence = self._journal.next_fence()
        running.claim(token.key)
        running.leases[token.key] = Lease(owner, fence, now + LEASE_MS)
        return Claim(verdict, mine, now, fence, again, due, running.recovered, running.first(mine))

    async def renew(self, execution: str, node: int, path: Path, fence: Fence) -> bool:
        running = self._running.get(execution)
        held = running.leases.get((node, path)) if running is not None else None
        if running is None or held is None or held.fence != fence or held.until <= self._now(running):
            return False
        pointless = in_cancelled_region(running.plan, running.state, node, path)
        held.until = self._now(running) + (0 if pointless else LEASE_MS)  # who touches it next ends it
        return not pointless

    def predict_end(
        self, execution: str, decisions: Sequence[Decision]
    ) -> tuple[FinishExecution, int] | None:
        running = self._running.get(execution)
        if running is None:
            return None
        # An execution with a clock of its own does not sleep: its due times are not those of this clock.
        until = None if running.accepted.fake_time else predict_sleep(running.state, decisions)
        if until is not None and not running.timers and until - self._now(running) > MIN_SLEEP_MS:
            running.asleep_until = until
            running.foreseen = (decisions, running.acts)
            self._journal.sleeps_with_next(execution, until)
            return None
        finish = predict_end(running.state, decisions)
        return None if finish is None else (finish, self._now(running))

    async def apply(self, execution: str, decisions: Sequence[Decision]) -> Applied:
        running, loaded = await self._load(execution)
        if loaded is not None:
            return loaded  # the fold has placed the facts of these decisions already
        if running.sleeps_after(decisions) and self._unloaded_with_fact(running, running.asleep_until):
            return Applied(now=self._now(running))
        total = effect.Applied()
        for decision in decisions:
            applied = apply(running.plan, running.state, decision)
            if not applied.known:
                del self._running[execution]
                _, refolded = await self._load(execution)
                assert refolded is not None
                return refolded
            total.emitted += applied.emitted
            total.armed += applied.armed
            total.disarmed += applied.disarmed
            total.finish = total.finish or applied.finish
            if applied.fresh and type(decision.fact) is not RaceWinner:
                running.done((decision.node, decision.path))
        if running.held_back:
            total.emitted += running.let_in()
        return self._after_change(running, total)

    def _after_change(self, running: LoadedExecution, applied: effect.Applied) -> Applied:
        """Arm what is to be armed; let an execution with its own clock jump; put one that only waits to sleep."""
        running.acts += 1
        for timer in applied.disarmed:
            running.timers.pop(timer, None)
        for timer, due in applied.armed:
            self._arm(running, timer, due)
        result = Applied(tuple(applied.emitted), applied.finish, self._now(running))
        state, root = running.state, running.state.scopes.get(())
        if root is None or state.finish is not None or (root.active and state.paused_at is None):
            return result
        if any(token.fate is TokenPurpose.EXPIRE for token in applied.emitted):
            return result  # a join about to be given up has no token that counts as active yet
        if root.active == 0:
            self._sleep_if_idle(running)
        elif not running.leases and not running.claimed:
            self._unload(running, NEVER)  # the resume reads it back
        return result

    def _arm(self, running: LoadedExecution, timer: Timer, due: int) -> None:
        running.timers[timer] = due
        if self._timers.set(due - running.offset, running.accepted.id, timer):
            self._clock.wake()

    def _armed(self, execution: str, timer: Timer) -> int | None:
        running = self._running.get(execution)
        due = running.timers.get(timer) if running is not None else None
        return None if running is None or due is None else due - running.offset

    def _sleep_if_idle(self, running: LoadedExecution) -> None:
        """Nothing of this execution can run before its next timer."""
        nearest = min(running.timers.values(), default=None)
        if running.state.paused_at is not None or nearest is None:
            self._unload(running, NEVER)
        elif running.accepted.fake_time:
            if any(name.startswith(CHILD) for name in running.state.waiting_for_signal):
                return  # its time goes on when the child has ended
            jump = nearest - self._now(running)
            if jump > 0:
                running.offset += jump
                for timer, due in running.timers.items():
                    self._timers.set(due - running.offset, running.accepted.id, timer)
            self._clock.wake()
        elif nearest - self._now(running) > MIN_SLEEP_MS:
            self._unload(running, nearest)

    def _unload(self, running: LoadedExecution, when: int) -> None:
        """Leave memory once the file knows when to wake it; unless something happened meanwhile."""
        execution, acts = running.accepted.id, running.acts
        if self._journal.has_undelivered_signal(execution):
            return  # the file knows what there is to do; having heard of it, it may rest
        if self._unloaded_with_fact(running, when):
            return

        def asleep(done: asyncio.Future[None]) -> None:
            known = not done.cancelled() and done.exception() is None
            if known and running.acts == acts and (when, 0) > self._cursor:
                self._forget(execution)

        self._journal.sleep_until(execution, when).add_done_callback(asleep)

    def _unloaded_with_fact(self, running: LoadedExecution, when: int) -> bool:
        """Leave memory if the time of the next waking went along with the fact that put it to sleep."""
        execution = running.accepted.id
        known = running.asleep_until == when and (when, 0) > self._cursor
        if known and not self._journal.has_undelivered_signal(execution):
            self._forget(execution)
            return True
        return False

    def _forget(self, execution: str) -> None:
        self._running.pop(execution, None)
        self._journal.forget(execution)
        self._crowd.release()

    async def control(self, execution: str, fact: PauseChanged) -> Applied:
        running, loaded = await self._load(execution)
        return await self._deliver_signal(
            running, fact, change_pause(running.plan, running.state, fact), loaded
        )

    async def pause_state(self, execution: str) -> tuple[int, bool]:
        state = (await self._load_readonly(execution)).state
        return state.pause_state, state.paused_at is not None

    async def signal(self, execution: str, fact: SignalReceived) -> Applied:
        running, loaded = await self._load(execution)
        running.offset = max(running.offset, self._ahead(running.accepted, fact.at))
        return await self._deliver_signal(
            running, fact, deliver_signal(running.plan, running.state, fact), loaded
        )

    async def _deliver_signal(
        self,
        running: LoadedExecution,
        fact: SignalReceived | PauseChanged,
        applied: effect.Applied,
        loaded: Applied | None,
    ) -> Applied:
        """What was just loaded has heard of it already. The file may have been told meanwhile that the execution
        sleeps; whoever owns it next must look."""
        self._journal.heard(running.accepted.id, fact)
        running.asleep_until = 0
        kept = self._after_change(running, applied)
        found = kept if loaded is None else loaded
        if found.emitted:
            await self._journal.sleep_until(running.accepted.id, found.now)
        return found

    async def waiting_for_signal(self, execution: str) -> list[Listener]:
        running = await self._load_readonly(execution)
        found = [
            (since, path, node, name)
            for name, waiting in running.state.waiting_for_signal.items()
            for (path, node), since in waiting.items()
        ]
        return [Listener(name, node, path) for _, path, node, name in sorted(found)]

    async def end(self, execution: str, fact: ExecutionEnded) -> None:
        running = self._running.pop(execution, None)
        if running is not None:
            end_execution(running.state, fact)
        self._journal.forget(execution)
        self._crowd.release()

    async def due_timers(self, limit: int) -> list[DueTimer]:
        found, self._pending_due = self._pending_due, []
        found += await self._wake_sleepers(limit)
        now = self._clock.now()
        while len(found) < limit and (ringing := self._timers.ring(now)) is not None:
            execution, timer = ringing
            found.append(self._fire(self._running[execution], timer))
        return found

    def _fire(self, running: LoadedExecution, timer: Timer) -> DueTimer:
        """Move a timer on. What has no token of its own yet stays armed until its consequence is applied."""
        now = self._now(running)
        due = running.timers.pop(timer)
        applied = fire_timer(running.plan, running.state, timer, now)
        if timer.kind == "wait":
            running.waited[(timer.node, timer.path)] = due
        for token in applied.emitted:
            running.claimed.discard(token.key)
        if timer.kind in ("join", "finish", "deadline") and (applied.emitted or applied.finish):
            self._arm(running, timer, now + LEASE_MS)
        return self._due(running, timer, self._after_change(running, applied), due)

    async def _wake_sleepers(self, limit: int) -> list[DueTimer]:
        """Load executions whose time has come, as far as memory allows."""
        found: list[DueTimer] = []
        room = min(limit, MAX_LOADED - len(self._running))
        if room <= 0:
            return found
        rows = self._journal.waking(self._cursor, self._clock.now(), room)
        names: dict[str, int | None] = {name: when for when, _, name in rows if name not in self._arrivals}
        if rows:
            self._cursor = (rows[-1][0], rows[-1][1])
        missed, self._arrivals.missed = self._arrivals.missed, []
        names |= {each: None for each in missed if await self._journal.accepted(each) is not None}
        for execution, when in names.items():
            opened = await self._opened(execution, when)
            if opened is not None:
                found.append(opened)
        return found

    async def _opened(self, execution: str, when: int | None) -> DueTimer | None:
        """What follows if an execution is loaded now. One that cannot be does not hold up the others."""
        if execution in self._running:
            return None
        try:
            if await self._journal.end(execution) is not None:
                return None
            running, applied = await self._load(execution)
            return None if applied is None else self._due(running, Timer("wait"), applied, when)
        except StoreUnavailableError:
            raise
        except Exception as error:
            # Written by a newer version, or of a node type that is not here: left to whoever can.
            log.warning("%s is left alone: %s: %s", execution, type(error).__name__, error)
            return None

    async def next_due(self) -> int | None:
        nearest = self._timers.next()
        moments = [] if nearest is None else [nearest]
        if self._arrivals.missed or self._pending_due:
            return self._clock.now()
        asleep = self._journal.next_waking(self._cursor) if len(self._running) < MAX_LOADED else None
        if asleep is not None:
            moments.append(asleep)
        return min(moments, default=None)

    async def unclaimed_tokens(self, limit: int) -> list[tuple[str, Token, int]]:
        found: list[tuple[str, Token, int]] = []
        for execution, running in self._running.items():
            now = self._now(running)
            for scope in running.state.scopes.values():
                for live in scope.live.values():
                    held = running.leases.get(live.token.key)
                    free = held is not None and held.until <= now
                    if free and not live.waiting and not live.parked:
                        found.append((execution, live.token, running.accepted.priority))
                        if len(found) >= limit:
                            return found
        return found

    def active(self) -> int:
        """How many of the executions in memory have something to run."""
        return sum(1 for each in self._running.values() if each.state.scopes and each.state.root.active)

    async def explain(self, execution: str) -> list[Waiting]:
        running = await self._load_readonly(execution)
        return explain(running.plan, running.state)
