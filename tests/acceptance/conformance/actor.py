"""The interface through which a case controls executions of the system under test."""

from __future__ import annotations

import time
from typing import Any, Protocol

import msgspec

from rune.core.execution.explain import explain
from rune.ports.queries import ExecutionFilter
from rune.runtime.queries.reader import ExecutionReader
from tests.support.written import as_written


class RejectedError(Exception):
    """The operation was rejected with this error code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """A start of a document or of a deployed workflow."""

    source: str = ""
    workflow: str | None = None  # `name` or `name@which`
    input: str = "{}"
    key: str | None = None
    labels: dict[str, str] = {}
    priority: int | None = None
    fake_time: bool = False


class Actor(Protocol):
    """Operations on workflows and executions. Each raises RejectedError."""

    async def deploy(self, source: str, alias: str | None) -> int:
        """Store a document and return its version."""

    async def alias(self, workflow: str, alias: str, version: int) -> int:
        """Point an alias to a version and return the version."""

    async def start(self, wanted: Start) -> str:
        """Start an execution and return its id."""

    async def signal(
        self, execution: str, name: str, value: str, *, key: str | None, item: str | None
    ) -> bool:
        """Send a signal; return whether it resumed a node."""

    async def pause(self, execution: str) -> bool:
        """Pause; return whether this changed anything."""

    async def resume(self, execution: str) -> bool:
        """Resume; return whether this changed anything."""

    async def cancel(self, execution: str, reason: str) -> str:
        """Cancel; return the final status."""

    async def retry(self, execution: str, *, failed_items: bool, key: str | None) -> str:
        """Retry; return the id of the new execution."""

    async def rerun(self, execution: str, node: str, *, item: str | None, key: str | None) -> str:
        """Rerun from a node; return the id of the new execution."""

    async def document(self, execution: str) -> dict[str, Any]:
        """The result of an execution, as printed by `rune show --json`."""

    async def status(self, execution: str) -> str:
        """The status of an execution, as printed by `rune list --json`."""

    async def waiting(self, execution: str) -> list[dict[str, Any]]:
        """The open nodes of an execution, as listed by `rune explain --json`."""

    async def events(self, execution: str) -> list[str]:
        """The kinds of all events, in order."""

    async def executions(self, workflow: str) -> list[str]:
        """The executions of a workflow, oldest first."""


class ExecutionView:
    """The read operations of an actor, on the store of the system under test."""

    def __init__(self, reader: ExecutionReader) -> None:
        self._reader = reader

    async def document(self, execution: str) -> dict[str, Any]:
        async with self._reader.snapshot():
            return as_written(await (await self._reader.history(execution)).document())

    async def status(self, execution: str) -> str:
        found = await self._reader.execution(execution)
        assert found is not None, f"unknown execution {execution}"
        return found.status

    async def waiting(self, execution: str) -> list[dict[str, Any]]:
        async with self._reader.snapshot():
            plan, state = await self._reader.state(execution, time.time_ns() // 1_000_000)
        found: list[dict[str, Any]] = msgspec.to_builtins(explain(plan, state))
        return found

    async def events(self, execution: str) -> list[str]:
        async with self._reader.snapshot():
            return [each.kind for each in await self._reader.events(execution)]

    async def executions(self, workflow: str) -> list[str]:
        async with self._reader.snapshot():
            found = await self._reader.executions(ExecutionFilter(workflow=workflow), limit=1000)
        return [each.id for each in reversed(found)]
