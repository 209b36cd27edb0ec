"""`rune dlq`: dead letters, which are failed executions and, on a cluster, messages that no worker could process."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from rune.cli.arguments import IgnoreFailedItems
from rune.cli.backend import CommandReader, UnknownReferenceError, call, open_reader, read
from rune.cli.follow import find_execution, print_notice, run_command, start_execution
from rune.cli.output import UNREACHABLE, Cell, clean, moment, paint, print_json, print_table
from rune.ports.clock import iso
from rune.ports.journal import DeadLetter, StoreUnavailableError
from rune.runtime.services.dead_letters import DeadMessage
from rune.settings import Settings

dlq = typer.Typer(name="dlq")

PAGE_SIZE = 1000
MESSAGE_ID = re.compile(r"m[0-9a-f]{16}")
MAX_SHOWN_CHARACTERS = 4_000  # of the body of a message

Id = Annotated[str, typer.Argument(metavar="ID", help="Id of a dead letter, or a unique prefix of it.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=PAGE_SIZE, help="Maximum number of results.")]


@dlq.callback(invoke_without_command=True)
def _dlq(context: typer.Context, limit: Limit = 20, as_json: Json = False) -> None:
    """List, show, requeue or drop dead letters.

    Dead letters are executions that the engine gave up on and, on a cluster,
    messages that no worker could process. Without a command: list them.

    Examples:
      rune dlq
      rune dlq show x019a
      rune dlq requeue x019a
    """
    if context.invoked_subcommand is None:
        list_dead_letters(limit, as_json)


@dlq.command("list")
def list_dead_letters(limit: Limit = 20, as_json: Json = False) -> None:
    """List dead letters: executions, newest first, then messages of the queue. The same as `rune dlq`.

    Example: rune dlq list --limit 5
    """

    async def work(reader: CommandReader, settings: Settings) -> int:
        # One more than are shown tells whether there are more.
        found = await reader.dead_letters(limit + 1)
        try:
            messages = await list_messages(settings, min(limit + 1, PAGE_SIZE))
        except StoreUnavailableError as away:
            _print(found, [], limit, as_json=as_json)
            print_notice(f"the messages of the queue cannot be listed: {away.message}")
            return UNREACHABLE
        _print(found, messages, limit, as_json=as_json)
        return 0

    def empty() -> int:
        _print([], [], limit, as_json=as_json)
        return 0

    raise typer.Exit(read(work, as_json=as_json, without_file=empty))


@dlq.command()
def show(letter: Id, as_json: Json = False) -> None:
    """Show one dead letter: the execution or message, the node and the error.

    Example: rune dlq show x019a
    """

    async def work(settings: Settings) -> int:
        message = await find_message(settings, letter)
        if message is not None:
            return show_message(message, as_json=as_json)
        found = await _find(settings, letter)
        if as_json:
            print_json(_document(found))
        else:
            _print_one(found)
        return 0

    raise typer.Exit(run_command(work, as_json=as_json))


@dlq.command()
def requeue(
    letter: Id,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end of the new execution.")] = False,
    ignore_failed_items: IgnoreFailedItems = False,
    as_json: Json = False,
) -> None:
    """Retry a dead letter.

    An execution is retried in a new execution, which reuses successful results
    and whose id is printed. A message is sent again.

    Example: rune dlq requeue x019a --wait
    """

    async def work(settings: Settings) -> int:
        message = await find_message(settings, letter)
        if message is not None:
            return await requeue_message(settings, message, as_json=as_json)
        found = await _find(settings, letter)
        return await start_execution(
            settings,
            lambda service: service.dead_letters.requeue(found.id),
            wait=wait,
            as_json=as_json,
            ignore_failed_items=ignore_failed_items,
        )

    raise typer.Exit(run_command(work, as_json=as_json))


@dlq.command()
def drop(letter: Id, as_json: Json = False) -> None:
    """Remove a dead letter. Its execution is kept; a message is deleted.

    Example: rune dlq drop x019a
    """

    async def work(settings: Settings) -> int:
        message = await find_message(settings, letter)
        if message is not None:
            return await drop_message(settings, message, as_json=as_json)
        found = await _find(settings, letter)
        dropped = await call(settings, lambda service: service.dead_letters.discard(found.id))
        if as_json:
            print_json({"id": found.id, "dropped": dropped})
        else:
            print(f"dropped {found.id}" if dropped else f"{found.id} was already dropped")
        return 0

    raise typer.Exit(run_command(work, as_json=as_json))


async def _find(settings: Settings, given: str) -> DeadLetter:
    """Return the only dead letter whose id starts with `given`."""
    try:
        name = await find_execution(settings, given)
    except UnknownReferenceError as error:
        if MESSAGE_ID.fullmatch(given):
            unknown = f"no dead message has the id `{given}` (see `rune dlq`)"
            raise UnknownReferenceError(unknown, code="UNKNOWN_DEAD_LETTER") from error
        raise
    after: str | None = None
    async with open_reader(settings) as opened:
        while page := await opened.dead_letters(PAGE_SIZE, after):
            for each in page:
                if each.id == name:
                    return each
            after = page[-1].id
    raise UnknownReferenceError(f"{name} is not a dead letter", code="UNKNOWN_DEAD_LETTER")


def _document(letter: DeadLetter) -> dict[str, Any]:
    return {
        "id": letter.id,
        "execution_id": letter.execution,
        "workflow_id": letter.workflow,
        "node_id": letter.node or None,
        "code": letter.code,
        "message": letter.message,
        "at": iso(letter.at),
    }


def _print(
    found: Sequence[DeadLetter], messages: Sequence[DeadMessage], limit: int, *, as_json: bool
) -> None:
    cut = [
        f"{kind} {limit:,} {of}"
        for kind, of, all_of_them in (("newest", "executions", found), ("oldest", "messages", messages))
        if len(all_of_them) > min(limit, PAGE_SIZE - 1)
    ]
    found, messages = found[:limit], messages[:limit]
    if as_json:
        documents = [_document(each) for each in found] + [message_document(each) for each in messages]
        print_json({"dead_letters": documents, "more": bool(cut)})
    elif not found and not messages:
        print("no dead letters")
    else:
        rows: list[list[Cell]] = [
            [each.id, each.workflow, each.node, moment(each.at), (f"{each.code}: {each.message}", "red")]
            for each in found
        ]
        rows += [
            [
                each.id,
                each.workflow or each.execution or "",
                each.node or "",
                "" if each.at is None else moment(each.at),
                (f"{each.code}: {each.reason}", "red"),
            ]
            for each in messages
        ]
        print_table(("id", "workflow", "node", "at", "error"), rows)
        if cut:
            print(
                f"these are the {' and the '.join(cut)}; there are more: --limit N shows up to {PAGE_SIZE:,}"
            )


def _print_one(letter: DeadLetter) -> None:
    print(f"{letter.id} ({clean(letter.workflow)}) failed at {moment(letter.at)}")
    if letter.node:
        print(f"node {clean(letter.node)}")
    print(f"{paint(letter.code, 'red')}: {clean(letter.message)}")
    print(f"`rune show {letter.id}` shows the execution, `rune dlq requeue {letter.id}` retries it")


def _has_messages(settings: Settings) -> bool:
    return bool(settings.url) or settings.clustered


async def list_messages(settings: Settings, limit: int = PAGE_SIZE) -> list[DeadMessage]:
    """Return the dead messages of a cluster, oldest first; an embedded engine has none."""
    if not _has_messages(settings):
        return []
    return await call(settings, lambda service: service.dead_messages.list(limit))


async def find_message(settings: Settings, given: str) -> DeadMessage | None:
    """Return the only message whose id starts with `given`; None if there is none. A whole id is also found if it is
    not among the oldest messages, which are listed."""
    if not given.startswith("m") or not _has_messages(settings):
        return None
    if MESSAGE_ID.fullmatch(given):
        return await call(settings, lambda service: service.dead_messages.find(given))
    found = sorted({each.id for each in await list_messages(settings) if each.id.startswith(given)})
    if len(found) > 1:
        raise UnknownReferenceError(
            f"several messages start with `{given}`: {', '.join(found[:5])}", code="UNKNOWN_DEAD_LETTER"
        )
    return await call(settings, lambda service: service.dead_messages.find(found[0])) if found else None


def message_document(letter: DeadMessage, *, whole: bool = False) -> dict[str, Any]:
    """Return a message as a document; `whole` includes its body."""
    found: dict[str, Any] = {
        "id": letter.id,
        "execution_id": letter.execution,
        "workflow_id": letter.workflow,
        "node_id": letter.node,
        "code": letter.code,
        "message": letter.reason,
        "at": None if letter.at is None else iso(letter.at),
        "queue": letter.queue,
    }
    return found | {"body": letter.body.decode(errors="replace")} if whole else found


def show_message(letter: DeadMessage, *, as_json: bool) -> int:
    """Print a message: its execution, the error and its body."""
    if as_json:
        print_json(message_document(letter, whole=True))
        return 0
    of = f" of {clean(letter.execution)}" if letter.execution else ""
    died = "" if letter.at is None else f", dead since {moment(letter.at)}"
    print(f"{letter.id}: message{of} from the queue {clean(letter.queue)}{died}")
    print(f"{paint(clean(letter.code), 'red')}: {clean(letter.reason)}")
    print(clean(letter.body.decode(errors="replace")[:MAX_SHOWN_CHARACTERS]))
    print(f"`rune dlq requeue {letter.id}` sends it again, `rune dlq drop {letter.id}` removes it")
    return 0


async def requeue_message(settings: Settings, letter: DeadMessage, *, as_json: bool) -> int:
    """Send a message to its original queue again."""
    count = await call(settings, lambda service: service.dead_messages.requeue(letter.id))
    if as_json:
        print_json({"id": letter.id, "requeued": count > 0, "queue": letter.queue})
    else:
        print(f"sent {letter.id} to {letter.queue} again" if count else f"{letter.id} no longer exists")
    return 0


async def drop_message(settings: Settings, letter: DeadMessage, *, as_json: bool) -> int:
    """Delete a message."""
    count = await call(settings, lambda service: service.dead_messages.discard(letter.id))
    if as_json:
        print_json({"id": letter.id, "dropped": count > 0})
    else:
        print(f"dropped {letter.id}" if count else f"{letter.id} was already dropped")
    return 0
