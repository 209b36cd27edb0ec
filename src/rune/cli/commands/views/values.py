"""`rune value`: parts of inputs and outputs."""

from __future__ import annotations

import json
from typing import Annotated, Literal

import typer

from rune.cli.backend import CommandServices, query_api, resolve_over
from rune.cli.output import Cell, count, paint, print_json, print_table
from rune.client import AsyncClient, models


def value(
    execution: Annotated[str, typer.Argument(metavar="ID", help="Execution id, or a unique prefix of it.")],
    node: Annotated[
        str | None, typer.Option("--node", help="The output of this node instead of that of the execution.")
    ] = None,
    item: Annotated[
        str | None,
        typer.Option("--item", metavar="ITEM", help="With --node: in this item, such as users:5."),
    ] = None,
    of_input: Annotated[
        bool, typer.Option("--input", help="The input of the execution instead of its output.")
    ] = False,
    pointer: Annotated[
        str, typer.Option("--pointer", metavar="/A/0", help="JSON pointer of the part; empty for the whole.")
    ] = "",
    depth: Annotated[
        int, typer.Option("--depth", min=0, max=10, help="Number of levels of members to print.")
    ] = 1,
    offset: Annotated[
        int, typer.Option("--offset", min=0, help="First member, or first character of a text.")
    ] = 0,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="Maximum number of members or characters.")
    ] = None,
    find: Annotated[
        str | None, typer.Option("--find", metavar="TEXT", help="List keys and texts that contain this.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Print a part of an input or output, or search in it.

    Members of objects and lists are printed with their type and size, and with
    their value unless it is large.

    Examples:
      rune value x019a --node fetch --pointer /users/0
      rune value x019a --input --pointer /orders --offset 100 --limit 50
      rune value x019a --node fetch --find "ada@example.com"
    """
    if node is not None and of_input:
        raise typer.BadParameter("--input is that of the execution; `rune show --node` shows that of a node")
    of: Literal["input", "output"] = "input" if of_input else "output"

    async def work(client: AsyncClient, services: CommandServices) -> int:
        id = await resolve_over(client, execution)
        if find is not None:
            matches = await client.find_in_value(
                id, find, of, node=node, lineage=item, pointer=pointer, offset=offset, limit=limit or 100
            )
            _print_matches(matches, as_json=as_json)
            return 0
        part = await client.value_part(
            id, of, node=node, lineage=item, pointer=pointer, depth=depth, offset=offset, limit=limit
        )
        _print_part(part, as_json=as_json)
        return 0

    raise typer.Exit(query_api(work, as_json=as_json))


def _print_part(part: models.ValuePart, *, as_json: bool) -> None:
    if as_json:
        print_json(part)
        return
    if part.entries is None:
        print(part.value if isinstance(part.value, str) else _text(part.value))
    else:
        rows: list[list[Cell]] = [
            [str(each.key), each.type, "" if each.size is None else f"{each.size:,}", _entry(each)]
            for each in part.entries
        ]
        print_table(("key", "type", "size", "value"), rows)
    if part.next is not None:
        print(paint(f"… continue with --offset {part.next}", "grey"))


def _entry(each: models.ValueEntry) -> str:
    if each.entries is not None:
        return _text(each.entries)
    return "" if each.value is None and each.type != "null" else _text(each.value)


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _print_matches(found: models.ValueMatches, *, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    for each in found.matches:
        print(f"{each.pointer or '/'}  {each.where}  {_text(each.text)}")
    shown = f"{count(found.count, 'match')[:-1]}es" if found.count != 1 else "1 match"
    print(shown if found.complete else f"{shown} so far; the search ended early")
