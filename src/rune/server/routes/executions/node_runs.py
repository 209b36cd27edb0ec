"""Routes for the node runs of an execution: pages of them, events, roll-ups and the graph, and the execution as a test.

Of one run: its attempts, their logs, and what the node was called with.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from fastapi import Path, Query
from pydantic import Field
from starlette.requests import Request

from rune.api.executions import EventPage
from rune.api.graphs import GraphState
from rune.api.live import RollupPage
from rune.api.node_runs import AttemptList, AttemptView, InputView, LogLineView, LogView, NodeLogPage, RunPage
from rune.ports.clock import iso, moment
from rune.ports.processes import RunningNode
from rune.ports.queries import Event
from rune.runtime.execution_data import ExecutionData
from rune.runtime.queries.history import History
from rune.runtime.queries.node_input import MAX_DECODED_BYTES, read_input
from rune.runtime.queries.overview import Overview
from rune.runtime.queries.reader import Attempt, AttemptReader, NodeLog
from rune.runtime.queries.record import record_test
from rune.runtime.queries.value_parts import JsonText
from rune.runtime.value_cache import Cache
from rune.server.context import ServerContext
from rune.server.live.feed import EncodedEvent
from rune.server.resource import Resource
from rune.server.responses import Reply
from rune.server.routing import ExecutionId, Id, Item, Limit, NodeId, Omittable, Page, QueryModel, Server
from rune.server.schemas.executions import error_view, run_view
from rune.server.views.graphs import graph_view, rollups_of
from rune.server.views.node_runs import NodeRunFilter, NodeRunNotFoundError, parse_scope
from rune.server.views.value_parts import RunPartQuery, value_reply

runs = Resource("executions")

RunStatus = Literal["success", "failed", "skipped", "cancelled", "not_reached"]

graphs = Resource("executions")

RUNNING_TIMEOUT_S = 0.1  # for the reports of the workers; what arrives later is sent by the live stream


class RunQuery(Page):
    """Filters of the list of node runs."""

    node: Omittable[Id] = None
    status: Omittable[RunStatus] = None
    lineage: Omittable[Item] = None


class LineageQuery(QueryModel):
    """The item of a node run."""

    lineage: Omittable[Item] = None


class EventQuery(QueryModel):
    """Filters and page parameters of the events."""

    after: Annotated[int, Field(ge=0, le=2**53, description="Only events after this number.")] = 0
    before: Omittable[
        Annotated[int, Field(ge=1, le=2**53, description="Only events before this number, newest first.")]
    ] = None
    kind: Omittable[
        Annotated[
            str, Field(pattern=r"^(execution|node)\.[a-z_]{1,40}$", description="Such as `node.failed`.")
        ]
    ] = None
    node: Omittable[Id] = None
    limit: Limit = 200

    @property
    def backwards(self) -> bool:
        return self.before is not None or self.kind is not None or self.node is not None

    def matches(self, event: Event) -> bool:
        return self.kind in (None, event.kind) and self.node in (None, event.node_id)


@runs.get("/executions/{execution}/nodes", requires="view")
async def list_node_runs(
    execution: ExecutionId,
    query: Annotated[RunQuery, Query()],
    server: Server,
) -> Reply[RunPage]:
    """List node runs.

    In the order they ended. `lineage` selects an item and everything inside it. Runs that had begun when the
    execution failed, halted or was cancelled are `cancelled`; `status=not_reached` lists the nodes without a run."""
    found, following = await server.node_runs.page(
        execution,
        NodeRunFilter(node=query.node, status=query.status, lineage=query.lineage),
        cursor=query.cursor,
        limit=query.limit,
    )
    return Reply(RunPage(nodes=[run_view(each) for each in found], next=following))


@runs.get("/executions/{execution}/nodes/{node}/output", requires="view")
async def get_node_output(
    execution: ExecutionId,
    node: NodeId,
    query: Annotated[RunPartQuery, Query()],
    server: Server,
) -> Reply[Any]:
    """Get the output of a node.

    Whatever its size, in one lineage; null if the node has no output. With `pointer`, `depth`, `offset` or `limit` a
    part of it, as a `ValuePart`; with `find` matches in it, as `ValueMatches`."""

    if not query.wanted:
        run = await server.node_runs.one(execution, node, query.lineage)
        return await value_reply(run.output or b"null", query)
    id = (await server.reader.accepted(execution)).id

    async def load() -> JsonText:
        return await server.node_runs.output(id, node, query.lineage, server.values)

    return await value_reply(await server.values.get((id, "output", node, query.lineage), load), query)


@runs.get("/executions/{execution}/history", requires="view")
async def list_execution_history(
    execution: ExecutionId,
    query: Annotated[EventQuery, Query()],
    server: Server,
) -> Reply[EventPage]:
    """List events.

    The same events with the same numbers as in the live stream. With `before`, `kind` or `node` they are listed
    newest first, and `next` is the value of `before` for the next page. A page with a filter may have fewer events than
    `limit`, or none, and still a `next`: a request looks at 20,000 events at most."""
    async with server.feeds.subscribe(execution) as feed:
        found: list[EncodedEvent] = []
        if query.backwards:
            async with server.feeds.backlogs:
                before = query.before or feed.last + 1
                found, following = await feed.backwards(before, query.after, query.limit, query.matches)
            return _event_page(found, following)
        if feed.holds(query.after):
            found = feed.newest(query.after)[: query.limit]
        else:
            async with server.feeds.backlogs:
                found = await feed.backlog(query.after, query.limit)
        more = bool(found) and found[-1].number < feed.last
    return _event_page(found, found[-1].number if more else None)


def _event_page(found: list[EncodedEvent], following: int | None) -> Reply[EventPage]:
    body = b",".join(each.data for each in found)
    return Reply(b'{"events":[%b],"next":%b}' % (body, b"null" if following is None else b"%d" % following))


@runs.get("/executions/{execution}/rollups", requires="view")
async def get_execution_rollups(execution: ExecutionId, server: Server) -> Reply[RollupPage]:
    """Get the roll-ups of the splits.

    The counts of each split, as in the graph, nodes per second, and the first failures."""
    overview, running = await _now(server, execution)
    return Reply(RollupPage(splits=rollups_of(overview, running, server.clock.now())))


async def _now(server: ServerContext, execution: str) -> tuple[Overview, Sequence[RunningNode]]:
    """Return the overview of an execution, and what workers run of it."""
    summary = await server.reader.execution(execution)
    if summary is None or summary.ended_at is not None:
        return await server.overviews.of(execution), ()
    overview, running = await asyncio.gather(
        server.overviews.of(execution), server.engine.live.running(execution, RUNNING_TIMEOUT_S)
    )
    return overview, running.nodes


class GraphQuery(QueryModel):
    """The item and the event to show."""

    lineage: Omittable[Item] = None
    at: Omittable[Annotated[int, Field(ge=1, le=2**53, description="Only events up to this number.")]] = None


@graphs.get("/executions/{execution}/graph", requires="view")
async def get_graph(
    execution: ExecutionId, query: Annotated[GraphQuery, Query()], server: Server, request: Request
) -> Reply[GraphState]:
    """Get the states of all nodes and edges.

    Now, with the nodes that workers run, or after event `at`. Nodes inside splits are counted by state; with
    `lineage` they have their state in that item. To follow an execution, read its graph once and then the events after
    `number`."""
    overviews = server.overviews
    lineage = parse_scope(query.lineage, await server.reader.plan(execution))
    if query.at is not None:
        async with server.reading.take(request):
            return Reply(graph_view(await overviews.at(execution, query.at), lineage))
    overview, running = await _now(server, execution)
    return Reply(graph_view(overview, lineage, running))


recording = Resource("executions")


class RecordQuery(QueryModel):
    """A node run that the test expects as well."""

    node: Omittable[Id] = None
    lineage: Omittable[Item] = None


@recording.get("/executions/{execution}/test", requires="view")
async def get_execution_test(
    execution: ExecutionId, query: Annotated[RecordQuery, Query()], server: Server, request: Request
) -> Reply[Any]:
    """Get an ended execution as a test.

    The test that `rune record` writes and `rune test` runs: the workflow, its input, mocks of nodes with effects,
    and the outcome. With `node`, also the result of this node, inside of splits in the item `lineage`."""
    registry = server.engine.registry
    async with server.reading.take(request):
        return Reply(
            await record_test(server.reader, registry, execution, node=query.node, item=query.lineage or "")
        )


attempts = Resource("executions")

MAX_SCANNED = 2_000  # facts per request
INPUT_CACHE_BYTES = 32 * 1024 * 1024

AttemptNumber = Annotated[int, Path(ge=1, le=1_000_000, description="The number of an attempt, from 1.")]


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


@attempts.get("/executions/{execution}/nodes/{node}/attempts", requires="view")
async def list_attempts(
    execution: ExecutionId,
    node: NodeId,
    query: Annotated[LineageQuery, Query()],
    server: Server,
) -> Reply[AttemptList]:
    """List the attempts of a node.

    In one lineage: when each attempt began and ended, its error, and the worker that ran it."""
    reader, index, path = await _place(server, execution, node, query.lineage)
    running = await server.engine.live.running(execution) if reader.plan.nodes[index].pure is False else None
    found = await reader.attempts(index, path, running.nodes if running is not None else ())
    return Reply(
        AttemptList(
            node_id=node,
            lineage=reader.history.lineage(path),
            attempts=[_attempt_view(each, reader.idempotency_key(index, path)) for each in found],
        )
    )


@attempts.get("/executions/{execution}/nodes/{node}/attempts/{attempt}/log", requires="view")
async def get_attempt_log(
    execution: ExecutionId,
    node: NodeId,
    attempt: AttemptNumber,
    query: Annotated[LineageQuery, Query()],
    server: Server,
) -> Reply[LogView]:
    """Get the log of an attempt.

    What the node logged in this attempt. While it runs, lines appear within about a second."""
    reader, index, path = await _place(server, execution, node, query.lineage)
    return Reply(_log_view(await reader.log(index, path, attempt), reader.history, 0))


@attempts.get("/executions/{execution}/logs", requires="view")
async def list_logs(
    execution: ExecutionId, query: Annotated[LogQuery, Query()], server: Server
) -> Reply[NodeLogPage]:
    """List the logs of an execution.

    The logs of all attempts that have ended, in the order they ended. A page may hold fewer than `limit`, because
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


@attempts.get("/executions/{execution}/nodes/{node}/input", requires="view")
async def get_run_input(
    execution: ExecutionId,
    node: NodeId,
    query: Annotated[RunPartQuery, Query()],
    server: Server,
) -> Reply[InputView]:
    """Get what a node was called with.

    The payload and the resolved parameters in one lineage, with secrets redacted. They are not stored but computed
    anew; an expression that the node evaluates itself for each element is shown as it is written. With `pointer`,
    `depth`, `offset` or `limit` a part of this document, as a `ValuePart`; with `find` matches in it, as
    `ValueMatches`."""
    reader, index, path = await _place(server, execution, node, query.lineage)
    if reader.plan.scopes.enclosing(index) != path[::2]:
        raise NodeRunNotFoundError(f"`{node}` is not called in this lineage")

    backend = server.engine.backend
    peek = partial(server.reader.open_state, now=server.clock.now(), peek=backend.state.peek)
    replayed = partial(server.reader.replayed, execution, peek=peek)
    accepted = await server.reader.accepted(execution)
    plan = await server.engine.plans.plan(accepted.hash)
    data = ExecutionData(
        accepted,
        plan,
        backend.journal,
        backend.blob,
        Cache(INPUT_CACHE_BYTES),
        max_decoded=MAX_DECODED_BYTES,
    )
    own = await backend.journal.facts_of_token(execution, index, path)
    found = await read_input(data, own, replayed, index, path, server.engine.evaluator)
    if found is None:
        raise NodeRunNotFoundError(f"`{node}` has not been called in this lineage")
    view = InputView(
        node_id=node,
        lineage=reader.history.lineage(path),
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
        lineage=history.lineage(log.path),
        attempt=log.attempt,
        dropped=log.dropped,
        lines=[LogLineView(at=moment(each.at), level=each.level, message=each.message) for each in log.lines],
        position=position,
    )
