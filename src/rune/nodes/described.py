"""Node types as documents: what people and programs are told of them."""

from __future__ import annotations

from typing import Any

from rune.core.nodetype import NodeType
from rune.nodes.registry import Registry


def described(registry: Registry) -> list[dict[str, Any]]:
    """Each type once, however many names it has."""
    known = {each.name: each for each in registry.catalogue.values()}
    return [describe(registry, each) for each in known.values()]


def describe(registry: Registry, each: NodeType) -> dict[str, Any]:
    """One of them. `parameters` is a JSON Schema; `outlets` and `effectful` are those of a node that says nothing about
    them."""
    return {
        "type": each.name,
        "aliases": list(each.aliases),
        "summary": each.summary,
        "doc": each.doc,
        "output": each.output,
        "errors": dict(each.errors),
        "outlets": _outlets(each),
        "trigger": each.trigger,
        "effectful": _effectful(each),
        "fans_out": each.fans_out,
        "gathers_items": each.joins_items,
        "waits": each.suspends,
        "runnable": each.name in registry,
        "parameters": dict(each.schema),
    }


def _outlets(each: NodeType) -> list[str]:
    try:
        return list(each.outlets({}))
    except (KeyError, TypeError, ValueError):
        return []


def _effectful(each: NodeType) -> bool:
    try:
        return bool(each.effectful({}))
    except (KeyError, TypeError, ValueError):
        return False
