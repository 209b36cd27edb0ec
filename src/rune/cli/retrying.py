"""`rune retry` and `rune rerun`: do it again, and keep what need not be done again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rune.cli.keyoption import not_empty

if TYPE_CHECKING:
    from rune.settings import Settings

Id = Annotated[str, typer.Argument(metavar="ID", help="An execution; the beginning of its id is enough.")]
Key = Annotated[
    str | None, typer.Option("--key", callback=not_empty, help="Do it at most once under this key.")
]
Wait = Annotated[
    bool,
    typer.Option("--wait", help="See the new execution to its end, as `rune run` does, and exit like it."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def retry(
    execution: Id,
    failed_items: Annotated[
        bool, typer.Option("--failed-items", help="Only the items of splits that failed.")
    ] = False,
    key: Key = None,
    wait: Wait = False,
    as_json: Json = False,
) -> None:
    """Run again what failed, was cancelled or never ended, in a new execution that keeps the rest; prints its id.

    Exits 0 started, 1 if it has not ended or there is nothing to run again; with --wait like `rune run`.

    Example: rune retry x019a --failed-items --wait
    """
    from rune.cli.acting import act  # noqa: PLC0415 - help must be quick

    async def work(found: str, settings: Settings) -> int:
        from rune.cli.acting import begin  # noqa: PLC0415
        from rune.runtime.launcher import new_execution_id  # noqa: PLC0415

        mark = key or new_execution_id()
        return await begin(
            settings,
            lambda desk: desk.retry(found, failed_items=failed_items, key=mark),
            wait=wait,
            as_json=as_json,
        )

    raise typer.Exit(act(execution, work, as_json=as_json))


def rerun(
    execution: Id,
    node: Annotated[
        str, typer.Option("--from", metavar="NODE", help="The node to begin at; what lies before it is kept.")
    ],
    item: Annotated[
        str | None,
        typer.Option(
            "--item", help="Only in this item: `users:5`, or `users:5/orders:2`.", show_default=False
        ),
    ] = None,
    key: Key = None,
    wait: Wait = False,
    as_json: Json = False,
) -> None:
    """Run a node and everything behind it again, in a new execution; prints its id.

    Examples: rune rerun x019a --from mail; rune rerun x019a --from fetch --item users:5 --wait
    """
    from rune.cli.acting import act  # noqa: PLC0415 - help must be quick

    async def work(found: str, settings: Settings) -> int:
        from rune.cli.acting import begin  # noqa: PLC0415
        from rune.runtime.launcher import new_execution_id  # noqa: PLC0415

        mark = key or new_execution_id()
        return await begin(
            settings,
            lambda desk: desk.rerun(found, node, item=item, key=mark),
            wait=wait,
            as_json=as_json,
        )

    raise typer.Exit(act(execution, work, as_json=as_json))
