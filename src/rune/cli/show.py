"""`rune show`: one execution, ended or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rune.runtime.reader import Reader
    from rune.settings import Settings


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
    from rune.cli.reading import read  # noqa: PLC0415 - help must be quick

    async def work(reader: Reader, settings: Settings) -> int:
        return await _show(reader, execution, nodes, as_json=as_json)

    raise typer.Exit(read(work, as_json=as_json))


async def _show(reader: Reader, given: str, nodes: int | None, *, as_json: bool) -> int:
    from rune.cli.problems import print_json  # noqa: PLC0415
    from rune.cli.reading import resolve  # noqa: PLC0415

    execution = await resolve(reader, given)
    document = await (await reader.history(execution)).document()
    if as_json:
        document["nodes"] = document["nodes"][:nodes]
        print_json(document)
        return 0
    from rune.cli.rendering import print_document  # noqa: PLC0415

    print_document(document, most=nodes)
    if document["completed_at"] is None:
        await _print_open(reader, execution)
    return 0


async def _print_open(reader: Reader, execution: str) -> None:
    import time  # noqa: PLC0415

    from rune.cli.reading import waiting_of  # noqa: PLC0415
    from rune.cli.rendering import print_open  # noqa: PLC0415

    now = time.time_ns() // 1_000_000
    _, waiting = await waiting_of(reader, execution, now)
    print()
    print_open(waiting, now)
