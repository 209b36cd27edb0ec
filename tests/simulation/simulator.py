"""The simulated world: stores, schedule and faults. It knows no rule: what happens next `rune.core` says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from rune.core.execution.decision import FinishExecution, Timer
from rune.core.execution.fact import ExecutionStarted, Fact
from rune.core.execution.state import State
from rune.core.execution.token import Token
from rune.core.execution.transition import start_execution
from rune.core.plan.model import Plan
from rune.nodes.registry import Registry
from tests.simulation.case import Case
from tests.simulation.desk import catch_up, steer
from tests.simulation.execution import Execution, accept
from tests.simulation.family import finish, recover, untold
from tests.simulation.journal import Ended, Journal, Outage, Violation, Weather
from tests.simulation.nodes import Nodes
from tests.simulation.oracle.model import Model
from tests.simulation.profile import Profile
from tests.simulation.store import LEASE
from tests.simulation.voices import Voices
from tests.simulation.worker import Worker, relay

START_TIME = 1_700_000_000_000
MAX_ACTS = 60_000
SWEEP_PAUSE = 100  # ms: even a sweeper with nothing to wait for takes its time
CANCELLED = FinishExecution("cancelled")


@dataclass(eq=False)
class Delivery:
    execution: Execution
    token: Token


class Realm:
    """An execution, those that it starts, and everything that can go wrong around them."""

    def __init__(
        self,
        case: Case,
        registry: Registry,
        profile: Profile,
        rng: Random,
        *,
        name: str = "sim",
        kept: Iterable[Fact] = (),
        calls: int = 0,
        mended: bool = False,
        now: int = START_TIME,
    ) -> None:
        self.profile = profile
        self.rng = rng
        self.now = now
        self.weather = Weather()
        self.registry = registry
        self.executions: dict[str, Execution] = {}
        self.nodes: dict[str, Nodes] = {}
        self.refused: set[str] = set()  # children that must not be started any more
        self.queue: list[Delivery] = []
        self.workers: list[Worker] = []
        self.errands: list[Iterator[None]] = []  # whoever else is at work: people, timers, relays
        self.in_place = profile.in_place
        self.foresees = profile.foresees
        self.faults_left = profile.faults
        self.numbers = 0
        self.calls = calls
        self.mended = mended
        self.root = accept(name, case, self.weather, kept)
        self.voices = Voices(self)
        self.admit(self.root)

    def admit(self, execution: Execution) -> None:
        self.executions[execution.id] = execution
        self.nodes[execution.id] = Nodes(self, execution, self.registry)

    def run(self) -> None:
        self._start(self.root)
        for _ in range(MAX_ACTS):
            if self._over():
                return
            try:
                self._act()
            except Outage:
                self._end_outages()
        raise Violation("hung: the execution never ended")

    def _start(self, execution: Execution) -> None:
        """The start row and its outbox are one act; the relay's part may be lost and found by the sweeper."""
        execution.journal.record([ExecutionStarted(self.now)])
        if execution.is_again:
            for token in execution.store.ready(self.now)[1]:
                self.send(execution, token)
            return
        state = State()
        applied = start_execution(execution.case.plan, state, self.now)
        execution.store.begin(applied, state)
        for token in applied.emitted:
            self.send(execution, token)
        if applied.finish is not None:
            self.errands.append(finish(self, execution, applied.finish))

    def _over(self) -> bool:
        if self.workers or self.queue or self.errands or untold(self):
            return False
        return all(each.completions and not each.journal.outbox for each in self.executions.values())

    def _act(self) -> None:
        rng = self.rng
        if self.faults_left and rng.random() < self.profile.fault_rate:
            self.faults_left -= 1
            getattr(self, "_" + rng.choice(self.profile.kinds))()
            return
        self.now += rng.randrange(self.profile.pace)
        choices = []
        if self.workers:
            choices += [self._advance] * 4
        if self.errands:
            choices += [self._errand] * 2
        if self.queue and len(self.workers) < self.profile.workers:
            choices += [self._deliver] * 2
        if any(each.journal.outbox for each in self.executions.values()):
            choices.append(self._relay)
        if self._due():
            choices.append(self._fire)
        if self.voices.may_speak():
            choices.append(self._speak)
        if choices:
            rng.choice(choices)()
        else:
            self._idle()

    def _advance(self) -> None:
        worker = self.rng.choice(self.workers)
        try:
            next(worker.steps)
        except StopIteration:
            self.workers.remove(worker)
        except Outage:
            # Gives back what it holds and counts nothing.
            self._die(worker, lost=False)
            raise

    def _errand(self) -> None:
        errand = self.rng.choice(self.errands)
        try:
            next(errand)
        except (StopIteration, Ended):
            self.errands.remove(errand)
        except Outage:
            self.errands.remove(errand)
            raise

    def _deliver(self) -> None:
        position = self.rng.randrange(len(self.queue))
        delivery = self.queue[position]
        if self.rng.random() < self.profile.duplicates:
            delivery = Delivery(delivery.execution, delivery.token)
        else:
            del self.queue[position]
        self.numbers += 1
        self.workers.append(Worker(self, self.numbers, delivery))

    def send(self, execution: Execution, token: Token) -> None:
        if self.rng.random() >= self.profile.loss:
            self.queue.append(Delivery(execution, token))

    def _relay(self) -> None:
        owing = [each for each in self.executions.values() if each.journal.outbox]
        self.errands.append(relay(self, self.rng.choice(owing)))

    def _due(self) -> list[tuple[Execution, Timer]]:
        if self.weather.state:
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
        self.errands.append(self._fired(execution, timer))

    def _fired(self, execution: Execution, timer: Timer) -> Iterator[None]:
        applied = execution.store.fire(timer, self.now)
        yield
        for token in applied.emitted:
            self.send(execution, token)
        if applied.finish is not None:
            yield from finish(self, execution, applied.finish)

    def _speak(self) -> None:
        self.errands.append(self.voices.speak())

    def _idle(self) -> None:
        """Nothing moves: end outages and pauses, sweep, and let time pass to what is due next."""
        if self.weather.state or self.weather.journal:
            self._end_outages()
            return
        if self._take_up():
            return
        self.now += SWEEP_PAUSE
        if self._sweep() or self._due():
            return
        ahead = [
            moment
            for memory in (each.store.ready(self.now)[0] for each in self.executions.values())
            for moment in (*memory.timers.values(), *(lease.until for lease in memory.leases.values()))
            if moment > self.now
        ]
        if self.voices.is_awaited() and (not ahead or self.rng.random() < self.profile.talkative):
            self.errands.append(self.voices.answer())
        elif ahead:
            self.now = min(ahead)
        else:
            raise Violation("lost: unfinished work that nobody owns")

    def _take_up(self) -> bool:
        """What somebody left undone: rows that the state was not told of, families, pauses."""
        unattended = [each for each in self.executions.values() if each.journal.marks]
        paused = [each for each in self.executions.values() if self._is_paused(each)]
        if unattended:
            self.errands.append(catch_up(self, unattended[0]))
        elif untold(self):
            self.errands.append(recover(self))
        elif paused:
            self.errands.append(steer(self, self.rng.choice(paused), paused=False))
        return bool(unattended or untold(self) or paused)

    def _is_paused(self, execution: Execution) -> bool:
        return execution.journal.end is None and execution.store.controls(self.now)[1]

    def _sweep(self) -> bool:
        """Send again what nobody holds."""
        count = len(self.queue)
        for execution in list(self.executions.values()):
            memory, sent = execution.store.ready(self.now)
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
        self.weather.state = self.weather.journal = False

    def _die(self, worker: Worker, *, lost: bool) -> None:
        self.workers.remove(worker)
        if not lost:
            self.queue.append(Delivery(worker.execution, worker.delivery.token))

    def _crash(self) -> None:
        if self.workers:
            self._die(self.rng.choice(self.workers), lost=self.rng.random() < self.profile.loss)

    def _crash_errand(self) -> None:
        if self.errands:
            self.errands.remove(self.rng.choice(self.errands))

    def _someone(self) -> Execution:
        return self.rng.choice(list(self.executions.values()))

    def _wipe(self) -> None:
        self._someone().store.wipe()

    def _save(self) -> None:
        self._someone().store.save()

    def _roll_back(self) -> None:
        self._someone().store.roll_back()

    def _store_away(self) -> None:
        self.weather.state = True

    def _journal_away(self) -> None:
        self.weather.journal = True

    def _jump(self) -> None:
        self.now += self.rng.randrange(20_000)

    def _zombie(self) -> None:
        """Whoever works now is taken for dead and replaced, and goes on all the same."""
        self.now += LEASE
        self._sweep_early()

    def _drop_queue(self) -> None:
        self.queue.clear()

    def _sweep_early(self) -> None:
        if not self.weather.state:
            self._sweep()

    def _recover_early(self) -> None:
        self.errands.append(recover(self))

    def _pause(self) -> None:
        self.errands.append(steer(self, self._someone(), paused=True))

    def _resume(self) -> None:
        self.errands.append(steer(self, self._someone(), paused=False))

    def _cancel(self) -> None:
        self.errands.append(finish(self, self._someone(), CANCELLED))

    def ack(self, delivery: Delivery) -> None:
        """Nothing is left of a delivery that was handled."""

    def bound(self) -> int:
        """How far a run in place goes: workers differ, and are interrupted."""
        return self.rng.choice((1, 2, 256))


class World(Realm):
    """A plan on its own: it starts nothing, and nobody says anything to it."""

    def __init__(self, plan: Plan, registry: Registry, start: Any, profile: Profile, rng: Random) -> None:
        super().__init__(Case(Model("alone", (), ()), plan, start, {}), registry, profile, rng)

    @property
    def journal(self) -> Journal:
        return self.root.journal
