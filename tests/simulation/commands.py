"""Signals, pause and resume: each writes journal, state and queue in this order and may crash at every `yield`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rune.core.execution.fact import PauseChanged, SignalReceived
from tests.simulation.execution import Execution

if TYPE_CHECKING:
    from tests.simulation.simulator import Simulator


def send_signal(sim: Simulator, execution: Execution, signal: SignalReceived) -> Iterator[None]:
    """Store a signal in the journal and apply it to the state."""
    (stored,) = execution.journal.record([signal])
    assert isinstance(stored, SignalReceived)
    yield
    yield from apply_fact(sim, execution, stored)


def set_paused(sim: Simulator, execution: Execution, *, paused: bool) -> Iterator[None]:
    """Pause or resume. Of two commands with the same number the first one stored is applied."""
    while execution.journal.end is None:
        number, is_paused = execution.store.pause_status(sim.now)
        if is_paused is paused:
            return
        yield
        change = PauseChanged(sim.now, number + 1, paused)
        (stored,) = execution.journal.record([change])
        assert isinstance(stored, PauseChanged)
        yield
        yield from apply_fact(sim, execution, stored)
        if stored is change:
            return


def apply_fact(sim: Simulator, execution: Execution, fact: SignalReceived | PauseChanged) -> Iterator[None]:
    """Apply a stored fact to the state, send the emitted tokens, then remove the fact from `unapplied`."""
    store = execution.store
    if execution.journal.end is None:
        tokens = (
            store.apply_signal(fact, sim.now)
            if isinstance(fact, SignalReceived)
            else store.apply_pause(fact, sim.now)
        )
        yield
        for token in tokens:
            sim.send(execution, token)
    if fact in execution.journal.unapplied:
        execution.journal.unapplied.remove(fact)


def apply_missed_facts(sim: Simulator, execution: Execution) -> Iterator[None]:
    """Apply facts whose writer crashed before it applied them."""
    for fact in list(execution.journal.unapplied):
        yield
        yield from apply_fact(sim, execution, fact)
