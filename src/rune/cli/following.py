"""Seeing an execution to its end: as the owner of the file, or beside it, and in its place when it goes."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from rune.cli.lookout import Lookout
from rune.cli.problems import EXIT, print_json
from rune.cli.progress import Progress, progress
from rune.cli.stopping import Stop
from rune.cli.tally import Tally
from rune.compose import connected, owner, reader, running_engine
from rune.core.fact import End
from rune.nodes.registry import Registry
from rune.ports.journal import Accepted, StoreAway
from rune.ports.owner import InUse, Lost, NoOwner
from rune.runtime.desk import Desk
from rune.runtime.engine import Engine
from rune.runtime.history import History, read_history
from rune.runtime.reader import Reader
from rune.settings import Settings

REACHED = 10.0  # s until the owner must have answered, or gone
LEAST_TRY, MOST_TRY = 0.005, 0.05  # s between two tries to replace or to reach it
LEAST_LOOK, MOST_LOOK = 0.005, 0.1  # s between two looks at the file
SHARE = 10  # a look is followed by a pause this many times as long


class Errand(Protocol):
    """What leads to an execution. Asked for again it leads to the same one."""

    async def here(self, engine: Engine) -> Accepted:
        """Do it in this process, which owns the file."""

    async def there(self, desk: Desk) -> Accepted:
        """Have the owner do it."""


class Following:
    """One execution, from whatever leads to it to its end."""

    def __init__(
        self,
        settings: Settings,
        errand: Errand,
        tally: Tally | None,
        *,
        registry: Registry | None = None,
        as_json: bool = False,
        works: bool = True,
    ) -> None:
        self._works = works
        self._settings = settings
        self._errand = errand
        self._tally = tally
        self._registry = registry
        self._as_json = as_json
        self._accepted: Accepted | None = None
        self._lookout: Lookout | None = None
        self._shown: Progress | None = None
        self._drawn = 0.0

    async def to_end(self) -> int:
        """Until it has ended or somebody wants to stop; answers the exit code."""
        if self._settings.url:
            from rune.cli.remote.following import to_end  # noqa: PLC0415 - a slow import that few need

            return await to_end(self._settings, self._errand, as_json=self._as_json)
        with Stop() as stop:
            try:
                if self._settings.clustered:
                    return await self._in_cluster(stop)
                return await self._alternate(stop)
            finally:
                self._close()

    async def _in_cluster(self, stop: Stop) -> int:
        """Take part, and look on: others may run most of it."""
        async with running_engine(self._settings, registry=self._registry, working=self._works) as engine:
            accepted = self._accepted = await self._errand.here(engine)
            ending = await engine.expect(accepted.id)

            async def ended() -> None:
                await asyncio.wait([ending])

            async with reader(self._settings) as opened:
                code = await self._look_on(opened, accepted, ended, stop)
            assert code is not None  # what has ended is seen by the look behind it
            stop.let_go()
            return code

    async def _alternate(self, stop: Stop) -> int:
        """Own the file, or reach who does. Soon one of them succeeds: who starts opens its door, and whose door is
        closed gives up the lock."""
        deadline = time.monotonic() + REACHED
        while True:
            try:
                return await self._as_owner(stop)
            except InUse as taken:
                in_use = taken
            try:
                code = await self._beside_owner(stop)
                deadline = time.monotonic() + REACHED
            except Lost:
                code = None
                deadline = time.monotonic() + REACHED
            except NoOwner:
                code = None
                if time.monotonic() > deadline:
                    raise StoreAway(f"{in_use.message}, and that one does not answer") from None
            if code is not None:
                return code
            await asyncio.wait([stop.asked], timeout=random.uniform(LEAST_TRY, MOST_TRY))
            if stop.asked.done():
                return await self._left(stop)

    async def _as_owner(self, stop: Stop) -> int:
        async with running_engine(self._settings, registry=self._registry, observer=self._tally) as engine:
            fresh = self._accepted is None
            accepted = self._accepted = self._accepted or await self._errand.here(engine)
            ending = await engine.expect(accepted.id)
            plan = await engine.plans.plan(accepted.hash)
            # What this process started itself its tally has seen from the beginning.
            watched = fresh and self._tally is not None and self._tally.execution == accepted.id
            lookout = self._begin(Lookout(accepted, plan, self._tally))
            if self._tally is not None and not watched:
                lookout.count(await engine.backend.journal.facts(accepted.id, lookout.seen))
            await self._until(ending, stop)
            self._close()
            backend = engine.backend
            if ending.done() or self._as_json:
                await self._print(await read_history(backend.journal, backend.blob, accepted, plan))
            if ending.done():
                return EXIT[ending.result().status]
            _say(
                f"Stopped. {accepted.id} is kept as it is and goes on with the next `rune run`;"
                f" look at it with `rune show {accepted.id}`."
            )
            stop.let_go()  # what runs now may finish within the grace period; a second signal ends that too
            return stop.code

    def _begin(self, lookout: Lookout) -> Lookout:
        """Show progress from here on; who takes over goes on with what it has counted."""
        if self._lookout is not None:
            return self._lookout
        self._lookout = lookout
        if self._tally is not None:
            self._tally.begin(lookout.plan, lookout.accepted.id)
            self._shown = progress(self._tally)
            self._drawn = time.monotonic()
        return lookout

    async def _until(self, ending: asyncio.Future[End], stop: Stop) -> None:
        """Until the execution has ended or somebody wants to stop."""
        while not ending.done() and not stop.asked.done():
            pause = self._shown.pause if self._shown is not None else None
            awaited: set[asyncio.Future[Any]] = {ending, stop.asked}
            await asyncio.wait(awaited, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
            self._draw()

    async def _beside_owner(self, stop: Stop) -> int | None:
        """Ask the owner, then look on; None when it is gone."""
        async with connected(self._settings) as (desk, gone):
            if self._accepted is None:
                asked = asyncio.ensure_future(self._errand.there(desk))
                either: set[asyncio.Future[Any]] = {asked, stop.asked}
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                if not asked.done():
                    asked.cancel()
                    return await self._left(stop)
                self._accepted = await asked
            async with reader(self._settings) as opened:
                return await self._look_on(opened, self._accepted, gone, stop)

    async def _look_on(
        self, opened: Reader, accepted: Accepted, gone: Callable[[], Awaitable[None]], stop: Stop
    ) -> int | None:
        lookout = self._begin(Lookout(accepted, await opened.plan(accepted.id), self._tally))
        lookout.look_anew()
        leaving = asyncio.ensure_future(gone())
        pause = LEAST_LOOK
        try:
            while True:
                left = leaving.done()  # before the look: what the owner wrote last is seen
                began = time.perf_counter()
                changed = await lookout.look(opened)
                if lookout.end is not None:
                    self._close()
                    await self._print_read(opened, accepted)
                    return EXIT[lookout.end.status]
                if left:
                    return None
                if stop.asked.done():
                    self._close()
                    if self._as_json:
                        await self._print_read(opened, accepted)
                    return await self._left(stop)
                pause = LEAST_LOOK if changed else min(2 * pause, MOST_LOOK)
                rest = max(pause, SHARE * (time.perf_counter() - began))
                await asyncio.wait({leaving, stop.asked}, timeout=rest, return_when=asyncio.FIRST_COMPLETED)
                self._draw()
        finally:
            leaving.cancel()

    def _draw(self) -> None:
        if self._shown is not None and time.monotonic() - self._drawn >= self._shown.pause:
            self._shown.refresh()
            self._drawn = time.monotonic()

    def _close(self) -> None:
        if self._shown is not None:
            self._shown.close()
            self._shown = None

    async def _left(self, stop: Stop) -> int:
        """Only this process stops."""
        accepted = self._accepted
        if accepted is None:
            _say(
                "Stopped before the process that owns the file had answered; `rune list` shows whether it did."
            )
            return stop.code
        owned, named = await owner(self._settings)
        where = named if owned and named else f"with the next `{self._settings.runs_with}`"
        _say(f"Stopped looking on. {accepted.id} goes on {where}; `rune watch {accepted.id}` looks on again.")
        return stop.code

    async def _print_read(self, opened: Reader, accepted: Accepted) -> None:
        async with opened.still():
            await self._print(await opened.history(accepted.id))

    async def _print(self, history: History) -> None:
        document = await history.document()
        if self._as_json:
            print_json(document)
        else:
            from rune.cli.rendering import print_document  # noqa: PLC0415 - a document needs no table

            print_document(document)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
