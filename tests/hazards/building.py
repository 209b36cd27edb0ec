"""Short ways to say a workflow, to run it through the engine, and to look at what it did."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from rune.nodes.custom import NodeContext, kind_of, node
from rune.nodes.registry import Registry, standard_registry
from rune.testing.harness import Harness, run_document

Fields = dict[str, Any]
Ran = Callable[..., Fields]
"""A way to run a document to its end: here, or on a cluster."""
Opened = Callable[..., AbstractAsyncContextManager[Harness]]
"""A way to open an engine: here, or beside others."""


def workflow(edges: str, settings: Fields | None = None, **nodes: Fields) -> Fields:
    """`start>a a>b:true a!c`: an edge, one with a label, an error edge. `start` is the trigger."""
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


def in_a_row(count: int, each: Fields) -> Fields:
    """A workflow of so many nodes of one sort, n0 to the last, each behind the one before."""
    names = [f"n{number}" for number in range(count)]
    edges = " ".join(f"{a}>{b}" for a, b in zip(["start", *names], names, strict=False))
    return workflow(edges, **dict.fromkeys(names, each))


def kind(type: str, **parameters: Any) -> Fields:
    """A node of a type."""
    return {"type": type, "parameters": parameters} if parameters else {"type": type}


def sets(**values: Any) -> Fields:
    """A node whose output is an object of these values."""
    listed = [{"name": name, "value": value} for name, value in values.items()]
    return kind("edit", mode="keep_only", assignments=listed)


def waits(amount: Any, unit: str = "hours") -> Fields:
    return kind("wait", amount=amount, unit=unit)


def fails(code: str = "BROKEN") -> Fields:
    return kind("fail", message="told to", code=code)


def splits(array: Any = "$trigger.items", **more: Any) -> Fields:
    return kind("split", input_array=array, **more)


def counting(calls: list[str]) -> Registry:
    """The standard nodes, and `t.call`, whose effect is an entry in a list."""

    @node("t.call")
    async def call(ctx: NodeContext, fail: bool = False) -> dict[str, Any]:
        calls.append(ctx.idempotency_key.split(":", 1)[1])
        if fail:
            raise RuntimeError("told to fail")
        return {"did": ctx.node}

    found = kind_of(call)
    assert found is not None
    return standard_registry().extended([found])


def gated(calls: list[str], gate: Callable[[], asyncio.Event]) -> Registry:
    """Those, and `t.gate`, whose effect is an entry in a list and which then waits for an event."""

    @node("t.gate")
    async def run(ctx: NodeContext) -> dict[str, Any]:
        calls.append(ctx.idempotency_key.split(":", 1)[1])
        await gate().wait()
        return {"did": ctx.node}

    found = kind_of(run)
    assert found is not None
    return counting(calls).extended([found])


def ran(document: Fields, payload: Any = None, **options: Any) -> Fields:
    """The document of a run to its end; waits take no time."""
    return run_document(document, payload, **options)


def status(told: Fields, name: str, *indices: int) -> str:
    """What became of a node at these items."""
    return str(entry(told, name, *indices)["status"])


def entry(told: Fields, name: str, *indices: int) -> Fields:
    found = [
        each
        for each in told["nodes"]
        if each["node_id"] == name and [frame["item_index"] for frame in each["lineage"]] == list(indices)
    ]
    assert len(found) == 1, f"{len(found)} entries of {name} at {indices}"
    only: Fields = found[0]
    return only


def runs(told: Fields, name: str) -> int:
    """How often a node succeeded."""
    return sum(each["node_id"] == name and each["status"] == "success" for each in told["nodes"])


def value(expression: Any, payload: Any = None, **nodes: Fields) -> Any:
    """What an expression gives in the engine; the code of the failure if it fails."""
    edges = ["start>" + next(iter(nodes), "out"), *(f"{a}>out" for a in list(nodes)[-1:])]
    told = ran(workflow(" ".join(edges), **nodes, out=kind("output", value=expression)), payload)
    return told["output"] if told["status"] == "completed" else told["error"]["code"]
