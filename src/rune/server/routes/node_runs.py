"""Node runs and events of an execution, in pages."""

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
    """Which node runs are wanted."""

    node: Id | None = None
    status: RunStatus | None = None
    lineage: Item | None = None


class LineageQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """In which item."""

    lineage: Item | None = None


class EventQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which events are wanted."""

    after: Annotated[int, Meta(ge=0, le=2**53, description="Events behind this number.")] = 0
    limit: Limit = 200


class RollupPage(View, frozen=True, kw_only=True):
    """The roll-ups of an execution: one for each split that fanned out."""

    splits: list[SplitRollup]


@runs(
    "GET",
    "/executions/{execution}/nodes",
    "What became of the nodes",
    need="view",
    query=RunQuery,
    answer=RunPage,
)
async def list_runs(call: RequestContext) -> Response:
    """In the order they ended; of one lineage and what lies inside it, if that is named."""
    query: RunQuery = call.query
    found, following = await call.master.runs.page(
        call.path["execution"],
        NodeRunFilter(node=query.node, status=query.status, lineage=query.lineage),
        cursor=query.cursor,
        limit=query.limit,
    )
    return Reply(RunPage(nodes=[run_view(each) for each in found], next=following))


@runs(
    "GET",
    "/executions/{execution}/nodes/{node}/output",
    "The output of a node, however large",
    need="view",
    query=LineageQuery,
    answer=Any,
)
async def get_run_output(call: RequestContext) -> Response:
    """In one lineage; null where the node has none."""
    run = await call.master.runs.one(call.path["execution"], call.path["node"], call.query.lineage)
    return Reply(run.output or b"null")


@runs(
    "GET",
    "/executions/{execution}/history",
    "What happened, in pages",
    need="view",
    query=EventQuery,
    answer=EventPage,
)
async def list_events(call: RequestContext) -> Response:
    """The same events, with the same numbers, as the live stream."""
    query: EventQuery = call.query
    async with call.master.watches.subscribe(call.path["execution"]) as watch:
        found = []
        if watch.holds(query.after):
            found = watch.newest(query.after)[: query.limit]
        else:
            async with call.master.watches.backlogs:
                found = await watch.backlog(query.after, query.limit)
        more = bool(found) and found[-1].number < watch.last
    body = b",".join(each.data for each in found)
    following = b"%d" % found[-1].number if more else b"null"
    return Reply(b'{"events":[%b],"next":%b}' % (body, following))


@runs(
    "GET",
    "/executions/{execution}/rollups",
    "The items of each split in counts",
    need="view",
    answer=RollupPage,
)
async def get_rollups(call: RequestContext) -> Response:
    """How many nodes ended how, how fast, and the first that failed."""
    async with call.master.watches.subscribe(call.path["execution"]) as watch:
        return Reply(RollupPage(splits=watch.rollups().read()))
