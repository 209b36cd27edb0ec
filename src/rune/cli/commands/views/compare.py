"""`rune compare`: the differences between two executions."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from rune.cli.backend import CommandServices, query_api, resolve_over
from rune.cli.output import COLOURS, VIOLATIONS, Cell, by_status, count, print_json, print_table
from rune.client import AsyncClient, models

PAGE_SIZE = 1_000


def compare(
    before: Annotated[str, typer.Argument(metavar="ID", help="Execution id, or a unique prefix of it.")],
    after: Annotated[
        str, typer.Argument(metavar="OTHER", help="The execution that it is compared with, given likewise.")
    ],
    runs: Annotated[
        bool, typer.Option("--runs", help="Also list the node runs that differ, item by item.")
    ] = False,
    node: Annotated[str | None, typer.Option("--node", help="With --runs: only those of this node.")] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=100_000, help="Maximum number of runs.")
    ] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Compare two executions and list what differs.

    The input, the definition and the results of nodes are compared. Runs that
    differ in the same way are one group, however many items there are.

    Exit codes: 0 nothing differs; 1 something differs; 2 an unknown id.

    Examples:
      rune compare x019a x019b
      rune compare x019a x019b --runs --node charge
    """
    if node is not None and not runs:
        raise typer.BadParameter("--node requires --runs")

    async def work(client: AsyncClient, services: CommandServices) -> int:
        first = await resolve_over(client, before)
        second = await resolve_over(client, after)
        found = await client.compare(first, second)
        pairs = await _runs(client, first, second, node, limit) if runs else None
        if as_json:
            listed = {} if pairs is None else {"runs": msgspec.to_builtins(pairs)}
            print_json({**msgspec.to_builtins(found), **listed})
        else:
            _print(found, pairs)
        same = found.same_input and found.same_definition and not found.differing
        return 0 if same and found.status[0] == found.status[1] else VIOLATIONS

    raise typer.Exit(query_api(work, as_json=as_json))


async def _runs(
    client: AsyncClient, before: str, after: str, node: str | None, limit: int
) -> list[models.ComparedRunPair]:
    found: list[models.ComparedRunPair] = []
    async for each in client.differing_runs(before, after, node=node, page=min(limit, PAGE_SIZE)):
        found.append(each)
        if len(found) == limit:
            break
    return found


def _print(found: models.Comparison, pairs: list[models.ComparedRunPair] | None) -> None:
    print_table(
        ("", "before", "after"),
        [
            ["execution", found.before, found.after],
            ["status", by_status(found.status[0]), by_status(found.status[1])],
        ],
    )
    print(f"input       {'the same' if found.same_input else 'differs'}")
    print(f"definition  {'the same' if found.same_definition else 'differs'}")
    verdict = f"{found.differing:,} of {count(found.compared, 'node run')} differ"
    print(verdict + (f", from `{found.first}` on" if found.first is not None else ""))
    if found.groups:
        print()
        print_table(
            ("node", "runs", "differ in", "before", "after"), [_group_row(each) for each in found.groups]
        )
    if pairs:
        print()
        print_table(("node", "item", "differs in", "before", "after"), [_pair_row(each) for each in pairs])


def _group_row(each: models.DifferenceGroup) -> list[Cell]:
    return [
        each.node_id,
        f"{each.count:,}",
        ", ".join(each.fields),
        *(_side(each.status[side], each.code[side]) for side in (0, 1)),
    ]


def _pair_row(each: models.ComparedRunPair) -> list[Cell]:
    sides = ((None, "") if run is None else _state(run) for run in (each.before, each.after))
    item = "" if each.lineage == "/" else each.lineage
    return [each.node_id, item, ", ".join(each.fields), *(_side(*side) for side in sides)]


def _state(run: models.ComparedRun) -> tuple[str, str]:
    return run.status, "" if run.error is None else run.error.code


def _side(status: str | None, code: str) -> Cell:
    text = status or "no result"
    return f"{text} {code}".strip(), COLOURS.get(text, "")
