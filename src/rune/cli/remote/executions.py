"""Starts and changes executions of a server."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from rune.cli.remote.connection import RemoteService, epoch
from rune.client import AsyncRun
from rune.core.definition.parser import NO_PINS, Pins
from rune.core.execution.stored_value import Inline
from rune.errors import RuneError
from rune.ports.journal import ExecutionRecord
from rune.runtime.lifecycle.launcher import DEFAULT_OPTIONS, StartOptions
from rune.runtime.services.executions import SignalResult

BULK_INTERVAL_S = 0.2


FOLLOWED_S = 0.001
"""The wait of a start whose end the command waits for by itself: the server refuses what it cannot follow."""


class RemoteExecutionService(RemoteService):
    """The execution service of a server. Payloads are sent as the bytes they are."""

    async def start_definition(
        self,
        definition: bytes,
        input: bytes,
        options: StartOptions = DEFAULT_OPTIONS,
        *,
        execution: str | None = None,
    ) -> ExecutionRecord:
        """Start an execution; the server chooses its id, `execution` is ignored."""
        document: Any = msgspec.Raw(definition)
        started = await self._client.start_definition(
            document,
            msgspec.Raw(input),
            key=options.key,
            labels=options.labels,
            fake_time=options.fake_time,
            pins=options.pins.outputs or None,
            outlets=options.pins.outlets or None,
            wait=FOLLOWED_S if options.followed else 0.0,
        )
        return accepted_of(started, input)

    async def start(
        self,
        workflow: str,
        which: str | None,
        input: bytes,
        options: StartOptions = DEFAULT_OPTIONS,
        *,
        priority: int | None = None,
        execution: str | None = None,
    ) -> ExecutionRecord:
        """Start an execution; the server chooses its id, `execution` is ignored."""
        started = await self._client.start(
            workflow,
            msgspec.Raw(input),
            version=which,
            key=options.key,
            labels=options.labels,
            priority=priority,
            fake_time=options.fake_time,
            pins=options.pins.outputs or None,
            outlets=options.pins.outlets or None,
            wait=FOLLOWED_S if options.followed else 0.0,
        )
        return accepted_of(started, input)

    async def signal(
        self,
        execution: str,
        name: str,
        value: bytes = b"null",
        *,
        key: str | None = None,
        item: str | None = None,
    ) -> SignalResult:
        result = await self._client.signal(execution, name, msgspec.Raw(value), item=item, key=key)
        return SignalResult(result.id, result.resumed)

    async def cancel(self, execution: str, reason: str = "") -> str:
        """Cancel an execution. Unlike the API, raise if it was cancelled before, as the local service does."""
        result = await self._client.cancel(execution, reason)
        if result.status == "cancelled" and not result.changed:
            raise RuneError("the execution has ended as cancelled", code="ENDED")
        return result.status

    async def pause(self, execution: str) -> bool:
        return (await self._client.pause(execution)).changed

    async def resume(self, execution: str) -> bool:
        return (await self._client.resume(execution)).changed

    async def retry(
        self,
        execution: str,
        *,
        failed_items: bool = False,
        split: str | None = None,
        item: str | None = None,
        code: str | None = None,
        key: str | None = None,
    ) -> ExecutionRecord:
        return accepted_of(
            await self._client.retry(
                execution, failed_items=failed_items, split=split, item=item, code=code, key=key
            )
        )

    async def rerun(
        self,
        execution: str,
        node: str,
        *,
        item: str | None = None,
        key: str | None = None,
        input: bytes | None = None,
        parameters: bytes | None = None,
        version: str | None = None,
        definition: bytes | None = None,
        pins: Pins = NO_PINS,
    ) -> ExecutionRecord:
        changed: Any = None if parameters is None else msgspec.Raw(parameters)
        draft: Any = None if definition is None else msgspec.Raw(definition)
        return accepted_of(
            await self._client.rerun(
                execution,
                node,
                item=item,
                key=key,
                input=None if input is None else msgspec.Raw(input),
                parameters=changed,
                version=version,
                definition=draft,
                pins=pins.outputs or None,
                outlets=pins.outlets or None,
            )
        )


def accepted_of(started: AsyncRun, input: bytes = b"") -> ExecutionRecord:
    return ExecutionRecord(
        id=started.execution_id,
        workflow=started.workflow_id,
        hash=started.hash,
        at=epoch(started.started_at),
        input=Inline(input),
        retry_of=started.retry_of,
        version=started.version,
        alias=started.alias,
    )


class RemoteBulkService(RemoteService):
    """The bulk jobs of a server, which carries them out."""

    async def finish(self, id: str) -> None:
        """Wait for the end of a job."""
        while True:
            job = await self._client.bulk_job(id)
            if job.status != "running":
                return
            await asyncio.sleep(BULK_INTERVAL_S)
