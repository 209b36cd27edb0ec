"""`rune dlq`: executions that the engine gave up on, and messages that nobody could serve.

Dead letters of the broker, as `rune dlq` shows them beside executions that were given up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rune.bootstrap.admin import BrokerDeadLetter
    from rune.ports.journal import DeadLetter
    from rune.runtime.queries.reader import ExecutionReader
    from rune.settings import Settings

dlq = typer.Typer(add_completion=False)

PAGE = 1000

Id = Annotated[str, typer.Argument(metavar="ID", help="A dead letter; the beginning of its id is enough.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=PAGE, help="At most so many.")]


@dlq.callback(invoke_without_command=True)
def _dlq(context: typer.Context, limit: Limit = 20, as_json: Json = False) -> None:
    """List what the engine gave up on: executions, and with RabbitMQ messages. Look at one, try again, or let it be.

    Examples: rune dlq; rune dlq show x019a; rune dlq requeue x019a
    """
    if context.invoked_subcommand is None:
        list_dead_letters(limit, as_json)


@dlq.command("list")
def list_dead_letters(limit: Limit = 20, as_json: Json = False) -> None:
    """List dead letters, newest first, then messages of the broker. `rune dlq` alone does the same.

    Example: rune dlq list --limit 5
    """
    from rune.cli.backend import read

    async def work(reader: ExecutionReader, settings: Settings) -> int:
        from rune.bootstrap.admin import list_broker_dead_letters

        own = settings.brokered and not settings.url  # whose broker a server has is the server's affair
        messages = await list_broker_dead_letters(settings, limit) if own else []
        _print(await reader.dead_letters(limit), messages, as_json=as_json)
        return 0

    def empty() -> int:
        _print([], [], as_json=as_json)
        return 0

    raise typer.Exit(read(work, as_json=as_json, without_file=empty))


@dlq.command()
def show(letter: Id, as_json: Json = False) -> None:
    """Show one dead letter: what failed, where, and why.

    Example: rune dlq show x019a
    """
    from rune.cli.follow import refusing

    async def work(settings: Settings) -> int:

        message = await find_message(settings, letter)
        if message is not None:
            return show_message(message, as_json=as_json)
        found = await _find(settings, letter)
        if as_json:
            from rune.cli.output import print_json

            print_json(_document(found))
        else:
            _print_one(found)
        return 0

    raise typer.Exit(refusing(work, as_json=as_json))


@dlq.command()
def requeue(
    letter: Id,
    wait: Annotated[bool, typer.Option("--wait", help="See the new execution to its end.")] = False,
    as_json: Json = False,
) -> None:
    """Try again: an execution in a new one that keeps what succeeded, and prints its id; a message as it is.

    Example: rune dlq requeue x019a --wait
    """
    from rune.cli.follow import refusing

    async def work(settings: Settings) -> int:
        from rune.cli.follow import begin

        message = await find_message(settings, letter)
        if message is not None:
            return await requeue_message(settings, message, as_json=as_json)
        found = await _find(settings, letter)
        return await begin(
            settings, lambda services: services.dead_letters.requeue(found.id), wait=wait, as_json=as_json
        )

    raise typer.Exit(refusing(work, as_json=as_json))


@dlq.command()
def drop(letter: Id, as_json: Json = False) -> None:
    """Take a dead letter off the list. Its execution stays as it ended; a message is gone.

    Example: rune dlq drop x019a
    """
    from rune.cli.follow import refusing

    async def work(settings: Settings) -> int:
        from rune.cli.follow import ask
        from rune.cli.output import print_json

        message = await find_message(settings, letter)
        if message is not None:
            return await drop_message(settings, message, as_json=as_json)
        found = await _find(settings, letter)
        dropped = await ask(settings, lambda services: services.dead_letters.discard(found.id))
        if as_json:
            print_json({"id": found.id, "dropped": dropped})
        else:
            print(f"dropped {found.id}" if dropped else f"{found.id} was dropped already")
        return 0

    raise typer.Exit(refusing(work, as_json=as_json))


async def _find(settings: Settings, given: str) -> DeadLetter:
    """The one letter whose id begins like this."""
    from rune.cli.backend import (
        UnknownReferenceError,
        open_reader,
    )
    from rune.cli.follow import find

    name = await find(settings, given)
    after: str | None = None
    async with open_reader(settings) as opened:
        while page := await opened.dead_letters(PAGE, after):
            for each in page:
                if each.id == name:
                    return each
            after = page[-1].id
    raise UnknownReferenceError(f"{name} is no dead letter", code="UNKNOWN_DEAD_LETTER")


def _document(letter: DeadLetter) -> dict[str, Any]:
    from rune.runtime.queries.history import iso

    return {
        "id": letter.id,
        "execution_id": letter.execution,
        "workflow_id": letter.workflow,
        "node_id": letter.node or None,
        "code": letter.code,
        "message": letter.message,
        "at": iso(letter.at),
    }


def _print(found: list[DeadLetter], messages: Sequence[BrokerDeadLetter], *, as_json: bool) -> None:
    if as_json:
        from rune.cli.output import print_json

        told = [_document(each) for each in found] + [message_document(each) for each in messages]
        print_json({"dead_letters": told})
    elif not found and not messages:
        print("no dead letters")
    else:
        from rune.cli.output import Cell, moment, print_table

        rows: list[list[Cell]] = [
            [each.id, each.workflow, each.node, moment(each.at), (f"{each.code}: {each.message}", "red")]
            for each in found
        ]
        rows += [
            [each.id, each.workflow or "", each.node or "", "", (f"{each.code}: {each.reason}", "red")]
            for each in messages
        ]
        print_table(("id", "workflow", "node", "at", "error"), rows)


def _print_one(letter: DeadLetter) -> None:
    from rune.cli.output import clean, moment, paint

    print(f"{letter.id} ({clean(letter.workflow)}) given up {moment(letter.at)}")
    if letter.node:
        print(f"node {clean(letter.node)}")
    print(f"{paint(letter.code, 'red')}: {clean(letter.message)}")
    print(f"`rune show {letter.id}` shows the execution, `rune dlq requeue {letter.id}` tries again")


SHOWN = 4_000
"""Characters of a message that are shown to people."""


async def find_message(settings: Settings, given: str) -> BrokerDeadLetter | None:
    """The one message whose id begins like this; None if it is none of the broker's."""
    from rune.bootstrap.admin import list_broker_dead_letters
    from rune.cli.backend import UnknownReferenceError

    if settings.url or not settings.brokered or not given.startswith("m"):
        return None
    found = {each.id: each for each in await list_broker_dead_letters(settings) if each.id.startswith(given)}
    if len(found) > 1:
        names = ", ".join(sorted(found)[:5])
        raise UnknownReferenceError(
            f"several messages begin with `{given}`: {names}", code="UNKNOWN_DEAD_LETTER"
        )
    return next(iter(found.values()), None)


def message_document(letter: BrokerDeadLetter, *, whole: bool = False) -> dict[str, Any]:
    """A message as documents show it; `whole`: with what it says."""
    found: dict[str, Any] = {
        "id": letter.id,
        "execution_id": letter.execution,
        "workflow_id": letter.workflow,
        "node_id": letter.node,
        "code": letter.code,
        "message": letter.reason,
        "at": None,
        "queue": letter.queue,
    }
    return found | {"body": letter.body.decode(errors="replace")} if whole else found


def show_message(letter: BrokerDeadLetter, *, as_json: bool) -> int:
    """Print one: why, of which execution, and what it says."""
    from rune.cli.output import (
        clean,
        paint,
        print_json,
    )

    if as_json:
        print_json(message_document(letter, whole=True))
        return 0
    of = f" of {clean(letter.execution)}" if letter.execution else ""
    print(f"{letter.id}: a message{of} from the queue {clean(letter.queue)}")
    print(f"{paint(clean(letter.code), 'red')}: {clean(letter.reason)}")
    print(clean(letter.body.decode(errors="replace")[:SHOWN]))
    print(f"`rune dlq requeue {letter.id}` sends it again, `rune dlq drop {letter.id}` removes it")
    return 0


async def requeue_message(settings: Settings, letter: BrokerDeadLetter, *, as_json: bool) -> int:
    """Send it again to where it was."""
    from rune.bootstrap.admin import requeue_broker_dead_letter
    from rune.cli.output import print_json

    count = await requeue_broker_dead_letter(settings, letter.id)
    if as_json:
        print_json({"id": letter.id, "requeued": count > 0, "queue": letter.queue})
    else:
        print(f"sent {letter.id} to {letter.queue} again" if count else f"{letter.id} is gone")
    return 0


async def drop_message(settings: Settings, letter: BrokerDeadLetter, *, as_json: bool) -> int:
    """Remove it for good."""
    from rune.bootstrap.admin import discard_broker_dead_letter
    from rune.cli.output import print_json

    count = await discard_broker_dead_letter(settings, letter.id)
    if as_json:
        print_json({"id": letter.id, "dropped": count > 0})
    else:
        print(f"dropped {letter.id}" if count else f"{letter.id} was dropped already")
    return 0
