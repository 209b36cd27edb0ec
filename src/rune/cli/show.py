"""How an execution looks in a terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.json import JSON
from rich.table import Table

COLOURS = {
    "success": "green",
    "completed": "green",
    "failed": "red",
    "halted": "red",
    "skipped": "bright_black",
    "cancelled": "yellow",
    "running": "cyan",
}
MOST_ROWS = 40


def show_document(document: dict[str, Any]) -> None:
    """The nodes of an execution, its end, and its output."""
    console = Console()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("node", "item", "status", "attempts", "ms", "error"):
        table.add_column(column)
    nodes = document["nodes"]
    for node in nodes[:MOST_ROWS]:
        colour = COLOURS.get(node["status"], "white")
        item = "/".join(str(frame["item_index"]) for frame in node["lineage"])
        error = node["error"]["code"] + ": " + node["error"]["message"] if node["error"] else ""
        table.add_row(
            node["node_id"],
            item,
            f"[{colour}]{node['status']}[/]",
            str(node["attempts"] or ""),
            str(node["duration_ms"]),
            error,
        )
    console.print(table)
    if len(nodes) > MOST_ROWS:
        console.print(f"… and {len(nodes) - MOST_ROWS:,} more node runs", style="bright_black")
    colour = COLOURS.get(document["status"], "white")
    took = document["total_duration_ms"]
    console.print(f"\n[{colour}]{document['status']}[/] {document['execution_id']} in {took} ms")
    if document["error"]:
        console.print(f"[red]{document['error']['code']}[/]: {document['error']['message']}", markup=True)
    if document["output"] is not None:
        console.print(JSON.from_data(document["output"]))
