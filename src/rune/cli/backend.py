"""Whom commands ask: the server that RUNE_URL names, or else the stores by way of the composition.

What commands ask about keys, grants and the log: of the server that RUNE_URL names, or of the stores.

Commands that a server cannot be asked for, and why.

What the reading commands share: the way to the file, ids that may be abbreviated, and clear refusals.

What the commands about stored definitions share: the way to the desk, names of versions, versions as documents.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec
import typer

from rune import bootstrap
from rune.bootstrap.components import Access
from rune.cli.output import INTERRUPTED, refuse_error
from rune.client import AsyncClient
from rune.core.execution.explain import Waiting
from rune.core.execution.explain import explain as why
from rune.errors import RuneError
from rune.ports.workflows import (
    LATEST,
    InvalidWeightsError,
    Version,
    check_weights,
    choose,
    workflow_not_found,
)
from rune.runtime.components import Services
from rune.runtime.queries.history import iso
from rune.runtime.queries.reader import ExecutionReader
from rune.settings import Settings, load_settings

if TYPE_CHECKING:
    from rune.cli.remote import RemoteCredentialService


@asynccontextmanager
async def open_services(settings: Settings) -> AsyncIterator[Services]:
    """The verbs, done by whoever may."""
    if not settings.url:
        async with bootstrap.open_services(settings) as opened:
            yield opened
        return
    from rune.cli.remote import (
        client,
        remote_services,
    )

    async with client(settings) as asked:
        yield remote_services(asked, settings)


@asynccontextmanager
async def open_reader(settings: Settings) -> AsyncIterator[ExecutionReader]:
    """A look at what is remembered."""
    if not settings.url:
        async with bootstrap.open_reader(settings) as opened:
            yield opened
        return
    from rune.cli.remote import (
        RemoteReader,
        client,
    )

    async with client(settings) as asked:
        yield cast(ExecutionReader, RemoteReader(asked, settings))


def exists(settings: Settings) -> bool:
    """Whether there is anything to look at. A server that cannot be reached says so itself."""
    return bool(settings.url) or bootstrap.exists(settings)


async def owner(settings: Settings) -> tuple[bool, str]:
    """Whether executions are run now, and by whom, in words."""
    return (True, f"at {settings.url}") if settings.url else await bootstrap.find_owner(settings)


def owner_pid(settings: Settings) -> int | None:
    """Which process owns the file."""
    return None if settings.url else bootstrap.owner_pid(settings)


S = TypeVar("S")
T = TypeVar("T")


def read_access(settings: Settings, wish: Callable[[Access], Awaitable[T]], nothing: T) -> T:
    """Look into the stores, beside whoever writes them."""
    return beside(settings, bootstrap.open_access, wish, nothing)


def beside(
    settings: Settings,
    opening: Callable[[Settings], AbstractAsyncContextManager[S]],
    wish: Callable[[S], Awaitable[T]],
    nothing: T,
) -> T:
    """Look into what is opened so; `nothing` where nobody has written anything yet."""

    async def asked() -> T:
        async with opening(settings) as opened:
            return await wish(opened)

    if not bootstrap.exists(settings):
        return nothing
    try:
        return asyncio.run(asked())
    except RuneError as error:
        if error.code != "EMPTY_STORE":
            raise
        return nothing


def write(settings: Settings, wish: Callable[[Services], Awaitable[T]]) -> T:
    """Have something written by whoever owns the stores."""

    async def asked() -> T:
        async with bootstrap.open_services(settings) as services:
            return await wish(services)

    return asyncio.run(asked())


def with_client(settings: Settings, wish: Callable[[AsyncClient], Awaitable[T]]) -> T:
    """Ask a server."""
    from rune.cli.remote import client

    async def asked() -> T:
        async with client(settings) as opened:
            return await wish(opened)

    return asyncio.run(asked())


def with_credentials(settings: Settings, wish: Callable[[RemoteCredentialService], Awaitable[T]]) -> T:
    """Call the credential service of a server."""
    from rune.cli.remote import RemoteCredentialService, client

    async def run() -> T:
        async with client(settings) as opened:
            return await wish(RemoteCredentialService(opened, settings))

    return asyncio.run(run())


def changed(settings: Settings, wish: Callable[[Services], Awaitable[T]]) -> T:
    """Have a credential changed, by a server or by whoever owns the stores. Both know the same verbs."""
    return ask(settings, wish)


def exit_with(work: Callable[[Settings], None], *, as_json: bool) -> None:
    """Do it and leave, with a refusal as the other commands say it."""
    code = 0
    try:
        work(load_settings())
    except RuneError as error:
        code = refuse_error(error, as_json=as_json)
    except (KeyboardInterrupt, EOFError):
        code = INTERRUPTED
    raise typer.Exit(code)


LOCAL_ONLY = {
    "audit": "reads every row of the journal, which no server gives away",
    "gc": "removes executions from the stores for good",
    "backup": "copies the file of the machine that it runs on",
    "restore": "puts back the file of the machine that it runs on",
    "migrate": "changes the tables of the database, which servers have no right to",
    "credentials rekey": "needs the keys that seal, old and new",
    "credentials key new": "writes the file with the keys that seal",
    "nodes --nodes": "loads modules of the machine that it runs on",
}


def require_local(settings: Settings, command: str) -> None:
    """Refuse a command whose work lies where the server runs, if the settings name one."""
    if settings.url:
        from rune.bootstrap import UnsupportedOverUrlError

        raise UnsupportedOverUrlError(
            f"`rune {command}` {LOCAL_ONLY[command]}: unset RUNE_URL ({settings.url}) and run it where the server runs"
        )


Work = Callable[[ExecutionReader, Settings], Awaitable[int]]

MAX_LISTED = 5


class UnknownReferenceError(RuneError):
    """No execution is called like this."""

    code = "UNKNOWN_EXECUTION"


def read(
    work: Work, *, as_json: bool, without_file: Callable[[], int] | None = None, here: str | None = None
) -> int:
    """Do something with the file, read-only; answers the exit code.

    `without_file` is what to do where nothing was ever run, `here` a command that no server can be asked for.
    """
    try:
        settings = load_settings()
        if here is not None:
            require_local(settings, here)
        if not exists(settings):
            return _no_file(settings, without_file, as_json=as_json)
        try:
            return asyncio.run(_run(work, settings))
        except RuneError as error:
            if error.code != "EMPTY_STORE":
                raise
            return _no_file(settings, without_file, as_json=as_json)
    except UnknownReferenceError as unknown:
        return refuse_error(unknown, as_json=as_json, hint="`rune list` shows what there is")
    except RuneError as error:
        return refuse_error(error, as_json=as_json)
    except BrokenPipeError:
        # Whoever read us has seen enough; the interpreter must not try to flush what is left.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return INTERRUPTED


async def _run(work: Work, settings: Settings) -> int:
    async with open_reader(settings) as opened:
        return await work(opened, settings)


def _no_file(settings: Settings, without_file: Callable[[], int] | None, *, as_json: bool) -> int:
    if without_file is not None:
        return without_file()
    if settings.clustered:
        return refuse_error(
            UnknownReferenceError("nothing was run here yet: the database is empty"), as_json=as_json
        )
    missing = UnknownReferenceError(f"nothing was run here yet: there is no {settings.database}")
    return refuse_error(missing, as_json=as_json, hint="`rune run FILE` makes it; RUNE_HOME says where it is")


async def waiting_of(opened: ExecutionReader, execution: str, now: int) -> tuple[bool, list[Waiting]]:
    """Whether an execution is paused, and what it waits for. A server says so itself: it knows every node type."""
    told = getattr(opened, "waiting", None)
    if told is not None:
        answer: tuple[bool, list[Waiting]] = await told(execution)
        return answer
    plan, state = await opened.state(execution, now)
    return state.paused_at is not None, why(plan, state)


async def resolve(opened: ExecutionReader, given: str) -> str:
    """The one execution whose id begins like this."""
    if await opened.execution(given) is not None:
        return given
    found = await opened.matching(given, MAX_LISTED + 1) if given else []
    if len(found) == 1:
        return found[0]
    if not found:
        raise UnknownReferenceError(f"no execution has the id `{given}`")
    more = ", …" if len(found) > MAX_LISTED else ""
    raise UnknownReferenceError(
        f"several executions begin with `{given}`: {', '.join(found[:MAX_LISTED])}{more}"
    )


HINTS = {"UNKNOWN_WORKFLOW": "`rune workflows` shows what there is"}

WorkflowQuery = Callable[[ExecutionReader], Awaitable[int]]


def run_reporting_errors(work: Callable[[], int], *, as_json: bool) -> int:
    """Do something and answer the exit code, of a refusal too."""
    try:
        return work()
    except RuneError as error:
        return refuse_error(error, as_json=as_json, hint=HINTS.get(error.code, ""))
    except KeyboardInterrupt:
        return INTERRUPTED


def ask(settings: Settings, wish: Callable[[Services], Awaitable[T]]) -> T:
    """Have something written by whoever owns the file."""

    async def asked() -> T:
        async with open_services(settings) as opened:
            return await wish(opened)

    return asyncio.run(asked())


def known(settings: Settings, workflow: str, which: str | None) -> Version:
    """Look before the file is taken, or made: a name that nobody knows leaves no traces."""
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
        return await opened.library.versions(workflow)


def run_workflow_query(workflow: str, work: WorkflowQuery, *, as_json: bool) -> int:
    """Look at a stored workflow; answers the exit code."""

    async def looked(reader: ExecutionReader, _: Settings) -> int:
        try:
            return await work(reader)
        except RuneError as error:
            if error.code not in HINTS:
                raise
            return refuse_error(error, as_json=as_json, hint=HINTS[error.code])

    def nothing() -> int:
        missing = workflow_not_found(workflow, (), LATEST)
        return refuse_error(missing, as_json=as_json, hint=HINTS[missing.code])

    return read(looked, as_json=as_json, without_file=nothing)


def reference(given: str) -> tuple[str, str | None]:
    """`orders` or `orders@stable`: the workflow, and which of its versions."""
    workflow, at, which = given.partition("@")
    return workflow, which if at else None


def shares_of(given: tuple[str, ...], alias: str, number: Callable[[str], int]) -> dict[int, float]:
    """`4=10` and `latest=5` as percent by version."""
    found: dict[int, float] = {}
    for each in given:
        which, _, share = each.partition("=")
        try:
            percent = float(share.removesuffix("%"))
        except ValueError:
            raise InvalidWeightsError(
                f"`{each}` says no share; write for example {which or '4'}=10"
            ) from None
        if number(which) in found:
            raise InvalidWeightsError(f"`{each}`: this version was named before")
        found[number(which)] = percent
    check_weights(alias, found)
    return dict(sorted(found.items()))


async def definition_of(reader: ExecutionReader, version: Version) -> dict[str, Any]:
    """The definition as plain data in canonical form."""
    data = await reader.definition(version.hash)
    if data is None:
        raise RuneError(
            f"the definition {version.hash} of {label(version)} is missing", code="UNKNOWN_DEFINITION"
        )
    found: dict[str, Any] = msgspec.json.decode(data)
    return found


def label(version: Version) -> str:
    """`orders@3`."""
    return f"{version.workflow}@{version.number}"


def version_document(version: Version) -> dict[str, Any]:
    """A version as documents show it."""
    return {
        "version": version.number,
        "hash": version.hash,
        "deployed_at": iso(version.at),
        "aliases": list(version.aliases),
    }
