"""Reads executions of a server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from rune.cli.live import RemoteLogs
from rune.cli.remote.connection import epoch
from rune.cli.remote.dead_letters import dead_letter_of
from rune.cli.remote.workflows import PAGE_SIZE, RemoteWorkflows
from rune.client import ApiError, AsyncClient, models
from rune.core.execution.outcome import Error, ErrorOrigin
from rune.core.execution.reasons import Waiting
from rune.core.json_decoder import JsonDecoder, read_json
from rune.ports.clock import iso
from rune.ports.journal import DeadLetter
from rune.ports.queries import ALL_EXECUTIONS, Event, ExecutionFilter, Summary

MAX_ID_LENGTH = 128


class RemoteHistory:
    """The history of one execution."""

    def __init__(self, client: AsyncClient, execution: str) -> None:
        self._client = client
        self._execution = execution

    async def document(self, *, not_reached: bool = False) -> dict[str, Any]:
        """Return the document that `rune run --json` prints; `not_reached` adds the nodes without a run."""
        written = b"".join([each async for each in self._client.download(self._execution, "document")])
        parts = JsonDecoder(dict[str, msgspec.Raw]).decode(written)
        output = parts.pop("output")  # may be large, and takes many times as much memory as an object
        document = {name: read_json(part) for name, part in parts.items()} | {"output": output}
        if not_reached and document["status"] in ("failed", "halted", "cancelled"):
            async for each in self._client.nodes(self._execution, status="not_reached"):
                shown = msgspec.to_builtins(each)
                del shown["output_bytes"]
                document["nodes"].append(shown)
        return document

    async def run_output(self, node: str, item: str = "") -> bytes:
        """Return the whole output of a node run as JSON."""
        found = self._client.download(self._execution, "output", node=node, lineage=item or None)
        return b"".join([each async for each in found])

    async def start_payload(self) -> bytes:
        """Return the whole start payload as JSON."""
        return b"".join([each async for each in self._client.download(self._execution, "input")])


class RemoteReader:
    """The reader of a server: the queries of ExecutionReader that the API answers. Beyond those it returns what an
    execution waits for and streams its events."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self.workflows = RemoteWorkflows(client)

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[None]:
        """Do nothing: the API has no snapshots, two requests may see different states."""
        yield

    async def executions(
        self, wanted: ExecutionFilter = ALL_EXECUTIONS, *, after: str | None = None, limit: int = 50
    ) -> list[Summary]:
        """Return executions, newest first, after a given id."""
        found: list[Summary] = []
        async for each in self._client.executions(
            status=wanted.statuses,
            workflow=wanted.workflow,
            failed_items=wanted.failed_items,
            stuck=wanted.stuck,
            labels=wanted.labels,
            since=iso(wanted.since),
            until=iso(wanted.until),
            code=wanted.code,
            principal=wanted.principal,
            parent=wanted.parent,
            retry_of=wanted.retry_of,
            after=after,
            page=min(limit, PAGE_SIZE),
        ):
            if wanted.hash not in (None, each.hash):
                continue
            found.append(summary_of(each))
            if len(found) == limit:
                break
        return found

    async def execution(self, execution: str) -> Summary | None:
        if not execution or len(execution) > MAX_ID_LENGTH:
            return None
        try:
            return summary_of(await self._client.execution(execution))
        except ApiError as refused:
            if refused.code not in {"UNKNOWN_EXECUTION", "NOT_FOUND"}:
                raise
            return None

    async def matching(self, prefix: str, limit: int) -> list[str]:
        """Return up to `limit` ids that start with `prefix`."""
        found: list[str] = []
        if len(prefix) > MAX_ID_LENGTH:
            return found
        async for each in self._client.executions(q=prefix, page=PAGE_SIZE):
            if each.execution_id.startswith(prefix):
                found.append(each.execution_id)
                if len(found) == limit:
                    break
        return found

    async def history(self, execution: str) -> RemoteHistory:
        return RemoteHistory(self._client, execution)

    async def definition(self, hash: str) -> bytes | None:
        """Return a definition in canonical form."""
        return msgspec.json.encode(await self._client.definition(hash))

    async def dead_letters(self, limit: int, after: str | None = None) -> list[DeadLetter]:
        """Return dead letters, newest first, after a given id."""
        found: list[DeadLetter] = []
        async for each in self._client.dead_letters(after=after, page=min(limit, PAGE_SIZE)):
            found.append(dead_letter_of(each))
            if len(found) == limit:
                break
        return found

    async def waiting(self, execution: str) -> tuple[bool, list[Waiting], int | None]:
        """Return whether an execution is paused, what it waits for, and when it is late."""
        found = await self._client.explain(execution)
        return found.status == "paused", found.waiting, found.expected_by

    async def watch(self, execution: str, after: int) -> AsyncIterator[Event | dict[str, Any]]:
        """Yield events of an execution until it has ended and, in between, what runs now."""
        async for each in self._client.follow(execution, after=after):
            yield event_of(each) if isinstance(each, models.Event) else msgspec.to_builtins(each)

    def log_source(self, execution: str, node: str | None) -> RemoteLogs:
        """Return the logs of an execution."""
        return RemoteLogs(self._client, execution, node)

    async def end(self, execution: str) -> str:
        """Wait for the end of an execution and return its status."""
        return (await self._client.wait(execution)).status


def summary_of(each: models.ListedExecution) -> Summary:
    return Summary(
        id=each.execution_id,
        workflow=each.workflow_id,
        hash=each.hash,
        status=each.status,
        started_at=epoch(each.started_at),
        ended_at=None if each.completed_at is None else epoch(each.completed_at),
        error=None if each.error is None else error_of(each.error),
        labels=each.labels,
        failed_items=each.failed_items,
        version=each.version,
        alias=each.alias,
    )


def error_of(each: models.ErrorInfo) -> Error:
    origin = None
    if each.node_id is not None:
        lineage = tuple((item.split_node_id, item.item_index) for item in each.lineage or ())
        origin = ErrorOrigin(each.node_id, each.node_type or "", lineage, each.attempt or 1)
    return Error(each.code, each.message, each.details or {}, origin=origin)


def event_of(each: models.Event) -> Event:
    return Event(
        number=each.number,
        at=epoch(each.at),
        kind=each.kind,
        node_id=each.node_id,
        lineage=each.lineage,
        details=each.details,
    )
