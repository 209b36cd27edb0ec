"""Routes for the aliases of workflows."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import Body
from pydantic import BeforeValidator, Field
from starlette.responses import Response

from rune.ports.workflows import LATEST, Alias, workflow_not_found
from rune.server.access.auth import requires
from rune.server.context import ServerContext
from rune.server.responses import Reply, documented, etag, expected
from rune.server.routing import (
    AliasName,
    IfMatch,
    IfNoneMatch,
    JsonBody,
    Server,
    WorkflowId,
    example,
    resource,
)
from rune.server.schemas import View

aliases = resource("workflows")
_INTEGER = re.compile(r"[1-9][0-9]{0,18}")


def _number(key: str) -> int | str:
    return int(key) if _INTEGER.fullmatch(key) else key


Number = Annotated[int, Field(ge=1, le=2**53)]
NumberKey = Annotated[Number, BeforeValidator(_number)]  # keys of a JSON object are strings
Percent = Annotated[float, Field(gt=0, le=100)]


class AliasBody(JsonBody):
    """The target of an alias. `weights` send a percentage of the starts to other versions. Without `version` the alias
    keeps its version."""

    version: Number | None = None
    weights: Annotated[dict[NumberKey, Percent], Field(max_length=16)] = Field(default={})


class AliasView(View, frozen=True, kw_only=True):
    """An alias. Starts go to `version`, except for the percentages in `weights`; `revision` counts the changes."""

    alias: str
    version: int
    weights: dict[int, float]
    revision: int


class AliasList(View, frozen=True, kw_only=True):
    """The aliases of a workflow."""

    aliases: list[AliasView]


@aliases.get(
    "/workflows/{workflow}/aliases",
    summary="List the aliases of a workflow",
    dependencies=[requires("view")],
    response_model=AliasList,
)
async def list_aliases(workflow: WorkflowId, server: Server) -> Response:
    """Includes the version and the weights of each alias."""
    found = await _list_aliases(server, workflow)
    return Reply(AliasList(aliases=[_alias_view(each) for each in found]))


@aliases.get(
    "/workflows/{workflow}/aliases/{alias}",
    summary="Get an alias of a workflow",
    dependencies=[requires("view")],
    response_model=AliasView,
)
async def get_alias(
    workflow: WorkflowId,
    alias: AliasName,
    server: Server,
) -> Response:
    """Includes its version and weights."""
    return await _get_alias(server, workflow, alias)


@aliases.put(
    "/workflows/{workflow}/aliases/{alias}",
    summary="Point an alias at a version",
    dependencies=[requires("edit")],
    response_model=AliasView,
    responses=documented({409: "The precondition does not hold."}),
)
async def put_alias(
    workflow: WorkflowId,
    alias: AliasName,
    body: Annotated[AliasBody, Body(openapi_examples=example({"version": 2, "weights": {"3": 10}}))],
    server: Server,
    if_match: IfMatch = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Running executions keep their version. A request without weights ends a gradual roll-out."""
    await server.services.workflows.set_alias(
        workflow,
        alias,
        body.version,
        weights=body.weights,
        expected=expected(if_match, if_none_match),
    )
    return await _get_alias(server, workflow, alias)


async def _list_aliases(server: ServerContext, workflow: str) -> list[Alias]:
    found = await server.engine.backend.workflows.aliases(workflow)
    if not found:
        raise workflow_not_found(workflow, (), LATEST)
    return found


async def _get_alias(server: ServerContext, workflow: str, alias: str) -> Response:
    for each in await _list_aliases(server, workflow):
        if each.name == alias:
            return Reply(_alias_view(each), headers={"ETag": etag(str(each.revision))})
    raise workflow_not_found(workflow, await server.reader.workflows.versions(workflow), alias)


def _alias_view(each: Alias) -> AliasView:
    return AliasView(alias=each.name, version=each.number, weights=each.weights, revision=each.revision)
