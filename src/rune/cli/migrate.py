"""`rune migrate`: bring the database of a cluster to the version of this program."""

from __future__ import annotations

from typing import Annotated

import typer


def migrate(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Bring the database to the version of this program. Workers of the version before may go on meanwhile.

    Done twice, or by several at once, it is done once. A database of a newer version is left alone.
    """
    import asyncio  # noqa: PLC0415 - help must be quick

    from rune import compose  # noqa: PLC0415
    from rune.cli.problems import print_json, refuse_error  # noqa: PLC0415
    from rune.errors import RuneError  # noqa: PLC0415
    from rune.settings import load_settings  # noqa: PLC0415

    try:
        steps = asyncio.run(compose.migrate(load_settings()))
    except RuneError as error:
        raise typer.Exit(refuse_error(error, as_json=as_json)) from None
    if as_json:
        print_json({"status": "ok", "steps": steps})
    elif steps:
        print("\n".join(f"taken: {each}" for each in steps))
    else:
        print("the database is up to date")
