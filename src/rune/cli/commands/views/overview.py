"""`rune stats` and `rune waiting`: figures of all executions, and what they wait for."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import msgspec
import typer

from rune.cli.arguments import ago
from rune.cli.backend import CommandServices, query_api
from rune.cli.output import COLOURS, Cell, by_status, duration, paint, print_json, print_table
from rune.client import AsyncClient, models
from rune.runtime.clock import iso


class Grouping(StrEnum):
    """What the executions are counted by."""

    status = "status"
    workflow = "workflow"
    both = "workflow,status"


class Step(StrEnum):
    """The length of a step."""

    minute = "1m"
    five_minutes = "5m"
    quarter = "15m"
    hour = "1h"
    six_hours = "6h"
    day = "1d"


def stats(
    by: Annotated[Grouping, typer.Option("--by", help="What to count by.")] = Grouping.status,
    workflow: Annotated[
        str | None,
        typer.Option("--workflow", "-w", help="Only this workflow, with its newest outcomes and durations."),
    ] = None,
    since: Annotated[
        str, typer.Option("--since", metavar="AGE", help="Count from this long ago: 30m, 2h, 7d.")
    ] = "1d",
    step: Annotated[
        Step, typer.Option("--step", help="Length of the periods that --json counts separately.")
    ] = Step.hour,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Count executions by status or workflow.

    Counts the executions that ended within --since and, separately, those that
    have not ended.

    Examples:
      rune stats --by workflow --since 7d --step 1d
      rune stats --workflow orders
    """

    async def work(client: AsyncClient, services: CommandServices) -> int:
        found = await client.stats(by=by.value, since=iso(ago(since)), step=step.value, workflow=workflow)
        activity = None if workflow is None else await client.activity(workflow)
        if as_json:
            more = {} if activity is None else {"activity": msgspec.to_builtins(activity)}
            print_json({**msgspec.to_builtins(found), **more})
        else:
            _print_stats(found, activity)
        return 0

    def nothing() -> int:
        empty: dict[str, Any] = {"groups": []}
        print_json(empty) if as_json else print("no executions")
        return 0

    raise typer.Exit(query_api(work, as_json=as_json, without_file=nothing))


def _print_stats(found: models.Stats, activity: models.WorkflowActivity | None) -> None:
    rows: list[list[Cell]] = [
        [each.workflow or "", by_status(each.status or ""), f"{each.total:,}", f"{each.open:,}"]
        for each in found.groups
    ]
    if rows:
        print_table(("workflow", "status", "ended", "not ended"), rows)
    else:
        print(f"no executions since {found.since}")
    if activity is None or not activity.outcomes:
        return
    marks = [paint(each.status, COLOURS.get(each.status, "")) for each in activity.outcomes]
    print(f"\nnewest  {', '.join(marks)}")
    if activity.p50_ms is not None and activity.p95_ms is not None:
        print(
            f"took    median {duration(activity.p50_ms)}, 95th percentile {duration(activity.p95_ms)}"
            f" (of the last {activity.measured:,})"
        )


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

    Nodes of the newest executions are listed first. `rune signal` sends the signal. A node may have a title, a
    description, choices, and a schema of the value that it takes.

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
        return _print_waits(found, as_json=as_json)

    raise typer.Exit(query_api(work, as_json=as_json, without_file=lambda: _print_waits([], as_json=as_json)))


def _print_waits(found: list[models.WaitingSignal], *, as_json: bool) -> int:
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
