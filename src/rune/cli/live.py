"""What an execution that another process runs has recorded, runs and logs, for commands that follow it.

What runs is asked of the owner process or of the workers of a cluster. Lines are those that are stored, and new ones
while the execution runs.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Protocol, TextIO

import msgspec

from rune.bootstrap import open_live
from rune.cli.output import COLOURS, clean, local_time, paint
from rune.cli.progress import ProgressCounter
from rune.core.execution.decision import Decision
from rune.core.execution.fact import (
    ExecutionEnded,
    ExecutionStarted,
    Fact,
    NodeResult,
)
from rune.core.execution.fold import fold
from rune.core.execution.token import Path, Token, path_text
from rune.core.plan.model import Plan
from rune.errors import RuneError
from rune.ports.clock import iso
from rune.ports.journal import ExecutionRecord, StoredFact
from rune.ports.processes import LoggedLine, RunningNode, RunningQuery
from rune.runtime.live import LineCallback
from rune.runtime.queries.history import History
from rune.runtime.queries.reader import AttemptReader, ExecutionReader, NodeLog
from rune.settings import Settings

if TYPE_CHECKING:
    from rune.client import AsyncClient, models

POLL_INTERVAL_S = 0.25

COLOUR_OF_LEVEL = {"warning": COLOURS["warn"], "error": COLOURS["failed"], "critical": COLOURS["failed"]}
PAGE_SIZE = 200
MAX_EARLY = 1_000

# Up to this many facts the rules are replayed with every poll, which tells the tokens that may run from those to come.
MAX_FOLDED_FACTS = 500


class ExecutionPoller:
    """Reads the facts of an execution that another process runs, counts them and finds the end."""

    def __init__(self, accepted: ExecutionRecord, plan: Plan, counter: ProgressCounter | None) -> None:
        self.accepted = accepted
        self.plan = plan
        self.end: ExecutionEnded | None = None
        self.seen = 0
        self._counter = counter
        self._facts: list[Fact] = [ExecutionStarted(accepted.at)]
        self._change = -1
        self.guesses_running = True
        """Whether tokens that may run count as running: which ones do is not known."""

    async def poll(self, reader: ExecutionReader) -> bool:
        """Read new facts; return whether any process has written to the database since the last poll."""
        before, self._change = self._change, await reader.version()
        if self._change == before:
            return False
        self.count(await reader.facts(self.accepted.id, self.seen))
        counter = self._counter if self.guesses_running and self.end is None else None
        if counter is not None and len(self._facts) <= MAX_FOLDED_FACTS:
            _, applied = fold(self.plan, self._facts, self.accepted.at)
            for token in applied.emitted:
                counter.claimed(self.accepted.id, token)
        return True

    def show_running(self, running: Sequence[RunningNode]) -> None:
        """Count the nodes that run now."""
        self.guesses_running = False
        if self._counter is None:
            return
        for each in running:
            token = Token(each.node, each.path, attempt=each.attempt)
            self._counter.claimed(self.accepted.id, token)
            if each.progress:
                self._counter.progressed(self.accepted.id, token, each.progress)

    def reset(self) -> None:
        """Prepare for another reader, whose version numbers start anew."""
        self._change = -1

    def count(self, stored: Iterable[StoredFact]) -> None:
        """Count facts, given in commit order."""
        for each in stored:
            self.seen = each.number
            if each.late:
                continue
            if isinstance(each.fact, ExecutionEnded):
                self.end = each.fact
            if self._counter is None:
                continue
            if len(self._facts) <= MAX_FOLDED_FACTS:
                self._facts.append(each.fact)
            self._counter.add(each.fact)


class LogNodeObserver:
    """Collects what the `log` nodes of one execution of this process say, and passes every step on to a counter and
    every line that a node logs to `on_line`.

    Results of before the execution is known are kept, at most MAX_EARLY of them.
    """

    def __init__(self, counter: ProgressCounter | None, on_line: LineCallback) -> None:
        self._counter = counter
        self._on_line = on_line
        self._reader: AttemptReader | None = None
        self._early: deque[tuple[str, NodeResult]] = deque(maxlen=MAX_EARLY)
        self._seen: set[tuple[int, Path]] = set()
        self._found: deque[NodeResult] = deque()
        self._changed = asyncio.Event()

    def claimed(self, execution: str, token: Token) -> None:
        if self._counter is not None:
            self._counter.claimed(execution, token)

    def progressed(self, execution: str, token: Token, text: str) -> None:
        if self._counter is not None:
            self._counter.progressed(execution, token, text)

    def logged(self, execution: str, line: LoggedLine) -> None:
        self._on_line(execution, line)

    def applied(self, execution: str, decisions: Sequence[Decision]) -> None:
        if self._counter is not None:
            self._counter.applied(execution, decisions)
        for decision in decisions:
            if isinstance(decision.fact, NodeResult):
                self._add(execution, decision.fact)

    def begin(self, reader: AttemptReader, recorded: Iterable[StoredFact] = ()) -> None:
        """Set the execution, with what another process has recorded of it before."""
        early = [
            *((reader.execution, each.fact) for each in recorded if isinstance(each.fact, NodeResult)),
            *self._early,
        ]
        self._early.clear()
        self._reader = reader
        for execution, result in early:
            self._add(execution, result)

    def _add(self, execution: str, result: NodeResult) -> None:
        if self._reader is None:
            self._early.append((execution, result))
            return
        key = (result.node, result.path)
        # A step may be applied again after an error of the store.
        if execution == self._reader.execution and self._reader.is_line(result) and key not in self._seen:
            self._seen.add(key)
            self._found.append(result)
            self._changed.set()

    async def print_to(self, write: Callable[[LoggedLine], None]) -> None:
        """Pass on what was said since the last call. Cancelled, it continues with the next call."""
        self._changed.clear()
        while self._found and self._reader is not None:
            log = await self._reader.output_line(self._found[0])
            self._found.popleft()
            for each in log.lines:
                write(LoggedLine(log.node, log.path, log.attempt, each.at, each.level, each.message))

    async def keep_printing(self, write: Callable[[LoggedLine], None]) -> None:
        """Pass on what is said until cancelled."""
        while True:
            await self._changed.wait()
            await self.print_to(write)


class RunningPoller:
    """Asks at most every POLL_INTERVAL_S. A process that exits, or does not answer, runs nothing that is shown."""

    def __init__(self, settings: Settings, execution: str) -> None:
        self._settings = settings
        self._execution = execution
        self._stack = AsyncExitStack()
        self._query: RunningQuery | None = None
        self._next = 0.0
        self.known = False
        """Whether the last poll was answered."""

    async def aclose(self) -> None:
        """Close the connection."""
        await self._stack.aclose()

    async def poll(self) -> list[RunningNode] | None:
        """Return what runs now; None if it is not time to ask again, or if there is no answer."""
        if time.monotonic() < self._next:
            return None
        try:
            if self._query is None:
                self._query = await self._stack.enter_async_context(open_live(self._settings))
            found = await self._query(self._execution)
        except RuneError:
            self.known, self._query = False, None
            await self._stack.aclose()
            return None
        finally:
            self._next = time.monotonic() + POLL_INTERVAL_S
        self.known = found.complete
        return found.nodes


class RunningPrinter:
    """Prints nodes when they start to run. With `as_json`, prints every change as one document."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._shown: list[dict[str, Any]] = []
        self._known: set[tuple[Any, ...]] = set()

    def show(self, running: list[dict[str, Any]], at: str, lines: list[dict[str, Any]] | None = None) -> None:
        """Print what runs now, given as in the `now` events of the API."""
        if self._as_json:
            if running != self._shown or lines:
                print(msgspec.json.encode(_document(running, at, lines)).decode(), flush=True)
                self._shown = running
            return
        known = set()
        for each in running:
            key = (each["node_id"], _item(each), each["attempt"])
            known.add(key)
            if key not in self._known:
                print(_line(each), flush=True)
        self._known = known
        for each in lines or ():
            where = " ".join(part for part in (each["node_id"], _item(each)) if part)
            print(f"       {local_time(each['at'])}  {clean(where)}: {clean(each['message'])}", flush=True)


def _document(running: list[dict[str, Any]], at: str, lines: list[dict[str, Any]] | None) -> dict[str, Any]:
    return {"event": "now", "at": at, "running": running, "lines": lines or []}


def running_documents(found: list[RunningNode], history: History) -> list[dict[str, Any]]:
    """Return running nodes as in the `now` events of the API."""
    return [
        {
            "node_id": history.plan.ids[each.node],
            "lineage": msgspec.to_builtins(history.lineage(each.path)),
            "attempt": each.attempt,
            "since": iso(each.since),
            "worker": each.worker,
            "progress": each.progress or None,
        }
        for each in found
        if _is_of(history.plan, each)
    ]


def _is_of(plan: Plan, each: RunningNode) -> bool:
    return 0 <= each.node < len(plan.ids)


def _item(each: dict[str, Any]) -> str:
    return "/".join(f"{frame['split_node_id']}:{frame['item_index']}" for frame in each["lineage"])


def _line(each: dict[str, Any]) -> str:
    parts = [f"on worker {each['worker']}"]
    if each["attempt"] > 1:
        parts.append(f"attempt {each['attempt']}")
    if each["progress"]:
        parts.append(each["progress"])
    where = clean(" ".join(part for part in (each["node_id"], _item(each)) if part))
    kind = paint("node.running", COLOURS["running"])
    return f"       {local_time(each['since'])}  {kind}  {where}  {clean('; '.join(parts))}"


class LogDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The log of one attempt. `item` is the lineage as text, empty outside of splits."""

    node_id: str
    item: str
    attempt: int
    dropped: int
    lines: list[dict[str, str]]


class LogSource(Protocol):
    """The logs of one execution."""

    def ended(self, after: int) -> AsyncIterator[tuple[int, LogDocument | None]]:
        """Yield the logs of attempts that have ended, after a position."""

    async def running(self) -> list[LogDocument]:
        """Return the logs of attempts that run now."""


class StoredLogs:
    """Reads logs from the stores."""

    def __init__(self, reader: AttemptReader, running: RunningPoller | None, node: int | None = None) -> None:
        self._reader = reader
        self._running = running
        self._node = node

    async def ended(self, after: int) -> AsyncIterator[tuple[int, LogDocument | None]]:
        async for number, log in self._reader.logs(after, self._node):
            yield number, None if log is None else self._document(log)

    async def running(self) -> list[LogDocument]:
        found = (await self._running.poll() if self._running is not None else None) or ()
        return [
            self._document(await self._reader.log(each.node, each.path, each.attempt))
            for each in found
            if self._node in (None, each.node)
        ]

    def _document(self, log: NodeLog) -> LogDocument:
        ids = self._reader.plan.ids
        lines = [
            {"at": iso(each.at) or "", "level": each.level, "message": each.message} for each in log.lines
        ]
        item = path_text(log.path, ids).strip("/")
        return LogDocument(
            node_id=ids[log.node], item=item, attempt=log.attempt, dropped=log.dropped, lines=lines
        )


class RemoteLogs:
    """Reads logs from a server."""

    def __init__(self, client: AsyncClient, execution: str, node: str | None = None) -> None:
        self._client = client
        self._execution = execution
        self._node = node

    async def ended(self, after: int) -> AsyncIterator[tuple[int, LogDocument | None]]:
        async for log in self._client.logs(self._execution, node=self._node, after=after, page=PAGE_SIZE):
            yield log.position, _remote_document(log)

    async def running(self) -> list[LogDocument]:
        found = await self._client.explain(self._execution)
        return [
            _remote_document(
                await self._client.attempt_log(
                    self._execution, each.node, each.attempt, lineage=each.lineage.strip("/") or None
                )
            )
            for each in found.waiting
            if each.worker is not None and each.attempt is not None and self._node in (None, each.node)
        ]


def _remote_document(log: models.NodeLog) -> LogDocument:
    item = "/".join(f"{each.split_node_id}:{each.item_index}" for each in log.lineage)
    lines = [{"at": each.at, "level": each.level, "message": each.message} for each in log.lines]
    return LogDocument(node_id=log.node_id, item=item, attempt=log.attempt, dropped=log.dropped, lines=lines)


class LogPrinter:
    """Prints each line once, however often the log that contains it is read."""

    def __init__(self, source: LogSource, *, as_json: bool = False, stream: TextIO | None = None) -> None:
        self._source = source
        self._as_json = as_json
        self._stream = stream
        self._after = 0
        self._printed: dict[tuple[str, str, int], int] = {}

    async def poll(self, *, running: bool = True) -> None:
        """Print what is new. Without `running`, only of attempts that have ended."""
        async for number, log in self._source.ended(self._after):
            self._after = number
            if log is not None:
                self._print(log)
        if running:
            for log in await self._source.running():
                self._print(log)

    def _print(self, log: LogDocument) -> None:
        key = (log.node_id, log.item, log.attempt)
        seen = self._printed.get(key, 0)
        if log.dropped > seen and not self._as_json:
            where = _where(log.node_id, log.item)
            print(paint(f"{where}: {log.dropped - seen:,} older lines are not kept", "grey"), file=self._out)
        for line in log.lines[max(0, seen - log.dropped) :]:
            self._print_line(log, line)
        self._printed[key] = log.dropped + len(log.lines)

    def _print_line(self, log: LogDocument, line: dict[str, str]) -> None:
        if self._as_json:
            document: dict[str, Any] = {
                "node_id": log.node_id,
                "item": log.item or None,
                "attempt": log.attempt,
                **line,
            }
            print(msgspec.json.encode(document).decode(), file=self._out, flush=True)
            return
        attempt = f" (attempt {log.attempt})" if log.attempt > 1 else ""
        where = _where(log.node_id, log.item) + attempt
        print(log_text(line["at"], line["level"], where, line["message"]), file=self._out, flush=True)

    @property
    def _out(self) -> TextIO:
        return sys.stdout if self._stream is None else self._stream


def _where(node: str, item: str) -> str:
    return f"{node} {item}" if item else node


def log_text(at: str, level: str, where: str, message: str) -> str:
    """Return a line of a log as it is printed."""
    shown = paint(f"{level:<7}", COLOUR_OF_LEVEL.get(level, ""))
    return f"{local_time(at)}  {shown}  {clean(where)}: {clean(message)}"


def line_text(line: LoggedLine, ids: tuple[str, ...]) -> str:
    """Return a line that a node of this process logs, as it is printed."""
    where = _where(ids[line.node], path_text(line.path, ids).strip("/"))
    return log_text(iso(line.at) or "", line.level, where, line.message)
