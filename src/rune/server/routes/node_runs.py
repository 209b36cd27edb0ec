"""Routes for node runs, events and roll-ups of an execution."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from starlette.responses import Response

from rune.server.endpoints import RequestContext, Router
from rune.server.live.feed import SplitRollup
from rune.server.node_runs import NodeRunFilter
from rune.server.requests import Limit, Page
from rune.server.responses import Reply
from rune.server.routes.actions import Item
from rune.server.routes.executions import Id
from rune.server.schemas import EventPage, RunPage, View, run_view

runs = Router("executions")

RunStatus = Literal["success", "failed", "skipped", "cancelled"]


class RunQuery(Page, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filters of the list of node runs."""

    node: Id | None = None
    status: RunStatus | None = None
    lineage: Item | None = None


class LineageQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The item of a node run."""

    lineage: Item | None = None


class EventQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Page parameters of the events."""

    after: Annotated[int, Meta(ge=0, le=2**53, description="Only events after this number.")] = 0
    limit: Limit = 200


class RollupPage(View, frozen=True, kw_only=True):
    """The roll-ups of an execution, one per split that fanned out."""

    splits: list[SplitRollup]


@runs(
    "GET",
    "/executions/{execution}/nodes",
    "List node runs",
    permission="view",
    query=RunQuery,
    response=RunPage,
)
async def list_runs(call: RequestContext) -> Response:
    """In the order they ended. `lineage` selects an item and everything inside it."""
    query: RunQuery = call.query
    found, following = await call.server.node_runs.page(
        call.path["execution"],
        NodeRunFilter(node=query.node, status=query.status, lineage=query.lineage),
        cursor=query.cursor,
        limit=query.limit,
    )
    return Reply(RunPage(nodes=[run_view(each) for each in found], next=following))


@runs(
    "GET",
    "/executions/{execution}/nodes/{node}/output",
    "Get the output of a node",
    permission="view",
    query=LineageQuery,
    response=Any,
)
async def get_run_output(call: RequestContext) -> Response:
    """Whatever its size, in one lineage; null if the node has no output."""
    run = await call.server.node_runs.one(call.path["execution"], call.path["node"], call.query.lineage)
    return Reply(run.output or b"null")


@runs(
    "GET",
    "/executions/{execution}/history",
    "List events",
    permission="view",
    query=EventQuery,
    response=EventPage,
)
async def list_events(call: RequestContext) -> Response:
    """The same events with the same numbers as in the live stream."""
    query: EventQuery = call.query
    async with call.server.feeds.subscribe(call.path["execution"]) as feed:
        found = []
        if feed.holds(query.after):
            found = feed.newest(query.after)[: query.limit]
        else:
            async with call.server.feeds.backlogs:
                found = await feed.backlog(query.after, query.limit)
        more = bool(found) and found[-1].number < feed.last
    body = b",".join(each.data for each in found)
    following = b"%d" % found[-1].number if more else b"null"
    return Reply(b'{"events":[%b],"next":%b}' % (body, following))


@runs(
    "GET",
    "/executions/{execution}/rollups",
    "Get the roll-ups of the splits",
    permission="view",
    response=RollupPage,
)
async def get_rollups(call: RequestContext) -> Response:
    """Node counts by status, nodes per second and the first failures of each split."""
    async with call.server.feeds.subscribe(call.path["execution"]) as feed:
        return Reply(RollupPage(splits=feed.rollups().read()))
