"""The books of the executions that are being worked on."""

from __future__ import annotations

from collections import OrderedDict

from rune.core.plan import Plan
from rune.errors import RuneError
from rune.ports.blob import Blob
from rune.ports.clock import Clock
from rune.ports.journal import Accepted, Journal
from rune.runtime.book import Book
from rune.runtime.cache import Cache
from rune.runtime.planbook import Planbook

MAX_BOOKS = 10_000
CACHE_BYTES = 64 * 1024 * 1024


class UnknownExecution(RuneError):
    """An id under which no execution is stored."""

    code = "UNKNOWN_EXECUTION"


class Books:
    """Opened when first touched, closed when the execution ends or others need the place."""

    def __init__(self, journal: Journal, blob: Blob, plans: Planbook, clock: Clock) -> None:
        self._journal = journal
        self._blob = blob
        self._plans = plans
        self._clock = clock
        self._cache = Cache(CACHE_BYTES)
        self._open: OrderedDict[str, Book] = OrderedDict()

    def open(self, accepted: Accepted, plan: Plan) -> Book:
        """A book for an execution that was accepted this moment."""
        book = self._open[accepted.id] = Book(accepted, plan, self._journal, self._blob, self._cache)
        if len(self._open) > MAX_BOOKS:
            self._open.popitem(last=False)
        return book

    async def book(self, execution: str) -> Book:
        """The book of an execution."""
        found = self._open.get(execution)
        if found is not None:
            return found
        accepted = await self._journal.accepted(execution)
        if accepted is None:
            raise UnknownExecution(f"no execution has the id {execution}")
        return self.open(accepted, await self._plans.plan(accepted.hash))

    def close(self, execution: str) -> None:
        """Nothing more will be asked for."""
        self._open.pop(execution, None)

    def now(self, claimed: int) -> int:
        """The time of an execution whose clock said `claimed` when the token was claimed."""
        return max(claimed, self._clock.now())
