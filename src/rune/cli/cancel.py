"""`rune cancel`: end an execution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rune.settings import Settings


def cancel(
    execution: Annotated[
        str, typer.Argument(metavar="ID", help="An execution; the beginning of its id is enough.")
    ],
    reason: Annotated[str, typer.Option("--reason", help="Why; kept with the execution.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Cancel an execution: nothing of it begins any more, and what runs is told to stop.

    Exits 0 cancelled, 1 if it had ended before.

    Example: rune cancel x019a --reason "ordered twice"
    """
    from rune.cli.acting import act  # noqa: PLC0415 - help must be quick

    async def work(found: str, settings: Settings) -> int:
        from rune.cli.acting import ask  # noqa: PLC0415
        from rune.cli.problems import print_json  # noqa: PLC0415

        status = await ask(settings, lambda desk: desk.cancel(found, reason))
        if as_json:
            print_json({"execution_id": found, "status": status})
        else:
            print(f"{status} {found}")
        return 0

    raise typer.Exit(act(execution, work, as_json=as_json))
