"""Aliases: names that point at versions, and weights that send a part of the starts elsewhere."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from rune.master.operation import Call, Resource
from rune.master.reply import Reply, etag, expected
from rune.master.views import View
from rune.ports.library import LATEST, Alias, unknown

aliases = Resource("workflows")

Number = Annotated[int, Meta(ge=1, le=2**53)]
Percent = Annotated[float, Meta(gt=0, le=100)]


class AliasBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where an alias points; with `weights` so many percent of the starts go to other versions. Left out, the version
    stays what it is."""

    version: Number | None = None
    weights: Annotated[dict[Number, Percent], Meta(max_length=16)] = {}


class AliasView(View, frozen=True, kw_only=True):
    """An alias. The starts that no weight takes go to `version`; `revision` counts its changes."""

    alias: str
    version: int
    weights: dict[int, float]
    revision: int


class AliasList(View, frozen=True, kw_only=True):
    """All aliases of a workflow."""

    aliases: list[AliasView]


@aliases(
    "GET", "/workflows/{workflow}/aliases", "List the aliases of a workflow", need="view", answer=AliasList
)
async def list_aliases(call: Call) -> Response:
    """With the version that each points at, and its weights."""
    found = await _all(call)
    return Reply(AliasList(aliases=[_view(each) for each in found]))


@aliases(
    "GET", "/workflows/{workflow}/aliases/{alias}", "One alias of a workflow", need="view", answer=AliasView
)
async def get_alias(call: Call) -> Response:
    """Where it points, and its weights."""
    return await _one(call)


@aliases(
    "PUT",
    "/workflows/{workflow}/aliases/{alias}",
    "Let an alias point at a version",
    need="edit",
    body=AliasBody,
    answer=AliasView,
    also={409: "It is not what `If-Match` says."},
    headers=("If-Match", "If-None-Match"),
    example={"version": 2, "weights": {"3": 10}},
)
async def put_alias(call: Call) -> Response:
    """Executions that run keep their version. Without weights a roll-out ends; going back is the same call."""
    body: AliasBody = call.body
    await call.master.desk.point(
        call.path["workflow"],
        call.path["alias"],
        body.version,
        weights=body.weights,
        expected=expected(call.header("if-match"), call.header("if-none-match")),
    )
    return await _one(call)


async def _all(call: Call) -> list[Alias]:
    workflow = call.path["workflow"]
    found = await call.master.engine.backend.library.aliases(workflow)
    if not found:
        raise unknown(workflow, (), LATEST)
    return found


async def _one(call: Call) -> Response:
    workflow, alias = call.path["workflow"], call.path["alias"]
    for each in await _all(call):
        if each.name == alias:
            return Reply(_view(each), headers={"ETag": etag(str(each.revision))})
    raise unknown(workflow, await call.master.reader.library.versions(workflow), alias)


def _view(each: Alias) -> AliasView:
    return AliasView(alias=each.name, version=each.number, weights=each.weights, revision=each.revision)
