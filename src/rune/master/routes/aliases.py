"""Aliases: names that point at versions, and weights that send a part of the starts elsewhere."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from rune.master.operation import Call, Resource
from rune.master.reply import Reply
from rune.master.service import Master
from rune.master.views import View
from rune.ports.library import LATEST, choose, unknown

aliases = Resource("workflows")

Number = Annotated[int, Meta(ge=1, le=2**53)]
Percent = Annotated[float, Meta(gt=0, le=100)]


class AliasBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where an alias points; with `weights` so many percent of the starts go to other versions. Left out, the version
    stays what it is."""

    version: Number | None = None
    weights: Annotated[dict[Number, Percent], Meta(max_length=16)] = {}


class AliasView(View, frozen=True, kw_only=True):
    """An alias. The starts that no weight takes go to `version`."""

    alias: str
    version: int
    weights: dict[int, float]


class AliasList(View, frozen=True, kw_only=True):
    """All aliases of a workflow."""

    aliases: list[AliasView]


@aliases("GET", "/workflows/{workflow}/aliases", "List the aliases of a workflow", answer=AliasList)
async def list_aliases(call: Call) -> Response:
    """With the version that each points at."""
    workflow = call.path["workflow"]
    versions = await call.master.reader.library.versions(workflow)
    if not versions:
        raise unknown(workflow, (), LATEST)
    named = sorted((name, each.number) for each in versions for name in each.aliases)
    found = [await _view(call.master, workflow, name, number) for name, number in named]
    return Reply(AliasList(aliases=found))


@aliases("GET", "/workflows/{workflow}/aliases/{alias}", "One alias of a workflow", answer=AliasView)
async def get_alias(call: Call) -> Response:
    """Where it points, and its weights."""
    workflow, alias = call.path["workflow"], call.path["alias"]
    version = choose(workflow, await call.master.reader.library.versions(workflow), alias)
    return Reply(await _view(call.master, workflow, alias, version.number))


@aliases(
    "PUT",
    "/workflows/{workflow}/aliases/{alias}",
    "Let an alias point at a version",
    need="edit",
    body=AliasBody,
    answer=AliasView,
    example={"version": 2, "weights": {"3": 10}},
)
async def put_alias(call: Call) -> Response:
    """Executions that run keep their version. Without weights a roll-out ends; going back is the same call."""
    workflow, alias, body = call.path["workflow"], call.path["alias"], call.body
    master = call.master
    async with master.editing(workflow):
        number = body.version
        if number is None:
            number = (await master.engine.backend.library.find(workflow, alias)).number
        master.rollouts.check(alias, body.weights)
        for each in body.weights:
            await master.engine.backend.library.find(workflow, str(each))
        await master.desk.point(workflow, alias, number)
        if body.weights or await master.rollouts.find(workflow, alias) is not None:
            await master.rollouts.put(workflow, alias, body.weights)
    return Reply(AliasView(alias=alias, version=number, weights=dict(body.weights)))


async def _view(master: Master, workflow: str, alias: str, number: int) -> AliasView:
    rollout = await master.rollouts.find(workflow, alias)
    return AliasView(alias=alias, version=number, weights=dict(rollout.weights) if rollout else {})
