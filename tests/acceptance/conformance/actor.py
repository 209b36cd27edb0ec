"""Whoever asks things of executions for a case. What is asked is the same everywhere; how it gets there is not."""

from __future__ import annotations

import time
from typing import Any, Protocol

import msgspec

from rune.core.execution.explain import explain
from rune.ports.queries import ExecutionFilter
from rune.runtime.queries.reader import ExecutionReader


class Refusal(Exception):
    """What was asked for was refused."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """A start: of a document, or of a stored workflow by its name."""

    source: str = ""
    workflow: str | None = None  # `name` or `name@which`
    input: str = "{}"
    key: str | None = None
    labels: dict[str, str] = {}
    priority: int | None = None
    fake_time: bool = False


class Actor(Protocol):
    """The verbs. Each raises Refusal."""

    async def deploy(self, source: str, alias: str | None) -> int:
        """Store a document; answers its version."""

    async def alias(self, workflow: str, alias: str, version: int) -> int:
        """Let an alias point at a version."""

    async def start(self, wanted: Start) -> str:
        """Start an execution; answers its id."""

    async def signal(
        self, execution: str, name: str, value: str, *, key: str | None, item: str | None
    ) -> bool:
        """Tell an execution something; answers whether somebody was waiting for it."""

    async def pause(self, execution: str) -> bool:
        """Answers whether it was not paused before."""

    async def resume(self, execution: str) -> bool:
        """Answers whether it was paused."""

    async def cancel(self, execution: str, reason: str) -> str:
        """Answers how it ended."""

    async def retry(self, execution: str, *, failed_items: bool, key: str | None) -> str:
        """Answers the id of the new execution."""

    async def rerun(self, execution: str, node: str, *, item: str | None, key: str | None) -> str:
        """Answers the id of the new execution."""

    async def document(self, execution: str) -> dict[str, Any]:
        """What became of an execution, as `rune show --json` prints it."""

    async def status(self, execution: str) -> str:
        """Where an execution is, as `rune list --json` prints it."""

    async def waiting(self, execution: str) -> list[dict[str, Any]]:
        """What of an execution is open, as `rune explain --json` lists it."""

    async def events(self, execution: str) -> list[str]:
        """The kinds of what happened, in order."""

    async def executions(self, workflow: str) -> list[str]:
        """The executions of a workflow, oldest first."""


class Look:
    """What anybody may see of executions, whoever runs them."""

    def __init__(self, reader: ExecutionReader) -> None:
        self._reader = reader

    async def document(self, execution: str) -> dict[str, Any]:
        async with self._reader.snapshot():
            return await (await self._reader.history(execution)).document()

    async def status(self, execution: str) -> str:
        found = await self._reader.execution(execution)
        assert found is not None, f"nobody knows {execution}"
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
