"""`rune migrate`: bring the database of a cluster to the version of this program.

`rune topology`: what RabbitMQ and Redis are set up with.

`rune workers`: the processes that take part in a cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rune.ports.processes import ProcessInfo
    from rune.settings import Settings


def migrate(
    roles: Annotated[
        bool,
        typer.Option(
            "--roles",
            help="Then give rune_worker, rune_scheduler and rune_api the rights that they need, and no others.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Bring the database to the version of this program. Workers of the version before may go on meanwhile.

    Done twice, or by several at once, it is done once. A database of a newer version is left alone.

    Example: rune migrate --roles
    """
    import asyncio

    from rune import bootstrap
    from rune.cli.backend import require_local
    from rune.cli.output import print_json, refuse_error
    from rune.errors import RuneError
    from rune.settings import load_settings

    try:
        settings = load_settings()
        require_local(settings, "migrate")
        steps = asyncio.run(bootstrap.migrate(settings))
        granted = asyncio.run(bootstrap.grant_roles(settings)) if roles else []
    except RuneError as error:
        raise typer.Exit(refuse_error(error, as_json=as_json)) from None
    if as_json:
        print_json({"status": "ok", "steps": steps} | ({"roles": granted} if roles else {}))
        return
    print("\n".join(f"taken: {each}" for each in steps) if steps else "the database is up to date")
    if granted:
        print(f"rights given to {', '.join(granted)}")


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
    from rune.bootstrap.admin import (
        redis_roles,
        redis_users,
        role_names,
        topology_definitions,
        topology_document,
        topology_text,
    )
    from rune.cli.output import print_json, refuse_error
    from rune.errors import RuneError
    from rune.settings import load_settings

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
    import os
    import secrets
    import sys

    found: dict[str, str] = {}
    for role in roles:
        given = os.environ.get(f"RUNE_PASSWORD_{role.upper()}")
        if not given:
            given = secrets.token_urlsafe(24)
            print(f"the password of rune-{role} is {given}", file=sys.stderr)
        found[role] = given
    return found


def workers(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """List the processes of the cluster that were seen of late: what they do, and how busy they are.

    A process that has not been seen for 15 s is not listed. Its work is taken over sooner than that, by its leases.
    """
    from rune.cli.output import refuse_error
    from rune.errors import RuneError
    from rune.settings import load_settings

    try:
        found = _members(load_settings())
    except RuneError as error:
        raise typer.Exit(refuse_error(error, as_json=as_json)) from None
    if as_json:
        import msgspec

        from rune.cli.output import print_json

        print_json({"workers": msgspec.to_builtins(found)})
    elif not found:
        print("no process takes part now; `rune serve worker` starts one")
    else:
        _print(found)


def _members(settings: Settings) -> list[ProcessInfo]:
    import asyncio

    if not settings.url:
        from rune.bootstrap import list_processes

        return asyncio.run(list_processes(settings))
    from rune.cli.backend import with_client
    from rune.cli.remote import member

    return [member(each) for each in with_client(settings, lambda asked: asked.workers())]


def _print(found: list[ProcessInfo]) -> None:
    import time

    from rune.cli.output import Cell, clean, duration, print_table

    now = time.time_ns() // 1_000_000
    rows: list[list[Cell]] = [
        [
            clean(each.name),
            ", ".join(each.roles) + (", draining" if each.draining else ""),
            ", ".join(each.queues) if "worker" in each.roles else "",
            f"{each.busy}/{each.slots}" if "worker" in each.roles else "",
            duration(max(0, now - each.started_at)),
            duration(max(0, now - each.seen_at)),
            each.version,
        ]
        for each in found
    ]
    print_table(["process", "roles", "queues", "busy", "up", "seen", "version"], rows)
