"""`rune pause` and `rune resume`: hold an execution where it is, and let it go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rune.settings import Settings

Id = Annotated[str, typer.Argument(metavar="ID", help="An execution; the beginning of its id is enough.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def pause(execution: Id, as_json: Json = False) -> None:
    """Let nothing new of an execution begin. What runs may finish.

    Exits 0 paused, now or before; 1 if it has ended.

    Example: rune pause x019a
    """
    _set(execution, paused=True, as_json=as_json)


def resume(execution: Id, as_json: Json = False) -> None:
    """Let a paused execution go on.

    Exits 0 running, now or before; 1 if it has ended.

    Example: rune resume x019a
    """
    _set(execution, paused=False, as_json=as_json)


def _set(execution: str, *, paused: bool, as_json: bool) -> None:
    from rune.cli.acting import act  # noqa: PLC0415 - help must be quick

    async def work(found: str, settings: Settings) -> int:
        from rune.cli.acting import ask  # noqa: PLC0415
        from rune.cli.problems import print_json  # noqa: PLC0415

        changed = await ask(settings, lambda desk: desk.pause(found) if paused else desk.resume(found))
        status = "paused" if paused else "running"
        if as_json:
            print_json({"execution_id": found, "status": status, "changed": changed})
        elif changed:
            print(f"{status} {found}")
        else:
            print(f"{found} was {'paused already' if paused else 'not paused'}")
        return 0

    raise typer.Exit(act(execution, work, as_json=as_json))
