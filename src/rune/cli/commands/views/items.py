"""`rune items`: the items of a split."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from rune.cli.backend import CommandServices, query_api, resolve_over
from rune.cli.output import Cell, by_status, count, duration, print_json, print_table
from rune.client import AsyncClient, models

PAGE_SIZE = 1_000


def items(
    execution: Annotated[str, typer.Argument(metavar="ID", help="Execution id, or a unique prefix of it.")],
    split: Annotated[str, typer.Argument(metavar="SPLIT", help="Id of the split node.")],
    node: Annotated[
        str | None,
        typer.Option("--node", help="By the state of this node, instead of the worst state in each item."),
    ] = None,
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state", "-s", help="Only items in this state, such as failed. Repeatable.", show_default=False
        ),
    ] = None,
    code: Annotated[str | None, typer.Option("--code", help="Only items with this error code.")] = None,
    item: Annotated[
        str | None,
        typer.Option("--item", metavar="ITEM", help="The item that a nested split is in, such as users:5."),
    ] = None,
    counts: Annotated[
        bool, typer.Option("--counts", help="Count the items by state and error code instead.")
    ] = False,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=100_000, help="Maximum number of results.")
    ] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """List the items of a split, or count them by state and error.

    Items are listed in their order. The state of an item is the worst state of
    the nodes in it.

    Examples:
      rune items x019a orders --state failed
      rune items x019a orders --code HTTP_TIMEOUT --limit 100
      rune items x019a orders --counts
    """
    if counts and (state or code):
        raise typer.BadParameter("--counts excludes --state and --code")

    async def work(client: AsyncClient, services: CommandServices) -> int:
        id = await resolve_over(client, execution)
        if counts:
            _print_counts(await client.item_counts(id, split, lineage=item, node=node), as_json=as_json)
            return 0
        found: list[models.SplitItem] = []
        pages = client.items(
            id, split, lineage=item, node=node, status=state, code=code, page=min(limit, PAGE_SIZE)
        )
        async for each in pages:
            found.append(each)
            if len(found) == limit:
                break
        _print_items(found, as_json=as_json)
        return 0

    raise typer.Exit(query_api(work, as_json=as_json))


def _print_items(found: list[models.SplitItem], *, as_json: bool) -> None:
    if as_json:
        print_json({"items": msgspec.to_builtins(found)})
    elif not found:
        print("no items")
    else:
        rows: list[list[Cell]] = [
            [
                each.item,
                by_status(each.state),
                str(each.attempts) if each.attempts else "",
                "" if each.duration_ms is None else duration(each.duration_ms),
                (each.code, "red"),
            ]
            for each in found
        ]
        print_table(("item", "state", "attempts", "took", "error"), rows)


def _print_counts(found: models.ItemCounts, *, as_json: bool) -> None:
    if as_json:
        codes = {each.code: each.count for each in found.codes}
        print_json({"items": found.items, "states": found.states, "codes": codes})
        return
    rows: list[list[Cell]] = [[by_status(state), f"{number:,}"] for state, number in found.states.items()]
    rows += [[(each.code, "red"), f"{each.count:,}"] for each in found.codes]
    print_table((count(found.items, "item"), ""), rows)
