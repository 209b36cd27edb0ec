"""The simulator: stores, schedule and faults. It contains no rules; `rune.core` decides what happens next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any

from rune.core.execution.decision import Applied, FinishExecution, Timer
from rune.core.execution.fact import ExecutionStarted, Fact
from rune.core.execution.state import State
from rune.core.execution.token import Token
from rune.core.execution.transition import start_execution
from rune.core.plan.model import Plan
from rune.nodes.registry import Registry
from tests.simulation.case import Case
from tests.simulation.children import finish_execution, recover_children, unreported_children
from tests.simulation.commands import apply_missed_facts, set_paused
from tests.simulation.execution import Execution, create_execution
from tests.simulation.journal import (
    AlreadyEndedError,
    Journal,
    Outage,
    Outages,
    SignalTakenError,
    ViolationError,
)
from tests.simulation.node_runner import NodeRunner
from tests.simulation.oracle.model import Model
from tests.simulation.profile import Profile
from tests.simulation.signal_source import SignalSource
from tests.simulation.store import LEASE
from tests.simulation.worker import Worker, relay

START_TIME = 1_700_000_000_000
MAX_ACTS = 60_000
SWEEP_PAUSE = 100  # ms between two sweeps
CANCELLED = FinishExecution("cancelled")
EARLY_CANCELS = (
    0.2  # share of the executions with a late first command that are cancelled before they are active
)


DELAYS = (1, 500, 5_000, 20_000, 90_000)
"""By how many ms a late command may arrive late: before and after its caller gives up, and after the marks expired."""


@dataclass(eq=False)
class LateCommand:
    """A command on its way to the state store."""

    execution: Execution
    run: Callable[[int], object]
    since: int
    due: int
    server_run: int


@dataclass(eq=False)
class Delivery:
    execution: Execution
    token: Token


class Simulator:
    """Runs an execution and its children with random scheduling and faults."""

    def __init__(
        self,
        case: Case,
        registry: Registry,
        profile: Profile,
        rng: Random,
        *,
        name: str = "sim",
        kept_facts: Iterable[Fact] = (),
        call_count: int = 0,
        effects_succeed: bool = False,
        now: int = START_TIME,
    ) -> None:
        self.profile = profile
        self.rng = rng
        self.now = now
        self.outages = Outages()
        self.registry = registry
        self.executions: dict[str, Execution] = {}
        self.node_runners: dict[str, NodeRunner] = {}
        self.refused_children: set[str] = set()  # ids that must not be started any more
        self.queue: list[Delivery] = []
        self.workers: list[Worker] = []
        self.tasks: list[Iterator[None]] = []  # work outside of workers: commands, timers, relays
        self.in_place = profile.in_place
        self.predicts_end = profile.predicts_end
        self.faults_left = profile.faults
        self.worker_count = 0
        self.call_count = call_count
        self.effects_succeed = effects_succeed
        self.root = create_execution(name, case, self.outages, kept_facts)
        self.signal_source = SignalSource(self)
        # Of its own, so that seeds without lateness run as before.
        self.late_rng = Random(str(rng.getstate()[1][:3]))
        self.late: list[LateCommand] = []
        self.late_writes: list[tuple[int, Callable[[], object]]] = []  # to the journal, with the time of each
        self.register(self.root)

    def register(self, execution: Execution) -> None:
        self.executions[execution.id] = execution
        self.node_runners[execution.id] = NodeRunner(self, execution, self.registry)

    def run(self) -> None:
        self._start(self.root)
        self.outages.write_is_lost = self._loses_write
        for _ in range(MAX_ACTS):
            if self._is_finished():
                if not self.late and not self.late_writes:
                    return
                due = [each.due for each in self.late] + [due for due, _ in self.late_writes]
                self.now = max(self.now, min(due))
                self._run_late()
                continue
            try:
                self._run_late()
                self._step()
            except Outage:
                self._end_outages()
        raise ViolationError("hung: the execution never ended")

    def _start(self, execution: Execution) -> None:
        """Write the start row and send the first tokens; lost messages are sent again by the sweeper."""
        execution.journal.record([ExecutionStarted(self.now)])
        if execution.is_rerun:
            for token in execution.store.load(self.now)[1]:
                self.send(execution, token)
            return
        since = self.now

        def install(now: int) -> Applied | None:
            state = State()
            applied = start_execution(execution.case.plan, state, since)
            return applied if execution.store.initialize(applied, state, now) else None

        # Installed once: a client that sends it again knows that it was not executed.
        if self.command(execution, install, repeats=False):
            if self.late_rng.random() < EARLY_CANCELS:
                self.tasks.append(finish_execution(self, execution, CANCELLED))
            return
        applied = install(self.now)
        assert applied is not None
        for token in applied.emitted:
            self.send(execution, token)
        if applied.finish is not None:
            self.tasks.append(finish_execution(self, execution, applied.finish))

    def command(self, execution: Execution, run: Callable[[int], object], *, repeats: bool = True) -> bool:
        """A command of a caller that waits for its answer. It may arrive a second time at any later moment. Without
        `repeats` it may arrive later instead; return whether it does."""
        if self.late_rng.random() >= self.profile.lateness:
            return False
        delay = self.late_rng.choice(DELAYS)
        self.late.append(LateCommand(execution, run, self.now, self.now + delay, execution.store.server_run))
        return not repeats

    def _loses_write(self, write: Callable[[], object]) -> bool:
        """Lose a write to the journal, or its answer: the write is made now, or at any later moment, or never."""
        if self.late_rng.random() >= self.profile.lost_writes:
            return False
        fate = self.late_rng.choice(("now", "later", "never"))
        if fate == "now":
            with suppress(AlreadyEndedError, SignalTakenError):
                write()
        elif fate == "later":
            self.late_writes.append((self.now + self.late_rng.choice(DELAYS), write))
        return True

    def _run_late(self) -> None:
        """Execute the commands that arrive now. Those to a server that was lost never arrive."""
        for each in [each for each in self.late if each.due <= self.now]:
            self.late.remove(each)
            store = each.execution.store
            if each.server_run == store.server_run and not store.is_late(each.since, self.now):
                with suppress(Outage, AlreadyEndedError):
                    each.run(self.now)
        for entry in [entry for entry in self.late_writes if entry[0] <= self.now]:
            self.late_writes.remove(entry)
            with suppress(AlreadyEndedError, SignalTakenError):
                entry[1]()

    def _is_finished(self) -> bool:
        if self.workers or self.queue or self.tasks or unreported_children(self):
            return False
        return all(each.completions and not each.journal.outbox for each in self.executions.values())

    def _step(self) -> None:
        rng = self.rng
        if self.faults_left and rng.random() < self.profile.fault_rate:
            self.faults_left -= 1
            getattr(self, "_" + rng.choice(self.profile.kinds))()
            return
        self.now += rng.randrange(self.profile.pace)
        choices = []
        if self.workers:
            choices += [self._advance_worker] * 4
        if self.tasks:
            choices += [self._advance_task] * 2
        if self.queue and len(self.workers) < self.profile.workers:
            choices += [self._deliver] * 2
        if any(each.journal.outbox for each in self.executions.values()):
            choices.append(self._relay)
        if self._due():
            choices.append(self._fire)
        if self.signal_source.may_send():
            choices.append(self._send_signal)
        if choices:
            rng.choice(choices)()
        else:
            self._idle()

    def _advance_worker(self) -> None:
        worker = self.rng.choice(self.workers)
        try:
            next(worker.steps)
        except StopIteration:
            self.workers.remove(worker)
        except Outage:
            # The delivery returns to the queue and the attempt is not counted.
            self._stop_worker(worker, lost=False)
            raise

    def _advance_task(self) -> None:
        task = self.rng.choice(self.tasks)
        try:
            next(task)
        except (StopIteration, AlreadyEndedError):
            self.tasks.remove(task)
        except Outage:
            self.tasks.remove(task)
            raise

    def _deliver(self) -> None:
        position = self.rng.randrange(len(self.queue))
        delivery = self.queue[position]
        if self.rng.random() < self.profile.duplicates:
            delivery = Delivery(delivery.execution, delivery.token)
        else:
            del self.queue[position]
        self.worker_count += 1
        self.workers.append(Worker(self, self.worker_count, delivery))

    def send(self, execution: Execution, token: Token) -> None:
        if self.rng.random() >= self.profile.loss:
            self.queue.append(Delivery(execution, token))

    def _relay(self) -> None:
        candidates = [each for each in self.executions.values() if each.journal.outbox]
        self.tasks.append(relay(self, self.rng.choice(candidates)))

    def _due(self) -> list[tuple[Execution, Timer]]:
        if self.outages.state:
            return []
        return [
            (each, timer)
            for each in self.executions.values()
            if each.store.memory is not None
            for timer, due in each.store.memory.timers.items()
            if due <= self.now
        ]

    def _fire(self) -> None:
        execution, timer = self.rng.choice(sorted(self._due(), key=lambda each: (each[0].id, repr(each[1]))))
        self.tasks.append(self._fired(execution, timer))

    def _fired(self, execution: Execution, timer: Timer) -> Iterator[None]:
        self.command(execution, lambda now: execution.store.fire(timer, now))
        applied = execution.store.fire(timer, self.now)
        yield
        for token in applied.emitted:
            self.send(execution, token)
        if applied.finish is not None:
            yield from finish_execution(self, execution, applied.finish)

    def _send_signal(self) -> None:
        self.tasks.append(self.signal_source.send_random())

    def _idle(self) -> None:
        """Nothing can advance: end outages and pauses, sweep, and move the clock to the next due time."""
        if self.outages.state or self.outages.journal:
            self._end_outages()
            return
        if self._resume_unfinished():
            return
        self.now += SWEEP_PAUSE
        if self._sweep() or self._due():
            return
        entered = [each for each in self.executions.values() if each.store.enter(self.now) <= self.now]
        unloaded = [each for each in self.executions.values() if each not in entered]
        ahead = [
            moment
            for memory in (each.store.load(self.now)[0] for each in entered)
            for moment in (*memory.timers.values(), *(lease.until for lease in memory.leases.values()))
            if moment > self.now
        ]
        ahead += [each.due for each in self.late] + [due for due, _ in self.late_writes]
        for each in unloaded:
            ahead.append(each.store.enter(self.now))
            if each.store.peek(self.now)[1].emitted:
                raise ViolationError("a token that can run waits for the timer of another one")
        if self.signal_source.has_waits() and (not ahead or self.rng.random() < self.profile.signal_rate):
            self.tasks.append(self.signal_source.send_awaited())
        elif ahead:
            self.now = min(ahead)
        else:
            raise ViolationError("lost: unfinished work without a message, timer or lease")

    def _resume_unfinished(self) -> bool:
        """Apply unapplied facts, propagate ends, or resume a paused execution."""
        unapplied = [each for each in self.executions.values() if each.journal.unapplied]
        paused = [each for each in self.executions.values() if self._is_paused(each)]
        if unapplied:
            self.tasks.append(apply_missed_facts(self, unapplied[0]))
        elif unreported_children(self):
            self.tasks.append(recover_children(self))
        elif paused:
            self.tasks.append(set_paused(self, self.rng.choice(paused), paused=False))
        return bool(unapplied or unreported_children(self) or paused)

    def _is_paused(self, execution: Execution) -> bool:
        return execution.journal.end is None and execution.store.pause_status(self.now)[1]

    def _sweep(self) -> bool:
        """Send tokens again that have no valid lease."""
        count = len(self.queue)
        for execution in list(self.executions.values()):
            if execution.store.enter(self.now) > self.now:
                continue
            memory, sent = execution.store.load(self.now)
            found = list(sent)
            back = memory.held_back.keys() - memory.claims.keys()
            for scope in memory.state.scopes.values():
                for live in scope.live.values():
                    lease = memory.leases.get(live.token.key)
                    idle = not live.waiting and not live.parked and live.token.key not in back
                    if idle and (lease is None or lease.until <= self.now):
                        found.append(live.token)
            self.queue += [Delivery(execution, token) for token in found]
        return len(self.queue) > count

    def _end_outages(self) -> None:
        self.outages.state = self.outages.journal = False

    def _stop_worker(self, worker: Worker, *, lost: bool) -> None:
        self.workers.remove(worker)
        if not lost:
            self.queue.append(Delivery(worker.execution, worker.delivery.token))

    def _crash(self) -> None:
        if self.workers:
            self._stop_worker(self.rng.choice(self.workers), lost=self.rng.random() < self.profile.loss)

    def _crash_task(self) -> None:
        if self.tasks:
            self.tasks.remove(self.rng.choice(self.tasks))

    def _random_execution(self) -> Execution:
        return self.rng.choice(list(self.executions.values()))

    def _wipe(self) -> None:
        self._random_execution().store.wipe()

    def _save(self) -> None:
        self._random_execution().store.save()

    def _roll_back(self) -> None:
        self._random_execution().store.roll_back()

    def _state_outage(self) -> None:
        self.outages.state = True

    def _journal_outage(self) -> None:
        self.outages.journal = True

    def _jump_clock(self) -> None:
        self.now += self.rng.randrange(20_000)

    def _zombie(self) -> None:
        """Expire all leases: other workers take over while the current ones continue."""
        self.now += LEASE
        self._sweep_early()

    def _drop_queue(self) -> None:
        self.queue.clear()

    def _sweep_early(self) -> None:
        if not self.outages.state:
            self._sweep()

    def _recover_early(self) -> None:
        self.tasks.append(recover_children(self))

    def _pause(self) -> None:
        self.tasks.append(set_paused(self, self._random_execution(), paused=True))

    def _resume(self) -> None:
        self.tasks.append(set_paused(self, self._random_execution(), paused=False))

    def _cancel(self) -> None:
        self.tasks.append(finish_execution(self, self._random_execution(), CANCELLED))

    def ack(self, delivery: Delivery) -> None:
        """Acknowledge a handled delivery; the queue keeps nothing of it."""

    def node_time(self) -> int:
        """How many ms a node takes."""
        return self.late_rng.choice(self.profile.node_times)

    def bound(self) -> int:
        """Random limit of tokens for an inline run."""
        return self.rng.choice((1, 2, 256))


class PlanSimulator(Simulator):
    """Simulates one plan without children and signals."""

    def __init__(self, plan: Plan, registry: Registry, start: Any, profile: Profile, rng: Random) -> None:
        super().__init__(Case(Model("alone", (), ()), plan, start, {}), registry, profile, rng)

    @property
    def journal(self) -> Journal:
        return self.root.journal
