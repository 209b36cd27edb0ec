"""`rune explain`: why an execution is where it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rune.ports.store import Summary
    from rune.runtime.reader import Reader
    from rune.settings import Settings


def explain(
    execution: Annotated[
        str, typer.Argument(metavar="ID", help="An execution; the beginning of its id is enough.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Say what an execution waits for: who arrived, who was skipped, who is missing, when it times out.

    Example: rune explain x019a
    """
    from rune.cli.reading import read  # noqa: PLC0415 - help must be quick

    async def work(reader: Reader, settings: Settings) -> int:
        return await _explain(reader, settings, execution, as_json=as_json)

    raise typer.Exit(read(work, as_json=as_json))


async def _explain(reader: Reader, settings: Settings, given: str, *, as_json: bool) -> int:
    import time  # noqa: PLC0415

    import msgspec  # noqa: PLC0415

    from rune.cli.problems import print_json  # noqa: PLC0415
    from rune.cli.reach import owner, owner_pid  # noqa: PLC0415
    from rune.cli.reading import resolve, waiting_of  # noqa: PLC0415
    from rune.runtime.history import error_document  # noqa: PLC0415

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
            "waiting": [_document(each) for each in msgspec.to_builtins(waiting)],
        }
        print_json(document)
        return 0
    _print_status(summary, paused=paused)
    if waiting:
        from rune.cli.rendering import print_open  # noqa: PLC0415

        print_open(waiting, now)
    if summary.ended_at is None and not owned:
        print(f"No process runs it now: it goes on with the next `{settings.runs_with}`.")
    return 0


def _document(waiting: dict[str, object]) -> dict[str, object]:
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
    from rune.cli.text import COLOURS, clean, duration, paint  # noqa: PLC0415

    status = "paused" if paused else summary.status
    took = f" after {duration(summary.ended_at - summary.started_at)}" if summary.ended_at is not None else ""
    print(f"{paint(status, COLOURS.get(status, ''))} {summary.id} ({clean(summary.workflow)}){took}")
    if summary.error:
        print(f"{paint(summary.error.code, 'red')}: {clean(summary.error.message)}")
