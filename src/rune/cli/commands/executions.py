"""`rune list`, `rune show`, `rune explain` and `rune watch`: inspect executions. `rune stats` and `rune waiting`:
figures of all executions, and what they wait for.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from contextlib import aclosing
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from rune.cli.arguments import (
    Code,
    Failed,
    FailedItems,
    Labels,
    Parent,
    RetryOf,
    Since,
    StartedBy,
    Statuses,
    Stuck,
    Until,
    VersionNumber,
    Workflow,
    ago,
    labels_of,
    statuses_of,
)
from rune.cli.backend import (
    CommandReader,
    CommandServices,
    owner,
    owner_pid,
    query_api,
    read,
    resolve,
    waiting_of,
)
from rune.cli.live import RunningPoller, RunningPrinter, running_documents
from rune.cli.output import (
    COLOURS,
    EXIT,
    Cell,
    by_status,
    clean,
    count,
    duration,
    local_time,
    moment,
    origin_text,
    paint,
    print_document,
    print_event,
    print_json,
    print_open,
    print_table,
    until,
    version_text,
)
from rune.core.execution.fact import ExecutionEnded
from rune.ports.clock import iso
from rune.ports.queries import Event, ExecutionFilter, Summary, outcome_of
from rune.ports.workflows import choose
from rune.runtime.queries.history import error_document
from rune.runtime.queries.reader import ExecutionReader
from rune.settings import Settings

if TYPE_CHECKING:
    from rune.client import AsyncClient, models

PAGE_SIZE = 1_000
MIN_PAUSE_S = 0.1
PAUSE_FACTOR = 10  # a poll is followed by a pause this many times as long as the poll


def list_executions(
    status: Statuses = None,
    failed: Failed = False,
    failed_items: FailedItems = False,
    stuck: Stuck = False,
    workflow: Workflow = None,
    version: VersionNumber = None,
    label: Labels = None,
    since: Since = None,
    until: Until = None,
    code: Code = None,
    principal: StartedBy = None,
    parent: Parent = None,
    retry_of: RetryOf = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=100_000, help="Maximum number of results.")
    ] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """List executions, newest first.

    Examples:
      rune list --failed --limit 5
      rune list --workflow orders --version 3 --since 2h
      rune list --label customer=7
      rune list --code HTTP_TIMEOUT --since 1d --until 2h
    """
    if version is not None and workflow is None:
        raise typer.BadParameter("--version requires --workflow")

    async def work(reader: CommandReader, settings: Settings) -> int:
        hash = None
        if workflow is not None and version is not None:
            hash = choose(workflow, await reader.workflows.versions(workflow), str(version)).hash
        wanted = ExecutionFilter(
            statuses=statuses_of(status, failed=failed),
            workflow=workflow,
            hash=hash,
            failed_items=failed_items,
            stuck=stuck,
            labels=labels_of(tuple(label or ())),
            since=ago(since),
            until=ago(until),
            code=code,
            principal=principal,
            parent=parent,
            retry_of=retry_of,
        )
        found = await reader.executions(wanted, limit=limit)
        _print_summaries(found, as_json=as_json)
        return 0

    def empty() -> int:
        _print_summaries([], as_json=as_json)
        return 0

    raise typer.Exit(read(work, as_json=as_json, without_file=empty))


def _print_summaries(found: list[Summary], *, as_json: bool) -> None:
    if as_json:
        print_json({"executions": [_summary_document(each) for each in found]})
    elif not found:
        print("no executions")
    else:
        _print_table(found)


def _summary_document(each: Summary) -> dict[str, Any]:
    return {
        "execution_id": each.id,
        "workflow_id": each.workflow,
        "status": each.status,
        "error": error_document(each.error),
        "failed_items": each.failed_items,
        "labels": each.labels,
        "hash": each.hash,
        "version": each.version,
        "alias": each.alias,
        "started_at": iso(each.started_at),
        "completed_at": iso(each.ended_at),
        "total_duration_ms": each.ended_at - each.started_at if each.ended_at is not None else None,
    }


def _error_text(each: Summary) -> str:
    error = each.error
    if error is None:
        return f"{count(each.failed_items, 'item')} failed" if each.failed_items else ""
    node = "" if error.origin is None else f"{error.origin.node_id}: "
    return f"{node}{error.code}: {error.message}"


def _print_table(found: list[Summary]) -> None:
    rows = [
        [
            each.id,
            each.workflow,
            version_text(each.version, each.alias),
            by_status(each.status),
            moment(each.started_at),
            duration(each.ended_at - each.started_at) if each.ended_at is not None else "",
            " ".join(f"{key}={value}" for key, value in each.labels.items()),
            (_error_text(each), "red"),
        ]
        for each in found
    ]
    print_table(("id", "workflow", "version", "status", "started", "took", "labels", "error"), rows)


def show(
    execution: Annotated[str, typer.Argument(metavar="ID", help="Execution id, or a unique prefix of it.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document, the same as `rune run --json`.")
    ] = False,
    nodes: Annotated[
        int | None,
        typer.Option(
            "--nodes", min=0, help="Maximum number of node runs, in the order they ended.", show_default=False
        ),
    ] = None,
    node: Annotated[
        str | None,
        typer.Option("--node", metavar="NODE", help="Show the input and the attempts of this node instead."),
    ] = None,
    graph: Annotated[
        bool, typer.Option("--graph", help="Show the state of every node and edge instead.")
    ] = False,
    item: Annotated[
        str | None,
        typer.Option("--item", metavar="ITEM", help="With --node or --graph: in this item, such as users:5."),
    ] = None,
    at: Annotated[
        int | None,
        typer.Option("--at", metavar="N", min=0, help="With --graph: as it was after event number N."),
    ] = None,
) -> None:
    """Show the result of every node of an execution.

    While the execution runs, open nodes are listed with what they wait for.

    With --node: what the node was called with, secrets redacted, and each of
    its attempts. With --graph: the state of every node and edge. For a node
    inside a split it is the number of items in each state.

    Examples:
      rune show x019a --nodes 100
      rune show x019a --node charge --item orders:5
      rune show x019a --graph --at 12
    """
    if (node is None and not graph and item is not None) or (not graph and at is not None):
        raise typer.BadParameter("--item requires --node or --graph, --at requires --graph")
    if node is not None and graph:
        raise typer.BadParameter("--node and --graph exclude each other")
    if node is not None or graph:
        from rune.cli.commands.details import show_graph, show_node  # noqa: PLC0415 - rarely needed

        if node is not None:
            raise typer.Exit(show_node(execution, node, item, as_json=as_json))
        raise typer.Exit(show_graph(execution, item, at, as_json=as_json))

    async def work(reader: CommandReader, settings: Settings) -> int:
        return await _show(reader, settings, execution, nodes, as_json=as_json)

    raise typer.Exit(read(work, as_json=as_json))


async def _show(
    reader: CommandReader, settings: Settings, given: str, nodes: int | None, *, as_json: bool
) -> int:
    execution = await resolve(reader, given)
    document = await (await reader.history(execution)).document(not_reached=True)
    if as_json:
        document["nodes"] = document["nodes"][:nodes]
        print_json(document)
        return 0

    print_document(document, most=nodes)
    if document["completed_at"] is None:
        await _print_open(reader, settings, execution)
    return 0


async def _print_open(reader: CommandReader, settings: Settings, execution: str) -> None:
    now = time.time_ns() // 1_000_000
    _, waiting, _ = await waiting_of(reader, settings, execution, now)
    print()
    print_open(waiting, now)


def explain(
    execution: Annotated[str, typer.Argument(metavar="ID", help="Execution id, or a unique prefix of it.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Explain what an execution is waiting for.

    For each open node: the inputs that arrived, were skipped or are missing,
    and when the wait times out.

    Example: rune explain x019a
    """

    async def work(reader: CommandReader, settings: Settings) -> int:
        return await _explain(reader, settings, execution, as_json=as_json)

    raise typer.Exit(read(work, as_json=as_json))


async def _explain(reader: CommandReader, settings: Settings, given: str, *, as_json: bool) -> int:
    name = await resolve(reader, given)
    now = time.time_ns() // 1_000_000
    summary = await reader.execution(name)
    assert summary is not None
    paused, waiting, expected = await waiting_of(reader, settings, name, now)
    owned, _ = await owner(settings)
    if as_json:
        document = {
            "execution_id": name,
            "workflow_id": summary.workflow,
            "status": "paused" if paused else summary.status,
            "error": error_document(summary.error),
            "owner": owner_pid(settings),
            "waiting": [_waiting_document(each) for each in msgspec.to_builtins(waiting)],
            "expected_by": expected,
        }
        print_json(document)
        return 0
    _print_status(summary, paused=paused)
    if waiting:
        print_open(waiting, now)
    if expected is not None:
        print(
            f"It will be late {until(expected, now)}."
            if expected > now
            else f"It is late since {moment(expected)}."
        )
    if summary.ended_at is None and not owned:
        print(f"No process is running it now: it resumes with the next `{settings.runs_with}`.")
    return 0


def _waiting_document(waiting: dict[str, object]) -> dict[str, object]:
    """Include every field, also the empty ones that the encoding omits."""
    empty: dict[str, object] = {
        "arrived": [],
        "skipped": [],
        "missing": [],
        "due": None,
        "done": None,
        "total": None,
        "worker": None,
        "since": None,
        "attempt": None,
        "progress": None,
    }
    return {**empty, **waiting}


def _print_status(summary: Summary, *, paused: bool) -> None:
    status = "paused" if paused else summary.status
    took = f" after {duration(summary.ended_at - summary.started_at)}" if summary.ended_at is not None else ""
    print(f"{paint(status, COLOURS.get(status, ''))} {summary.id} ({clean(summary.workflow)}){took}")
    if summary.error:
        origin = origin_text(error_document(summary.error) or {})
        print(f"{paint(summary.error.code, 'red')}: {clean(summary.error.message)}{origin}")


def watch(
    execution: Annotated[str, typer.Argument(metavar="ID", help="Execution id, or a unique prefix of it.")],
    after: Annotated[int, typer.Option("--after", min=0, help="Start after the event with this number.")] = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document per event, each on a line.")
    ] = False,
) -> None:
    """Print the events of an execution until it ends.

    Events are numbered without gaps: --after continues where an earlier watch
    stopped. In between, lines without a number show which nodes run now and on
    which worker.

    Exit codes: 0 completed; 1 failed, halted or cancelled.

    Example: rune watch x019a --after 12 --json
    """

    async def work(reader: CommandReader, settings: Settings) -> int:
        return await _watch(reader, settings, execution, after, as_json=as_json)

    raise typer.Exit(read(work, as_json=as_json))


async def _watch(reader: CommandReader, settings: Settings, given: str, after: int, *, as_json: bool) -> int:
    name = await resolve(reader, given)
    running = RunningPrinter(as_json=as_json)
    if not isinstance(reader, ExecutionReader):  # a server streams the events
        async for event in reader.watch(name, after):
            if isinstance(event, Event):
                _print_event(event, as_json=as_json)
            else:
                running.show(**event)
        return EXIT[await reader.end(name)]
    async with aclosing(RunningPoller(settings, name)) as poller:
        return await _watch_stores(reader, settings, name, after, poller, running, as_json=as_json)


async def _watch_stores(
    reader: ExecutionReader,
    settings: Settings,
    name: str,
    after: int,
    poller: RunningPoller,
    running: RunningPrinter,
    *,
    as_json: bool,
) -> int:
    history = await reader.history(name, empty=True)
    if after < 1:
        _print_event(history.beginning, as_json=as_json)
    seen, noticed, change = 0, False, -1
    while True:
        before, change = change, await reader.version()
        began = time.perf_counter()
        if change != before:
            found_facts = await reader.facts(name, seen)
            await history.load_claims(found_facts)
            for stored in found_facts:
                seen = stored.number
                event = history.follow(stored)
                if event.number > after:
                    _print_event(event, as_json=as_json)
                if isinstance(stored.fact, ExecutionEnded):
                    return EXIT[stored.fact.status]
        if not noticed and not as_json:
            noticed = await _report_missing_owner(settings)
        found = await poller.poll()
        if found is not None:
            running.show(running_documents(found, history), iso(time.time_ns() // 1_000_000) or "")
        await asyncio.sleep(max(MIN_PAUSE_S, PAUSE_FACTOR * (time.perf_counter() - began)))


async def _report_missing_owner(settings: Settings) -> bool:
    owned, _ = await owner(settings)
    if not owned:
        print(
            f"No process is running it now: it resumes with the next `{settings.runs_with}`. Still watching.",
            file=sys.stderr,
        )
    return not owned


def _print_event(event: Event, *, as_json: bool) -> None:
    document = _event_document(event)
    if as_json:
        print_json(document)
    else:
        print_event(document)


def _event_document(event: Event) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(event)
    return document


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


def _stats_rows(groups: Sequence[models.StatsGroup]) -> list[list[Cell]]:
    """Return a row per workflow and status. Halted executions count as failed; how many of those are halted follows."""
    totals: dict[tuple[str, str], list[int]] = {}
    for each in groups:
        status = each.status or ""
        row = totals.setdefault((each.workflow or "", outcome_of(status)), [0, 0, 0])
        row[0] += each.total
        row[1] += each.open
        row[2] += each.total if status == "halted" else 0
    return [
        [workflow, by_status(status), f"{total:,}{f' ({halted:,} halted)' if halted else ''}", f"{open_:,}"]
        for (workflow, status), (total, open_, halted) in totals.items()
    ]


def _print_stats(found: models.Stats, activity: models.WorkflowActivity | None) -> None:
    rows = _stats_rows(found.groups)
    if rows:
        print_table(("workflow", "status", "ended", "not ended"), rows)
    else:
        print(f"no executions since {local_time(found.since)}")
    if activity is None or not activity.outcomes:
        return
    marks = [paint(each.status, COLOURS.get(each.status, "")) for each in activity.outcomes]
    print(f"\nnewest  {', '.join(marks)}")
    if activity.p50_ms is not None and activity.p95_ms is not None:
        print(
            f"took    median {duration(activity.p50_ms)}, 95th percentile {duration(activity.p95_ms)}"
            f" (of the last {activity.measured:,})"
        )


WAITS_PAGE_SIZE = 200


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
        async for each in client.waiting(workflow=workflow, page=min(limit, WAITS_PAGE_SIZE)):
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
                local_time(each.since),
                "no timeout" if each.until is None else local_time(each.until),
                each.title or "",
            ]
            for each in found
        ]
        print_table(("id", "workflow", "node", "item", "signal", "since", "until", "title"), rows)
    return 0
