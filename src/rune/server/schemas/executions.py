"""Executions, node runs and events as the API shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from rune.core.execution.explain import Waiting
from rune.core.execution.outcome import Error
from rune.core.start_keys import sent_key
from rune.ports.clock import iso
from rune.ports.journal import ExecutionRecord
from rune.ports.queries import Event, Frame, NodeRun, Summary
from rune.runtime.queries.history import details_of

if TYPE_CHECKING:
    pass
from rune.server.schemas.base import View, moment

MAX_INLINE_OUTPUT_BYTES = 64 * 1024  # larger outputs are left out of lists


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
    lineage: list[ItemView] | None = None
    attempt: int | None = None


class ExecutionView(View, frozen=True, kw_only=True):
    """An execution in a list."""

    execution_id: str
    workflow_id: str
    status: str
    error: ErrorView | None
    labels: dict[str, str]
    hash: str
    started_at: str
    completed_at: str | None
    total_duration_ms: int | None
    failed_items: int | None  # null until it has ended
    version: int | None  # null if its definition was not started as a deployed workflow
    alias: str | None  # the alias that selected the version; null if the start named the number


class ExecutionDetail(ExecutionView, frozen=True, kw_only=True):
    """An execution with all its details."""

    priority: int
    fake_time: bool
    key: str | None
    parent_id: str | None
    retry_of: str | None
    principal: str  # the key, the trigger or the parent execution that started it


class CountView(View, frozen=True, kw_only=True):
    """How many executions a filter selects, on all pages; an estimate unless `exact`."""

    value: int
    exact: bool


class ExecutionPage(View, frozen=True, kw_only=True):
    """A page of executions, newest first. A page may hold fewer than `limit` and still have a `next` cursor."""

    executions: list[ExecutionView]
    next: str | None
    count: CountView | None


class Started(View, frozen=True, kw_only=True):
    """An accepted execution. It is stored durably. `execution`: with `wait`, what it was when it had ended or the time
    was over."""

    execution_id: str
    workflow_id: str
    hash: str
    version: int | None
    alias: str | None
    started_at: str
    retry_of: str | None
    replayed: bool
    execution: ExecutionDetail | None = None


class RunView(View, frozen=True, kw_only=True):
    """A node run in one lineage. `output` is null if it is too large for a list; `output_bytes` is its size. `pinned`:
    the output was given, and the node was not called."""

    node_id: str
    lineage: list[Frame]
    status: str
    attempts: int
    output: msgspec.Raw
    output_bytes: int
    error: ErrorView | None
    started_at: str | None
    duration_ms: int
    pinned: bool


class RunPage(View, frozen=True, kw_only=True):
    """A page of node runs in the order they ended; skipped nodes come last."""

    nodes: list[RunView]
    next: str | None


class EventView(View, frozen=True, kw_only=True):
    """An event, numbered without gaps within its execution."""

    number: int
    at: str
    kind: str
    node_id: str | None
    lineage: tuple[Frame, ...]
    details: dict[str, Any]


class EventPage(View, frozen=True, kw_only=True):
    """A page of events; `next` is the value of `after` for the next page, or of `before` if the newest come first."""

    events: list[EventView]
    next: int | None


class Explanation(View, frozen=True, kw_only=True):
    """What an execution is waiting for. `expected_by`: when an open execution is late, or since when (epoch ms)."""

    execution_id: str
    workflow_id: str
    status: str
    error: ErrorView | None
    waiting: list[Waiting]
    expected_by: int | None


def error_view(error: Error | None) -> ErrorView | None:
    if error is None:
        return None
    view = ErrorView(code=error.code, message=error.message, details=details_of(error))
    origin = error.origin
    if origin is None:
        return view
    return msgspec.structs.replace(
        view,
        node_id=origin.node_id,
        node_type=origin.node_type,
        lineage=[ItemView(split_node_id=split, item_index=item) for split, item in origin.lineage],
        attempt=origin.attempt,
    )


def _fields(each: Summary) -> dict[str, Any]:
    return {
        "execution_id": each.id,
        "workflow_id": each.workflow,
        "status": each.status,
        "error": error_view(each.error),
        "labels": each.labels,
        "hash": each.hash,
        "started_at": moment(each.started_at),
        "completed_at": iso(each.ended_at),
        "total_duration_ms": each.ended_at - each.started_at if each.ended_at is not None else None,
        "failed_items": each.failed_items,
        "version": each.version,
        "alias": each.alias,
    }


def execution_view(each: Summary) -> ExecutionView:
    return ExecutionView(**_fields(each))


def execution_detail(each: Summary, accepted: ExecutionRecord) -> ExecutionDetail:
    return ExecutionDetail(
        **_fields(each),
        priority=accepted.priority,
        fake_time=accepted.fake_time,
        key=None if accepted.key is None else sent_key(accepted.key),
        parent_id=accepted.parent.execution if accepted.parent is not None else None,
        retry_of=accepted.retry_of,
        principal=accepted.principal,
    )


def started(
    accepted: ExecutionRecord, *, replayed: bool = False, execution: ExecutionDetail | None = None
) -> Started:
    return Started(
        execution_id=accepted.id,
        workflow_id=accepted.workflow,
        hash=accepted.hash,
        version=accepted.version,
        alias=accepted.alias,
        started_at=moment(accepted.at),
        retry_of=accepted.retry_of,
        replayed=replayed,
        execution=execution,
    )


def run_view(run: NodeRun, *, whole: bool = False) -> RunView:
    """Convert a node run; `whole` includes the output whatever its size."""
    output = b"null" if run.output is None else run.output
    size = len(output) if run.size is None else run.size
    shown = whole or size <= MAX_INLINE_OUTPUT_BYTES
    return RunView(
        node_id=run.node_id,
        lineage=list(run.lineage),
        status=run.status,
        attempts=run.attempts,
        output=msgspec.Raw(output if shown else b"null"),
        output_bytes=0 if run.output is None else size,
        error=error_view(run.error),
        started_at=iso(run.started_at),
        duration_ms=run.duration_ms,
        pinned=run.pinned,
    )


def event_view(event: Event) -> EventView:
    return EventView(
        number=event.number,
        at=moment(event.at),
        kind=event.kind,
        node_id=event.node_id,
        lineage=event.lineage,
        details=event.details,
    )
