"""`rune list`: the executions in the file.

`rune show`: one execution, ended or not.

`rune explain`: why an execution is where it is.

`rune watch`: the events of an execution, as they happen.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rune.ports.queries import Event, Summary
    from rune.runtime.queries.reader import ExecutionReader
    from rune.settings import Settings


class Status(StrEnum):
    """What an execution may be."""

    running = "running"
    paused = "paused"
    completed = "completed"
    failed = "failed"
    halted = "halted"
    cancelled = "cancelled"


def list_executions(
    status: Annotated[
        Status | None, typer.Option("--status", "-s", help="Only those with this status.")
    ] = None,
    workflow: Annotated[
        str | None, typer.Option("--workflow", "-w", help="Only those of this workflow.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=100_000, help="At most so many.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """List executions, newest first.

    Example: rune list --status failed --limit 5
    """
    from rune.cli.backend import read
    from rune.ports.queries import ExecutionFilter

    async def work(reader: ExecutionReader, settings: Settings) -> int:
        wanted = ExecutionFilter(status=status.value if status else None, workflow=workflow)
        _print_summaries(await reader.executions(wanted, limit=limit), as_json=as_json)
        return 0

    def empty() -> int:
        _print_summaries([], as_json=as_json)
        return 0

    raise typer.Exit(read(work, as_json=as_json, without_file=empty))


def _print_summaries(found: list[Summary], *, as_json: bool) -> None:
    if as_json:
        from rune.cli.output import print_json

        print_json({"executions": [_summary_document(each) for each in found]})
    elif not found:
        print("no executions")
    else:
        _print_table(found)


def _summary_document(each: Summary) -> dict[str, Any]:
    from rune.runtime.queries.history import error_document, iso

    return {
        "execution_id": each.id,
        "workflow_id": each.workflow,
        "status": each.status,
        "error": error_document(each.error),
        "labels": each.labels,
        "hash": each.hash,
        "started_at": iso(each.started_at),
        "completed_at": iso(each.ended_at),
        "total_duration_ms": each.ended_at - each.started_at if each.ended_at is not None else None,
    }


def _print_table(found: list[Summary]) -> None:
    from rune.cli.output import by_status, duration, moment, print_table

    rows = [
        [
            each.id,
            each.workflow,
            by_status(each.status),
            moment(each.started_at),
            duration(each.ended_at - each.started_at) if each.ended_at is not None else "",
            " ".join(f"{key}={value}" for key, value in each.labels.items()),
            (f"{each.error.code}: {each.error.message}" if each.error else "", "red"),
        ]
        for each in found
    ]
    print_table(("id", "workflow", "status", "started", "took", "labels", "error"), rows)


def show(
    execution: Annotated[
        str, typer.Argument(metavar="ID", help="An execution; the beginning of its id is enough.")
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the document that `rune run --json` prints.")
    ] = False,
    nodes: Annotated[
        int | None,
        typer.Option(
            "--nodes", min=0, help="List so many node runs, in the order they ended.", show_default=False
        ),
    ] = None,
) -> None:
    """Show what became of every node of an execution, and what is still open.

    Example: rune show x019a --nodes 100
    """
    from rune.cli.backend import read

    async def work(reader: ExecutionReader, settings: Settings) -> int:
        return await _show(reader, execution, nodes, as_json=as_json)

    raise typer.Exit(read(work, as_json=as_json))


async def _show(reader: ExecutionReader, given: str, nodes: int | None, *, as_json: bool) -> int:
    from rune.cli.backend import resolve
    from rune.cli.output import print_json

    execution = await resolve(reader, given)
    document = await (await reader.history(execution)).document()
    if as_json:
        document["nodes"] = document["nodes"][:nodes]
        print_json(document)
        return 0
    from rune.cli.output import print_document

    print_document(document, most=nodes)
    if document["completed_at"] is None:
        await _print_open(reader, execution)
    return 0


async def _print_open(reader: ExecutionReader, execution: str) -> None:
    import time

    from rune.cli.backend import waiting_of
    from rune.cli.output import print_open

    now = time.time_ns() // 1_000_000
    _, waiting = await waiting_of(reader, execution, now)
    print()
    print_open(waiting, now)


def explain(
    execution: Annotated[
        str, typer.Argument(metavar="ID", help="An execution; the beginning of its id is enough.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Say what an execution waits for: who arrived, who was skipped, who is missing, when it times out.

    Example: rune explain x019a
    """
    from rune.cli.backend import read

    async def work(reader: ExecutionReader, settings: Settings) -> int:
        return await _explain(reader, settings, execution, as_json=as_json)

    raise typer.Exit(read(work, as_json=as_json))


async def _explain(reader: ExecutionReader, settings: Settings, given: str, *, as_json: bool) -> int:
    import time

    import msgspec

    from rune.cli.backend import owner, owner_pid, resolve, waiting_of
    from rune.cli.output import print_json
    from rune.runtime.queries.history import error_document

    name = await resolve(reader, given)
    now = time.time_ns() // 1_000_000
    summary = await reader.execution(name)
    assert summary is not None
    paused, waiting = await waiting_of(reader, name, now)
    owned, _ = await owner(settings)
    if as_json:
        document = {
            "execution_id": name,
            "workflow_id": summary.workflow,
            "status": "paused" if paused else summary.status,
            "error": error_document(summary.error),
            "owner": owner_pid(settings),
            "waiting": [_waiting_document(each) for each in msgspec.to_builtins(waiting)],
        }
        print_json(document)
        return 0
    _print_status(summary, paused=paused)
    if waiting:
        from rune.cli.output import print_open

        print_open(waiting, now)
    if summary.ended_at is None and not owned:
        print(f"No process runs it now: it goes on with the next `{settings.runs_with}`.")
    return 0


def _waiting_document(waiting: dict[str, object]) -> dict[str, object]:
    """Every field, so that a reader need not know which are left out when empty."""
    empty: dict[str, object] = {
        "arrived": [],
        "skipped": [],
        "missing": [],
        "due": None,
        "done": None,
        "total": None,
    }
    return {**empty, **waiting}


def _print_status(summary: Summary, *, paused: bool) -> None:
    from rune.cli.output import COLOURS, clean, duration, paint

    status = "paused" if paused else summary.status
    took = f" after {duration(summary.ended_at - summary.started_at)}" if summary.ended_at is not None else ""
    print(f"{paint(status, COLOURS.get(status, ''))} {summary.id} ({clean(summary.workflow)}){took}")
    if summary.error:
        print(f"{paint(summary.error.code, 'red')}: {clean(summary.error.message)}")


MIN_PAUSE_S = 0.1  # s
SHARE = 10  # a look at the file is followed by a pause this many times as long


def watch(
    execution: Annotated[
        str, typer.Argument(metavar="ID", help="An execution; the beginning of its id is enough.")
    ],
    after: Annotated[
        int, typer.Option("--after", min=0, help="Begin behind the event with this number.")
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document per event.")] = False,
) -> None:
    """Follow an execution until it ends. Events are numbered without gaps: go on where you stopped.

    Exits like `rune run`: 0 completed, 1 failed, halted or cancelled.

    Example: rune watch x019a --after 12 --json
    """
    from rune.cli.backend import read

    async def work(reader: ExecutionReader, settings: Settings) -> int:
        return await _watch(reader, settings, execution, after, as_json=as_json)

    raise typer.Exit(read(work, as_json=as_json))


async def _watch(
    reader: ExecutionReader, settings: Settings, given: str, after: int, *, as_json: bool
) -> int:
    import asyncio
    import time

    from rune.cli.backend import resolve
    from rune.cli.output import EXIT
    from rune.core.execution.fact import ExecutionEnded

    name = await resolve(reader, given)
    told = getattr(reader, "watch", None)
    if told is not None:  # a server sends what happens by itself
        async for event in told(name, after):
            _print_event(event, as_json=as_json)
        return EXIT[await reader.end(name)]  # type: ignore[attr-defined]
    history = await reader.history(name, empty=True)
    if after < 1:
        _print_event(history.beginning, as_json=as_json)
    seen, told, change = 0, False, -1
    while True:
        before, change = change, await reader.change()
        began = time.perf_counter()
        if change != before:
            for stored in await reader.facts(name, seen):
                seen = stored.number
                event = history.follow(stored)
                if event.number > after:
                    _print_event(event, as_json=as_json)
                if isinstance(stored.fact, ExecutionEnded):
                    return EXIT[stored.fact.status]
        if not told and not as_json:
            told = await _tell_unowned(settings)
        await asyncio.sleep(max(MIN_PAUSE_S, SHARE * (time.perf_counter() - began)))


async def _tell_unowned(settings: Settings) -> bool:
    import sys

    from rune.cli.backend import owner

    owned, _ = await owner(settings)
    if not owned:
        print(
            f"No process runs it now: it goes on with the next `{settings.runs_with}`. Still watching.",
            file=sys.stderr,
        )
    return not owned


def _print_event(event: Event, *, as_json: bool) -> None:
    document = _event_document(event)
    if as_json:
        from rune.cli.output import print_json

        print_json(document)
    else:
        from rune.cli.output import print_event

        print_event(document)


def _event_document(event: Event) -> dict[str, Any]:
    import msgspec

    document: dict[str, Any] = msgspec.to_builtins(event)
    return document
