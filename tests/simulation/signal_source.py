"""Sends random signals to simulated executions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rune.core.execution.fact import SignalReceived
from rune.core.execution.token import Path
from tests.simulation.children import CHILD_SIGNAL_PREFIX
from tests.simulation.commands import send_signal
from tests.simulation.execution import Execution
from tests.simulation.oracle.model import SignalWait

if TYPE_CHECKING:
    from tests.simulation.simulator import Simulator

MAX_UNSOLICITED = 12
REUSED_KEYS = 6


class SignalSource:
    """Sends unsolicited, early, late and duplicate signals, to an item or to the longest wait."""

    def __init__(self, sim: Simulator) -> None:
        self._sim = sim
        self._left = sim.rng.randrange(MAX_UNSOLICITED)
        self._sent = 0

    def may_send(self) -> bool:
        return self._left > 0 and self._sim.rng.random() < 0.1 and bool(self._signal_names(self._sim.root))

    def send_random(self) -> Iterator[None]:
        """Send a signal that may have no waiting token."""
        sim = self._sim
        self._left -= 1
        execution = sim.rng.choice([e for e in sim.executions.values() if self._signal_names(e)])
        signal_waits = self._external_waits(execution)
        name = sim.rng.choice(self._signal_names(execution))
        path: Path | None = None
        if signal_waits and sim.rng.random() < 0.7:
            name, path = sim.rng.choice(signal_waits)
            path = sim.rng.choice((None, path))
        elif sim.rng.random() < 0.3:
            path = ()
        return send_signal(sim, execution, self._signal(name, path, sim.rng.random() < 0.3))

    def has_waits(self) -> bool:
        """Whether a token waits for a signal that is not the end of a child."""
        return any(self._external_waits(each) for each in self._sim.executions.values())

    def send_awaited(self) -> Iterator[None]:
        """Send a signal that a token waits for."""
        sim = self._sim
        waiting = [(each, *wait) for each in sim.executions.values() for wait in self._external_waits(each)]
        execution, name, path = sim.rng.choice(waiting)
        return send_signal(sim, execution, self._signal(name, sim.rng.choice((None, path)), False))

    def _signal(self, name: str, path: Path | None, reuse_key: bool) -> SignalReceived:
        """Build a signal; `reuse_key` takes a key that may have been used before."""
        self._sent += 1
        number = self._sim.rng.randrange(REUSED_KEYS) if reuse_key else self._sent
        value = {"t": f"{name}#{self._sent}", "n": self._sent % 3}
        return SignalReceived(self._sim.now, f"k{number}", name, path, value)

    def _signal_names(self, execution: Execution) -> list[str]:
        return [
            node.params.name for node in execution.case.model.nodes if isinstance(node.params, SignalWait)
        ]

    def _external_waits(self, execution: Execution) -> list[tuple[str, Path]]:
        if execution.journal.end is not None:
            return []
        found = [(name, live.token.path) for name, live in execution.store.signal_waits()]
        return sorted(each for each in found if not each[0].startswith(CHILD_SIGNAL_PREFIX))
