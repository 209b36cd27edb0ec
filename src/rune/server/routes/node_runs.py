"""Routes for node runs, events and roll-ups of an execution."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Query
from pydantic import Field
from starlette.responses import Response

from rune.server.auth import requires
from rune.server.graphs import rollups_of
from rune.server.live.feed import SplitRollup
from rune.server.node_runs import NodeRunFilter
from rune.server.parameters import ExecutionId, Id, Item, NodeId
from rune.server.responses import Reply
from rune.server.routing import Limit, Omittable, Page, QueryModel, Server, resource
from rune.server.schemas import EventPage, RunPage, View, run_view

runs = resource("executions")

RunStatus = Literal["success", "failed", "skipped", "cancelled", "not_reached"]


class RunQuery(Page):
    """Filters of the list of node runs."""

    node: Omittable[Id] = None
    status: Omittable[RunStatus] = None
    lineage: Omittable[Item] = None


class LineageQuery(QueryModel):
    """The item of a node run."""

    lineage: Omittable[Item] = None


class EventQuery(QueryModel):
    """Page parameters of the events."""

    after: Annotated[int, Field(ge=0, le=2**53, description="Only events after this number.")] = 0
    limit: Limit = 200


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
    query: Annotated[LineageQuery, Query()],
    server: Server,
) -> Response:
    """Whatever its size, in one lineage; null if the node has no output."""
    run = await server.node_runs.one(execution, node, query.lineage)
    return Reply(run.output or b"null")


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
    """The same events with the same numbers as in the live stream."""
    async with server.feeds.subscribe(execution) as feed:
        found = []
        if feed.holds(query.after):
            found = feed.newest(query.after)[: query.limit]
        else:
            async with server.feeds.backlogs:
                found = await feed.backlog(query.after, query.limit)
        more = bool(found) and found[-1].number < feed.last
    body = b",".join(each.data for each in found)
    following = b"%d" % found[-1].number if more else b"null"
    return Reply(b'{"events":[%b],"next":%b}' % (body, following))


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
