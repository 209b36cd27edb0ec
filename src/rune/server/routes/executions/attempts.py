"""Routes for the attempts of node runs, their logs, and what a node was called with."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import Path, Query
from pydantic import Field
from starlette.responses import Response

from rune.core.execution.fact import Fact
from rune.ports.queries import Frame
from rune.runtime.clock import iso
from rune.runtime.queries.attempts import Attempt, AttemptReader, NodeLog
from rune.runtime.queries.history import History
from rune.runtime.queries.node_input import read_input
from rune.runtime.values import Cache, ExecutionData
from rune.server.access.auth import requires
from rune.server.context import ServerContext
from rune.server.responses import Reply
from rune.server.routes.executions.node_runs import LineageQuery
from rune.server.routing import ExecutionId, Id, NodeId, Omittable, QueryModel, Server, resource
from rune.server.schemas import ErrorView, View, error_view, moment
from rune.server.views.node_runs import NodeRunNotFoundError, parse_scope
from rune.server.views.value_parts import RunPartQuery, value_reply

attempts = resource("executions")

MAX_SCANNED = 2_000  # facts per request
INPUT_CACHE_BYTES = 32 * 1024 * 1024

AttemptNumber = Annotated[int, Path(ge=1, le=1_000_000, description="The number of an attempt, from 1.")]


class AttemptView(View, frozen=True, kw_only=True):
    """One attempt of a node run. `ended_at` is null while it runs or waits; `worker` is empty for nodes without
    effects, and so is `idempotency_key`, the key that every attempt sends with its effect."""

    attempt: int
    status: str
    started_at: str
    ended_at: str | None
    duration_ms: int | None
    error: ErrorView | None
    worker: str
    idempotency_key: str
    logged: bool


class AttemptList(View, frozen=True, kw_only=True):
    """The attempts of a node run, oldest first."""

    node_id: str
    lineage: list[Frame]
    attempts: list[AttemptView]


class LogLineView(View, frozen=True, kw_only=True):
    """A line of a log."""

    at: str
    level: str
    message: str


class LogView(View, frozen=True, kw_only=True):
    """The newest lines of an attempt, at most 64 KB, oldest first. `dropped` older ones are not kept."""

    node_id: str
    lineage: list[Frame]
    attempt: int
    dropped: int
    lines: list[LogLineView]
    position: int  # orders the logs of an execution


class NodeLogPage(View, frozen=True, kw_only=True):
    """A page of logs; `next` is the value of `after` for the next page."""

    logs: list[LogView]
    next: int | None


class InputView(View, frozen=True, kw_only=True):
    """What a node was called with, redacted. `parameters` is null if they cannot be resolved, `error` tells why."""

    node_id: str
    lineage: list[Frame]
    attempt: int
    payload: Any
    parameters: dict[str, Any] | None
    error: ErrorView | None


class LogQuery(QueryModel):
    """Filters of the logs of an execution."""

    node: Omittable[Id] = None
    after: Annotated[int, Field(ge=0, le=2**53, description="`next` of the previous page.")] = 0
    limit: Annotated[int, Field(ge=1, le=200, description="Maximum number of results.")] = 50


async def _place(
    server: ServerContext, execution: str, node: str, lineage: str | None
) -> tuple[AttemptReader, int, tuple[int, ...]]:
    reader = await server.reader.attempts(execution)
    index = reader.plan.index.get(node)
    if index is None:
        raise NodeRunNotFoundError(f"`{node}` is not a node of this execution")
    return reader, index, parse_scope(lineage, reader.plan)


@attempts.get(
    "/executions/{execution}/nodes/{node}/attempts",
    summary="List the attempts of a node",
    dependencies=[requires("view")],
    response_model=AttemptList,
)
async def list_attempts(
    execution: ExecutionId,
    node: NodeId,
    query: Annotated[LineageQuery, Query()],
    server: Server,
) -> Response:
    """In one lineage: when each attempt began and ended, its error, and the worker that ran it."""
    reader, index, path = await _place(server, execution, node, query.lineage)
    running = await server.engine.live.running(execution) if reader.plan.nodes[index].pure is False else None
    found = await reader.attempts(index, path, running.nodes if running is not None else ())
    return Reply(
        AttemptList(
            node_id=node,
            lineage=list(reader.history.lineage(path)),
            attempts=[_attempt_view(each, reader.idempotency_key(index, path)) for each in found],
        )
    )


@attempts.get(
    "/executions/{execution}/nodes/{node}/attempts/{attempt}/log",
    summary="Get the log of an attempt",
    dependencies=[requires("view")],
    response_model=LogView,
)
async def get_attempt_log(
    execution: ExecutionId,
    node: NodeId,
    attempt: AttemptNumber,
    query: Annotated[LineageQuery, Query()],
    server: Server,
) -> Response:
    """What the node logged in this attempt. While it runs, lines appear within about a second."""
    reader, index, path = await _place(server, execution, node, query.lineage)
    return Reply(_log_view(await reader.log(index, path, attempt), reader.history, 0))


@attempts.get(
    "/executions/{execution}/logs",
    summary="List the logs of an execution",
    dependencies=[requires("view")],
    response_model=NodeLogPage,
)
async def list_logs(execution: ExecutionId, query: Annotated[LogQuery, Query()], server: Server) -> Response:
    """The logs of all attempts that have ended, in the order they ended. A page may hold fewer than `limit`, because
    each request scans a limited number of facts; follow `next`."""
    reader = await server.reader.attempts(execution)
    node = None if query.node is None else reader.plan.index.get(query.node, -1)
    found: list[LogView] = []
    last, scanned = query.after, 0
    async for number, log in reader.logs(query.after, node):
        last, scanned = number, scanned + 1
        if log is not None:
            found.append(_log_view(log, reader.history, number))
        if len(found) == query.limit or scanned == MAX_SCANNED:
            return Reply(NodeLogPage(logs=found, next=last))
    return Reply(NodeLogPage(logs=found, next=None))


@attempts.get(
    "/executions/{execution}/nodes/{node}/input",
    summary="Get what a node was called with",
    dependencies=[requires("view")],
    response_model=InputView,
)
async def get_run_input(
    execution: ExecutionId,
    node: NodeId,
    query: Annotated[RunPartQuery, Query()],
    server: Server,
) -> Response:
    """The payload and the resolved parameters in one lineage, with secrets redacted. They are not stored but computed
    anew; an expression that the node evaluates itself for each element is shown as it is written. With `pointer`,
    `depth`, `offset` or `limit` a part of this document, as a `ValuePart`; with `find` matches in it, as
    `ValueMatches`."""
    reader, index, path = await _place(server, execution, node, query.lineage)
    facts: list[Fact] = []
    async for stored in server.reader.fact_batches(execution):
        facts += [each.fact for each in stored if not each.late]
    backend = server.engine.backend
    accepted = await server.reader.accepted(execution)
    plan = await server.engine.plans.plan(accepted.hash)
    data = ExecutionData(accepted, plan, backend.journal, backend.blob, Cache(INPUT_CACHE_BYTES))
    found = await read_input(data, facts, index, path, server.engine.evaluator)
    if found is None:
        raise NodeRunNotFoundError(f"`{node}` has not been called in this lineage")
    view = InputView(
        node_id=node,
        lineage=list(reader.history.lineage(path)),
        attempt=found.attempt,
        payload=found.payload,
        parameters=found.parameters,
        error=error_view(found.error),
    )
    return await value_reply(msgspec.json.encode(view), query)


def _attempt_view(each: Attempt, key: str) -> AttemptView:
    return AttemptView(
        attempt=each.attempt,
        status=each.status,
        started_at=moment(each.started_at),
        ended_at=iso(each.ended_at),
        duration_ms=None if each.ended_at is None else max(0, each.ended_at - each.started_at),
        error=error_view(each.error),
        worker=each.worker,
        idempotency_key=key,
        logged=each.logged,
    )


def _log_view(log: NodeLog, history: History, position: int) -> LogView:
    return LogView(
        node_id=history.plan.ids[log.node],
        lineage=list(history.lineage(log.path)),
        attempt=log.attempt,
        dropped=log.dropped,
        lines=[LogLineView(at=moment(each.at), level=each.level, message=each.message) for each in log.lines],
        position=position,
    )
