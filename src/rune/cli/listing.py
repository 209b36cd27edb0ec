"""`rune list`: the executions in the file."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rune.ports.store import Summary
    from rune.runtime.reader import Reader
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
    from rune.cli.reading import read  # noqa: PLC0415 - help must be quick
    from rune.ports.store import Wanted  # noqa: PLC0415

    async def work(reader: Reader, settings: Settings) -> int:
        wanted = Wanted(status=status.value if status else None, workflow=workflow)
        _print(await reader.executions(wanted, limit=limit), as_json=as_json)
        return 0

    def empty() -> int:
        _print([], as_json=as_json)
        return 0

    raise typer.Exit(read(work, as_json=as_json, without_file=empty))


def _print(found: list[Summary], *, as_json: bool) -> None:
    if as_json:
        from rune.cli.problems import print_json  # noqa: PLC0415

        print_json({"executions": [_document(each) for each in found]})
    elif not found:
        print("no executions")
    else:
        _print_table(found)


def _document(each: Summary) -> dict[str, Any]:
    from rune.runtime.history import error_document, iso  # noqa: PLC0415

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
    from rune.cli.text import by_status, duration, moment, print_table  # noqa: PLC0415

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
