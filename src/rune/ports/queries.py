"""The store answers questions about executions: what a list, a page of node runs and a stream of events need."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from rune.core.execution.outcome import Error

STATUSES = ("running", "paused", "completed", "failed", "halted", "cancelled")
"""What a list shows an execution to be."""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """One execution in a list."""

    id: str
    workflow: str
    hash: str
    status: str
    started_at: int
    ended_at: int | None = None
    error: Error | None = None
    labels: dict[str, str] = {}


class Frame(msgspec.Struct, frozen=True):
    """Which item of which split."""

    split_node_id: str
    branch_id: str
    item_index: int
    total_items: int


class NodeRun(msgspec.Struct, frozen=True, kw_only=True):
    """One node in one lineage, and what became of it. `output` is JSON text, or None."""

    node_id: str
    lineage: tuple[Frame, ...]
    status: str
    attempts: int = 0
    output: bytes | None = None
    error: Error | None = None
    started_at: int | None = None
    duration_ms: int = 0


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened, numbered without gaps within its execution."""

    number: int
    at: int
    kind: str
    node_id: str | None = None
    lineage: tuple[Frame, ...] = ()
    details: dict[str, Any] = {}


class ExecutionFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which executions are wanted."""

    status: str | None = None
    workflow: str | None = None


ALL_EXECUTIONS = ExecutionFilter()


class Executions(Protocol):
    """Executions as a list."""

    async def executions(
        self, wanted: ExecutionFilter = ALL_EXECUTIONS, *, after: str | None = None, limit: int = 50
    ) -> list[Summary]:
        """Newest first, behind a given id."""

    async def execution(self, execution: str) -> Summary | None:
        """One execution."""


class Store(Executions, Protocol):
    """Reads only."""

    async def node_runs(self, execution: str, *, after: int = 0, limit: int = 1000) -> list[NodeRun]:
        """A page of node runs in the order they ended."""

    async def events(self, execution: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        """Events behind a number."""
