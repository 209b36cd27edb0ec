"""`rune credentials grant` and `withdraw`: who may use a credential.

`rune credentials`: what nodes log in with. Values go in and never come out.

The values of a credential, from where nobody looks over the shoulder: a prompt, a file, or standard input.

They are never taken from the command line, which every process of the machine can read.
"""

from __future__ import annotations

import getpass
import sys
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import msgspec
import typer

from rune.core.definition.strict_json import decode_json
from rune.ports.credentials import TYPES, CredentialError, Fields, secret_names

if TYPE_CHECKING:
    from rune.cli.remote import RemoteCredentialService
    from rune.ports.credentials import CredentialSummary
    from rune.runtime.services.credentials import CredentialService
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


def granted_to(settings: Settings, credential: str) -> Sequence[str] | None:
    """Who may use the credential of this id; None where a server does not tell."""
    from rune.cli.backend import read_access, with_credentials
    from rune.core.permissions import DEFAULT_GRANTS

    if settings.url:
        return with_credentials(settings, lambda vault: vault.granted(credential))
    return sorted(read_access(settings, lambda opened: opened.grants.of(credential), DEFAULT_GRANTS))


def _change(name: str, whom: list[str], *, granted: bool, as_json: bool) -> None:
    from rune.cli.backend import changed, exit_with
    from rune.cli.output import print_json

    def work(settings: Settings) -> None:
        found = changed(
            settings,
            lambda services: (
                services.credentials.grant(name, tuple(whom))
                if granted
                else services.credentials.withdraw(name, tuple(whom))
            ),
        )
        if as_json:
            print_json({"status": "ok", "credential": name, "granted": sorted(found)})
        else:
            print(f"{name}: {', '.join(sorted(found)) or 'nobody'} may use it")

    exit_with(work, as_json=as_json)


T = TypeVar("T")

credentials = typer.Typer(
    name="credentials",
    help="Store what nodes log in with, sealed. Nothing here ever shows a value.",
    no_args_is_help=True,
)
key = typer.Typer(name="key", help="The keys that seal the credentials.", no_args_is_help=True)
credentials.add_typer(key)
credentials.command("grant")(grant)
credentials.command("withdraw")(withdraw)


class Type(StrEnum):
    """The kinds of credentials."""

    basic = "basic"
    bearer = "bearer"
    header = "header"
    api_key = "api_key"
    oauth2 = "oauth2"
    smtp = "smtp"
    custom = "custom"


FieldList = Annotated[
    list[str] | None,
    typer.Option("--field", metavar="NAME=VALUE", help="A field that is not secret; may be given again."),
]
HostList = Annotated[
    list[str] | None,
    typer.Option("--host", metavar="HOST", help="Send it only to this host or *.domain; may be given again."),
]
Source = Annotated[
    str | None,
    typer.Option(
        "--from-file", metavar="PATH", help="Read the fields from a JSON file; - is standard input."
    ),
]


@credentials.command("add")
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What nodes call it.")],
    type: Annotated[Type, typer.Option("--type", "-t", help="What it is.")],
    fields: FieldList = None,
    hosts: HostList = None,
    source: Source = None,
    as_json: Json = False,
) -> None:
    """Store a credential. Secret values are asked for, or read from a file or standard input.

    Examples: rune credentials add shop --type bearer --host api.shop.example;
    rune credentials add mail --type smtp --from-file mail.json
    """
    from rune.cli.backend import changed
    from rune.runtime.services.credentials import new_id

    def work(settings: Settings) -> CredentialSummary:
        values = values_of(type.value, fields or [], source)
        id = new_id()  # asked again because a connection broke, it is still the same one
        return changed(
            settings,
            lambda services: services.credentials.add(name, type.value, values, tuple(hosts or ()), id),
        )

    _done(work, "added", as_json=as_json)


@credentials.command("list")
def list_all(as_json: Json = False) -> None:
    """List the credentials, without values."""

    def work(settings: Settings) -> int:
        found: tuple[CredentialSummary, ...] = _read_credentials(settings, lambda vault: vault.list(), ())
        _print_all(found, as_json=as_json)
        return 0

    _exit(work, as_json=as_json)


@credentials.command("show")
def show(name: Name, as_json: Json = False) -> None:
    """Show what is known of one: type, fields, hosts, version, key, who may use it. No values."""

    def work(settings: Settings) -> int:

        found = _known(settings, name)
        _print_one(found, granted_to(settings, found.id), as_json=as_json)
        return 0

    _exit(work, as_json=as_json)


@credentials.command("rotate")
def rotate(
    name: Name,
    fields: FieldList = None,
    hosts: HostList = None,
    source: Source = None,
    as_json: Json = False,
) -> None:
    """Give a credential new values. What is not given stays; nodes use the new ones from their next call on.

    Example: rune credentials rotate shop
    """
    from rune.cli.backend import changed

    def work(settings: Settings) -> CredentialSummary:
        known = _known(settings, name)
        partly = bool(fields) or hosts is not None
        values = values_of(known.type, fields or [], source, only_given=partly)
        bound = None if hosts is None else tuple(hosts)
        return changed(settings, lambda services: services.credentials.rotate(name, values, bound))

    _done(work, "rotated", as_json=as_json)


@credentials.command("remove")
def remove(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask on a terminal.")] = False,
    as_json: Json = False,
) -> None:
    """Forget a credential. Nodes that name it fail from then on."""

    def work(settings: Settings) -> CredentialSummary:
        import sys

        from rune.cli.backend import changed

        known = _known(settings, name)
        if sys.stdin.isatty() and not yes:
            typer.confirm(f"Remove {known.name} ({known.type})?", abort=True, err=True)
        return changed(settings, lambda services: services.credentials.remove(name))

    _done(work, "removed", as_json=as_json)


@credentials.command("rekey")
def rekey(as_json: Json = False) -> None:
    """Seal everything with the newest key. Afterwards older keys open nothing and can go."""

    def work(settings: Settings) -> int:
        from rune import bootstrap
        from rune.cli.backend import (
            require_local,
            write,
        )

        require_local(settings, "credentials rekey")
        count = (
            write(settings, lambda services: services.credentials.reencrypt())
            if bootstrap.exists(settings)
            else 0
        )
        if as_json:
            from rune.cli.output import print_json

            print_json({"status": "ok", "rekeyed": count})
        else:
            print(f"{count} sealed anew; older keys are no longer needed")
        return 0

    _exit(work, as_json=as_json)


@key.command("new")
def new_key(
    only_print: Annotated[
        bool, typer.Option("--print", help="Print a key for RUNE_SECRET_KEY and keep it nowhere.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Make a new key the one that seals. What is sealed stays readable; `rune credentials rekey` seals it anew."""
    from rune import bootstrap
    from rune.cli.backend import require_local
    from rune.cli.output import print_json

    def work(settings: Settings) -> int:
        if only_print:
            made = bootstrap.fresh_key()
            if as_json:
                print_json({"key": made})
            else:
                print(made)
            return 0
        require_local(settings, "credentials key new")
        name, where = bootstrap.add_key(settings)
        if as_json:
            print_json({"status": "ok", "key": name, "file": where})
        else:
            print(f"{where}: key {name} seals from now on; keep a copy of the file in a safe place")
        return 0

    _exit(work, as_json=as_json)


def _read_credentials(settings: Settings, wish: Callable[[CredentialService], Awaitable[T]], nothing: T) -> T:
    """Look, beside whoever owns the file, or have a server look."""
    from rune import bootstrap
    from rune.cli.backend import beside, with_credentials

    if settings.url:
        return with_credentials(settings, cast("Callable[[RemoteCredentialService], Awaitable[T]]", wish))
    return beside(settings, bootstrap.open_credentials, wish, nothing)


def _known(settings: Settings, name: str) -> CredentialSummary:
    from rune.ports.credentials import CredentialNotFoundError

    async def found(vault: CredentialService) -> CredentialSummary | None:
        return await vault.show(name)

    listing = _read_credentials(settings, found, None)
    if listing is None:
        raise CredentialNotFoundError(f"there is no credential `{name[:128]}`")
    return listing


def _exit(work: Callable[[Settings], int], *, as_json: bool) -> None:
    from rune.cli.output import INTERRUPTED, refuse_error
    from rune.errors import RuneError
    from rune.settings import load_settings

    hints = {
        "CREDENTIAL_MISSING": "`rune credentials list` shows what there is",
        "CREDENTIAL_EXISTS": "`rune credentials rotate` gives it new values",
        "SECRET_IN_ARGUMENTS": "leave it out to be asked, or use --from-file",
        "SECRET_KEY_ENVIRONMENT": "`rune credentials key new --print` makes one",
    }
    try:
        code = work(load_settings())
    except RuneError as error:
        code = refuse_error(error, as_json=as_json, hint=hints.get(error.code, ""))
    except (KeyboardInterrupt, EOFError):
        code = INTERRUPTED
    raise typer.Exit(code)


def _done(work: Callable[[Settings], CredentialSummary], what: str, *, as_json: bool) -> None:
    def told(settings: Settings) -> int:
        listing = work(settings)
        if as_json:
            _print_one(listing, as_json=True)
        else:
            print(f"{what} {listing.name} ({listing.type}, version {listing.version})")
        return 0

    _exit(told, as_json=as_json)


def _document(each: CredentialSummary) -> dict[str, Any]:
    from rune.runtime.queries.history import iso

    return {
        "id": each.id,
        "name": each.name,
        "type": each.type,
        "version": each.version,
        "fields": list(each.fields),
        "hosts": list(each.hosts),
        "key": each.key,
        "created_at": iso(each.created_at),
        "changed_at": iso(each.changed_at),
    }


def _print_all(found: tuple[CredentialSummary, ...], *, as_json: bool) -> None:
    from rune.cli.output import (
        Cell,
        moment,
        print_json,
        print_table,
    )

    if as_json:
        print_json({"credentials": [_document(each) for each in found]})
    elif not found:
        print("no credentials")
    else:
        rows: list[list[Cell]] = [
            [
                (each.name, "bold"),
                each.type,
                str(each.version),
                moment(each.changed_at),
                ", ".join(each.hosts) or "any",
            ]
            for each in found
        ]
        print_table(("name", "type", "version", "changed", "hosts"), rows)


def _print_one(each: CredentialSummary, granted: Sequence[str] | None = None, *, as_json: bool) -> None:
    from rune.cli.output import (
        Cell,
        moment,
        print_json,
        print_table,
    )

    if as_json:
        print_json(_document(each) | ({} if granted is None else {"granted": granted}))
        return
    rows: list[list[Cell]] = [
        ["id", each.id],
        ["type", each.type],
        ["version", str(each.version)],
        ["fields", ", ".join(each.fields)],
        ["hosts", ", ".join(each.hosts) or "any"],
        ["key", each.key],
        ["created", moment(each.created_at)],
        ["changed", moment(each.changed_at)],
    ]
    if granted is not None:
        rows.append(["granted", ", ".join(granted) or "nobody"])
    print_table(("credential", each.name), rows)


MAX_BYTES = 1024 * 1024
MAX_DEPTH = 5


class SourceNotFoundError(CredentialError):
    """A secret was written into the arguments."""

    code = "SECRET_IN_ARGUMENTS"


def values_of(
    type: str, fields: list[str], source: str | None, *, only_given: bool = False
) -> dict[str, Any]:
    """The values of a credential of this type. `only_given`: what is absent need not be asked for."""
    kind = TYPES.get(type)
    if kind is None:
        raise CredentialError(f"`{type[:40]}` is no type of credential; there are {', '.join(TYPES)}")
    given: dict[str, Any] = _open_fields(kind, type, fields)
    if source is not None:
        return given | _from_text(_read_source(source), kind, type, source)
    if only_given:
        return given
    if type == "custom":
        raise CredentialError("the values of a custom credential come from --from-file, as a JSON object")
    if not sys.stdin.isatty():
        return given | _from_text(_read_source("-"), kind, type, "standard input")
    return given | _asked(kind, given)


def _open_fields(kind: type[Fields], type: str, fields: list[str]) -> dict[str, Any]:
    """What may be seen, `name=value`."""
    hidden = secret_names(kind)
    found: dict[str, Any] = {}
    for each in fields:
        name, equals, value = each.partition("=")
        if name in hidden or type == "custom":
            raise SourceNotFoundError(
                f"`{name[:60]}` is secret and is not taken from the command line, where others can read it"
            )
        if not equals or name not in kind.__struct_fields__:
            known = [every for every in kind.__struct_fields__ if every not in hidden]
            raise CredentialError(f"--field: name=value, where name is one of {', '.join(known)}")
        found[name] = value
    return found


def _read_source(source: str) -> str:
    try:
        if source == "-":
            data = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with Path(source).open("rb") as file:
                data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise CredentialError(
            f"{source}: {(error.strerror or str(error)).lower()}", code="UNREADABLE"
        ) from None
    if len(data) > MAX_BYTES:
        raise CredentialError(f"{source}: more than {MAX_BYTES:,} bytes", code="TOO_LARGE")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise CredentialError(f"{source}: not UTF-8 text", code="NOT_TEXT") from None


def _from_text(text: str, kind: type[Fields], type: str, source: str) -> dict[str, Any]:
    """A JSON object of fields; or, where a type has one secret, that secret alone on a line."""
    hidden = secret_names(kind)
    if not text.lstrip().startswith("{") and type != "custom" and len(hidden) == 1:
        alone = text.removesuffix("\n").removesuffix("\r")
        if not alone:
            raise CredentialError(f"{source}: there is nothing")
        return {hidden[0]: alone}
    found = decode_json(text.encode(), max_bytes=MAX_BYTES, max_depth=MAX_DEPTH)
    if found.problems or not isinstance(found.value, dict):
        # The parser's own message could quote what it read.
        raise CredentialError(f"{source}: a JSON object of fields is expected", code="NOT_JSON")
    values: dict[str, Any] = found.value
    if values.get("type") == type:
        del values["type"]
    return values


def _asked(kind: type[Fields], given: dict[str, Any]) -> dict[str, Any]:
    """Ask on the terminal for what is secret, without echo, and for what else must be there."""
    hidden = secret_names(kind)
    required = {each.name for each in msgspec.structs.fields(kind) if each.required}
    answers: dict[str, Any] = {}
    for name in kind.__struct_fields__:
        if name in given or (name not in hidden and name not in required):
            continue
        answers[name] = getpass.getpass(f"{name}: ") if name in hidden else _typed(name)
    return {name: value for name, value in answers.items() if value or name in required}


def _typed(name: str) -> str:
    """An answer that may be seen; the question does not go where documents are printed."""
    print(f"{name}: ", end="", file=sys.stderr, flush=True)
    return input()
