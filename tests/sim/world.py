"""The simulated world: stores, schedule and faults. It knows no rule: what happens next `rune.core` says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from rune.core.apply import begin
from rune.core.context import Lookup
from rune.core.fact import Control, End, Start
from rune.core.plan import Plan
from rune.core.state import State
from rune.core.token import Token
from rune.nodes.registry import Registry
from tests.sim.journal import Ended, Journal, Outage, Violation
from tests.sim.nodes import Nodes
from tests.sim.profile import Profile
from tests.sim.store import LEASE, Store
from tests.sim.worker import Worker, relay

START_TIME = 1_700_000_000_000
MAX_ACTS = 30_000
SWEEP_PAUSE = 100  # ms: even a sweeper with nothing to wait for takes its time


@dataclass(eq=False)
class Delivery:
    token: Token


class World:
    """One execution and everything that can go wrong around it."""

    def __init__(self, plan: Plan, registry: Registry, start: Any, profile: Profile, rng: Random) -> None:
        self.plan = plan
        self.profile = profile
        self.rng = rng
        self.now = START_TIME
        self.journal = Journal()
        self.store = Store(plan, self.journal)
        self.nodes = Nodes(self, registry, start)
        self.queue: list[Delivery] = []
        self.held: set[Delivery] = set()
        self.workers: list[Worker] = []
        self.relays: list[Iterator[None]] = []
        self.completions: list[End] = []
        self.in_place = profile.in_place
        self.faults_left = profile.faults
        self.paused = False
        self.controls = 0
        self.numbers = 0

    def run(self) -> None:
        self._start()
        for _ in range(MAX_ACTS):
            if self._over():
                return
            try:
                self._act()
            except Outage:
                self._end_outages()
            except Ended:
                continue
        raise Violation("hung: the execution never ended")

    def _start(self) -> None:
        """The start row and its outbox are one act; the relay's part may be lost and found by the sweeper."""
        self.journal.record([Start(self.now)])
        state = State()
        applied = begin(self.plan, state, self.now)
        self.store.begin(applied, state)
        for token in applied.emitted:
            self.send(token)
        if applied.finish is not None:
            self.journal.record([End(self.now, applied.finish.status, applied.finish.error)])

    def _over(self) -> bool:
        return bool(self.completions) and not self.journal.outbox and not self.workers and not self.queue

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
        if self.queue and len(self.workers) < self.profile.workers:
            choices += [self._deliver] * 2
        if self.journal.outbox or self.relays:
            choices.append(self._relay)
        if self._due():
            choices.append(self._fire)
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

    def _deliver(self) -> None:
        position = self.rng.randrange(len(self.queue))
        delivery = self.queue[position]
        if self.rng.random() < self.profile.duplicates:
            delivery = Delivery(delivery.token)
        else:
            del self.queue[position]
        self.held.add(delivery)
        self.numbers += 1
        self.workers.append(Worker(self, self.numbers, delivery))

    def ack(self, delivery: Delivery) -> None:
        self.held.discard(delivery)

    def send(self, token: Token) -> None:
        if self.rng.random() >= self.profile.loss:
            self.queue.append(Delivery(token))

    def _relay(self) -> None:
        if not self.relays:
            self.relays.append(relay(self))
        try:
            next(self.relays[0])
        except StopIteration:
            del self.relays[0]
        except Outage:
            self.relays.clear()
            raise

    def _due(self) -> list[Any]:
        memory = self.store.memory
        if memory is None or self.store.away:
            return []
        return [timer for timer, due in memory.timers.items() if due <= self.now]

    def _fire(self) -> None:
        timer = self.rng.choice(sorted(self._due(), key=repr))
        applied = self.store.fire(timer, self.now)
        for token in applied.emitted:
            self.send(token)
        if applied.finish is not None:
            self.journal.record([End(self.now, applied.finish.status, applied.finish.error)])

    def _idle(self) -> None:
        """Nothing moves: end outages and pauses, sweep, and let time pass to what is due next."""
        if self.store.away or self.journal.away:
            self._end_outages()
            return
        if self.paused:
            self._resume()
            return
        self.now += SWEEP_PAUSE
        if self._sweep():
            return
        memory, _ = self.store.ready(self.now)
        if self._due():
            return
        ahead = [due for due in memory.timers.values() if due > self.now]
        ahead += [lease.until for lease in memory.leases.values() if lease.until > self.now]
        if not ahead:
            raise Violation("lost: unfinished work that nobody owns")
        self.now = min(ahead)

    def _sweep(self) -> bool:
        """Send again what nobody holds."""
        memory, sent = self.store.ready(self.now)
        found = list(sent)
        for scope in memory.state.scopes.values():
            for live in scope.live.values():
                lease = memory.leases.get(live.token.key)
                if not live.waiting and not live.parked and (lease is None or lease.until <= self.now):
                    found.append(live.token)
        for token in found:
            self.queue.append(Delivery(token))
        return bool(found)

    def _end_outages(self) -> None:
        self.store.away = self.journal.away = False

    def _die(self, worker: Worker, *, lost: bool) -> None:
        self.workers.remove(worker)
        self.held.discard(worker.delivery)
        if not lost:
            self.queue.append(Delivery(worker.delivery.token))

    def _crash(self) -> None:
        if self.workers:
            self._die(self.rng.choice(self.workers), lost=self.rng.random() < self.profile.loss)

    def _crash_relay(self) -> None:
        self.relays.clear()

    def _wipe(self) -> None:
        self.store.wipe()

    def _save(self) -> None:
        self.store.save()

    def _roll_back(self) -> None:
        self.store.roll_back()

    def _store_away(self) -> None:
        self.store.away = True

    def _journal_away(self) -> None:
        self.journal.away = True

    def _jump(self) -> None:
        self.now += self.rng.randrange(20_000)

    def _zombie(self) -> None:
        """Whoever works now is taken for dead and replaced, and goes on all the same."""
        self.now += LEASE
        self._sweep_early()

    def _drop_queue(self) -> None:
        self.queue.clear()

    def _sweep_early(self) -> None:
        if not self.store.away:
            self._sweep()

    def _pause(self) -> None:
        if not self.paused and self.journal.end is None:
            self._control(paused=True)

    def _resume(self) -> None:
        if self.paused:
            self._control(paused=False)

    def _control(self, *, paused: bool) -> None:
        if self.store.away or self.journal.away:
            return
        self.controls += 1
        fact = Control(self.now, self.controls, paused)
        self.journal.record([fact])
        self.paused = paused
        for token in self.store.control(fact, self.now):
            self.send(token)

    def _cancel(self) -> None:
        if not self.journal.away:
            self.journal.record([End(self.now, "cancelled")])

    def bound(self) -> int:
        """How far a run in place goes: workers differ, and are interrupted."""
        return self.rng.choice((1, 2, 256))

    def needs_choice(self, token: Token) -> bool:
        """Whether who opened the token's join must be a fact before it runs."""
        return self.plan.nodes[token.node].needs_choice

    def check_started(self, token: Token, results: Lookup) -> None:
        """No node starts before the commit of what it depends on."""
        for ref in (token.payload, *(each.payload for each in token.arrived)):
            if ref.kind == "result" and results(ref.node, ref.path) is None:
                raise Violation(f"{token} started before the commit of {ref}")
