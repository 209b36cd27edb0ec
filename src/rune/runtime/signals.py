"""Signals: what is said to an execution is a fact first, and then looks for whoever waits for it."""

from __future__ import annotations

from rune.core.fact import Fact, Signal
from rune.ports.journal import Journal
from rune.ports.queue import Queue
from rune.ports.state import State
from rune.runtime import failpoint
from rune.runtime.books import Books


class Signals:
    """The one way in which a signal reaches an execution, whoever sends it."""

    def __init__(self, journal: Journal, state: State, queue: Queue, books: Books) -> None:
        self._journal = journal
        self._state = state
        self._queue = queue
        self._books = books

    async def deliver(self, execution: str, signal: Signal) -> tuple[Signal, bool]:
        """Journal, then state, then queue; raises Ended. Answers the signal as it is stored under its id, and whether
        it resumed somebody."""
        stored: Fact
        (stored,) = await self._journal.record(execution, [signal])
        failpoint.hit(
            "signalled"
        )  # crash here: the row is there, and with it the mark that somebody must look
        assert isinstance(stored, Signal)
        applied = await self._state.signal(execution, stored)
        failpoint.hit("heard")  # crash here: what was resumed is in the state; the next fold finds it again
        book = await self._books.book(execution)
        await self._queue.send(execution, applied.emitted, book.accepted.priority)
        return stored, any(token.signal == stored.id for token in applied.emitted)
