"""`rune credentials grant` and `withdraw`: who may use a credential."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rune.settings import Settings

Name = Annotated[str, typer.Argument(metavar="NAME", help="Its name, or its id.")]
Whom = Annotated[
    list[str],
    typer.Argument(
        metavar="WHOM...",
        help="everyone, queue, local, bootstrap, key:ID, trigger:ID or workflow:ID; an ID may hold *.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def grant(name: Name, whom: Whom, as_json: Json = False) -> None:
    """Let executions use a credential: those that somebody starts, or those of a stored workflow.

    Unless said otherwise `everyone` may, which is everybody who can start an execution but the queue.

    Example: rune credentials grant shop queue
    """
    _change(name, whom, granted=True, as_json=as_json)


def withdraw(name: Name, whom: Whom, as_json: Json = False) -> None:
    """Take a grant back. It holds from the next use on, also for executions that run.

    Example: rune credentials withdraw shop everyone
    """
    _change(name, whom, granted=False, as_json=as_json)


def granted_to(settings: Settings, credential: str) -> list[str] | None:
    """Who may use the credential of this id; None where a server does not tell."""
    from rune.cli.access import over_vault, read  # noqa: PLC0415 - help must be quick
    from rune.core.rights import DEFAULT_GRANTS  # noqa: PLC0415

    if settings.url:
        return over_vault(settings, lambda vault: vault.granted(credential))
    return sorted(read(settings, lambda opened: opened.grants.of(credential), DEFAULT_GRANTS))


def _change(name: str, whom: list[str], *, granted: bool, as_json: bool) -> None:
    from rune.cli.access import changed, leave  # noqa: PLC0415 - help must be quick
    from rune.cli.problems import print_json  # noqa: PLC0415

    def work(settings: Settings) -> None:
        found = changed(
            settings,
            lambda desk: (
                desk.grant_credential(name, tuple(whom))
                if granted
                else desk.withdraw_credential(name, tuple(whom))
            ),
        )
        if as_json:
            print_json({"status": "ok", "credential": name, "granted": sorted(found)})
        else:
            print(f"{name}: {', '.join(sorted(found)) or 'nobody'} may use it")

    leave(work, as_json=as_json)
