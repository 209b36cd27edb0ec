"""Follow executions to their end, and run the commands that act on executions.

On the embedded backend `rune run` follows its execution as the owner of the database file, or waits for the reply of
the owner, which comes with the end; if the owner exits, it takes its place. Other commands start their execution, and
then wait for an owner: nodes run in the environment of a process that was started to run them.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from rune.bootstrap import connected, find_owner, open_reader, running_engine
from rune.cli.backend import (
    HINTS,
    CommandServices,
    UnknownReferenceError,
    exists,
    open_services,
    owner,
    owner_pid,
    resolve,
)
from rune.cli.backend import open_reader as reader
from rune.cli.live import (
    ExecutionPoller,
    LogNodeObserver,
    LogPrinter,
    RemoteLogs,
    RunningPoller,
    StoredLogs,
    line_text,
)
from rune.cli.output import (
    EXIT,
    INTERRUPTED,
    ITEMS_FAILED,
    TERMINATED,
    VIOLATIONS,
    clean_lines,
    count,
    print_document,
    print_error,
    print_json,
    print_problems,
)
from rune.cli.progress import Progress, ProgressCounter, progress
from rune.core.execution.fact import ExecutionEnded
from rune.errors import InvalidDocumentError, RuneError
from rune.nodes.registry import Registry
from rune.ports.clock import iso
from rune.ports.journal import ExecutionRecord, HandedOver, StoreUnavailableError
from rune.ports.processes import FileInUseError, LoggedLine, NoOwnerError, OwnerLostError
from rune.runtime.engine import Engine
from rune.runtime.live import LineCallback
from rune.runtime.queries.history import History, read_history
from rune.runtime.queries.reader import AttemptReader, ExecutionReader
from rune.settings import Settings, load_settings

if TYPE_CHECKING:
    from rune.cli.remote.reader import RemoteReader

OWNER_TIMEOUT_S = 10.0  # for the owner process to respond, or to exit
MIN_RETRY_S, MAX_RETRY_S = 0.005, 0.05  # between two attempts to become or to reach the owner
OWNER_POLL_S = 0.1  # between two looks for an owner, by a command that may wait for it for hours
PROGRESS_INTERVAL_S = 0.2  # between two reads of new facts; only for what is displayed
MAX_LINES = 1_000  # of logs that wait to be printed
PAUSE_FACTOR = 10  # reading new facts is followed by a pause this many times as long
EXIT_CODES = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED}
WRONG_STATUS_CODES = frozenset({"ENDED", "NOT_ENDED", "NOTHING_TO_RUN"})
_HINTS = {**HINTS, "UNKNOWN_EXECUTION": "see `rune list`"}

T = TypeVar("T")
StartAction = Callable[[CommandServices], Awaitable[ExecutionRecord]]


class StopSignal:
    """While the block runs, Ctrl-C and SIGTERM complete `requested` instead of ending the process."""

    def __init__(self) -> None:
        self.code = 0
        self._loop = asyncio.get_running_loop()
        self.requested: asyncio.Future[None] = self._loop.create_future()

    def __enter__(self) -> StopSignal:
        # Only the main thread may install signal handlers.
        if threading.current_thread() is threading.main_thread():
            for each in EXIT_CODES:
                self._loop.add_signal_handler(each, self._request, each)
        return self

    def _request(self, received: signal.Signals) -> None:
        self.code = self.code or EXIT_CODES[received]
        if not self.requested.done():
            self.requested.set_result(None)

    async def done_before(self, work: asyncio.Future[Any]) -> bool:
        """Wait for the work; return False, with the work cancelled, if a signal arrives before it is done."""
        await asyncio.wait({work, self.requested}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return True
        work.cancel()
        return False

    def restore_handlers(self) -> None:
        """Restore the default handlers: the next signal ends the process."""
        for each in EXIT_CODES:
            self._loop.remove_signal_handler(each)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.restore_handlers()


class FollowedCommand(Protocol):
    """A command that starts an execution. Sent twice, it starts one."""

    async def start_locally(self, engine: Engine) -> ExecutionRecord:
        """Start the execution in this process."""

    async def start_remotely(self, services: CommandServices) -> ExecutionRecord:
        """Start the execution through the services of another process."""


class ExecutionFollower:
    """Starts one execution and follows it to its end."""

    def __init__(
        self,
        settings: Settings,
        command: FollowedCommand,
        counter: ProgressCounter | None,
        *,
        registry: Registry | None = None,
        as_json: bool = False,
        owning: bool = False,
        working: bool = False,
        ignore_failed_items: bool = False,
    ) -> None:
        """`owning`: it may own the database file. `working`: on a cluster, it runs nodes too. `ignore_failed_items`:
        items that failed although the workflow does not tolerate it do not change the exit code."""
        self._owning = owning
        self._working = working
        self._ignore_failed_items = ignore_failed_items
        self._untolerated = 0
        self._settings = settings
        self._command = command
        self._counter = counter
        self._registry = registry
        self._as_json = as_json
        self._accepted: ExecutionRecord | None = None
        self._poller: ExecutionPoller | None = None
        self._shown: Progress | None = None
        self._drawn = 0.0
        self._lines: deque[LoggedLine] = deque(maxlen=MAX_LINES)

    async def follow_to_end(self) -> int:
        """Run until the execution has ended or a signal arrives; return the exit code."""
        code = await self._follow_to_end()
        if code != 0 or self._ignore_failed_items or not self._untolerated:
            return code
        if not self._as_json:
            print_notice(
                f"Exit code {ITEMS_FAILED}: {count(self._untolerated, 'item')} failed at an aggregator without"
                " `tolerate`; --ignore-failed-items accepts it once."
            )
        return ITEMS_FAILED

    async def _follow_to_end(self) -> int:
        if self._settings.url:
            code, self._untolerated = await follow_to_end(
                self._settings, self._command, as_json=self._as_json
            )
            return code
        with StopSignal() as stop:
            try:
                if self._settings.clustered:
                    return await self._in_cluster(stop)
                return await (self._own_or_join(stop) if self._owning else self._follow_owners(stop))
            finally:
                self._close()

    async def _in_cluster(self, stop: StopSignal) -> int:
        """Join the cluster and follow the execution, whose nodes other workers may run."""
        async with running_engine(self._settings, registry=self._registry, working=self._working) as engine:
            accepted = self._accepted = await self._command.start_locally(engine)
            ending = await engine.wait_for(accepted.id)
            if not self._working and not (await find_owner(self._settings))[0]:
                self._print_waiting(accepted)

            async def ended() -> ExecutionEnded:
                either: set[asyncio.Future[Any]] = {ending, engine.broken}
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                if not ending.done():
                    engine.raise_if_broken()
                return await ending

            async with open_reader(self._settings, engine.plans.catalogue) as opened:
                code = await self._follow(opened, accepted, ended, stop)
            assert code is not None  # only an owner of a database file exits
            stop.restore_handlers()
            return code

    async def _own_or_join(self, stop: StopSignal) -> int:
        """Become the owner of the database file, or connect to the owner.

        One of the two succeeds soon: a process that takes the lock opens its socket, and one that closes its socket
        releases the lock.
        """
        deadline = time.monotonic() + OWNER_TIMEOUT_S
        while True:
            try:
                return await self._as_owner(stop)
            except FileInUseError as taken:
                in_use = taken
            try:
                code = await self._join_owner(stop)
                deadline = time.monotonic() + OWNER_TIMEOUT_S
            except OwnerLostError:
                code = None
                deadline = time.monotonic() + OWNER_TIMEOUT_S
            except NoOwnerError:
                code = None
                if time.monotonic() > deadline:
                    raise StoreUnavailableError(
                        f"{in_use.message}, and that process does not respond"
                    ) from None
            if code is not None:
                return code
            await asyncio.wait([stop.requested], timeout=random.uniform(MIN_RETRY_S, MAX_RETRY_S))
            if stop.requested.done():
                return await self._report_detached(stop)

    async def _follow_owners(self, stop: StopSignal) -> int:
        """Start the execution, and follow it while processes own the file one after the other, and in between."""
        start = asyncio.ensure_future(self._start())
        if not await stop.done_before(start):
            return await self._report_detached(stop)
        self._accepted = await start
        while True:
            try:
                code = await self._join_owner(stop)
            except (NoOwnerError, OwnerLostError):
                code = await self._wait_for_owner(self._accepted, stop)
            if code is not None:
                return code

    async def _start(self) -> ExecutionRecord:
        """Start the execution in the owner process, or record it if there is none."""
        async with open_services(self._settings) as services:
            return await self._command.start_remotely(services)

    async def _wait_for_owner(self, accepted: ExecutionRecord, stop: StopSignal) -> int | None:
        """Follow an execution that no process runs; return None when one owns the file.

        Other commands can end the execution meanwhile.
        """
        async with open_reader(self._settings) as opened:

            async def ended() -> ExecutionEnded | None:
                poller = ExecutionPoller(accepted, await opened.plan(accepted.id), None)
                said = False
                while True:
                    await poller.poll(opened)
                    if poller.end is not None or await self._has_owner():
                        return poller.end
                    if not said:
                        self._print_waiting(accepted)
                        said = True
                    await asyncio.sleep(OWNER_POLL_S)

            return await self._follow(opened, accepted, ended, stop)

    async def _has_owner(self) -> bool:
        try:
            async with connected(self._settings):
                return True
        except NoOwnerError:
            return False

    def _print_waiting(self, accepted: ExecutionRecord) -> None:
        runs_with = "rune serve worker" if self._settings.clustered else "rune up` or `rune run"
        text = f"No process is running executions now. {accepted.id} waits for the next `{runs_with}`."
        if self._shown is not None:
            self._shown.write(text)
        else:
            print_notice(text)

    async def _as_owner(self, stop: StopSignal) -> int:
        said = LogNodeObserver(self._counter, self._line_printer())
        async with running_engine(self._settings, registry=self._registry, observer=said) as engine:
            fresh = self._accepted is None
            accepted = self._accepted = self._accepted or await self._command.start_locally(engine)
            ending = await engine.wait_for(accepted.id)
            plan = await engine.plans.plan(accepted.hash)
            # The counter observed an execution that this process started from its beginning.
            watched = fresh and self._counter is not None and self._counter.execution == accepted.id
            poller = self._show_progress(ExecutionPoller(accepted, plan, self._counter))
            if self._counter is not None and not watched:
                poller.count(await engine.backend.journal.facts(accepted.id, poller.seen))
            backend = engine.backend
            recorded = () if fresh else await backend.journal.facts(accepted.id)
            said.begin(AttemptReader(accepted, plan, backend.journal, backend.blob), recorded)
            printing = asyncio.ensure_future(said.keep_printing(self._print_line))
            try:
                await self._wait(ending, stop, engine)
            finally:
                printing.cancel()
                await asyncio.wait([printing])
            await said.print_to(self._print_line)
            self._flush_lines()
            self._close()
            if ending.done() or self._as_json:
                await self._print(await read_history(backend.journal, backend.blob, accepted, plan))
            if ending.done():
                return EXIT[ending.result().status]
            print_notice(
                f"Stopped. {accepted.id} resumes with the next `rune run`; `rune show {accepted.id}` shows it."
            )
            # Running nodes may finish within the grace period; a second signal ends the process at once.
            stop.restore_handlers()
            return stop.code

    def _show_progress(self, poller: ExecutionPoller) -> ExecutionPoller:
        """Show progress from now on; a new owner continues with the counts so far."""
        if self._poller is not None:
            return self._poller
        self._poller = poller
        if self._counter is not None:
            self._counter.begin(poller.plan, poller.accepted.id)
            self._shown = progress(self._counter)
            self._drawn = time.monotonic()
        return poller

    def _line_printer(self) -> LineCallback:
        """Return what prints the lines of the execution that are logged in this process. Lines come from any thread."""
        loop = asyncio.get_running_loop()

        def on_line(execution: str, line: LoggedLine) -> None:
            if self._accepted is None or execution == self._accepted.id:
                self._lines.append(line)
                # The loop may be closed already: a node in a thread outlives it.
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(self._flush_lines)

        return on_line

    def _print_line(self, line: LoggedLine) -> None:
        self._lines.append(line)
        self._flush_lines()

    def _flush_lines(self) -> None:
        """Print the lines so far. They wait until the execution is known."""
        while self._lines and self._poller is not None:
            text = line_text(self._lines.popleft(), self._poller.plan.ids)
            if self._shown is not None:
                self._shown.write(text)
            else:
                print(clean_lines(text), file=sys.stderr, flush=True)

    async def _wait(self, ending: asyncio.Future[ExecutionEnded], stop: StopSignal, engine: Engine) -> None:
        """Wait until the execution has ended or a signal arrives; raise if a background task of the engine fails."""
        awaited: set[asyncio.Future[Any]] = {ending, stop.requested, engine.broken}
        while not any(each.done() for each in awaited):
            pause = self._shown.pause if self._shown is not None else None
            await asyncio.wait(awaited, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
            self._draw()
        if not ending.done():
            engine.raise_if_broken()

    async def _join_owner(self, stop: StopSignal) -> int | None:
        """Send the command to the owner and follow the execution; return None if the owner exits."""
        async with connected(self._settings) as services:
            if self._accepted is None:
                start = asyncio.ensure_future(self._command.start_remotely(services))
                if not await stop.done_before(start):
                    return await self._report_detached(stop)
                self._accepted = await start
            accepted = self._accepted
            known = self._registry.catalogue if self._registry is not None else None

            async def ended() -> ExecutionEnded | None:
                try:
                    return await services.executions.wait_for_end(accepted.id)
                except OwnerLostError:
                    return None

            async with open_reader(self._settings, known) as opened:
                return await self._follow(opened, accepted, ended, stop)

    async def _follow(
        self,
        opened: ExecutionReader,
        accepted: ExecutionRecord,
        ended: Callable[[], Awaitable[ExecutionEnded | None]],
        stop: StopSignal,
    ) -> int | None:
        """Wait until `ended` returns the end, and print the execution; return None if the process that runs it exits
        before, for which `ended` returns None."""
        ending = asyncio.ensure_future(ended())
        try:
            poller = self._show_progress(
                ExecutionPoller(accepted, await opened.plan(accepted.id), self._counter)
            )
            poller.reset()
            logs = LogPrinter(StoredLogs(await opened.attempts(accepted.id), None), stream=sys.stderr)
            await self._show_until(ending, poller, opened, stop)
            end = await ending if ending.done() else None
            if end is None:  # the owner may have recorded the end before it exited
                await poller.poll(opened)
                end = poller.end
            if end is not None:
                self._close()
                await logs.poll(running=False)
                await self._print_read(opened, accepted)
                return EXIT[end.status]
            if ending.done():
                return None
            self._close()
            if self._as_json:
                await self._print_read(opened, accepted)
            return await self._report_detached(stop)
        finally:
            ending.cancel()

    async def _show_until(
        self,
        ending: asyncio.Future[ExecutionEnded | None],
        poller: ExecutionPoller,
        opened: ExecutionReader,
        stop: StopSignal,
    ) -> None:
        """Display the progress, if it is displayed, until `ending` is done or a signal arrives."""
        awaited: set[asyncio.Future[Any]] = {ending, stop.requested}
        async with aclosing(RunningPoller(self._settings, poller.accepted.id)) as running:
            while not ending.done() and not stop.requested.done():
                pause = None
                if self._counter is not None:
                    began = time.perf_counter()
                    await poller.poll(opened)
                    if (found := await running.poll()) is not None:
                        poller.show_running(found)
                    pause = max(PROGRESS_INTERVAL_S, PAUSE_FACTOR * (time.perf_counter() - began))
                await asyncio.wait(awaited, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
                self._draw()

    def _draw(self) -> None:
        if self._shown is not None and time.monotonic() - self._drawn >= self._shown.pause:
            self._shown.refresh()
            self._drawn = time.monotonic()

    def _close(self) -> None:
        if self._shown is not None:
            self._shown.close()
            self._shown = None

    async def _report_detached(self, stop: StopSignal) -> int:
        """Report that this process stops following; the execution does not stop."""
        accepted = self._accepted
        if accepted is None:
            print_notice(
                "Stopped before the owner process responded; `rune list` shows whether the execution started."
            )
            return stop.code
        owned, named = await find_owner(self._settings)
        state = f"runs {named}" if owned and named else f"resumes with the next `{self._settings.runs_with}`"
        print_notice(
            f"Stopped following. {accepted.id} {state}; `rune watch {accepted.id}` follows it again."
        )
        return stop.code

    async def _print_read(self, opened: ExecutionReader, accepted: ExecutionRecord) -> None:
        async with opened.snapshot():
            await self._print(await opened.history(accepted.id))

    async def _print(self, history: History) -> None:
        document = await history.document()
        self._untolerated = document["untolerated_items"]
        if self._as_json:
            print_json(document)
        else:
            print_document(document)


async def follow_to_end(settings: Settings, command: FollowedCommand, *, as_json: bool) -> tuple[int, int]:
    """Start an execution on a server and follow it until it ends or a signal arrives; return the exit code and the
    number of failed items that the workflow does not tolerate."""
    from rune.cli.remote.connection import client  # noqa: PLC0415
    from rune.cli.remote.reader import RemoteReader  # noqa: PLC0415
    from rune.cli.remote.services import RemoteServices  # noqa: PLC0415

    with StopSignal() as stop:
        async with client(settings) as api:
            accepted = await command.start_remotely(RemoteServices(api))
        async with client(settings) as api:
            opened = RemoteReader(api)
            end = asyncio.ensure_future(opened.end(accepted.id))
            either: set[asyncio.Future[Any]] = {end, stop.requested}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if end.done():
                status = await end
                await LogPrinter(RemoteLogs(api, accepted.id), stream=sys.stderr).poll(running=False)
                return EXIT[status], await _print(opened, accepted.id, as_json=as_json)
            end.cancel()
            if as_json:
                await _print(opened, accepted.id, as_json=True)
        print(
            f"Stopped following. {accepted.id} runs at {settings.url};"
            f" `rune watch {accepted.id}` follows it again.",
            file=sys.stderr,
            flush=True,
        )
        return stop.code, 0


async def _print(opened: RemoteReader, execution: str, *, as_json: bool) -> int:
    """Print an execution and return the number of its failed items that the workflow does not tolerate."""
    document = await (await opened.history(execution)).document()
    if as_json:
        print_json(document)
    else:
        print_document(document)
    return int(document.get("untolerated_items") or 0)


def run_command(work: Callable[[Settings], Awaitable[int]], *, as_json: bool) -> int:
    """Run the work of a command and return the exit code; 1 if the status of the execution does not allow it."""

    async def run() -> int:
        return await work(load_settings())

    try:
        return asyncio.run(run())
    except InvalidDocumentError as invalid:
        return print_problems(invalid.problems, as_json=as_json)
    except RuneError as error:
        code = print_error(error, as_json=as_json, hint=_HINTS.get(error.code, ""))
        return VIOLATIONS if error.code in WRONG_STATUS_CODES else code
    except KeyboardInterrupt:
        return INTERRUPTED


def run_on_execution(given: str, work: Callable[[str, Settings], Awaitable[int]], *, as_json: bool) -> int:
    """Find the execution whose id starts with `given`, run the work on it and return the exit code."""

    async def found(settings: Settings) -> int:
        return await work(await find_execution(settings, given), settings)

    return run_command(found, as_json=as_json)


async def find_execution(settings: Settings, given: str) -> str:
    """Resolve an execution id. Read-only, so that an unknown id does not create the database file."""
    nothing = UnknownReferenceError(f"no execution has the id `{given}`: there are no executions yet")
    if not exists(settings):
        raise nothing
    try:
        async with reader(settings) as opened:
            return await resolve(opened, given)
    except RuneError as error:
        if error.code != "EMPTY_STORE":
            raise
        raise nothing from None


async def call_and_check_owner(
    settings: Settings, action: Callable[[CommandServices], Awaitable[T]]
) -> tuple[T, bool]:
    """Call the services; also return whether a process is running executions."""
    async with open_services(settings) as opened:
        answer = await action(opened)
        if settings.clustered and not settings.url:
            return answer, (await owner(settings))[0]
        return answer, not opened.local


class SentCommand:
    """An execution started by a call of the services. The call carries an idempotency key, so it can be repeated."""

    def __init__(self, action: StartAction) -> None:
        self._action = action

    async def start_locally(self, engine: Engine) -> ExecutionRecord:
        return await self._action(engine.services)

    async def start_remotely(self, services: CommandServices) -> ExecutionRecord:
        return await self._action(services)


async def start_execution(
    settings: Settings,
    action: StartAction,
    *,
    wait: bool,
    as_json: bool,
    name: str = "",
    ignore_failed_items: bool = False,
) -> int:
    """Start an execution; print its id, or follow it to its end."""
    if wait:
        counter = None if as_json else ProgressCounter(name)
        return await ExecutionFollower(
            settings,
            SentCommand(action),
            counter,
            as_json=as_json,
            ignore_failed_items=ignore_failed_items,
        ).follow_to_end()
    accepted, owned = await call_and_check_owner(settings, action)
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
    if isinstance(accepted, HandedOver):
        print_notice("Another engine runs it: it is not recorded here.")
    elif not owned:
        print_notice(
            f"No process is running executions now: this one starts with the next `{settings.runs_with}`."
        )
    return 0


def print_notice(text: str) -> None:
    """Print a notice to stderr, apart from the result."""
    print(clean_lines(text), file=sys.stderr, flush=True)
