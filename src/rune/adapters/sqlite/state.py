"""State of running executions in the memory of the owner process.

The state is never written: it is folded from the journal when an execution is first accessed after a restart or after
it was unloaded. Executions whose tokens all wait are unloaded until their next timer and cost a row, not memory.
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
from rune.core.execution.control import (
    change_pause,
    claim_verdict,
    deliver_signal,
    end_execution,
    fire_timer,
    note_late,
)
from rune.core.execution.decision import LATENESS, Decision, FinishExecution, Timer
from rune.core.execution.explain import explain
from rune.core.execution.fact import (
    CHILD_SIGNAL,
    ExecutionEnded,
    ExecutionLate,
    ExecutionStarted,
    Fact,
    PauseChanged,
    RaceWinner,
    SignalReceived,
)
from rune.core.execution.fold import fold
from rune.core.execution.inline_run import predict_end, predict_sleep, undecided
from rune.core.execution.reasons import Waiting
from rune.core.execution.state import State, in_cancelled_region
from rune.core.execution.token import Path, Token, TokenPurpose
from rune.core.execution.transition import apply, start_execution
from rune.core.plan.model import Plan
from rune.ports.clock import Clock
from rune.ports.journal import ExecutionRecord, StoredFact, StoreUnavailableError, UnknownExecutionError
from rune.ports.state import LEASE_MS, Applied, Claim, DueTimer, Fence, KeptToken, Listener

log = logging.getLogger("rune.state")

MAX_LOADED = 8_000
"""Maximum number of executions in memory."""

MAX_ADMITTED = 1_000
"""With this many executions in memory new starts wait: accepting one that has to be unloaded and loaded later costs
more than the wait."""

MAX_INLINE_FACTS = 2_000
"""An execution with more facts is folded in a thread, one at a time."""

ADMISSION_TIMEOUT_S = 0.2
MIN_SLEEP_MS = 2_000
"""Executions that wait for a shorter time stay in memory."""

NEVER = 2**62
Plans = Callable[[str], Awaitable[Plan]]
"""Returns the plan of the definition with this hash."""

DueTime = Callable[[str, Timer], int | None]
"""Returns when a timer of an execution is due, in the time of this process; None if it is not armed."""


class SqliteState:
    """Implements the state port for the executions in memory and loads others on access."""

    def __init__(self, journal: SqliteJournal, plans: Plans, clock: Clock) -> None:
        self._journal = journal
        self._plans = plans
        self._clock = clock
        self._running: OrderedDict[str, LoadedExecution] = OrderedDict()
        self._pending_starts = PendingStarts(self._running, clock.wake)
        self._pending_due: list[DueTimer] = []
        self._admission = AdmissionGate(self._running.__len__)
        self._timers = Timers(self._armed)
        self._cursor = (-1, 0)
        self._engine_errors: dict[str, dict[tuple[int, Path, int], int]] = {}
        self._large_load = asyncio.Lock()
        self.rebuilds = 0

    @property
    def loaded(self) -> int:
        """Number of executions in memory."""
        return len(self._running)

    async def begin(self, execution: str) -> Applied:
        running, applied = await self._load(execution)
        return applied if applied is not None else Applied(now=self._now(running))

    def arriving(self, execution: str) -> PendingStart:
        """Return a context for accepting an execution. The scheduler does not load it meanwhile, and loads it
        afterwards if it was not admitted."""
        return self._pending_starts.arriving(execution)

    async def admit(self, accepted: ExecutionRecord, plan: Plan, since: float | None = None) -> Applied:
        """Open an execution that was just accepted, without reading it from the journal."""
        running = LoadedExecution(accepted, plan, State())
        self._join_clock(running, accepted.at)
        self._running[accepted.id] = running
        return self._after_change(running, start_execution(plan, running.state, accepted.at))

    async def room(self) -> bool:
        """Return whether a new execution can be opened now, after waiting for admission."""
        await self._admission.wait()
        return len(self._running) < MAX_LOADED

    async def _load(self, execution: str) -> tuple[LoadedExecution, Applied | None]:
        running = self._running.get(execution)
        if running is not None:
            return running, None
        accepted = await self._journal.accepted(execution)
        if accepted is None:
            raise UnknownExecutionError(execution)
        plan = await self._plans(accepted.hash)
        stored = await self._journal.facts(execution, limit=MAX_INLINE_FACTS + 1)
        running = self._running.get(execution)
        if running is not None:
            return running, None
        running = LoadedExecution(accepted, plan, State(), recovered=True)
        self.rebuilds += bool(stored)
        if len(stored) <= MAX_INLINE_FACTS:
            facts = self._facts_to_fold(running, stored)
            return self._open(running, *fold(plan, facts, self._now(running)))
        async with self._large_load:
            loaded = self._running.get(execution)
            if loaded is not None:
                return loaded, None
            stored += await self._journal.facts(execution, stored[-1].number)
            facts = self._facts_to_fold(running, stored)
            try:
                state, applied = await asyncio.to_thread(fold, plan, facts, self._now(running))
                end = await self._journal.end(execution)
            except BaseException:
                running.clock.leave(execution)
                raise
            if end is not None:  # recorded meanwhile
                end_execution(state, end)
            return self._open(running, state, applied)

    def _facts_to_fold(self, running: LoadedExecution, stored: Sequence[StoredFact]) -> list[Fact]:
        started = ExecutionStarted(running.accepted.at)
        facts = [started, *(each.fact for each in stored if not each.late)]
        self._join_clock(running, max(fact.at for fact in facts))
        return facts

    def _open(
        self, running: LoadedExecution, state: State, applied: effect.Applied
    ) -> tuple[LoadedExecution, Applied]:
        running.state = state
        if state.ended:
            running.clock.leave(running.accepted.id)
            return running, Applied(now=self._now(running))
        self._running[running.accepted.id] = running
        return running, self._after_change(running, applied)

    async def _load_readonly(self, execution: str) -> LoadedExecution:
        """Load an execution for a caller that does not send tokens. The scheduler sends those that loading emits."""
        running, applied = await self._load(execution)
        if applied is not None and (applied.emitted or applied.finish):
            self._pending_due.append(self._due(running, Timer("wait"), applied))
            self._clock.wake()
        return running

    def _due(
        self, running: LoadedExecution, timer: Timer, applied: Applied, due: int | None = None
    ) -> DueTimer:
        record = running.accepted
        return DueTimer(record.id, timer, applied.emitted, applied.finish, applied.now, record.priority, due)

    def _join_clock(self, running: LoadedExecution, latest: int) -> None:
        """Give an execution with simulated time the clock that its parent and its children have. No event of it is
        later than this clock."""
        accepted = running.accepted
        if not accepted.fake_time:
            return
        running.clock.members[accepted.id] = running
        for relative in [each for each in self._running.values() if _are_related(each.accepted, accepted)]:
            self._merge_clocks(running, relative.clock)
        self._set_clock_forward(running.clock, latest)

    def _merge_clocks(self, running: LoadedExecution, target: SimulatedClock) -> None:
        """Let two clocks be one, the one that is ahead."""
        own = running.clock
        if own is target:
            return
        target.members |= own.members
        for member in own.members.values():
            member.clock = target
        self._advance_clock(target, own.offset - target.offset, rearm=True)

    def _set_clock_forward(self, clock: SimulatedClock, latest: int) -> None:
        self._advance_clock(clock, latest - self._clock.now() - clock.offset)

    def _advance_clock(self, clock: SimulatedClock, ms: int, *, rearm: bool = False) -> None:
        """Advance a simulated clock, and the real times of the timers of all that share it."""
        if ms <= 0 and not rearm:
            return
        clock.offset += max(0, ms)
        for execution, running in clock.members.items():
            for timer, due in running.timers.items():
                self._timers.set(due - clock.offset, execution, timer)
        self._clock.wake()

    def _advance_if_idle(self, clock: SimulatedClock) -> None:
        """Advance a simulated clock to the nearest timer if none of the executions that share it can run before. One
        whose child has ended, or is not loaded yet, is about to go on."""
        if not all(self._only_waits(each) for each in clock.members.values()):
            return
        # A clock does not advance for the sake of lateness: an execution that waits for a signal would be late at once.
        nearest = min(
            (
                due
                for running in clock.members.values()
                for timer, due in running.timers.items()
                if timer != LATENESS
            ),
            default=None,
        )
        if nearest is not None:
            self._advance_clock(clock, nearest - self._clock.now() - clock.offset)
            self._clock.wake()

    def _only_waits(self, running: LoadedExecution) -> bool:
        state, root = running.state, running.state.scopes.get(())
        if root is None or root.active or state.finish is not None or running.expiring:
            return False
        absent = [each for each in running.relatives() if each not in self._running]
        if absent:
            self._pending_starts.missed += absent  # after a restart they are not loaded yet
            self._clock.wake()
        return not absent and not self._journal.has_undelivered_signal(running.accepted.id)

    def _now(self, running: LoadedExecution) -> int:
        return self._clock.now() + running.clock.offset

    async def claim(self, execution: str, token: Token, owner: str, *, leased: bool) -> Claim:
        running = self._running.get(execution) or await self._load_readonly(execution)
        return self._claim(running, token, owner, self._now(running), leased=leased)

    async def claim_all(self, execution: str, tokens: Sequence[Token], owner: str) -> list[Claim]:
        running = self._running.get(execution) or await self._load_readonly(execution)
        now = self._now(running)
        return [self._claim(running, token, owner, now, leased=False) for token in tokens]

    def _claim(self, running: LoadedExecution, token: Token, owner: str, now: int, *, leased: bool) -> Claim:
        verdict = claim_verdict(running.plan, running.state, token, now)
        if verdict not in ("run", "cancelled"):
            return Claim(verdict, token, now)
        key = token.key
        live = running.state.scopes[token.path].live.get(token.node)
        current = live.token if live is not None else token
        again = key in running.claimed
        if not again and running.is_full(current):
            running.held_back[key] = current
            return Claim("held back", current, now)
        due = running.expired_waits.pop(key, None) if current.resumed else None
        first = running.first(current) if current.arrived else None
        if not leased and not again:
            running.claim(key)
            return Claim(verdict, current, now, due=due, first=first)
        lease = running.leases.get(key)
        if lease is not None and lease.until > now:
            return Claim("held", current, now)
        fence = self._journal.next_fence()
        running.claim(key)
        given_back = 0 if lease is None else lease.given_back
        running.leases[key] = Lease(owner, fence, now + LEASE_MS, given_back)
        return Claim(verdict, current, now, fence, again, due, running.recovered, first, given_back)

    async def requeue(self, execution: str, token: Token, owner: str, delays: Sequence[int] = ()) -> int:
        running = self._running.get(execution)
        if running is None:
            return self._count_engine_error(execution, token) if delays else 0
        now, lease = self._now(running), running.leases.get(token.key)
        taken_over = lease is not None and lease.until > now and lease.owner != owner
        if taken_over or claim_verdict(running.plan, running.state, token, now) not in ("run", "cancelled"):
            return 0
        count = self._count_engine_error(execution, token) if delays else 0
        delay = delays[count - 1] if 0 < count <= len(delays) else 0
        if lease is not None:
            running.leases[token.key] = Lease("", lease.fence, now + delay, lease.given_back + 1)
        elif count:
            running.claim(token.key)
            running.leases[token.key] = Lease("", self._journal.next_fence(), now + delay)
        return count

    def _count_engine_error(self, execution: str, token: Token) -> int:
        errors = self._engine_errors.setdefault(execution, {})
        key = (*token.key, token.attempt)
        errors[key] = errors.get(key, 0) + 1
        return errors[key]

    async def renew(self, execution: str, node: int, path: Path, fence: Fence) -> bool:
        running = self._running.get(execution)
        lease = running.leases.get((node, path)) if running is not None else None
        if running is None or lease is None or lease.fence != fence or lease.until <= self._now(running):
            return False
        cancelled = in_cancelled_region(running.plan, running.state, node, path)
        # The lease of a cancelled token expires now, so that the next claim can end the token.
        lease.until = self._now(running) + (0 if cancelled else LEASE_MS)
        return not cancelled

    def predict_end(
        self, execution: str, decisions: Sequence[Decision]
    ) -> tuple[FinishExecution, int] | None:
        running = self._running.get(execution)
        if running is None:
            return None
        # An execution with simulated time is never unloaded: its due times are not in the time of this process.
        until = None if running.accepted.fake_time else predict_sleep(running.state, decisions)
        if self._journal.has_undelivered_signal(execution):
            until = None  # the wake-up time that was stored with the signal must stay
        if until is not None and not running.timers and until - self._now(running) > MIN_SLEEP_MS:
            running.predicted_sleep = (decisions, running.changes, until)
            self._journal.sleeps_with_next(execution, until)
            return None
        finish = predict_end(running.state, decisions)
        return None if finish is None else (finish, max(self._now(running), decisions[-1].at))

    async def apply(self, execution: str, decisions: Sequence[Decision]) -> Applied:
        running = self._running.get(execution)
        if running is None:
            running, loaded = await self._load(execution)
            if loaded is not None:
                return loaded  # the fold has already applied the facts of these decisions
        if running.sleeps_after(decisions) and self._unloaded_with_fact(running, running.asleep_until):
            return Applied(now=self._now(running))
        total: effect.Applied | None = None
        for decision in decisions:
            applied = apply(running.plan, running.state, decision)
            if not applied.known:
                del self._running[execution]
                running.clock.leave(execution)
                running, refolded = await self._load(execution)
                # If another caller has loaded it, that caller sends the tokens.
                return Applied(now=self._now(running)) if refolded is None else refolded
            total = applied if total is None else _together(total, applied)
            if applied.fresh and type(decision.fact) is not RaceWinner:
                running.done((decision.node, decision.path))
        assert total is not None, "there are decisions"
        if running.held_back:
            total.emitted += running.take_held_back(self._now(running))
        return self._after_change(running, total)

    async def apply_all(self, execution: str, runs: Sequence[Sequence[Decision]]) -> Applied:
        decisions = [decision for run in runs for decision in run]
        applied = await self.apply(execution, decisions)
        return Applied(tuple(undecided(decisions, applied.emitted)), applied.finish, applied.now)

    async def apply_and_claim(
        self, execution: str, decisions: Sequence[Decision], successor: int, owner: str
    ) -> Applied:
        applied = await self.apply(execution, decisions)
        running = self._running.get(execution)
        if running is None or running.plan.max_parallel is not None:
            return applied
        tokens = applied.emitted if len(decisions) == 1 else undecided(decisions, applied.emitted)
        if len(tokens) != 1 or tokens[0].node != successor:
            return applied
        claim = self._claim(running, tokens[0], owner, applied.now, leased=True)
        # An earlier delivery of the token may hold it.
        if claim.verdict != "run":
            return applied
        return Applied((), applied.finish, applied.now, KeptToken(claim))

    def _after_change(self, running: LoadedExecution, applied: effect.Applied) -> Applied:
        """Update the timers after a change, and unload the execution if all of its tokens wait."""
        running.changes += 1
        for timer in applied.disarmed:
            running.timers.pop(timer, None)
        for timer, due in applied.armed:
            self._arm(running, timer, due)
        # The token that expires a join does not count as active until it is claimed.
        running.expiring = any(token.fate is TokenPurpose.EXPIRE for token in applied.emitted)
        result = Applied(tuple(applied.emitted), applied.finish, self._now(running))
        state, root = running.state, running.state.scopes.get(())
        if root is None or state.finish is not None or (root.active and state.paused_at is None):
            return result
        if running.expiring:
            return result
        if root.active == 0:
            self._sleep_if_idle(running)
        elif not running.leases and not running.claimed:
            self._unload_paused(running)
        return result

    def _unload_paused(self, running: LoadedExecution) -> None:
        """Unload a paused execution until it is resumed, or late: that timer is not postponed by the pause."""
        due = None if running.accepted.fake_time else running.timers.get(LATENESS)
        if due is None or due - self._now(running) > MIN_SLEEP_MS:
            self._unload(running, NEVER if due is None else due)

    def _arm(self, running: LoadedExecution, timer: Timer, due: int) -> None:
        running.timers[timer] = due
        first = self._timers.set(due - running.clock.offset, running.accepted.id, timer)
        # The timer of an end is for a crash of the worker that writes it. The sweep of each second finds it in time.
        if first and timer.kind != "finish":
            self._clock.wake()

    def _armed(self, execution: str, timer: Timer) -> int | None:
        running = self._running.get(execution)
        due = running.timers.get(timer) if running is not None else None
        return None if running is None or due is None else due - running.clock.offset

    def _sleep_if_idle(self, running: LoadedExecution) -> None:
        """Unload an execution until its next timer, or advance its clock if its time is simulated."""
        nearest = min(running.timers.values(), default=None)
        related = running.accepted.fake_time and bool(running.relatives())
        if running.state.paused_at is not None:
            self._unload_paused(running)
        elif nearest is None and not related:
            self._unload(running, NEVER)
        elif running.accepted.fake_time:
            self._advance_if_idle(running.clock)
        elif nearest is not None and nearest - self._now(running) > MIN_SLEEP_MS:
            self._unload(running, nearest)

    def _unload(self, running: LoadedExecution, when: int) -> None:
        """Unload an execution once its wake-up time is durable, unless it has changed by then."""
        execution, changes = running.accepted.id, running.changes
        if self._journal.has_undelivered_signal(execution):
            return  # a signal is recorded and not applied yet; the execution is unloaded after that
        if self._unloaded_with_fact(running, when):
            return

        def on_stored(write: asyncio.Future[None]) -> None:
            stored = not write.cancelled() and write.exception() is None
            if stored and running.changes == changes and (when, 0) > self._cursor:
                self._forget(execution)

        self._journal.sleep_until(execution, when).add_done_callback(on_stored)

    def _unloaded_with_fact(self, running: LoadedExecution, when: int) -> bool:
        """Unload an execution if its wake-up time was stored together with its last fact; return whether it was."""
        execution = running.accepted.id
        stored = running.asleep_until == when and (when, 0) > self._cursor
        if stored and not self._journal.has_undelivered_signal(execution):
            self._forget(execution)
            return True
        return False

    def _forget(self, execution: str) -> None:
        running = self._running.pop(execution, None)
        if running is not None:
            running.clock.leave(execution)
        self._journal.forget(execution)
        self._admission.release()

    async def control(self, execution: str, fact: PauseChanged | ExecutionLate) -> Applied:
        running, loaded = await self._load(execution)
        if isinstance(fact, ExecutionLate):
            running.asleep_until = 0
            changed = self._after_change(running, note_late(running.state))
            return changed if loaded is None else loaded
        return self._deliver_signal(running, fact, change_pause(running.plan, running.state, fact), loaded)

    async def pause_state(self, execution: str) -> tuple[int, bool]:
        state = (await self._load_readonly(execution)).state
        return state.pause_state, state.paused_at is not None

    async def signal(self, execution: str, fact: SignalReceived) -> Applied:
        running, loaded = await self._load(execution)
        if running.accepted.fake_time:
            self._set_clock_forward(running.clock, fact.at)
        return self._deliver_signal(running, fact, deliver_signal(running.plan, running.state, fact), loaded)

    def _deliver_signal(
        self,
        running: LoadedExecution,
        fact: SignalReceived | PauseChanged,
        applied: effect.Applied,
        loaded: Applied | None,
    ) -> Applied:
        """Complete the delivery of a signal or pause; `loaded` is set if loading the execution has applied it.

        Nothing is written here: a write that fails after the state has changed would lose the emitted tokens, because a
        repeated delivery emits none. The next owner loads the execution if this one crashes, because its wake-up time
        was stored with the signal, and no later one is stored before the delivery is complete.
        """
        self._journal.mark_delivered(running.accepted.id, fact)
        running.asleep_until = 0
        changed = self._after_change(running, applied)
        return changed if loaded is None else loaded

    async def recorded(self, execution: str) -> State:
        return (await self._load_readonly(execution)).state

    async def waiting_for_signal(self, execution: str) -> list[Listener]:
        running = await self._load_readonly(execution)
        waits = [
            (since, path, node, name)
            for name, waiting in running.state.waiting_for_signal.items()
            for (path, node), since in waiting.items()
        ]
        return [Listener(name, node, path) for _, path, node, name in sorted(waits)]

    async def end(self, execution: str, fact: ExecutionEnded) -> None:
        running = self._running.pop(execution, None)
        self._engine_errors.pop(execution, None)
        if running is not None:
            end_execution(running.state, fact)
            running.clock.leave(execution)
            if running.clock.members:
                self._advance_if_idle(running.clock)
        self._journal.forget(execution)
        self._admission.release()

    async def due_timers(self, limit: int) -> list[DueTimer]:
        timers = await self._wake_sleepers(limit)
        pending, self._pending_due = self._pending_due, []
        timers = pending + timers
        now = self._clock.now()
        while len(timers) < limit and (ringing := self._timers.ring(now)) is not None:
            execution, timer = ringing
            timers.append(self._fire(self._running[execution], timer))
        return timers

    def _fire(self, running: LoadedExecution, timer: Timer) -> DueTimer:
        """Fire a timer. Timers without a token stay armed until their consequence is applied."""
        now = self._now(running)
        due = running.timers.pop(timer)
        applied = fire_timer(running.plan, running.state, timer, now)
        if timer.kind == "wait":
            running.expired_waits[(timer.node, timer.path)] = due
        for token in applied.emitted:
            running.claimed.discard(token.key)
        if (
            timer.kind in ("join", "finish", "deadline") and (applied.emitted or applied.finish)
        ) or applied.late:
            self._arm(running, timer, now + LEASE_MS)
        return self._due(running, timer, self._after_change(running, applied), due)

    async def _wake_sleepers(self, limit: int) -> list[DueTimer]:
        """Load executions whose wake-up time has come, as far as MAX_LOADED allows."""
        timers: list[DueTimer] = []
        room = min(limit, MAX_LOADED - len(self._running))
        if room <= 0:
            return timers
        rows = self._journal.waking(self._cursor, self._clock.now(), room)
        wake_times: dict[str, int | None] = {
            execution: when for when, _, execution in rows if execution not in self._pending_starts
        }
        if rows:
            self._cursor = (rows[-1][0], rows[-1][1])
        missed, self._pending_starts.missed = self._pending_starts.missed, []
        wake_times |= {each: None for each in missed if await self._journal.accepted(each) is not None}
        waiting = list(wake_times.items())
        while waiting:
            try:
                due = await self._load_due(*waiting[0])
            except StoreUnavailableError:
                # The cursor is behind them, so they are kept for the next call.
                self._pending_starts.missed += [execution for execution, _ in waiting]
                self._pending_due += timers
                raise
            del waiting[0]
            if due is not None:
                timers.append(due)
        return timers

    async def _load_due(self, execution: str, when: int | None) -> DueTimer | None:
        """Load an execution and return what follows. One that cannot be loaded does not block the others."""
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
            # Written by a newer version, or with a node type that this process lacks: another owner may load it.
            log.warning("cannot load %s: %s: %s", execution, type(error).__name__, error)
            return None

    async def next_due(self) -> int | None:
        nearest = self._timers.next()
        moments = [] if nearest is None else [nearest]
        if self._pending_starts.missed or self._pending_due:
            return self._clock.now()
        next_waking = self._journal.next_waking(self._cursor) if len(self._running) < MAX_LOADED else None
        if next_waking is not None:
            moments.append(next_waking)
        return min(moments, default=None)

    async def unclaimed_tokens(self, limit: int) -> list[tuple[str, Token, int]]:
        tokens: list[tuple[str, Token, int]] = []
        for execution, running in self._running.items():
            if running.state.paused_at is not None:
                continue
            now = self._now(running)
            for scope in running.state.scopes.values():
                for live in scope.live.values():
                    lease = running.leases.get(live.token.key)
                    expired = lease is not None and lease.until <= now
                    if expired and not live.waiting and not live.parked:
                        tokens.append((execution, live.token, running.accepted.priority))
                        if len(tokens) >= limit:
                            return tokens
        return tokens

    def active(self) -> int:
        """Return how many executions in memory have tokens to run."""
        return sum(1 for each in self._running.values() if each.state.scopes and each.state.root.active)

    async def explain(self, execution: str) -> list[Waiting]:
        running = await self._load_readonly(execution)
        return explain(running.plan, running.state)

    async def peek(self, execution: str) -> State | None:
        running = self._running.get(execution)
        return None if running is None else running.state


def _together(total: effect.Applied, applied: effect.Applied) -> effect.Applied:
    """Add the consequences of one decision to those of the decisions before it."""
    total.emitted += applied.emitted
    total.armed += applied.armed
    total.disarmed += applied.disarmed
    total.finish = total.finish or applied.finish
    return total


def _are_related(first: ExecutionRecord, second: ExecutionRecord) -> bool:
    """Return whether one of two executions waits for the end of the other."""
    return any(
        child.parent is not None and child.parent.execution == parent.id
        for child, parent in ((first, second), (second, first))
    )


class Lease(msgspec.Struct):
    """The exclusive right of a worker to run a token, until a time."""

    owner: str
    fence: Fence
    until: int
    given_back: int = 0  # how often a worker gave the token back


class SimulatedClock(msgspec.Struct):
    """The clock that an execution with simulated time shares with its parent and its children. Without simulated time
    it has no members and shows the time of the process."""

    offset: int = 0  # ms by which it is ahead of the process
    members: dict[str, LoadedExecution] = {}

    def leave(self, execution: str) -> None:
        self.members.pop(execution, None)


class LoadedExecution(msgspec.Struct):
    """One execution in memory."""

    accepted: ExecutionRecord
    plan: Plan
    state: State
    clock: SimulatedClock = msgspec.field(default_factory=SimulatedClock)
    timers: dict[Timer, int] = {}
    leases: dict[tuple[int, Path], Lease] = {}
    claimed: set[tuple[int, Path]] = set()
    expired_waits: dict[tuple[int, Path], int] = {}
    expiring: bool = False  # a token that expires a join is under way
    changes: int = 0  # number of changes applied
    held_back: dict[tuple[int, Path], Token] = {}  # tokens beyond the limit of nodes that run at once
    asleep_until: int = 0  # wake-up time that is stored in the file
    # Decisions after which the execution sleeps, the value of `changes` for which that was predicted, and until when.
    predicted_sleep: tuple[Sequence[Decision], int, int] | None = None
    recovered: bool = (
        False  # loaded from the journal: a worker may have crashed while it ran one of the tokens
    )

    def relatives(self) -> list[str]:
        """Return the parent, and the children whose ends it waits for."""
        parents = [] if self.accepted.parent is None else [self.accepted.parent.execution]
        names = self.state.waiting_for_signal
        return parents + [name.removeprefix(CHILD_SIGNAL) for name in names if name.startswith(CHILD_SIGNAL)]

    def first(self, token: Token) -> int | None:
        """Return when the first branch arrived at the join that opened the token."""
        scope = self.state.scopes.get(token.path)
        barrier = None if scope is None else scope.barriers.get(token.node)
        return None if barrier is None else barrier.first

    def is_full(self, token: Token) -> bool:
        """Return whether the execution runs as many nodes as its limit allows."""
        limit = self.plan.max_parallel
        return limit is not None and token.fate is TokenPurpose.RUN and len(self.claimed) >= limit

    def claim(self, key: tuple[int, Path]) -> None:
        self.claimed.add(key)
        self.held_back.pop(key, None)

    def take_held_back(self, now: int) -> list[Token]:
        """Return the held back tokens that can run now. A token that has become void does not use up a slot."""
        free = max(0, (self.plan.max_parallel or 0) - len(self.claimed))
        tokens: list[Token] = []
        while self.held_back and len(tokens) < free:
            token = self.held_back.pop(next(iter(self.held_back)))
            if claim_verdict(self.plan, self.state, token, now) in ("run", "cancelled"):
                tokens.append(token)
        return tokens

    def sleeps_after(self, decisions: Sequence[Decision]) -> bool:
        """Return whether the execution sleeps after these decisions, as predicted when they were recorded. The wake-up
        time was recorded with them."""
        if self.predicted_sleep is None or self.predicted_sleep[0] is not decisions:
            return False
        _, changes, self.asleep_until = self.predicted_sleep
        return changes == self.changes

    def done(self, key: tuple[int, Path]) -> None:
        """Release the claim and the lease of a token."""
        self.claimed.discard(key)
        self.leases.pop(key, None)


class PendingStarts:
    """Executions that are being accepted, which the scheduler must not load.

    `loaded` are the executions in memory. An execution that is not among them when its start ends is added to `missed`,
    and `wake` makes the scheduler load it.
    """

    def __init__(self, loaded: Container[str], wake: Callable[[], None]) -> None:
        self.loaded = loaded
        self.wake = wake
        self.in_progress: set[str] = set()
        self.missed: list[str] = []

    def __contains__(self, execution: object) -> bool:
        return execution in self.in_progress

    def arriving(self, execution: str) -> PendingStart:
        """Return a context in which the execution is being accepted."""
        return PendingStart(self, execution)


class PendingStart:
    """Context of one start."""

    __slots__ = ("_execution", "_pending")

    def __init__(self, pending: PendingStarts, execution: str) -> None:
        self._pending = pending
        self._execution = execution

    def __enter__(self) -> None:
        self._pending.in_progress.add(self._execution)

    def __exit__(self, *failure: object) -> None:
        pending = self._pending
        pending.in_progress.discard(self._execution)
        if self._execution not in pending.loaded:
            pending.missed.append(self._execution)
            pending.wake()


class AdmissionGate:
    """Admission control: new starts wait up to ADMISSION_TIMEOUT_S while MAX_ADMITTED executions are in memory.

    `size` returns how many executions are in memory.
    """

    def __init__(self, size: Callable[[], int]) -> None:
        self._size = size
        self._waiting: deque[tuple[asyncio.Future[None], float]] = deque()
        self._watched = False

    async def wait(self) -> None:
        """Wait until an execution has left memory, or for ADMISSION_TIMEOUT_S."""
        if self._size() < MAX_ADMITTED:
            return
        loop = asyncio.get_running_loop()
        admitted = loop.create_future()
        self._waiting.append((admitted, loop.time() + ADMISSION_TIMEOUT_S))
        if not self._watched:
            self._watched = True
            loop.call_later(ADMISSION_TIMEOUT_S, self._watch, loop)
        await admitted

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Admit the starts whose wait has timed out. One timer serves all, because they time out in order."""
        now = loop.time()
        while self._waiting and (self._waiting[0][0].done() or self._waiting[0][1] <= now):
            _admit(self._waiting.popleft()[0])
        self._watched = bool(self._waiting)
        if self._watched:
            loop.call_at(self._waiting[0][1], self._watch, loop)

    def release(self) -> None:
        """Admit the next start, after an execution has left memory."""
        while self._waiting and self._size() < MAX_ADMITTED:
            if _admit(self._waiting.popleft()[0]):
                return


def _admit(waiting: asyncio.Future[None]) -> bool:
    if waiting.done():
        return False
    waiting.set_result(None)
    return True


class Timers:
    """The timers of all executions in memory, ordered by due time.

    A timer that is armed again has two entries. Only the one that matches `due` is valid; others are skipped.
    """

    def __init__(self, due: DueTime) -> None:
        self._due = due
        self._heap: list[tuple[int, int, str, Timer]] = []
        self._pushed = 0

    def set(self, when: int, execution: str, timer: Timer) -> bool:
        """Add a timer and return whether it is now the first."""
        self._pushed += 1
        heappush(self._heap, (when, self._pushed, execution, timer))
        return self._heap[0][1] == self._pushed

    def next(self) -> int | None:
        """Return when the first timer is due."""
        while self._heap and self._due(self._heap[0][2], self._heap[0][3]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def ring(self, now: int) -> tuple[str, Timer] | None:
        """Remove and return the first timer if it is due."""
        when = self.next()
        if when is None or when > now:
            return None
        _, _, execution, timer = heappop(self._heap)
        return execution, timer
