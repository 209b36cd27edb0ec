"""Access of the commands to executions, workflows and keys: over the server named by RUNE_URL, or in the stores.

Helpers here resolve abbreviated ids and versions, and turn errors into exit codes.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import typer

from rune import bootstrap
from rune.bootstrap import UnsupportedOverUrlError
from rune.bootstrap.components import Access
from rune.cli.output import INTERRUPTED, print_error
from rune.core.definition.problems import Problem
from rune.core.execution.explain import ActiveRuns, expected_by
from rune.core.execution.explain import explain as explain_state
from rune.core.execution.reasons import Waiting
from rune.core.json_decoder import read_json
from rune.core.validation.validate import ValidationResult
from rune.errors import RuneError
from rune.ports.clock import iso
from rune.ports.workflows import (
    LATEST,
    InvalidWeightsError,
    Version,
    check_others,
    check_weights,
    choose,
    workflow_not_found,
)
from rune.runtime.components import LocalServices
from rune.runtime.live import active_runs
from rune.runtime.queries.children import children, is_stored, undeployed_children
from rune.runtime.queries.reader import ExecutionReader
from rune.settings import Settings, load_settings

if TYPE_CHECKING:
    from rune.cli.remote.credentials import RemoteCredentialService
    from rune.cli.remote.reader import RemoteReader
    from rune.cli.remote.services import RemoteServices
    from rune.client import AsyncClient

CommandServices: TypeAlias = "LocalServices | RemoteServices"
"""The services of this process or of the owner process, or those of a server."""

CommandReader: TypeAlias = "ExecutionReader | RemoteReader"
"""A reader of the stores, or of a server."""


@asynccontextmanager
async def open_services(settings: Settings) -> AsyncIterator[CommandServices]:
    """Open the services of the server, of the owner process, or of this process."""
    if not settings.url:
        async with bootstrap.open_services(settings) as opened:
            yield opened
        return

    from rune.cli.remote.connection import client  # noqa: PLC0415 - the client is slow to import
    from rune.cli.remote.services import RemoteServices  # noqa: PLC0415 - the client is slow to import

    async with client(settings) as connected:
        yield RemoteServices(connected)


@asynccontextmanager
async def open_reader(settings: Settings) -> AsyncIterator[CommandReader]:
    """Open read-only access to executions and workflows."""
    if not settings.url:
        async with bootstrap.open_reader(settings) as opened:
            yield opened
        return

    from rune.cli.remote.connection import client  # noqa: PLC0415 - the client is slow to import
    from rune.cli.remote.reader import RemoteReader  # noqa: PLC0415 - the client is slow to import

    async with client(settings) as connected:
        yield RemoteReader(connected)


@asynccontextmanager
async def open_api(settings: Settings) -> AsyncIterator[tuple[AsyncClient, CommandServices]]:
    """Open a client of the server named by RUNE_URL, or else of the API in this process, and the same services."""
    from rune.cli.remote.connection import client, raise_local_errors  # noqa: PLC0415 - the client is slow to import
    from rune.cli.remote.services import RemoteServices  # noqa: PLC0415 - the client is slow to import

    if settings.url:
        async with client(settings) as connected:
            yield connected, RemoteServices(connected)
        return

    from rune.bootstrap.http import open_app  # noqa: PLC0415 - slow to import
    from rune.client import AsyncClient  # noqa: PLC0415

    async with open_app(settings) as (app, services), AsyncClient(app=app) as connected:
        with raise_local_errors(settings.data_place):
            yield connected, services


def exists(settings: Settings) -> bool:
    """Return whether a store exists; raise if the settings name a folder that is none or cannot be read. With a server
    this is always true: an unreachable one raises later."""
    if settings.url:
        return True
    bootstrap.check_home(settings)
    return bootstrap.exists(settings)


async def owner(settings: Settings) -> tuple[bool, str]:
    """Return whether a process runs executions now, and which one, as text."""
    return (True, f"at {settings.url}") if settings.url else await bootstrap.find_owner(settings)


def owner_pid(settings: Settings) -> int | None:
    """Return the pid of the process that owns the database file."""
    return None if settings.url else bootstrap.owner_pid(settings)


async def children_to_deploy(
    settings: Settings, document: ValidationResult, also: Collection[str] = ()
) -> tuple[Problem, ...]:
    """Return a warning for each child of a document that is not deployed on the server, or in the stores; none without
    a store. The children in `also` count as deployed."""
    if all(each.version is None and each.workflow in also for each in children(document)):
        return ()
    if settings.url:
        from rune.cli.remote.connection import client  # noqa: PLC0415 - the client is slow to import
        from rune.cli.remote.services import RemoteServices  # noqa: PLC0415 - the client is slow to import

        async with client(settings) as connected:
            known = await RemoteServices(connected).workflows.undeployed_children(document)
    elif not bootstrap.exists(settings):
        return ()
    else:
        async with bootstrap.open_reader(settings) as reader:
            known = await undeployed_children(document, partial(is_stored, reader.workflows))
    named = {f"nodes[{each.at}].parameters.workflow": each for each in children(document)}
    return tuple(each for each in known if named[each.path].version or named[each.path].workflow not in also)


S = TypeVar("S")
T = TypeVar("T")


def read_access(settings: Settings, action: Callable[[Access], Awaitable[T]], nothing: T) -> T:
    """Read keys, grants, limits or the audit log from the stores."""
    return read_store(settings, bootstrap.open_access, action, nothing)


def read_store(
    settings: Settings,
    open_store: Callable[[Settings], AbstractAsyncContextManager[S]],
    action: Callable[[S], Awaitable[T]],
    nothing: T,
) -> T:
    """Run a query on a store; return `nothing` if the store does not exist or is empty."""

    async def call() -> T:
        async with open_store(settings) as opened:
            return await action(opened)

    if not exists(settings):
        return nothing
    try:
        return asyncio.run(call())
    except RuneError as error:
        if error.code != "EMPTY_STORE":
            raise
        return nothing


def call_local_service(settings: Settings, action: Callable[[LocalServices], Awaitable[T]]) -> T:
    """Call the services of the owner process, or of this process if there is no owner."""

    async def call() -> T:
        async with bootstrap.open_services(settings) as services:
            return await action(services)

    return asyncio.run(call())


def with_client(settings: Settings, action: Callable[[AsyncClient], Awaitable[T]]) -> T:
    from rune.cli.remote.connection import client  # noqa: PLC0415 - the client is slow to import

    async def call() -> T:
        async with client(settings) as opened:
            return await action(opened)

    return asyncio.run(call())


def with_credentials(settings: Settings, action: Callable[[RemoteCredentialService], Awaitable[T]]) -> T:
    from rune.cli.remote.credentials import RemoteCredentialService  # noqa: PLC0415 - the client is slow to import

    return with_client(settings, lambda opened: action(RemoteCredentialService(opened)))


LOCAL_ONLY = {
    "verify": "reads every row of the journal, which the API does not expose",
    "prune": "deletes executions from the stores",
    "backup": "copies a database file of this machine",
    "restore": "replaces a database file of this machine",
    "migrate": "changes the tables of the database, which servers are not permitted to do",
    "credentials rekey": "needs the old and the new encryption keys",
    "credentials key new": "writes the file with the encryption keys",
    "nodes --nodes": "loads Python modules of this machine",
    "schema --nodes": "loads Python modules of this machine",
}


def not_over_url(what: str, settings: Settings) -> UnsupportedOverUrlError:
    return UnsupportedOverUrlError(
        f"{what} is not available over the server at {settings.url}: unset RUNE_URL and run it where the server runs"
    )


def require_local(settings: Settings, command: str) -> None:
    """Raise if the settings name a server: the command works on local files or stores."""
    if settings.url:
        raise UnsupportedOverUrlError(
            f"`rune {command}` {LOCAL_ONLY[command]}: unset RUNE_URL ({settings.url}) and run it where the server runs"
        )


Work: TypeAlias = "Callable[[CommandReader, Settings], Awaitable[int]]"
Query: TypeAlias = "Callable[[AsyncClient, CommandServices], Awaitable[int]]"

MAX_LISTED = 5


class UnknownReferenceError(RuneError):
    """No execution matches the given id."""

    code = "UNKNOWN_EXECUTION"


def read(work: Work, *, as_json: bool, without_file: Callable[[], int] | None = None) -> int:
    """Run a query with read-only access and return the exit code.

    `without_file` runs instead if the store does not exist.
    """

    async def run(settings: Settings) -> int:
        async with open_reader(settings) as opened:
            return await work(opened, settings)

    return _query(run, as_json=as_json, without_file=without_file)


def read_local(
    work: Callable[[ExecutionReader], Awaitable[int]],
    command: str,
    *,
    as_json: bool,
    without_file: Callable[[], int] | None,
) -> int:
    """Run the query of a command that does not work over a server, and return the exit code."""

    async def run(settings: Settings) -> int:
        async with bootstrap.open_reader(settings) as opened:
            return await work(opened)

    return _query(run, as_json=as_json, without_file=without_file, here=command)


def query_api(work: Query, *, as_json: bool, without_file: Callable[[], int] | None = None) -> int:
    """Run a query of the API, of the server or in this process, and return the exit code."""

    async def run(settings: Settings) -> int:
        async with open_api(settings) as (opened, services):
            return await work(opened, services)

    return _query(run, as_json=as_json, without_file=without_file)


async def resolve_with_client(opened: AsyncClient, given: str) -> str:
    """Return the id of the only execution whose id starts with `given`."""
    from rune.cli.remote.reader import RemoteReader  # noqa: PLC0415 - the client is slow to import

    return await resolve(RemoteReader(opened), given)


def _query(
    run: Callable[[Settings], Coroutine[Any, Any, int]],
    *,
    as_json: bool,
    without_file: Callable[[], int] | None,
    here: str | None = None,
) -> int:
    try:
        settings = load_settings()
        if here is not None:
            require_local(settings, here)
        if not exists(settings):
            return _no_file(settings, without_file, as_json=as_json)
        try:
            return asyncio.run(run(settings))
        except RuneError as error:
            if error.code != "EMPTY_STORE":
                raise
            return _no_file(settings, without_file, as_json=as_json)
    except UnknownReferenceError as unknown:
        return print_error(unknown, as_json=as_json, hint="see `rune list`")
    except RuneError as error:
        return print_error(error, as_json=as_json)
    except BrokenPipeError:
        # The reader of the pipe has closed it; the interpreter must not flush the rest on exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return INTERRUPTED


def _no_file(settings: Settings, without_file: Callable[[], int] | None, *, as_json: bool) -> int:
    if without_file is not None:
        return without_file()
    if settings.clustered:
        return print_error(UnknownReferenceError("no executions yet: the database is empty"), as_json=as_json)
    missing = UnknownReferenceError(f"no executions yet: {settings.database} does not exist")
    return print_error(missing, as_json=as_json, hint="`rune run FILE` creates it; RUNE_HOME sets its folder")


async def waiting_of(
    opened: CommandReader, settings: Settings, execution: str, now: int
) -> tuple[bool, list[Waiting], int | None]:
    """Return whether an execution is paused, what it waits for, and when it is late.

    A server computes this itself, since it has all node types.
    """
    if not isinstance(opened, ExecutionReader):
        return await opened.waiting(execution)
    plan, state = await opened.state(execution, now)
    active = None if state.ended else await _active_runs(settings, execution, now)
    return state.paused_at is not None, explain_state(plan, state, active), expected_by(plan, state)


async def _active_runs(settings: Settings, execution: str, now: int) -> ActiveRuns:
    try:
        async with bootstrap.open_live(settings) as running:
            return active_runs(await running(execution), now)
    except RuneError:
        return ActiveRuns({}, now, complete=False)


async def resolve(opened: CommandReader, given: str) -> str:
    """Return the id of the only execution whose id starts with `given`."""
    if await opened.execution(given) is not None:
        return given
    found = await opened.matching(given, MAX_LISTED + 1) if given else []
    if len(found) == 1:
        return found[0]
    if not found:
        raise UnknownReferenceError(f"no execution has the id `{given}`")
    more = ", …" if len(found) > MAX_LISTED else ""
    raise UnknownReferenceError(
        f"several executions start with `{given}`: {', '.join(found[:MAX_LISTED])}{more}"
    )


HINTS: Mapping[str, str] = {"UNKNOWN_WORKFLOW": "see `rune workflows`"}
NO_HINTS: Mapping[str, str] = {}

WorkflowQuery: TypeAlias = "Callable[[CommandReader], Awaitable[int]]"


def run_reporting_errors(
    work: Callable[[], int | None], *, as_json: bool, hints: Mapping[str, str] = HINTS
) -> int:
    """Run the work of a command and return the exit code. Print an error if it raises, with the hint for its code."""
    try:
        return work() or 0
    except RuneError as error:
        return print_error(error, as_json=as_json, hint=hints.get(error.code, ""))
    except (KeyboardInterrupt, EOFError):
        return INTERRUPTED


def exit_with(
    work: Callable[[Settings], int | None], *, as_json: bool, hints: Mapping[str, str] = NO_HINTS
) -> None:
    """Run the work of a command with the settings, and exit with its exit code; 0 if it returns none."""
    raise typer.Exit(run_reporting_errors(lambda: work(load_settings()), as_json=as_json, hints=hints))


async def call(settings: Settings, action: Callable[[CommandServices], Awaitable[T]]) -> T:
    """Call the services of the server, of the owner process, or of this process."""
    async with open_services(settings) as opened:
        return await action(opened)


def call_service(settings: Settings, action: Callable[[CommandServices], Awaitable[T]]) -> T:
    """Call the services, for a command without an event loop."""
    return asyncio.run(call(settings, action))


def find_version(settings: Settings, workflow: str, which: str | None) -> Version:
    """Return a version of a workflow. Read-only, so that an unknown name does not create the database file."""
    if not exists(settings):
        raise workflow_not_found(workflow, (), LATEST)
    try:
        return choose(workflow, asyncio.run(_versions(settings, workflow)), which)
    except RuneError as error:
        if error.code != "EMPTY_STORE":
            raise
        raise workflow_not_found(workflow, (), LATEST) from None


async def _versions(settings: Settings, workflow: str) -> list[Version]:
    async with open_reader(settings) as opened:
        return await opened.workflows.versions(workflow)


def run_workflow_query(workflow: str, work: WorkflowQuery, *, as_json: bool) -> int:
    """Run a query about a deployed workflow and return the exit code."""

    async def query(reader: CommandReader, _: Settings) -> int:
        try:
            return await work(reader)
        except RuneError as error:
            if error.code not in HINTS:
                raise
            return print_error(error, as_json=as_json, hint=HINTS[error.code])

    def nothing() -> int:
        missing = workflow_not_found(workflow, (), LATEST)
        return print_error(missing, as_json=as_json, hint=HINTS[missing.code])

    return read(query, as_json=as_json, without_file=nothing)


def split_reference(given: str) -> tuple[str, str | None]:
    """Split `orders` or `orders@stable` into the workflow and the version."""
    workflow, at, which = given.partition("@")
    return workflow, which if at else None


def parse_weights(
    given: tuple[str, ...], alias: str, version: int, number: Callable[[str], int]
) -> dict[int, float]:
    """Parse `4=10` and `latest=5` into percentages by version number, for an alias that points at `version`."""
    found: dict[int, float] = {}
    for each in given:
        which, _, percentage = each.partition("=")
        if not which:
            raise InvalidWeightsError(f"`{each}` names no version; expected for example 4=10")
        try:
            percent = float(percentage.removesuffix("%"))
        except ValueError:
            raise InvalidWeightsError(
                f"`{each}` has no percentage; expected for example {which or '4'}=10"
            ) from None
        other = number(which)
        if other in found:
            raise InvalidWeightsError(f"`{each}`: version {other} is given twice")
        found[other] = percent
    check_weights(alias, found)
    check_others(alias, version, found)
    return dict(sorted(found.items()))


async def definition_of(reader: CommandReader, version: Version) -> dict[str, Any]:
    """Return a stored definition in canonical form, as plain data."""
    data = await reader.definition(version.hash)
    if data is None:
        raise RuneError(
            f"the definition {version.hash} of {label(version)} is missing", code="UNKNOWN_DEFINITION"
        )
    found: dict[str, Any] = read_json(data)
    return found


def label(version: Version) -> str:
    """Format a version as `orders@3`."""
    return f"{version.workflow}@{version.number}"


def version_document(version: Version) -> dict[str, Any]:
    return {
        "version": version.number,
        "hash": version.hash,
        "deployed_at": iso(version.at),
        "aliases": list(version.aliases),
        "principal": version.principal,
        "note": version.note,
    }
