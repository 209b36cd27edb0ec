"""Executions in detail: `rune show --node` and `--graph`, `rune items`, `rune value`, `rune logs`, `rune compare`."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack, aclosing
from typing import Annotated, Any, Literal

import msgspec
import typer

from rune.cli.backend import (
    CommandReader,
    CommandServices,
    UnknownReferenceError,
    query_api,
    read,
    resolve,
    resolve_with_client,
)
from rune.cli.live import LogPrinter, LogSource, RunningPoller, StoredLogs
from rune.cli.output import (
    COLOURS,
    VIOLATIONS,
    Cell,
    by_status,
    clean,
    count,
    duration,
    local_time,
    paint,
    print_json,
    print_table,
)
from rune.cli.remote.reader import RemoteReader
from rune.client import ApiError, AsyncClient, models
from rune.errors import RuneError
from rune.settings import Settings

MAX_NAMED_ITEMS = 5  # in an error


def show_node(given: str, node: str, item: str | None, *, as_json: bool) -> int:
    """Print what a node was called with, and its attempts."""

    async def work(client: AsyncClient, services: CommandServices) -> int:
        id = await resolve_with_client(client, given)
        attempts = await client.attempts(id, node, lineage=item)
        called = await _input(client, id, node, item)
        if item is None and called is None and not attempts:
            await _check_outside_splits(client, id, node)
        if as_json:
            document = {"execution_id": id, "node_id": node, "item": item}
            print_json({**document, "attempts": attempts, "input": called})
        else:
            _print_node(attempts, called)
        return 0

    return query_api(work, as_json=as_json)


async def _input(client: AsyncClient, execution: str, node: str, item: str | None) -> models.NodeInput | None:
    """Return what a node was called with; None if it has not been called."""
    try:
        return await client.node_input(execution, node, lineage=item)
    except ApiError as refused:
        if refused.status != 404:
            raise
        return None


async def _check_outside_splits(client: AsyncClient, execution: str, node: str) -> None:
    """Raise an error that names items of a node which ran inside of a split: what is shown is that of one item."""
    items: list[str] = []
    async with aclosing(client.nodes(execution, node=node, page=MAX_NAMED_ITEMS + 1)) as runs:  # type: ignore[type-var]
        async for run in runs:
            items.append("/".join(f"{each.split_node_id}:{each.item_index}" for each in run.lineage))
            if len(items) > MAX_NAMED_ITEMS:
                break
    named = ", ".join(f"`{each}`" for each in items[:MAX_NAMED_ITEMS] if each)
    if named:
        more = ", …" if len(items) > MAX_NAMED_ITEMS else ""
        message = f"`{node}` is inside a split: name an item with `--item`, such as {named}{more}"
        raise RuneError(message, code="BAD_ITEM")


def _print_node(attempts: list[models.Attempt], called: models.NodeInput | None) -> None:
    if not attempts:
        print("no attempts")
    else:
        print_table(
            ("attempt", "status", "started", "took", "worker", "error"),
            [_attempt_row(each) for each in attempts],
        )
    if called is None:
        print("\nIt has not been called.")
        return
    for title, value in (("payload", called.payload), ("parameters", called.parameters)):
        print(f"\n{paint(title, 'bold')}")
        print(json.dumps(value, ensure_ascii=False, indent=2))
    if called.error is not None:
        print(f"{paint(called.error.code, 'red')}: {clean(called.error.message)}")


def _attempt_row(each: models.Attempt) -> list[Cell]:
    error = "" if each.error is None else f"{each.error.code}: {each.error.message}"
    return [
        str(each.attempt),
        by_status(each.status),
        local_time(each.started_at),
        "" if each.duration_ms is None else duration(each.duration_ms),
        each.worker,
        (error, "red"),
    ]


def show_graph(given: str, item: str | None, at: int | None, *, as_json: bool) -> int:
    """Print the states of all nodes and edges."""

    async def work(client: AsyncClient, services: CommandServices) -> int:
        id = await resolve_with_client(client, given)
        found = await client.graph(id, lineage=item, at=at)
        if as_json:
            document: dict[str, Any] = msgspec.to_builtins(found)
            print_json({"execution_id": id, **document})
        else:
            _print_graph(id, found)
        return 0

    return query_api(work, as_json=as_json)


def _print_graph(execution: str, graph: models.Graph) -> None:
    print_table(
        ("node", "state", "attempts", "took", "items", "error"),
        [_node_row(name, each, graph.splits.get(name)) for name, each in graph.nodes.items()],
    )
    print()
    print_table(("edge", "state"), [[name, state] for name, state in graph.edges.items()])
    status = paint(graph.status, COLOURS.get(graph.status, ""))
    print(f"\n{status} {execution}, after event {graph.number:,}")


def _node_row(name: str, node: models.NodeState, split: models.SplitState | None) -> list[Cell]:
    counts = node.counts or (split.counts if split is not None else {})
    return [
        name,
        by_status(node.state),
        str(node.attempts) if node.attempts else "",
        "" if node.duration_ms is None else duration(node.duration_ms),
        ", ".join(f"{number:,} {state}" for state, number in counts.items()),
        (node.code, "red"),
    ]


PAGE_SIZE = 1_000


def items(
    execution: Annotated[str, typer.Argument(metavar="ID", help="Execution id, or a unique prefix of it.")],
    split: Annotated[
        str | None,
        typer.Argument(metavar="[SPLIT]", help="Id of the split node. Default: the only one there is."),
    ] = None,
    split_option: Annotated[
        str | None, typer.Option("--split", metavar="SPLIT", help="Id of the split node, as an option.")
    ] = None,
    node: Annotated[
        str | None,
        typer.Option("--node", help="Use the state of this node instead of the worst state in each item."),
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
      rune items x019a --limit 10
      rune items x019a orders --state failed
      rune items x019a orders --code HTTP_TIMEOUT --limit 100
      rune items x019a orders --counts
    """
    if counts and (state or code):
        raise typer.BadParameter("--counts excludes --state and --code")
    if split is not None and split_option not in (None, split):
        raise typer.BadParameter(f"two splits are given: `{split}` and `{split_option}`")
    given = split or split_option

    async def work(client: AsyncClient, services: CommandServices) -> int:
        id = await resolve_with_client(client, execution)
        split = given or await _only_split(client, id)
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


class WhichSplitError(RuneError):
    """No split is given, and the execution does not have exactly one."""

    code = "WHICH_SPLIT"


async def _only_split(client: AsyncClient, execution: str) -> str:
    """Return the id of the only split of an execution."""
    splits = [each.split_node_id for each in await client.rollups(execution)]
    if len(splits) == 1:
        return splits[0]
    if not splits:
        raise WhichSplitError(f"no split of {execution} has items")
    first = f"rune items {execution} {splits[0]}"
    raise WhichSplitError(f"the workflow has {len(splits)} splits: {', '.join(splits)}; name one: `{first}`")


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
        str | None,
        typer.Option("--find", metavar="TEXT", help="List the keys and texts that contain this text."),
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
        id = await resolve_with_client(client, execution)
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


FOLLOW_INTERVAL_S = 0.5


def logs(
    execution: Annotated[str, typer.Argument(metavar="ID", help="Execution id, or a unique prefix of it.")],
    node: Annotated[str | None, typer.Option("--node", help="Only lines of this node.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print new lines until the execution ends.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document per line of the log.")
    ] = False,
) -> None:
    """Print what the nodes of an execution logged.

    Lines come from `ctx.log` and `logging` in custom nodes and from `log`
    nodes. The newest 64 KB of each attempt are kept, in the order in which the
    attempts ended. Secrets are redacted.

    Examples:
      rune logs x019a --node import
      rune logs x019a --follow
    """

    async def work(reader: CommandReader, settings: Settings) -> int:
        await _print_logs(reader, settings, execution, node, follow=follow, as_json=as_json)
        return 0

    raise typer.Exit(read(work, as_json=as_json))


async def _print_logs(
    reader: CommandReader, settings: Settings, given: str, node: str | None, *, follow: bool, as_json: bool
) -> None:
    name = await resolve(reader, given)
    async with AsyncExitStack() as stack:
        printer = LogPrinter(await _log_source(reader, settings, name, node, stack), as_json=as_json)
        while True:
            summary = await reader.execution(name)
            over = summary is None or summary.ended_at is not None
            await printer.poll(running=not over)
            if over or not follow:
                return
            await asyncio.sleep(FOLLOW_INTERVAL_S)


async def _log_source(
    reader: CommandReader, settings: Settings, execution: str, node: str | None, stack: AsyncExitStack
) -> LogSource:
    if isinstance(reader, RemoteReader):
        return reader.log_source(execution, node)
    attempts = await reader.attempts(execution)
    if node is not None and node not in attempts.plan.index:
        raise UnknownReferenceError(f"`{node}` is not a node of {execution}")
    running = await stack.enter_async_context(aclosing(RunningPoller(settings, execution)))
    return StoredLogs(attempts, running, None if node is None else attempts.plan.index[node])


def compare(
    before: Annotated[str, typer.Argument(metavar="ID", help="Execution id, or a unique prefix of it.")],
    after: Annotated[
        str, typer.Argument(metavar="OTHER", help="Id of the other execution, or a unique prefix of it.")
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
        first = await resolve_with_client(client, before)
        second = await resolve_with_client(client, after)
        found = await client.compare(first, second)
        pairs = await _differing_runs(client, first, second, node, limit) if runs else None
        if as_json:
            listed = {} if pairs is None else {"runs": msgspec.to_builtins(pairs)}
            print_json({**msgspec.to_builtins(found), **listed})
        else:
            _print_comparison(found, pairs)
        same = found.same_input and found.same_definition and not found.differing
        return 0 if same and found.status[0] == found.status[1] else VIOLATIONS

    raise typer.Exit(query_api(work, as_json=as_json))


async def _differing_runs(
    client: AsyncClient, before: str, after: str, node: str | None, limit: int
) -> list[models.ComparedRunPair]:
    found: list[models.ComparedRunPair] = []
    async for each in client.differing_runs(before, after, node=node, page=min(limit, PAGE_SIZE)):
        found.append(each)
        if len(found) == limit:
            break
    return found


def _print_comparison(found: models.Comparison, pairs: list[models.ComparedRunPair] | None) -> None:
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
