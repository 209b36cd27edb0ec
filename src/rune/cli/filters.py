"""The options that select executions, of `rune list` and of `rune bulk`."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import Annotated

import typer

from rune.ports.retention import parse_duration


class Status(StrEnum):
    """The status of an execution."""

    running = "running"
    paused = "paused"
    completed = "completed"
    failed = "failed"
    halted = "halted"
    cancelled = "cancelled"


Statuses = Annotated[
    list[Status] | None,
    typer.Option("--status", "-s", help="Only executions with this status. Repeatable.", show_default=False),
]
Failed = Annotated[bool, typer.Option("--failed", help="The same as --status failed --status halted.")]
FailedItems = Annotated[
    bool, typer.Option("--failed-items", help="Only ended executions in which an item of a split failed.")
]
Stuck = Annotated[
    bool,
    typer.Option(
        "--stuck",
        help="Only running executions without progress for 15 minutes that wait for neither a timer nor a signal.",
    ),
]
Workflow = Annotated[str | None, typer.Option("--workflow", "-w", help="Only executions of this workflow.")]
VersionNumber = Annotated[
    int | None,
    typer.Option("--version", min=1, help="Only executions of this version; requires --workflow."),
]
Labels = Annotated[
    list[str] | None,
    typer.Option(
        "--label",
        metavar="NAME=VALUE",
        help="Only executions with this label. Repeatable: all labels must match.",
    ),
]
Since = Annotated[
    str | None,
    typer.Option(
        "--since", metavar="AGE", help="Only executions started at most this long ago: 30m, 2h, 7d."
    ),
]
Until = Annotated[
    str | None,
    typer.Option(
        "--until", metavar="AGE", help="Only executions started at least this long ago: 30m, 2h, 7d."
    ),
]
Code = Annotated[str | None, typer.Option("--code", help="Only executions that ended with this error code.")]
StartedBy = Annotated[
    str | None,
    typer.Option("--by", metavar="PRINCIPAL", help="Only executions that this principal started."),
]
Parent = Annotated[
    str | None, typer.Option("--parent", metavar="ID", help="Only children of this execution.")
]
RetryOf = Annotated[
    str | None,
    typer.Option("--retry-of", metavar="ID", help="Only retries and reruns of this execution."),
]


def statuses_of(given: list[Status] | None, *, failed: bool) -> tuple[str, ...]:
    """Return the statuses of --status and --failed, each once."""
    named = [each.value for each in given or ()] + (["failed", "halted"] if failed else [])
    return tuple(dict.fromkeys(named))


def ago(age: str | None) -> int | None:
    """Return the start of a time span that ends now, in epoch ms."""
    return None if age is None else time.time_ns() // 1_000_000 - parse_duration(age)
