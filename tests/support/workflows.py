"""Compact workflow documents, node types that record their calls, and readers of run documents."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from rune.nodes.custom import NodeContext, kind_of, node
from rune.nodes.registry import Registry, standard_registry

Fields = dict[str, Any]


def workflow(edges: str, settings: Fields | None = None, **nodes: Fields) -> Fields:
    """Build a document from edges like `start>a a>b:true a!c`: plain, labelled, error. `start` is the trigger."""
    listed: list[Fields] = [{"id": "start", "type": "input"}]
    listed += [{"id": name, **fields} for name, fields in nodes.items()]
    document: Fields = {"id": "hazard", "nodes": listed, "edges": [_edge(each) for each in edges.split()]}
    return {**document, "settings": settings} if settings else document


def _edge(text: str) -> Fields:
    is_error = "!" in text
    source, _, rest = text.partition("!" if is_error else ">")
    target, _, label = rest.partition(":")
    edge: Fields = {"src": source, "dst": target}
    if label:
        edge["label"] = label
    return {**edge, "is_error": True} if is_error else edge


def chain(count: int, each: Fields) -> Fields:
    """Build a document with `count` equal nodes in a row, `n0`, `n1`, …"""
    names = [f"n{number}" for number in range(count)]
    edges = " ".join(f"{a}>{b}" for a, b in zip(["start", *names], names, strict=False))
    return workflow(edges, **dict.fromkeys(names, each))


def of_type(type: str, **parameters: Any) -> Fields:
    """Build a node of a type."""
    return {"type": type, "parameters": parameters} if parameters else {"type": type}


def edit(**values: Any) -> Fields:
    """Build a node whose output is an object with these values."""
    listed = [{"name": name, "value": value} for name, value in values.items()]
    return of_type("edit", mode="keep_only", assignments=listed)


def wait(amount: Any, unit: str = "hours") -> Fields:
    return of_type("wait", amount=amount, unit=unit)


def wait_for_signal(name: str = "go") -> Fields:
    return of_type("wait", resume="signal", name=name)


def fail(code: str = "BROKEN") -> Fields:
    return of_type("fail", message="failed on purpose", code=code)


def split(array: Any = "$trigger.items", **more: Any) -> Fields:
    return of_type("split", input_array=array, **more)


def recording_registry(calls: list[str]) -> Registry:
    """Return the standard node types and `t.call`, which appends its token's name to `calls`."""

    @node("t.call")
    async def call(ctx: NodeContext, fail: bool = False) -> dict[str, Any]:
        calls.append(ctx.idempotency_key.split(":", 1)[1])
        if fail:
            raise RuntimeError("failed on purpose")
        return {"did": ctx.node}

    found = kind_of(call)
    assert found is not None
    return standard_registry().extended([found])


def gated_registry(calls: list[str], gate: Callable[[], asyncio.Event]) -> Registry:
    """Return `recording_registry` and `t.gate`, which appends to `calls` and then waits for the event."""

    @node("t.gate")
    async def run(ctx: NodeContext) -> dict[str, Any]:
        calls.append(ctx.idempotency_key.split(":", 1)[1])
        await gate().wait()
        return {"did": ctx.node}

    found = kind_of(run)
    assert found is not None
    return recording_registry(calls).extended([found])


def node_entry(result: Fields, name: str, *items: int) -> Fields:
    """Return the entry of a node, inside of splits that of the given items."""
    found = [
        each
        for each in result["nodes"]
        if each["node_id"] == name and [frame["item_index"] for frame in each["lineage"]] == list(items)
    ]
    assert len(found) == 1, f"{len(found)} entries of {name} at {items}"
    only: Fields = found[0]
    return only


def node_status(result: Fields, name: str, *items: int) -> str:
    return str(node_entry(result, name, *items)["status"])


def success_count(result: Fields, name: str) -> int:
    """Count the successful entries of a node."""
    return sum(each["node_id"] == name and each["status"] == "success" for each in result["nodes"])
