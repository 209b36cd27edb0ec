"""`rune log`: who changed what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rune.client import AsyncClient
    from rune.ports.log import Entry
    from rune.settings import Settings


def log(
    actor: Annotated[str | None, typer.Option("--by", metavar="WHO", help="Only by this principal.")] = None,
    action: Annotated[
        str | None, typer.Option("--action", help="Only this: workflow.deploy, or its first word: workflow.")
    ] = None,
    target: Annotated[
        str | None,
        typer.Option("--of", metavar="ID", help="Only of this workflow, execution, credential or key."),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="At most so many.")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show who changed which workflow, alias, credential, key or execution, newest first.

    An entry is written before the act; what was refused has a second one with the code of the refusal. Starts are not
    among them: an execution knows itself who started it.

    Examples: rune log; rune log --of orders; rune log --action credential --by key:k0123456789abcdef
    """
    from rune.cli.access import leave, over_url, read  # noqa: PLC0415 - help must be quick

    def work(settings: Settings) -> None:
        from rune.ports.log import Wanted  # noqa: PLC0415

        if settings.url:
            documents = over_url(settings, lambda asked: _remote(asked, actor, action, target, limit))
        else:
            wanted = Wanted(actor=actor, action=action, target=target)
            nothing: list[Entry] = []
            found = read(settings, lambda opened: opened.log.read(wanted, limit=limit), nothing)
            documents = [_document(each) for each in found]
        _print(documents, as_json=as_json)

    leave(work, as_json=as_json)


async def _remote(
    asked: AsyncClient, actor: str | None, action: str | None, target: str | None, limit: int
) -> list[dict[str, Any]]:
    import msgspec  # noqa: PLC0415

    found: list[dict[str, Any]] = []
    async for each in asked.log(actor=actor, action=action, target=target, page=min(limit, 1_000)):
        found.append(msgspec.to_builtins(each))
        if len(found) == limit:
            break
    return found


def _document(entry: Entry) -> dict[str, Any]:
    from rune.runtime.history import iso  # noqa: PLC0415

    return {
        "number": entry.number,
        "at": iso(entry.at),
        "actor": entry.actor,
        "action": entry.action,
        "target": entry.target,
        "details": entry.details,
        "outcome": entry.outcome,
    }


def _print(documents: list[dict[str, Any]], *, as_json: bool) -> None:
    from rune.cli.problems import print_json  # noqa: PLC0415
    from rune.cli.text import Cell, print_table  # noqa: PLC0415

    if as_json:
        print_json({"entries": documents})
        return
    if not documents:
        print("nothing was changed")
        return
    rows: list[list[Cell]] = [
        [
            each["at"],
            each["actor"],
            (each["action"], "bold"),
            each["target"],
            " ".join(f"{name}={value}" for name, value in each["details"].items()),
            "" if each["outcome"] == "asked" else (each["outcome"], "red"),
        ]
        for each in documents
    ]
    print_table(("at", "who", "what", "of", "with", "refused"), rows)
