"""A lookout: what an execution that another process runs has come to, read from the file.

Stopping: a first signal asks, a second one does not.

Seeing an execution to its end: as the owner of the file, or beside it, and in its place when it goes.

Seeing an execution of a server to its end.

What the commands that act on executions share: the way to the desk, clear refusals, and what they print.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from rune.bootstrap import connected, find_owner, open_reader, running_engine
from rune.cli.backend import HINTS, UnknownReferenceError, exists, open_services, owner, owner_pid, resolve
from rune.cli.backend import open_reader as reader
from rune.cli.output import EXIT, INTERRUPTED, TERMINATED, VIOLATIONS, print_json, refuse, refuse_error
from rune.cli.progress import Progress, ProgressCounter, progress
from rune.core.execution.fact import (
    AttemptFailed,
    ExecutionEnded,
    ExecutionStarted,
    Fact,
    NodeResult,
    NodeSuspended,
)
from rune.core.execution.fold import fold
from rune.core.execution.routing import decision_for_fact
from rune.core.plan.model import Plan
from rune.errors import InvalidDocumentError, RuneError
from rune.nodes.registry import Registry
from rune.ports.journal import ExecutionRecord, StoredFact, StoreUnavailableError
from rune.ports.processes import FileInUseError, NoOwnerError, OwnerLostError
from rune.runtime.components import Services
from rune.runtime.engine import Engine
from rune.runtime.queries.history import History, iso, read_history
from rune.runtime.queries.reader import ExecutionReader
from rune.settings import Settings, load_settings

FEW_FACTS = (
    500  # facts of an execution that is folded with every look, to tell what runs from what has not begun
)


class ExecutionPoller:
    """Counts what happens into a tally, and finds the end."""

    def __init__(self, accepted: ExecutionRecord, plan: Plan, tally: ProgressCounter | None) -> None:
        self.accepted = accepted
        self.plan = plan
        self.end: ExecutionEnded | None = None
        self.seen = 0
        self._tally = tally
        self._facts: list[Fact] = [ExecutionStarted(accepted.at)]
        self._change = -1

    async def poll(self, reader: ExecutionReader) -> bool:
        """Read what was written since; whether anything was, by whomever."""
        before, self._change = self._change, await reader.change()
        if self._change == before:
            return False
        self.count(await reader.facts(self.accepted.id, self.seen))
        if self.end is None and self._tally is not None and len(self._facts) <= FEW_FACTS:
            _, applied = fold(self.plan, self._facts, self.accepted.at)
            self._tally.skipped(applied.skipped)
            for token in applied.emitted:
                self._tally.claimed(self.accepted.id, token)
        return True

    def reset(self) -> None:
        """The file will be read by another reader, whose changes are counted anew."""
        self._change = -1

    def count(self, stored: Iterable[StoredFact]) -> None:
        """Take in facts, in their order."""
        for each in stored:
            self.seen = each.number
            if each.late:
                continue
            if isinstance(each.fact, ExecutionEnded):
                self.end = each.fact
            if self._tally is None:
                continue
            if len(self._facts) <= FEW_FACTS:
                self._facts.append(each.fact)
            if isinstance(each.fact, NodeResult | AttemptFailed | NodeSuspended):
                self._tally.add(decision_for_fact(self.plan, each.fact))


CODES = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED}


class StopSignal:
    """While the block runs, Ctrl-C and SIGTERM are heard as a wish to stop."""

    def __init__(self) -> None:
        self.code = 0
        self._loop = asyncio.get_running_loop()
        self.asked: asyncio.Future[None] = self._loop.create_future()

    def __enter__(self) -> StopSignal:
        if threading.current_thread() is threading.main_thread():  # no other thread hears signals
            for each in CODES:
                self._loop.add_signal_handler(each, self._ask, each)
        return self

    def _ask(self, heard: signal.Signals) -> None:
        self.code = self.code or CODES[heard]
        if not self.asked.done():
            self.asked.set_result(None)

    def let_go(self) -> None:
        """From here on a signal ends the process."""
        for each in CODES:
            self._loop.remove_signal_handler(each)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.let_go()


OWNER_TIMEOUT_S = 10.0  # s until the owner must have answered, or gone
MIN_RETRY_S, MAX_RETRY_S = 0.005, 0.05  # s between two tries to replace or to reach it
MIN_POLL_S, MAX_POLL_S = 0.005, 0.1  # s between two looks at the file
SHARE = 10  # a look is followed by a pause this many times as long


class FollowedCommand(Protocol):
    """What leads to an execution. Asked for again it leads to the same one."""

    async def here(self, engine: Engine) -> ExecutionRecord:
        """Do it in this process, which owns the file."""

    async def there(self, services: Services) -> ExecutionRecord:
        """Have the owner do it."""


class ExecutionFollower:
    """One execution, from whatever leads to it to its end."""

    def __init__(
        self,
        settings: Settings,
        errand: FollowedCommand,
        tally: ProgressCounter | None,
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
        self._accepted: ExecutionRecord | None = None
        self._lookout: ExecutionPoller | None = None
        self._shown: Progress | None = None
        self._drawn = 0.0

    async def to_end(self) -> int:
        """Until it has ended or somebody wants to stop; answers the exit code."""
        if self._settings.url:
            return await to_end(self._settings, self._errand, as_json=self._as_json)
        with StopSignal() as stop:
            try:
                if self._settings.clustered:
                    return await self._in_cluster(stop)
                return await self._alternate(stop)
            finally:
                self._close()

    async def _in_cluster(self, stop: StopSignal) -> int:
        """Take part, and look on: others may run most of it."""
        async with running_engine(self._settings, registry=self._registry, working=self._works) as engine:
            accepted = self._accepted = await self._errand.here(engine)
            ending = await engine.wait_for(accepted.id)

            async def ended() -> None:
                await asyncio.wait([ending])

            async with open_reader(self._settings) as opened:
                code = await self._look_on(opened, accepted, ended, stop)
            assert code is not None  # what has ended is seen by the look behind it
            stop.let_go()
            return code

    async def _alternate(self, stop: StopSignal) -> int:
        """Own the file, or reach who does. Soon one of them succeeds: who starts opens its door, and whose door is
        closed gives up the lock."""
        deadline = time.monotonic() + OWNER_TIMEOUT_S
        while True:
            try:
                return await self._as_owner(stop)
            except FileInUseError as taken:
                in_use = taken
            try:
                code = await self._beside_owner(stop)
                deadline = time.monotonic() + OWNER_TIMEOUT_S
            except OwnerLostError:
                code = None
                deadline = time.monotonic() + OWNER_TIMEOUT_S
            except NoOwnerError:
                code = None
                if time.monotonic() > deadline:
                    raise StoreUnavailableError(f"{in_use.message}, and that one does not answer") from None
            if code is not None:
                return code
            await asyncio.wait([stop.asked], timeout=random.uniform(MIN_RETRY_S, MAX_RETRY_S))
            if stop.asked.done():
                return await self._left(stop)

    async def _as_owner(self, stop: StopSignal) -> int:
        async with running_engine(self._settings, registry=self._registry, observer=self._tally) as engine:
            fresh = self._accepted is None
            accepted = self._accepted = self._accepted or await self._errand.here(engine)
            ending = await engine.wait_for(accepted.id)
            plan = await engine.plans.plan(accepted.hash)
            # What this process started itself its tally has seen from the beginning.
            watched = fresh and self._tally is not None and self._tally.execution == accepted.id
            lookout = self._begin(ExecutionPoller(accepted, plan, self._tally))
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

    def _begin(self, lookout: ExecutionPoller) -> ExecutionPoller:
        """Show progress from here on; who takes over goes on with what it has counted."""
        if self._lookout is not None:
            return self._lookout
        self._lookout = lookout
        if self._tally is not None:
            self._tally.begin(lookout.plan, lookout.accepted.id)
            self._shown = progress(self._tally)
            self._drawn = time.monotonic()
        return lookout

    async def _until(self, ending: asyncio.Future[ExecutionEnded], stop: StopSignal) -> None:
        """Until the execution has ended or somebody wants to stop."""
        while not ending.done() and not stop.asked.done():
            pause = self._shown.pause if self._shown is not None else None
            awaited: set[asyncio.Future[Any]] = {ending, stop.asked}
            await asyncio.wait(awaited, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
            self._draw()

    async def _beside_owner(self, stop: StopSignal) -> int | None:
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
            async with open_reader(self._settings) as opened:
                return await self._look_on(opened, self._accepted, gone, stop)

    async def _look_on(
        self,
        opened: ExecutionReader,
        accepted: ExecutionRecord,
        gone: Callable[[], Awaitable[None]],
        stop: StopSignal,
    ) -> int | None:
        lookout = self._begin(ExecutionPoller(accepted, await opened.plan(accepted.id), self._tally))
        lookout.reset()
        leaving = asyncio.ensure_future(gone())
        pause = MIN_POLL_S
        try:
            while True:
                left = leaving.done()  # before the look: what the owner wrote last is seen
                began = time.perf_counter()
                changed = await lookout.poll(opened)
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
                pause = MIN_POLL_S if changed else min(2 * pause, MAX_POLL_S)
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

    async def _left(self, stop: StopSignal) -> int:
        """Only this process stops."""
        accepted = self._accepted
        if accepted is None:
            _say(
                "Stopped before the process that owns the file had answered; `rune list` shows whether it did."
            )
            return stop.code
        owned, named = await find_owner(self._settings)
        where = named if owned and named else f"with the next `{self._settings.runs_with}`"
        _say(f"Stopped looking on. {accepted.id} goes on {where}; `rune watch {accepted.id}` looks on again.")
        return stop.code

    async def _print_read(self, opened: ExecutionReader, accepted: ExecutionRecord) -> None:
        async with opened.still():
            await self._print(await opened.history(accepted.id))

    async def _print(self, history: History) -> None:
        document = await history.document()
        if self._as_json:
            print_json(document)
        else:
            from rune.cli.output import print_document

            print_document(document)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if TYPE_CHECKING:
    pass


async def to_end(settings: Settings, errand: FollowedCommand, *, as_json: bool) -> int:
    """Until it has ended or somebody wants to stop looking on; answers the exit code."""
    with StopSignal() as stop:
        async with open_services(settings) as there:
            accepted = await errand.there(there)
        async with reader(settings) as opened:
            end: asyncio.Future[str] = asyncio.ensure_future(opened.end(accepted.id))  # type: ignore[attr-defined]
            either: set[asyncio.Future[Any]] = {end, stop.asked}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if end.done():
                status = await end
                await _print(opened, accepted.id, as_json=as_json)
                return EXIT[status]
            end.cancel()
            if as_json:
                await _print(opened, accepted.id, as_json=True)
        print(
            f"Stopped looking on. {accepted.id} goes on at {settings.url};"
            f" `rune watch {accepted.id}` looks on again.",
            file=sys.stderr,
            flush=True,
        )
        return stop.code


async def _print(opened: ExecutionReader, execution: str, *, as_json: bool) -> None:
    document = await (await opened.history(execution)).document()
    if as_json:
        print_json(document)
        return
    from rune.cli.output import print_document

    print_document(document)


T = TypeVar("T")
Ask = Callable[[Services], Awaitable[ExecutionRecord]]

NOT_AS_IT_IS = frozenset({"ENDED", "NOT_ENDED", "NOTHING_TO_RUN"})
_HINTS = {**HINTS, "UNKNOWN_EXECUTION": "`rune list` shows what there is"}


def refusing(work: Callable[[Settings], Awaitable[int]], *, as_json: bool) -> int:
    """Do something and answer the exit code, of a refusal too: 1 if the execution is not such that it can be done."""

    async def run() -> int:
        return await work(load_settings())

    try:
        return asyncio.run(run())
    except InvalidDocumentError as invalid:
        return refuse(invalid.problems, as_json=as_json)
    except RuneError as error:
        code = refuse_error(error, as_json=as_json, hint=_HINTS.get(error.code, ""))
        return VIOLATIONS if error.code in NOT_AS_IT_IS else code
    except KeyboardInterrupt:
        return INTERRUPTED


def act(given: str, work: Callable[[str, Settings], Awaitable[int]], *, as_json: bool) -> int:
    """Find the execution whose id begins like this, and do something with it; answers the exit code."""

    async def found(settings: Settings) -> int:
        return await work(await find(settings, given), settings)

    return refusing(found, as_json=as_json)


async def find(settings: Settings, given: str) -> str:
    """The id of an execution. Looked up before the file is taken, or made."""
    nothing = UnknownReferenceError(f"no execution has the id `{given}`: nothing was run here yet")
    if not exists(settings):
        raise nothing
    try:
        async with reader(settings) as opened:
            return await resolve(opened, given)
    except RuneError as error:
        if error.code != "EMPTY_STORE":
            raise
        raise nothing from None


async def ask(settings: Settings, wish: Callable[[Services], Awaitable[T]]) -> T:
    """Have something done by whoever owns the file."""
    async with open_services(settings) as opened:
        return await wish(opened)


async def ask_and_see(settings: Settings, wish: Callable[[Services], Awaitable[T]]) -> tuple[T, bool]:
    """The same, and whether some process was there that runs executions."""
    async with open_services(settings) as opened:
        answer = await wish(opened)
        if settings.clustered and not settings.url:
            return answer, (await owner(settings))[0]
        return answer, not opened.local


class SentCommand:
    """An execution that a verb of the desk leads to. The verb carries a mark, so it can be asked for twice."""

    def __init__(self, wish: Ask) -> None:
        self._wish = wish

    async def here(self, engine: Engine) -> ExecutionRecord:
        return await self._wish(engine.services)

    async def there(self, services: Services) -> ExecutionRecord:
        return await self._wish(services)


async def begin(settings: Settings, wish: Ask, *, wait: bool, as_json: bool, name: str = "") -> int:
    """Start an execution, by whatever verb: print its id, or see it to its end."""
    if wait:
        tally = None if as_json else ProgressCounter(name)
        return await ExecutionFollower(settings, SentCommand(wish), tally, as_json=as_json).to_end()
    accepted, owned = await ask_and_see(settings, wish)
    if as_json:
        print_json(
            {
                "execution_id": accepted.id,
                "workflow_id": accepted.workflow,
                "hash": accepted.hash,
                "retry_of": accepted.retry_of,
                "started_at": iso(accepted.at),
                "owner": owner_pid(settings),
            }
        )
        return 0
    print(accepted.id)
    if not owned:
        tell(
            f"No process runs executions here now: it begins with the next `{settings.runs_with}`,"
            " or with any command that has --wait."
        )
    return 0


def tell(text: str) -> None:
    """Something that is not the answer."""
    print(text, file=sys.stderr, flush=True)
