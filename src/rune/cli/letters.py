"""`rune dlq`: executions that the engine gave up on, and messages that nobody could serve."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rune.compose.broker import BrokerLetter
    from rune.ports.journal import DeadLetter
    from rune.runtime.reader import Reader
    from rune.settings import Settings

letters = typer.Typer(add_completion=False)

PAGE = 1000

Id = Annotated[str, typer.Argument(metavar="ID", help="A dead letter; the beginning of its id is enough.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=PAGE, help="At most so many.")]


@letters.callback(invoke_without_command=True)
def _letters(context: typer.Context, limit: Limit = 20, as_json: Json = False) -> None:
    """List what the engine gave up on: executions, and with RabbitMQ messages. Look at one, try again, or let it be.

    Examples: rune dlq; rune dlq show x019a; rune dlq requeue x019a
    """
    if context.invoked_subcommand is None:
        list_letters(limit, as_json)


@letters.command("list")
def list_letters(limit: Limit = 20, as_json: Json = False) -> None:
    """List dead letters, newest first, then messages of the broker. `rune dlq` alone does the same.

    Example: rune dlq list --limit 5
    """
    from rune.cli.reading import read  # noqa: PLC0415 - help must be quick

    async def work(reader: Reader, settings: Settings) -> int:
        from rune.compose.broker import broker_letters  # noqa: PLC0415

        own = settings.brokered and not settings.url  # whose broker a server has is the server's affair
        messages = await broker_letters(settings, limit) if own else []
        _print(await reader.dead_letters(limit), messages, as_json=as_json)
        return 0

    def empty() -> int:
        _print([], [], as_json=as_json)
        return 0

    raise typer.Exit(read(work, as_json=as_json, without_file=empty))


@letters.command()
def show(letter: Id, as_json: Json = False) -> None:
    """Show one dead letter: what failed, where, and why.

    Example: rune dlq show x019a
    """
    from rune.cli.acting import refusing  # noqa: PLC0415

    async def work(settings: Settings) -> int:
        from rune.cli.messages import find_message, show_message  # noqa: PLC0415

        message = await find_message(settings, letter)
        if message is not None:
            return show_message(message, as_json=as_json)
        found = await _find(settings, letter)
        if as_json:
            from rune.cli.problems import print_json  # noqa: PLC0415

            print_json(_document(found))
        else:
            _print_one(found)
        return 0

    raise typer.Exit(refusing(work, as_json=as_json))


@letters.command()
def requeue(
    letter: Id,
    wait: Annotated[bool, typer.Option("--wait", help="See the new execution to its end.")] = False,
    as_json: Json = False,
) -> None:
    """Try again: an execution in a new one that keeps what succeeded, and prints its id; a message as it is.

    Example: rune dlq requeue x019a --wait
    """
    from rune.cli.acting import refusing  # noqa: PLC0415

    async def work(settings: Settings) -> int:
        from rune.cli.acting import begin  # noqa: PLC0415
        from rune.cli.messages import find_message, requeue_message  # noqa: PLC0415

        message = await find_message(settings, letter)
        if message is not None:
            return await requeue_message(settings, message, as_json=as_json)
        found = await _find(settings, letter)
        return await begin(settings, lambda desk: desk.requeue(found.id), wait=wait, as_json=as_json)

    raise typer.Exit(refusing(work, as_json=as_json))


@letters.command()
def drop(letter: Id, as_json: Json = False) -> None:
    """Take a dead letter off the list. Its execution stays as it ended; a message is gone.

    Example: rune dlq drop x019a
    """
    from rune.cli.acting import refusing  # noqa: PLC0415

    async def work(settings: Settings) -> int:
        from rune.cli.acting import ask  # noqa: PLC0415
        from rune.cli.messages import drop_message, find_message  # noqa: PLC0415
        from rune.cli.problems import print_json  # noqa: PLC0415

        message = await find_message(settings, letter)
        if message is not None:
            return await drop_message(settings, message, as_json=as_json)
        found = await _find(settings, letter)
        dropped = await ask(settings, lambda desk: desk.drop(found.id))
        if as_json:
            print_json({"id": found.id, "dropped": dropped})
        else:
            print(f"dropped {found.id}" if dropped else f"{found.id} was dropped already")
        return 0

    raise typer.Exit(refusing(work, as_json=as_json))


async def _find(settings: Settings, given: str) -> DeadLetter:
    """The one letter whose id begins like this."""
    from rune.cli.acting import find  # noqa: PLC0415
    from rune.cli.reach import reader  # noqa: PLC0415
    from rune.cli.reading import Unknown  # noqa: PLC0415

    name = await find(settings, given)
    after: str | None = None
    async with reader(settings) as opened:
        while page := await opened.dead_letters(PAGE, after):
            for each in page:
                if each.id == name:
                    return each
            after = page[-1].id
    raise Unknown(f"{name} is no dead letter", code="UNKNOWN_DEAD_LETTER")


def _document(letter: DeadLetter) -> dict[str, Any]:
    from rune.runtime.history import iso  # noqa: PLC0415

    return {
        "id": letter.id,
        "execution_id": letter.execution,
        "workflow_id": letter.workflow,
        "node_id": letter.node or None,
        "code": letter.code,
        "message": letter.message,
        "at": iso(letter.at),
    }


def _print(found: list[DeadLetter], messages: Sequence[BrokerLetter], *, as_json: bool) -> None:
    if as_json:
        from rune.cli.messages import message_document  # noqa: PLC0415
        from rune.cli.problems import print_json  # noqa: PLC0415

        told = [_document(each) for each in found] + [message_document(each) for each in messages]
        print_json({"dead_letters": told})
    elif not found and not messages:
        print("no dead letters")
    else:
        from rune.cli.text import Cell, moment, print_table  # noqa: PLC0415

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
    from rune.cli.text import clean, moment, paint  # noqa: PLC0415

    print(f"{letter.id} ({clean(letter.workflow)}) given up {moment(letter.at)}")
    if letter.node:
        print(f"node {clean(letter.node)}")
    print(f"{paint(letter.code, 'red')}: {clean(letter.message)}")
    print(f"`rune show {letter.id}` shows the execution, `rune dlq requeue {letter.id}` tries again")
