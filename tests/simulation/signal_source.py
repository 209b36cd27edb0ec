"""Voices: who sends signals into the simulated world, when, under which key and to whom."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rune.core.execution.fact import SignalReceived
from rune.core.execution.token import Path
from tests.simulation.desk import deliver
from tests.simulation.execution import Execution
from tests.simulation.family import SIGNAL
from tests.simulation.oracle.model import Hear

if TYPE_CHECKING:
    from tests.simulation.world import Realm

MOST_UNASKED = 12
KEYS = 6


class Voices:
    """Signals unasked, early, late, twice under one key, to an item or to whoever waits longest."""

    def __init__(self, world: Realm) -> None:
        self._world = world
        self._left = world.rng.randrange(MOST_UNASKED)
        self._said = 0

    def may_speak(self) -> bool:
        return self._left > 0 and self._world.rng.random() < 0.1 and bool(self._names(self._world.root))

    def speak(self) -> Iterator[None]:
        """A signal that nobody may be waiting for."""
        world = self._world
        self._left -= 1
        execution = world.rng.choice([e for e in world.executions.values() if self._names(e)])
        listening = self._listening(execution)
        name = world.rng.choice(self._names(execution))
        path: Path | None = None
        if listening and world.rng.random() < 0.7:
            name, path = world.rng.choice(listening)
            path = world.rng.choice((None, path))
        elif world.rng.random() < 0.3:
            path = ()
        return deliver(world, execution, self._signal(name, path, world.rng.random() < 0.3))

    def is_awaited(self) -> bool:
        """Whether somebody waits for a signal that only a voice can send."""
        return any(self._listening(each) for each in self._world.executions.values())

    def answer(self) -> Iterator[None]:
        """What somebody waits for."""
        world = self._world
        waiting = [(each, *who) for each in world.executions.values() for who in self._listening(each)]
        execution, name, path = world.rng.choice(waiting)
        return deliver(world, execution, self._signal(name, world.rng.choice((None, path)), False))

    def _signal(self, name: str, path: Path | None, again: bool) -> SignalReceived:
        """Keys of an earlier execution are used again in later ones, and some twice in one."""
        self._said += 1
        number = self._world.rng.randrange(KEYS) if again else self._said
        value = {"t": f"{name}#{self._said}", "n": self._said % 3}
        return SignalReceived(self._world.now, f"k{number}", name, path, value)

    def _names(self, execution: Execution) -> list[str]:
        return [node.params.name for node in execution.case.model.nodes if isinstance(node.params, Hear)]

    def _listening(self, execution: Execution) -> list[tuple[str, Path]]:
        if execution.journal.end is not None:
            return []
        found = [(name, live.token.path) for name, live in execution.store.listening()]
        return sorted(each for each in found if not each[0].startswith(SIGNAL))
