"""The catalogue: node types with the schemas of their parameters."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from rune.core.nodetype import NodeType
from rune.core.problem import did_you_mean
from rune.master.operation import Call, Resource
from rune.master.reply import Reply
from rune.master.views import View
from rune.nodes.registry import Registry, UnknownNodeType

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
    runnable: bool
    parameters: dict[str, Any]


class Catalogue(View, frozen=True, kw_only=True):
    """All node types."""

    nodes: list[NodeTypeView]


@nodetypes("GET", "/nodes", "List node types", need="view", answer=Catalogue)
async def list_types(call: Call) -> Response:
    """Each once, however many names it has."""
    registry = call.master.engine.registry
    each = {found.name: found for found in registry.catalogue.values()}
    return Reply(Catalogue(nodes=[_view(registry, found) for found in each.values()]))


@nodetypes("GET", "/nodes/{type}", "One node type", need="view", answer=NodeTypeView)
async def get_type(call: Call) -> Response:
    """By its name, or one of its other names."""
    registry, name = call.master.engine.registry, call.path["type"]
    if name not in registry.catalogue:
        hint = did_you_mean(name, registry.catalogue)
        raise UnknownNodeType(f"no node type is called `{name}`; {hint}")
    return Reply(_view(registry, registry.catalogue[name]))


def _view(registry: Registry, each: NodeType) -> NodeTypeView:
    return NodeTypeView(
        type=each.name,
        aliases=list(each.aliases),
        summary=each.summary,
        doc=each.doc,
        output=each.output,
        errors=dict(each.errors),
        outlets=_outlets(each),
        trigger=each.trigger,
        effectful=_effectful(each),
        runnable=each.name in registry,
        parameters=dict(each.schema),
    )


def _outlets(each: NodeType) -> list[str]:
    """The outlets of a node that says nothing about them."""
    try:
        return list(each.outlets({}))
    except (KeyError, TypeError, ValueError):
        return []


def _effectful(each: NodeType) -> bool:
    try:
        return bool(each.effectful({}))
    except (KeyError, TypeError, ValueError):
        return False
