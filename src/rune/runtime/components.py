"""The parts that everything in an engine shares: who opens executions, ends them, and looks after their kin."""

from __future__ import annotations

from rune.ports.journal import Journal
from rune.ports.outbox import EventPublisher
from rune.runtime.backend import Backend
from rune.runtime.instrumentation import Instrumentation
from rune.runtime.lifecycle.children import Children, SignalDelivery
from rune.runtime.lifecycle.finisher import CompletionWaiters, Finisher
from rune.runtime.lifecycle.launcher import LegacyLauncher
from rune.runtime.lifecycle.outbox import OutboxMarker
from rune.runtime.messaging.completion_publisher import CompletionPublisher
from rune.runtime.plan_cache import PlanCache
from rune.runtime.services.limits import MAX_WAITING, Limiter
from rune.runtime.values import ExecutionDataCache
from rune.runtime.worker.leases import Leases


class EngineComponents:
    """One of each, over one backend."""

    def __init__(
        self,
        backend: Backend,
        plans: PlanCache,
        witness: Instrumentation,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        self.witness = witness
        journal, state, queue = backend.journal, backend.state, backend.queue
        self.completing: CompletionPublisher | None = None
        self.completions = CompletionWaiters()
        self.notices = OutboxMarker(backend.outbox)
        self.books = ExecutionDataCache(journal, backend.blob, plans, backend.clock)
        self.leases = Leases(state)
        self.endings = Finisher(journal, state, self.books, self.completions, self.notices, witness)
        self.launcher = LegacyLauncher(backend, plans, self.books, self.endings, self.notices, witness)
        self.limiter = Limiter(backend, max_waiting)
        self.signals = SignalDelivery(journal, state, queue, self.books)
        self.children = Children(
            journal,
            backend.blob,
            backend.library,
            plans,
            self.books,
            self.launcher,
            self.signals,
            self.endings,
            witness,
        )
        self.endings.then(self.children.ended)

    def tell(self, herald: EventPublisher, journal: Journal) -> None:
        """Send a message of each end, and hand over what is run elsewhere."""
        self.launcher.hands_over(herald)
        self.completing = CompletionPublisher(herald, journal, self.books, self.notices)
        self.endings.completes(self.completing)
