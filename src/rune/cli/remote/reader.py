"""The reader of a server elsewhere: what is known of executions, asked for over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from rune.cli.remote.asking import epoch, not_over_url
from rune.cli.remote.library import RemoteLibrary
from rune.client import AsyncClient, Refusal, models
from rune.core.explain import Waiting
from rune.core.outcome import Error
from rune.ports.journal import DeadLetter
from rune.ports.store import ALL, Event, Frame, Summary, Wanted
from rune.settings import Settings

PAGE = 1_000
LONGEST_ID = 128


class RemoteHistory:
    """The past of one execution, as the server tells it."""

    def __init__(self, client: AsyncClient, execution: str) -> None:
        self._client = client
        self._execution = execution

    async def document(self) -> dict[str, Any]:
        """The whole of it, as `rune run --json` prints it."""
        return await self._client.document(self._execution)


class RemoteReader:
    """Answers what the commands ask a reader, and two things that a reader leaves to them: what an execution waits
    for, and its events as they come."""

    def __init__(self, client: AsyncClient, settings: Settings) -> None:
        self._client = client
        self._settings = settings
        self.library = RemoteLibrary(client)

    def __getattr__(self, verb: str) -> Any:
        raise not_over_url("what this command reads", self._settings)

    @asynccontextmanager
    async def still(self) -> AsyncIterator[None]:
        """What a server answers at two times may differ."""
        yield

    async def executions(
        self, wanted: Wanted = ALL, *, after: str | None = None, limit: int = 50
    ) -> list[Summary]:
        """Newest first, behind a given id."""
        found: list[Summary] = []
        async for each in self._client.executions(
            status=wanted.status, workflow=wanted.workflow, after=after, page=min(limit, PAGE)
        ):
            found.append(_summary(each))
            if len(found) == limit:
                break
        return found

    async def execution(self, execution: str) -> Summary | None:
        """One execution."""
        if not execution or len(execution) > LONGEST_ID:
            return None
        try:
            return _summary(await self._client.execution(execution))
        except Refusal as refused:
            if refused.code not in {"UNKNOWN_EXECUTION", "NOT_FOUND"}:
                raise
            return None

    async def matching(self, prefix: str, limit: int) -> list[str]:
        """Ids that begin like this, at most so many."""
        found: list[str] = []
        if len(prefix) > LONGEST_ID:
            return found
        async for each in self._client.executions(q=prefix, page=PAGE):
            if each.execution_id.startswith(prefix):
                found.append(each.execution_id)
                if len(found) == limit:
                    break
        return found

    async def history(self, execution: str) -> RemoteHistory:
        """The past of an execution."""
        return RemoteHistory(self._client, execution)

    async def definition(self, hash: str) -> bytes | None:
        """The canonical form of a definition."""
        return msgspec.json.encode(await self._client.definition(hash))

    async def dead_letters(self, limit: int, after: str | None = None) -> list[DeadLetter]:
        """Executions that the engine gave up on, newest first, behind a given id."""
        found: list[DeadLetter] = []
        async for each in self._client.dead_letters(after=after, page=min(limit, PAGE)):
            found.append(_letter(each))
            if len(found) == limit:
                break
        return found

    async def waiting(self, execution: str) -> tuple[bool, list[Waiting]]:
        """Whether it is paused, and what it waits for."""
        found = await self._client.explain(execution)
        waiting = [msgspec.convert(msgspec.to_builtins(each), Waiting) for each in found.waiting]
        return found.status == "paused", waiting

    async def watch(self, execution: str, after: int) -> AsyncIterator[Event]:
        """Its events until it has ended."""
        async for each in self._client.watch(execution, after=after):
            yield _event(each)

    async def end(self, execution: str) -> str:
        """How it ended, once it has."""
        return (await self._client.wait(execution)).status


def _summary(each: models.Execution) -> Summary:
    return Summary(
        id=each.execution_id,
        workflow=each.workflow_id,
        hash=each.hash,
        status=each.status,
        started_at=epoch(each.started_at),
        ended_at=None if each.completed_at is None else epoch(each.completed_at),
        error=None
        if each.error is None
        else Error(each.error.code, each.error.message, each.error.details or {}),
        labels=each.labels,
    )


def _letter(each: models.DeadLetter) -> DeadLetter:
    return DeadLetter(
        id=each.id,
        execution=each.execution_id,
        workflow=each.workflow_id,
        node=each.node_id or "",
        code=each.code,
        message=each.message,
        at=epoch(each.at),
    )


def _event(each: models.Event) -> Event:
    return Event(
        number=each.number,
        at=epoch(each.at),
        kind=each.kind,
        node_id=each.node_id,
        lineage=tuple(msgspec.convert(msgspec.to_builtins(frame), Frame) for frame in each.lineage),
        details=each.details,
    )
