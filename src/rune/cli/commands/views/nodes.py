"""`rune show --node` and `rune show --graph`: one node of an execution, and the states of all nodes and edges."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from rune.cli.backend import CommandServices, query_api, resolve_over
from rune.cli.output import COLOURS, Cell, by_status, clean, duration, paint, print_json, print_table
from rune.client import ApiError, AsyncClient, models


def show_node(given: str, node: str, item: str | None, *, as_json: bool) -> int:
    """Print what a node was called with, and its attempts."""

    async def work(client: AsyncClient, services: CommandServices) -> int:
        id = await resolve_over(client, given)
        attempts = await client.attempts(id, node, lineage=item)
        called = await _input(client, id, node, item)
        if as_json:
            document = {"execution_id": id, "node_id": node, "item": item}
            print_json({**document, "attempts": attempts, "input": called})
        else:
            _print_node(attempts, called)
        return 0

    return query_api(work, as_json=as_json)


async def _input(client: AsyncClient, execution: str, node: str, item: str | None) -> models.NodeInput | None:
    """Return what a node was called with; None if it has not been called."""
    try:
        return await client.node_input(execution, node, lineage=item)
    except ApiError as refused:
        if refused.status != 404:
            raise
        return None


def _print_node(attempts: list[models.Attempt], called: models.NodeInput | None) -> None:
    if not attempts:
        print("no attempts")
    else:
        print_table(
            ("attempt", "status", "started", "took", "worker", "error"),
            [_attempt_row(each) for each in attempts],
        )
    if called is None:
        print("\nIt has not been called.")
        return
    for title, value in (("payload", called.payload), ("parameters", called.parameters)):
        print(f"\n{paint(title, 'bold')}")
        print(json.dumps(value, ensure_ascii=False, indent=2))
    if called.error is not None:
        print(f"{paint(called.error.code, 'red')}: {clean(called.error.message)}")


def _attempt_row(each: models.Attempt) -> list[Cell]:
    error = "" if each.error is None else f"{each.error.code}: {each.error.message}"
    return [
        str(each.attempt),
        by_status(each.status),
        each.started_at,
        "" if each.duration_ms is None else duration(each.duration_ms),
        each.worker,
        (error, "red"),
    ]


def show_graph(given: str, item: str | None, at: int | None, *, as_json: bool) -> int:
    """Print the states of all nodes and edges."""

    async def work(client: AsyncClient, services: CommandServices) -> int:
        id = await resolve_over(client, given)
        found = await client.graph(id, lineage=item, at=at)
        if as_json:
            document: dict[str, Any] = msgspec.to_builtins(found)
            print_json({"execution_id": id, **document})
        else:
            _print_graph(id, found)
        return 0

    return query_api(work, as_json=as_json)


def _print_graph(execution: str, graph: models.Graph) -> None:
    print_table(
        ("node", "state", "attempts", "took", "items", "error"),
        [_node_row(name, each, graph.splits.get(name)) for name, each in graph.nodes.items()],
    )
    print()
    print_table(("edge", "state"), [[name, state] for name, state in graph.edges.items()])
    status = paint(graph.status, COLOURS.get(graph.status, ""))
    print(f"\n{status} {execution}, after event {graph.number:,}")


def _node_row(name: str, node: models.NodeState, split: models.SplitState | None) -> list[Cell]:
    counts = node.counts or (split.counts if split is not None else {})
    return [
        name,
        by_status(node.state),
        str(node.attempts) if node.attempts else "",
        "" if node.duration_ms is None else duration(node.duration_ms),
        ", ".join(f"{number:,} {state}" for state, number in counts.items()),
        (node.code, "red"),
    ]
