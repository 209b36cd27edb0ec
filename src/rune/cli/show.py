"""`rune show`: one execution, ended or not."""

from __future__ import annotations

from typing import Annotated

import typer


def show(
    execution: Annotated[str, typer.Argument(metavar="ID", help="An execution; the beginning of its id is enough.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the document that `rune run --json` prints.")] = False,
    nodes: Annotated[
        int | None, typer.Option("--nodes", min=0, help="Show so many node runs; default: 40, with --json all.")
    ] = None,
) -> None:
    """Show what became of every node of an execution.

    Example: rune show x019a --nodes 100
    """
    from rune.cli.reading import read  # noqa: PLC0415 - help must be quick

    raise typer.Exit(read(execution, lambda reader, found: _show(reader, found, as_json, nodes), as_json=as_json))


async def _show(reader, found, as_json, nodes):  # type: ignore[no-untyped-def]
    raise NotImplementedError
