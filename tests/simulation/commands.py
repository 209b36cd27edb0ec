"""What people ask of executions in the simulated world: journal, then state, then queue; it may break off anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rune.core.execution.fact import PauseChanged, SignalReceived
from tests.simulation.execution import Execution

if TYPE_CHECKING:
    from tests.simulation.world import Realm


def deliver(world: Realm, execution: Execution, signal: SignalReceived) -> Iterator[None]:
    """The one way in which a signal reaches an execution, whoever sends it."""
    (stored,) = execution.journal.record([signal])
    assert isinstance(stored, SignalReceived)
    yield
    yield from attend(world, execution, stored)


def steer(world: Realm, execution: Execution, *, paused: bool) -> Iterator[None]:
    """Pause or resume. Whoever was first under a number is applied first."""
    while execution.journal.end is None:
        number, is_paused = execution.store.controls(world.now)
        if is_paused is paused:
            return
        yield
        mine = PauseChanged(world.now, number + 1, paused)
        (stored,) = execution.journal.record([mine])
        assert isinstance(stored, PauseChanged)
        yield
        yield from attend(world, execution, stored)
        if stored is mine:
            return


def attend(world: Realm, execution: Execution, fact: SignalReceived | PauseChanged) -> Iterator[None]:
    """Let the state hear of a row, and send what follows; only then is the row no longer marked."""
    store = execution.store
    if execution.journal.end is None:
        tell = (
            store.signal(fact, world.now)
            if isinstance(fact, SignalReceived)
            else store.control(fact, world.now)
        )
        yield
        for token in tell:
            world.send(execution, token)
    if fact in execution.journal.marks:
        execution.journal.marks.remove(fact)


def catch_up(world: Realm, execution: Execution) -> Iterator[None]:
    """Look at the rows that whoever wrote them left unattended."""
    for fact in list(execution.journal.marks):
        yield
        yield from attend(world, execution, fact)
