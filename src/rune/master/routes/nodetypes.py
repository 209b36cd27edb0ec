"""The catalogue: node types with the schemas of their parameters."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from rune.core.problem import did_you_mean
from rune.master.operation import Call, Resource
from rune.master.reply import Reply
from rune.master.views import View
from rune.nodes.described import describe, described
from rune.nodes.registry import UnknownNodeType

nodetypes = Resource("node types")


class NodeTypeView(View, frozen=True, kw_only=True):
    """One node type. `parameters` is a JSON Schema."""

    type: str
    aliases: list[str]
    summary: str
    doc: str
    output: str
    errors: dict[str, str]
    outlets: list[str]
    trigger: bool
    effectful: bool
    fans_out: bool
    gathers_items: bool
    waits: bool
    runnable: bool
    parameters: dict[str, Any]


class Catalogue(View, frozen=True, kw_only=True):
    """All node types."""

    nodes: list[NodeTypeView]


@nodetypes("GET", "/nodes", "List node types", need="view", answer=Catalogue)
async def list_types(call: Call) -> Response:
    """Each once, however many names it has."""
    return Reply(Catalogue(nodes=[NodeTypeView(**each) for each in described(call.master.engine.registry)]))


@nodetypes("GET", "/nodes/{type}", "One node type", need="view", answer=NodeTypeView)
async def get_type(call: Call) -> Response:
    """By its name, or one of its other names."""
    registry, name = call.master.engine.registry, call.path["type"]
    if name not in registry.catalogue:
        hint = did_you_mean(name, registry.catalogue)
        raise UnknownNodeType(f"no node type is called `{name}`; {hint}")
    return Reply(NodeTypeView(**describe(registry, registry.catalogue[name])))
