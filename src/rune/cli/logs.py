"""Prints the lines that the nodes of an execution log: those that are stored, and new ones while it runs."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import Any, Protocol, TextIO

import msgspec

from rune.cli.live import RunningPoller, local_time
from rune.cli.output import COLOURS, clean, paint
from rune.client import AsyncClient, models
from rune.core.execution.token import path_text
from rune.ports.live import LoggedLine
from rune.runtime.clock import iso
from rune.runtime.queries.attempts import AttemptReader, NodeLog

COLOUR_OF_LEVEL = {"warning": COLOURS["warn"], "error": COLOURS["failed"], "critical": COLOURS["failed"]}
PAGE_SIZE = 200


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
