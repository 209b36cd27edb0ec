"""`rune waiting`: the nodes that wait for a signal."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from rune.cli.backend import CommandServices, query_api
from rune.cli.output import Cell, print_json, print_table
from rune.client import AsyncClient, models

PAGE_SIZE = 200


def waiting(
    workflow: Annotated[
        str | None, typer.Option("--workflow", "-w", help="Only executions of this workflow.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=100_000, help="Maximum number of results.")
    ] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """List the nodes that wait for a signal.

    Those of the newest executions come first. `rune signal` sends the signal. A node may have a title, a description,
    choices, and a schema of the value that it takes.

    Examples:
      rune waiting --workflow orders
      rune waiting --json
    """

    async def work(client: AsyncClient, services: CommandServices) -> int:
        found: list[models.WaitingSignal] = []
        async for each in client.waiting(workflow=workflow, page=min(limit, PAGE_SIZE)):
            found.append(each)
            if len(found) == limit:
                break
        return _print(found, as_json=as_json)

    raise typer.Exit(query_api(work, as_json=as_json, without_file=lambda: _print([], as_json=as_json)))


def _print(found: list[models.WaitingSignal], *, as_json: bool) -> int:
    if as_json:
        print_json({"waiting": msgspec.to_builtins(found)})
    elif not found:
        print("nothing waits for a signal")
    else:
        rows: list[list[Cell]] = [
            [
                each.execution_id,
                each.workflow_id,
                each.node_id,
                each.item or "",
                each.signal,
                each.since,
                each.until or "no timeout",
                each.title or "",
            ]
            for each in found
        ]
        print_table(("id", "workflow", "node", "item", "signal", "since", "until", "title"), rows)
    return 0
