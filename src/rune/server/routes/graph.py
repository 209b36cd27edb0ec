"""Routes for the graph of an execution and for the items of its splits."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from pydantic import Field
from starlette.responses import Response

from rune.server.auth import requires
from rune.server.graphs import GraphState, graph_view
from rune.server.node_runs import parse_scope
from rune.server.parameters import ExecutionId, Item
from rune.server.responses import Reply
from rune.server.routing import Omittable, QueryModel, Server, resource

graphs = resource("executions")


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
    """Now, or after event `at`. Nodes inside splits are counted by state; with `lineage` they have their state in that
    item. To follow an execution, read its graph once and then the events after `number`."""
    overviews = server.overviews
    lineage = parse_scope(query.lineage, await server.reader.plan(execution))
    if query.at is None:
        overview = await overviews.of(execution)
    else:
        overview = await overviews.at(execution, query.at)
    return Reply(graph_view(overview, lineage))
