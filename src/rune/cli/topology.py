"""`rune topology`: what RabbitMQ and Redis are set up with."""

from __future__ import annotations

from typing import Annotated

import typer


def topology(
    definitions: Annotated[
        bool,
        typer.Option(
            "--definitions",
            help="Print a file that RabbitMQ imports, with a user for each role. Passwords are taken from"
            " RUNE_PASSWORD_WORKER and RUNE_PASSWORD_MASTER, or made up and said on stderr.",
        ),
    ] = False,
    redis_acl: Annotated[
        bool,
        typer.Option(
            "--redis-acl",
            help="Print a file that Redis loads as `aclfile`, with a user for each role. Passwords are taken from"
            " RUNE_PASSWORD_WORKER, _SCHEDULER, _API and _WATCHER, or made up and said on stderr.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show the exchanges, queues and rights that workers expect at the broker. Nothing is asked of it.

    Examples: rune topology; rune topology --definitions > definitions.json; rune topology --redis-acl > users.acl
    """
    from rune.cli.problems import print_json, refuse_error  # noqa: PLC0415 - help must be quick
    from rune.compose.broker import (  # noqa: PLC0415
        redis_roles,
        redis_users,
        role_names,
        topology_definitions,
        topology_document,
        topology_text,
    )
    from rune.errors import RuneError  # noqa: PLC0415
    from rune.settings import load_settings  # noqa: PLC0415

    try:
        settings = load_settings()
        if redis_acl:
            print(redis_users(settings, _passwords(redis_roles())), end="")
        elif definitions:
            print_json(topology_definitions(settings, _passwords(role_names(settings))))
        elif as_json:
            print_json(topology_document(settings))
        else:
            print(topology_text(settings))
    except RuneError as error:
        raise typer.Exit(refuse_error(error, as_json=as_json)) from None


def _passwords(roles: list[str]) -> dict[str, str]:
    """A password for each role. One that is made up is said once, where it does not get into the file."""
    import os  # noqa: PLC0415
    import secrets  # noqa: PLC0415
    import sys  # noqa: PLC0415

    found: dict[str, str] = {}
    for role in roles:
        given = os.environ.get(f"RUNE_PASSWORD_{role.upper()}")
        if not given:
            given = secrets.token_urlsafe(24)
            print(f"the password of rune-{role} is {given}", file=sys.stderr)
        found[role] = given
    return found
