"""The route that returns an execution as a test, in the format of `rune test`."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from rune.runtime.queries.record import record_test
from rune.server.access.auth import requires
from rune.server.responses import Reply
from rune.server.routing import ExecutionId, Id, Item, Omittable, QueryModel, Server, resource

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
