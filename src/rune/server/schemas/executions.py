"""Executions, node runs and events as the API shows them."""

from __future__ import annotations

from typing import Any

import msgspec

from rune.api.executions import (
    ErrorView,
    EventView,
    ExecutionDetail,
    ExecutionView,
    ItemView,
    Started,
)
from rune.api.node_runs import RunView
from rune.core.execution.outcome import Error
from rune.core.start_keys import sent_key
from rune.ports.clock import iso, moment
from rune.ports.journal import ExecutionRecord
from rune.ports.queries import Event, NodeRun, Summary
from rune.runtime.queries.history import details_of

MAX_INLINE_OUTPUT_BYTES = 64 * 1024  # larger outputs are left out of lists


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
        lineage=tuple(ItemView(split_node_id=split, item_index=item) for split, item in origin.lineage),
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
        lineage=run.lineage,
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
