"""Endings: the terminal row of an execution, and who has to hear of it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from rune.core.effect import Finish
from rune.core.fact import End, Fact
from rune.errors import RuneError
from rune.ports.journal import Ended, Journal
from rune.ports.state import State
from rune.runtime import failpoint
from rune.runtime.book import Book
from rune.runtime.books import Books
from rune.runtime.completing import Completing
from rune.runtime.completions import Completions
from rune.runtime.notices import Notices
from rune.runtime.witness import Witness

log = logging.getLogger("rune.endings")

After = Callable[[Book, End], Awaitable[None]]


class Endings:
    """Ends executions, each once."""

    def __init__(
        self,
        journal: Journal,
        state: State,
        books: Books,
        completions: Completions,
        notices: Notices,
        witness: Witness,
    ) -> None:
        self._journal = journal
        self._state = state
        self._books = books
        self._completions = completions
        self._notices = notices
        self._witness = witness
        self._after: After | None = None
        self._completing: Completing | None = None

    def completes(self, completing: Completing) -> None:
        """Who sends a message of each end."""
        self._completing = completing

    def then(self, after: After) -> None:
        """What is to be done with executions that have parents or children once their end is written."""
        self._after = after

    async def finish(self, execution: str, finish: Finish, now: int) -> End:
        """Write the terminal row; whoever comes second finds it."""
        failpoint.hit(
            "ending"
        )  # crash here: the finish timer, armed by the act that brought the count to zero, fires
        mine = End(now, finish.status, finish.error)
        stored: Fact | None = await self._journal.end(execution)
        if stored is None:
            try:
                (stored,) = await self._journal.record(execution, [mine])
            except Ended as ended:
                stored = ended.end
        failpoint.hit("ended")
        assert isinstance(stored, End)
        if stored is mine:
            await self._seen(execution, mine)
        if self._completing is None:
            await self.close(execution, stored)
            self._notices.settled(execution, "end")
        else:
            await self._completed(self._completing, execution, stored)
        return stored

    async def _seen(self, execution: str, end: End) -> None:
        try:
            accepted = (await self._books.book(execution)).accepted
        except RuneError:
            accepted = None  # it is not known for how long it ran
        self._witness.ended(accepted, end)

    async def _completed(self, completing: Completing, execution: str, end: End) -> None:
        """The message needs what is known of the execution. Who lacks that leaves it to a relay."""
        book: Book | None = None
        try:
            book = await self._books.book(execution)
        except RuneError as error:
            log.warning("the completion of %s is left to a relay: %s", execution, error.message)
        await self.close(execution, end)
        if book is not None:
            completing.ended(book, end)

    async def close(self, execution: str, end: End) -> None:
        """What follows from a terminal row, however often."""
        await self._state.end(execution, end)
        await self._tell(execution, end)
        self._books.close(execution)
        self._completions.announce(execution, end)

    async def _tell(self, execution: str, end: End) -> None:
        if self._after is None:
            return
        try:
            book = await self._books.book(execution)
            if book.plan.launches or book.accepted.parent is not None:
                await self._after(book, end)
        except Exception:
            # The end stands. That somebody is still to be told stands beside it, and is looked at again.
            log.exception("parents or children of %s have not heard of its end yet", execution)
