"""Opens the embedded backend."""

from __future__ import annotations

from pathlib import Path

from rune.adapters.embedded.blob import EmbeddedBlob
from rune.adapters.embedded.database import Database
from rune.adapters.embedded.journal import EmbeddedJournal
from rune.adapters.embedded.queue import EmbeddedQueue
from rune.adapters.embedded.retention import EmbeddedRetention
from rune.adapters.embedded.state import EmbeddedState, Plans
from rune.ports.clock import Clock


class Embedded:
    """The adapters over one file."""

    def __init__(self, path: Path, clock: Clock, *, relaxed: bool = False) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.database = Database(path, relaxed=relaxed)
        self.journal = EmbeddedJournal(self.database)
        self.blob = EmbeddedBlob(self.database)
        self.queue = EmbeddedQueue()
        self.retention = EmbeddedRetention(self.database, self.journal)
        self._clock = clock

    def state(self, plans: Plans) -> EmbeddedState:
        """The state, which needs plans to fold."""
        return EmbeddedState(self.journal, plans, self._clock)
