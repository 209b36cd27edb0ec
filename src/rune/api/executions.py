"""Executions, their events and what they wait for."""

from __future__ import annotations

from typing import Any

from rune.api.base import View, absent
from rune.core.execution.reasons import Waiting
from rune.core.execution.token import Frame

ENDED = frozenset({"completed", "failed", "halted", "cancelled"})


class ItemView(View, frozen=True, kw_only=True):
    """An item of a split."""

    split_node_id: str
    item_index: int


class ErrorView(View, frozen=True, kw_only=True, omit_defaults=True):
    """An error of a node or of an execution. That of an execution names the node run it comes from, if it comes from
    one. `details.traceback` of a node run is the traceback of a custom node."""

    code: str
    message: str
    details: Any = None
    node_id: str | None = None
    node_type: str | None = None
    lineage: tuple[ItemView, ...] | None = None
    attempt: int | None = None


class ExecutionView(View, frozen=True, kw_only=True):
    """An execution in a list."""

    execution_id: str
    workflow_id: str
    status: str
    error: ErrorView | None = absent(None)
    labels: dict[str, str] = absent({})
    hash: str
    started_at: str
    completed_at: str | None = absent(None)
    total_duration_ms: int | None = absent(None)
    failed_items: int | None = absent(None)  # null until it has ended
    version: int | None = absent(None)  # null if its definition was not started as a deployed workflow
    alias: str | None = absent(
        None
    )  # the alias that selected the version; null if the start named the number

    @property
    def ended(self) -> bool:
        return self.status in ENDED


class ExecutionDetail(ExecutionView, frozen=True, kw_only=True):
    """An execution with all its details."""

    priority: int = absent(5)
    fake_time: bool = absent(False)
    key: str | None = absent(None)
    parent_id: str | None = absent(None)
    retry_of: str | None = absent(None)
    principal: str = absent("")  # the key, the trigger or the parent execution that started it


class CountView(View, frozen=True, kw_only=True):
    """How many executions a filter selects, on all pages; an estimate unless `exact`."""

    value: int
    exact: bool


class ExecutionPage(View, frozen=True, kw_only=True):
    """A page of executions, newest first. A page may hold fewer than `limit` and still have a `next` cursor."""

    executions: list[ExecutionView]
    next: str | None = absent(None)
    count: CountView | None = absent(None)


class Started(View, frozen=True, kw_only=True):
    """An accepted execution. It is stored durably. `execution`: with `wait`, what it was when it had ended or the time
    was over."""

    execution_id: str
    workflow_id: str
    hash: str
    version: int | None = absent(None)
    alias: str | None = absent(None)
    started_at: str
    retry_of: str | None = absent(None)
    replayed: bool = absent(False)
    execution: ExecutionDetail | None = None


class ActionResultView(View, frozen=True, kw_only=True):
    """The result of an action; `changed` is false if the execution was already in that state."""

    execution_id: str
    status: str
    changed: bool


class SignalResultView(View, frozen=True, kw_only=True):
    """A stored signal; `resumed` is true if a node was waiting for it."""

    id: str
    resumed: bool


class Explanation(View, frozen=True, kw_only=True):
    """What an execution is waiting for. `expected_by`: when an open execution is late, or since when (epoch ms)."""

    execution_id: str
    workflow_id: str
    status: str
    error: ErrorView | None = absent(None)
    waiting: list[Waiting] = absent([])
    expected_by: int | None = absent(None)


class EventView(View, frozen=True, kw_only=True):
    """An event, numbered without gaps within its execution."""

    number: int
    at: str
    kind: str
    node_id: str | None = absent(None)
    lineage: tuple[Frame, ...] = absent(())
    details: dict[str, Any] = absent({})

    @property
    def ends(self) -> bool:
        return self.kind.startswith("execution.") and self.kind.removeprefix("execution.") in ENDED


class EventPage(View, frozen=True, kw_only=True):
    """A page of events; `next` is the value of `after` for the next page, or of `before` if the newest come first."""

    events: list[EventView]
    next: int | None = absent(None)
