"""`rune migrate`: bring the database of a cluster to the version of this program."""

from __future__ import annotations

from typing import Annotated

import typer


def migrate(
    roles: Annotated[
        bool,
        typer.Option(
            "--roles",
            help="Then give rune_worker, rune_scheduler and rune_api the rights that they need, and no others.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Bring the database to the version of this program. Workers of the version before may go on meanwhile.

    Done twice, or by several at once, it is done once. A database of a newer version is left alone.

    Example: rune migrate --roles
    """
    import asyncio  # noqa: PLC0415 - help must be quick

    from rune import compose  # noqa: PLC0415
    from rune.cli.local import stay_here  # noqa: PLC0415
    from rune.cli.problems import print_json, refuse_error  # noqa: PLC0415
    from rune.errors import RuneError  # noqa: PLC0415
    from rune.settings import load_settings  # noqa: PLC0415

    try:
        settings = load_settings()
        stay_here(settings, "migrate")
        steps = asyncio.run(compose.migrate(settings))
        granted = asyncio.run(compose.grant_roles(settings)) if roles else []
    except RuneError as error:
        raise typer.Exit(refuse_error(error, as_json=as_json)) from None
    if as_json:
        print_json({"status": "ok", "steps": steps} | ({"roles": granted} if roles else {}))
        return
    print("\n".join(f"taken: {each}" for each in steps) if steps else "the database is up to date")
    if granted:
        print(f"rights given to {', '.join(granted)}")
