"""Routes for node runs, events, roll-ups and the graph of an execution, and for the execution as a test."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from fastapi import Query
from pydantic import Field
from starlette.responses import Response

from rune.ports.queries import Event
from rune.runtime.queries.record import record_test
from rune.runtime.queries.value_parts import JsonText
from rune.server.access.auth import requires
from rune.server.live.feed import EncodedEvent, SplitRollup
from rune.server.responses import Reply
from rune.server.routing import (
    ExecutionId,
    Id,
    Item,
    Limit,
    NodeId,
    Omittable,
    Page,
    QueryModel,
    Server,
    resource,
)
from rune.server.schemas import EventPage, RunPage, View, run_view
from rune.server.views.graphs import GraphState, graph_view, rollups_of
from rune.server.views.node_runs import NodeRunFilter, parse_scope
from rune.server.views.value_parts import RunPartQuery, value_reply

runs = resource("executions")

RunStatus = Literal["success", "failed", "skipped", "cancelled", "not_reached"]

graphs = resource("executions")

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


class RollupPage(View, frozen=True, kw_only=True):
    """The roll-ups of an execution, one per split that fanned out."""

    splits: list[SplitRollup]


@runs.get(
    "/executions/{execution}/nodes",
    summary="List node runs",
    dependencies=[requires("view")],
    response_model=RunPage,
)
async def list_node_runs(
    execution: ExecutionId,
    query: Annotated[RunQuery, Query()],
    server: Server,
) -> Response:
    """In the order they ended. `lineage` selects an item and everything inside it. Runs that had begun when the
    execution failed, halted or was cancelled are `cancelled`; `status=not_reached` lists the nodes without a run."""
    found, following = await server.node_runs.page(
        execution,
        NodeRunFilter(node=query.node, status=query.status, lineage=query.lineage),
        cursor=query.cursor,
        limit=query.limit,
    )
    return Reply(RunPage(nodes=[run_view(each) for each in found], next=following))


@runs.get(
    "/executions/{execution}/nodes/{node}/output",
    summary="Get the output of a node",
    dependencies=[requires("view")],
)
async def get_node_output(
    execution: ExecutionId,
    node: NodeId,
    query: Annotated[RunPartQuery, Query()],
    server: Server,
) -> Response:
    """Whatever its size, in one lineage; null if the node has no output. With `pointer`, `depth`, `offset` or `limit` a
    part of it, as a `ValuePart`; with `find` matches in it, as `ValueMatches`."""

    if not query.wanted:
        run = await server.node_runs.one(execution, node, query.lineage)
        return await value_reply(run.output or b"null", query)
    id = (await server.reader.accepted(execution)).id

    async def load() -> JsonText:
        return await server.node_runs.output(id, node, query.lineage, server.values)

    return await value_reply(await server.values.get((id, "output", node, query.lineage), load), query)


@runs.get(
    "/executions/{execution}/history",
    summary="List events",
    dependencies=[requires("view")],
    response_model=EventPage,
)
async def list_execution_history(
    execution: ExecutionId,
    query: Annotated[EventQuery, Query()],
    server: Server,
) -> Response:
    """The same events with the same numbers as in the live stream. With `before`, `kind` or `node` they are listed
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


def _event_page(found: list[EncodedEvent], following: int | None) -> Response:
    body = b",".join(each.data for each in found)
    return Reply(b'{"events":[%b],"next":%b}' % (body, b"null" if following is None else b"%d" % following))


@runs.get(
    "/executions/{execution}/rollups",
    summary="Get the roll-ups of the splits",
    dependencies=[requires("view")],
    response_model=RollupPage,
)
async def get_execution_rollups(execution: ExecutionId, server: Server) -> Response:
    """Node counts by status, nodes per second and the first failures of each split."""
    summary = await server.reader.execution(execution)
    if summary is not None and summary.ended_at is not None:
        return Reply(RollupPage(splits=rollups_of(await server.overviews.of(execution))))
    async with server.feeds.subscribe(execution) as feed:
        return Reply(RollupPage(splits=feed.rollups().read()))


class GraphQuery(QueryModel):
    """The item and the event to show."""

    lineage: Omittable[Item] = None
    at: Omittable[Annotated[int, Field(ge=1, le=2**53, description="Only events up to this number.")]] = None


@graphs.get(
    "/executions/{execution}/graph",
    summary="Get the states of all nodes and edges",
    dependencies=[requires("view")],
    response_model=GraphState,
)
async def get_graph(
    execution: ExecutionId, query: Annotated[GraphQuery, Query()], server: Server
) -> Response:
    """Now, with the nodes that workers run, or after event `at`. Nodes inside splits are counted by state; with
    `lineage` they have their state in that item. To follow an execution, read its graph once and then the events after
    `number`."""
    overviews = server.overviews
    lineage = parse_scope(query.lineage, await server.reader.plan(execution))
    summary = None if query.at is not None else await server.reader.execution(execution)
    if summary is None or summary.ended_at is not None:
        overview = await (overviews.of(execution) if query.at is None else overviews.at(execution, query.at))
        return Reply(graph_view(overview, lineage))
    overview, running = await asyncio.gather(
        overviews.of(execution), server.engine.live.running(execution, RUNNING_TIMEOUT_S)
    )
    return Reply(graph_view(overview, lineage, running.nodes))


recording = resource("executions")


class RecordQuery(QueryModel):
    """A node run that the test expects as well."""

    node: Omittable[Id] = None
    lineage: Omittable[Item] = None


@recording.get(
    "/executions/{execution}/test",
    summary="Get an ended execution as a test",
    dependencies=[requires("view")],
)
async def get_execution_test(
    execution: ExecutionId, query: Annotated[RecordQuery, Query()], server: Server
) -> Response:
    """The test that `rune record` writes and `rune test` runs: the workflow, its input, mocks of nodes with effects,
    and the outcome. With `node`, also the result of this node, inside of splits in the item `lineage`."""
    registry = server.engine.registry
    return Reply(
        await record_test(server.reader, registry, execution, node=query.node, item=query.lineage or "")
    )
