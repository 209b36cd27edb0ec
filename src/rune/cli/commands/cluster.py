"""`rune migrate`, `rune topology` and `rune workers`: set up and inspect a cluster."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
import time
from typing import Annotated

import msgspec
import typer

from rune import bootstrap
from rune.bootstrap import UnsupportedByBackendError, list_processes
from rune.bootstrap.components import optional_imports
from rune.cli.backend import call, require_local, with_client
from rune.cli.follow import run_command
from rune.cli.output import Cell, clean, duration, print_error, print_json, print_table
from rune.cli.remote.workers import process_info
from rune.errors import RuneError
from rune.ports.processes import ProcessInfo
from rune.settings import Settings, load_settings


def migrate(
    roles: Annotated[
        bool,
        typer.Option(
            "--roles",
            help="Also grant rune_worker, rune_scheduler and rune_api exactly the permissions they need.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Prepare the stores of a cluster for this version of Rune.

    Run it once before starting a new version, with the users that own the
    stores: it changes the tables in PostgreSQL and loads the functions into
    Redis. Processes of the previous version may keep running. Repeated and
    concurrent runs are safe. A database of a newer version is not changed.

    Example: rune migrate --roles
    """
    try:
        settings = load_settings()
        require_local(settings, "migrate")
        steps = asyncio.run(bootstrap.migrate(settings))
        granted = asyncio.run(bootstrap.grant_roles(settings)) if roles else []
    except RuneError as error:
        raise typer.Exit(print_error(error, as_json=as_json)) from None
    if as_json:
        print_json({"status": "ok", "steps": steps} | ({"roles": granted} if roles else {}))
        return
    print("\n".join(f"applied: {each}" for each in steps) if steps else "the stores are up to date")
    if granted:
        print(f"permissions granted to {', '.join(granted)}")


def topology(
    definitions: Annotated[
        bool,
        typer.Option(
            "--definitions",
            help="Print a definitions file for RabbitMQ, with a user for each role. Passwords are read from"
            " RUNE_PASSWORD_WORKER, _MASTER and _EXTERNAL, or generated and printed to stderr.",
        ),
    ] = False,
    redis_acl: Annotated[
        bool,
        typer.Option(
            "--redis-acl",
            help="Print an ACL file for Redis, with a user for each role. Passwords are read from"
            " RUNE_PASSWORD_WORKER, _SCHEDULER, _API, _OWNER and _WATCHER, or generated and printed to stderr.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Print the queues and users that a cluster needs.

    Without an option: the exchanges, queues and permissions on RabbitMQ, as
    text. With an option: a file to load into RabbitMQ or Redis. No server is
    contacted.

    Examples:
      rune topology
      rune topology --definitions > definitions.json
      rune topology --redis-acl > users.acl
    """
    try:
        with optional_imports("`rune topology`"):
            from rune.bootstrap.admin import (  # noqa: PLC0415 - its drivers are an extra
                redis_roles,
                redis_users,
                role_names,
                topology_definitions,
                topology_document,
                topology_text,
            )
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
        raise typer.Exit(print_error(error, as_json=as_json)) from None


def _passwords(roles: list[str]) -> dict[str, str]:
    """Return a password for each role. Generated ones go to stderr, so that they stay out of the printed file."""
    found: dict[str, str] = {}
    for role in roles:
        given = os.environ.get(f"RUNE_PASSWORD_{role.upper()}")
        if not given:
            given = secrets.token_urlsafe(24)
            print(f"the password of rune-{role} is {given}", file=sys.stderr)
        found[role] = given
    return found


workers = typer.Typer(name="workers")

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
WorkerId = Annotated[str, typer.Argument(metavar="ID", help="Id of a worker, as `rune workers` lists it.")]


@workers.callback(invoke_without_command=True)
def _workers(context: typer.Context, as_json: Json = False) -> None:
    """List the running processes of a cluster, or drain one of its workers.

    A process that has crashed is listed until 15 s after its last heartbeat.
    Its nodes do not wait that long: other workers take them over after a few
    seconds.

    Examples:
      rune workers --json
      rune workers drain node1-4711-19e2a
    """
    if context.invoked_subcommand is None:
        list_workers(as_json)


@workers.command("drain")
def drain(worker: WorkerId, as_json: Json = False) -> None:
    """Drain a worker: it receives no more work and finishes what it holds.

    The worker stops receiving within 5 s. When its nodes have ended, it stays
    idle until `rune workers resume` or the end of its process. Nodes that have
    not started run on other workers.

    Example: rune workers drain node1-4711-19e2a
    """
    _ask(worker, draining=True, as_json=as_json)


@workers.command("resume")
def resume(worker: WorkerId, as_json: Json = False) -> None:
    """Let a drained worker receive work again.

    Example: rune workers resume node1-4711-19e2a
    """
    _ask(worker, draining=False, as_json=as_json)


def _ask(worker: str, *, draining: bool, as_json: bool) -> None:
    async def work(settings: Settings) -> int:
        if not settings.url and not settings.clustered:
            raise UnsupportedByBackendError("the embedded backend has no workers to drain; stop its process")
        await call(
            settings,
            lambda service: service.workers.drain(worker) if draining else service.workers.resume(worker),
        )
        if as_json:
            print_json({"id": worker, "draining": draining})
        else:
            print(f"asked {clean(worker)} to {'drain' if draining else 'resume'}; `rune workers` shows it")
        return 0

    raise typer.Exit(run_command(work, as_json=as_json))


@workers.command("list")
def list_workers(as_json: Json = False) -> None:
    """List the running processes of a cluster. The same as `rune workers`.

    Example: rune workers list
    """
    try:
        found = _list_processes(load_settings())
    except RuneError as error:
        raise typer.Exit(print_error(error, as_json=as_json)) from None
    if as_json:
        print_json({"workers": msgspec.to_builtins(found)})
    elif not found:
        print("no active processes; `rune serve worker` starts one")
    else:
        _print(found)


def _list_processes(settings: Settings) -> list[ProcessInfo]:
    if not settings.url:
        return asyncio.run(list_processes(settings))

    return [process_info(each) for each in with_client(settings, lambda api: api.workers())]


def _state(each: ProcessInfo) -> str:
    return "" if not each.draining else ", draining" if each.busy else ", drained"


def _print(found: list[ProcessInfo]) -> None:
    now = time.time_ns() // 1_000_000
    rows: list[list[Cell]] = [
        [
            clean(each.name),
            ", ".join(each.roles) + _state(each),
            ", ".join(each.queues) if "worker" in each.roles else "",
            f"{each.busy}/{each.slots}" if "worker" in each.roles else "",
            duration(max(0, now - each.started_at)),
            duration(max(0, now - each.seen_at)),
            each.version,
            clean(each.build),
        ]
        for each in found
    ]
    print_table(["process", "roles", "queues", "busy", "up", "seen", "version", "build"], rows)
