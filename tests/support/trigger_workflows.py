"""Workflows with triggers."""

from __future__ import annotations

from typing import Any


def schedule_workflow(*, id: str = "report", waits: bool = False, **parameters: Any) -> dict[str, Any]:
    """Return a workflow with a schedule; with `waits` it waits for the signal `go`."""
    nodes: list[dict[str, Any]] = [{"id": "clock", "type": "schedule", "parameters": parameters}]
    edges = []
    if waits:
        nodes.append({"id": "w", "type": "wait", "parameters": {"resume": "signal", "name": "go"}})
        edges.append({"src": "clock", "dst": "w"})
    nodes.append({"id": "out", "type": "output", "parameters": {"value": "{{ $trigger.scheduled_at }}"}})
    edges.append({"src": nodes[-2]["id"], "dst": "out"})
    return {"id": id, "nodes": nodes, "edges": edges}


def webhook_workflow(
    *, id: str = "orders", credentials: str | None = None, **parameters: Any
) -> dict[str, Any]:
    """Return a workflow with a webhook."""
    node: dict[str, Any] = {"id": "in", "type": "webhook", "parameters": parameters}
    if credentials is not None:
        node["credentials"] = {"name": credentials}
    return {
        "id": id,
        "nodes": [node, {"id": "out", "type": "output", "parameters": {"value": "{{ $trigger.body }}"}}],
        "edges": [{"src": "in", "dst": "out"}],
    }
