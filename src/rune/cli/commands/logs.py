"""`rune logs`: what the nodes of an execution logged."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, aclosing
from typing import Annotated

import typer

from rune.cli.backend import CommandReader, UnknownReferenceError, read, resolve
from rune.cli.live import LogPrinter, LogSource, RunningPoller, StoredLogs
from rune.cli.remote import RemoteReader
from rune.settings import Settings

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
        await _print(reader, settings, execution, node, follow=follow, as_json=as_json)
        return 0

    raise typer.Exit(read(work, as_json=as_json))


async def _print(
    reader: CommandReader, settings: Settings, given: str, node: str | None, *, follow: bool, as_json: bool
) -> None:
    name = await resolve(reader, given)
    async with AsyncExitStack() as stack:
        printer = LogPrinter(await _source(reader, settings, name, node, stack), as_json=as_json)
        while True:
            summary = await reader.execution(name)
            over = summary is None or summary.ended_at is not None
            await printer.poll(running=not over)
            if over or not follow:
                return
            await asyncio.sleep(FOLLOW_INTERVAL_S)


async def _source(
    reader: CommandReader, settings: Settings, execution: str, node: str | None, stack: AsyncExitStack
) -> LogSource:
    if isinstance(reader, RemoteReader):
        return reader.log_source(execution, node)
    attempts = await reader.attempts(execution)
    if node is not None and node not in attempts.plan.index:
        raise UnknownReferenceError(f"`{node}` is not a node of {execution}")
    running = await stack.enter_async_context(aclosing(RunningPoller(settings, execution)))
    return StoredLogs(attempts, running, None if node is None else attempts.plan.index[node])
