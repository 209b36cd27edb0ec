"""`rune credentials`: manage the credentials that nodes use, and their grants.

Secret values are read from a prompt, a file or standard input, never from the command line, which every process of the
machine can read. They are never printed.
"""

from __future__ import annotations

import getpass
import sys
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar

import msgspec
import typer

from rune import bootstrap
from rune.cli.backend import (
    CommandServices,
    call_local_service,
    call_service,
    exists,
    exit_with,
    query_api,
    read_access,
    read_store,
    require_local,
    with_credentials,
)
from rune.cli.output import Cell, clean, moment, print_json, print_table
from rune.client import AsyncClient
from rune.core.definition.strict_json import decode_json
from rune.core.permissions import DEFAULT_GRANTS
from rune.ports.clock import iso
from rune.ports.credentials import (
    TYPES,
    CredentialError,
    CredentialNotFoundError,
    CredentialSummary,
    Fields,
    secret_names,
)
from rune.runtime.services.credentials import new_id
from rune.settings import Settings

MAX_SOURCE_BYTES = 1024 * 1024
MAX_JSON_DEPTH = 5

T = TypeVar("T")

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name or id of the credential.")]
Grantees = Annotated[
    list[str],
    typer.Argument(
        metavar="GRANTEE...",
        help="everyone, queue, local, bootstrap, key:ID, trigger:ID, handler:WORKFLOW or workflow:ID; `*` in an ID "
        "matches any text.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def grant(name: Name, grantees: Grantees, as_json: Json = False) -> None:
    """Allow the executions of a principal or of a workflow to use a credential.

    A new credential is granted to the principal that added it. `everyone` is
    every execution except those that a message of the queue started.

    Example: rune credentials grant shop queue
    """
    _change_grants(name, grantees, granted=True, as_json=as_json)


def withdraw(name: Name, grantees: Grantees, as_json: Json = False) -> None:
    """Withdraw a grant, effective from the next use, also in running executions.

    Example: rune credentials withdraw shop everyone
    """
    _change_grants(name, grantees, granted=False, as_json=as_json)


def granted_to(settings: Settings, credential: str) -> Sequence[str] | None:
    """Return the grants of a credential; None if the API key may not read them."""
    if settings.url:
        return with_credentials(settings, lambda service: service.granted(credential))
    return sorted(read_access(settings, lambda opened: opened.grants.of(credential), DEFAULT_GRANTS))


def _change_grants(name: str, grantees: list[str], *, granted: bool, as_json: bool) -> None:
    def work(settings: Settings) -> None:
        found = call_service(
            settings,
            lambda service: (
                service.credentials.grant(name, tuple(grantees))
                if granted
                else service.credentials.withdraw(name, tuple(grantees))
            ),
        )
        if as_json:
            print_json({"status": "ok", "credential": name, "granted": sorted(found)})
        else:
            print(f"{name} is granted to {', '.join(sorted(found)) or 'no one'}")

    exit_with(work, as_json=as_json)


credentials = typer.Typer(
    name="credentials",
    help="Manage the credentials that nodes use. Values are never shown.\n\nWithout a command: list them.",
)
key = typer.Typer(name="key", help="Manage the keys that encrypt the credentials.", no_args_is_help=True)
credentials.add_typer(key)
credentials.command("grant")(grant)
credentials.command("withdraw")(withdraw)


class Type(StrEnum):
    basic = "basic"
    bearer = "bearer"
    header = "header"
    api_key = "api_key"
    oauth2 = "oauth2"
    smtp = "smtp"
    custom = "custom"


FieldList = Annotated[
    list[str] | None,
    typer.Option("--field", metavar="NAME=VALUE", help="Field that is not secret. Repeatable."),
]
HostList = Annotated[
    list[str] | None,
    typer.Option(
        "--host",
        metavar="HOST",
        help="Host that may receive the credential, *.domain, or * for any host. Repeatable.",
    ),
]
Source = Annotated[
    str | None,
    typer.Option(
        "--from-file", metavar="PATH", help="Read the fields from a JSON file; `-` reads standard input."
    ),
]


Insecure = Annotated[
    bool | None,
    typer.Option(
        "--insecure/--no-insecure",
        help="Permit connections without TLS, or with a certificate that is not verified.",
        show_default=False,
    ),
]


@credentials.command("add")
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name that nodes refer to.")],
    type: Annotated[Type, typer.Option("--type", "-t", help="Type of the credential.")],
    fields: FieldList = None,
    hosts: HostList = None,
    insecure: Insecure = None,
    grants: Annotated[
        list[str] | None,
        typer.Option(
            "--grant",
            metavar="GRANTEE",
            help="Principal or workflow that may use it, as for `grant`. Repeatable. Default: its creator.",
        ),
    ] = None,
    source: Source = None,
    as_json: Json = False,
) -> None:
    """Add a credential. Secret values are prompted for, or read from a file or standard input.

    Nodes send it to its hosts only, over verified TLS. Unless --grant names
    others, only executions that its creator starts may use it. The creator of a
    credential that is added on this machine is `local`.

    Examples:
      rune credentials add shop --type bearer --host api.shop.example
      rune credentials add mail --type smtp --from-file mail.json
    """

    def work(settings: Settings) -> CredentialSummary:
        values = values_of(type.value, fields or [], source)
        id = new_id()  # a call that is repeated after a broken connection adds the same credential
        return call_service(
            settings,
            lambda service: service.credentials.add(
                name,
                type.value,
                values,
                tuple(hosts or ()),
                id,
                insecure=bool(insecure),
                grants=tuple(grants or ()),
            ),
        )

    _run_change(work, "added", as_json=as_json)


@credentials.callback(invoke_without_command=True)
def _credentials(context: typer.Context, as_json: Json = False) -> None:
    if context.invoked_subcommand is None:
        list_all(as_json)


@credentials.command("list")
def list_all(as_json: Json = False) -> None:
    """List the credentials, without their values."""

    def work(settings: Settings) -> int:
        found: tuple[CredentialSummary, ...] = _read_credentials(settings, lambda service: service.list(), ())
        _print_all(found, as_json=as_json)
        return 0

    _exit(work, as_json=as_json)


@credentials.command("show")
def show(name: Name, as_json: Json = False) -> None:
    """Show the type, fields, hosts, version, key and grants of a credential, without its values."""

    def work(settings: Settings) -> int:
        found = _find(settings, name)
        _print_one(found, granted_to(settings, found.id), as_json=as_json)
        return 0

    _exit(work, as_json=as_json)


@credentials.command("uses")
def uses(name: Name, as_json: Json = False) -> None:
    """List the nodes that refer to a credential.

    The latest versions of the workflows are searched, and those that have an
    alias. A reference by an expression is not found.

    Example: rune credentials uses shop
    """

    async def work(client: AsyncClient, services: CommandServices) -> int:
        found = await client.credential_uses(name)
        if as_json:
            print_json({"uses": found})
        elif not found:
            print(f"no workflow refers to `{clean(name)}`")
        else:
            rows: list[list[Cell]] = [
                [each.workflow_id, str(each.version), ", ".join(each.aliases), ", ".join(each.nodes)]
                for each in found
            ]
            print_table(["workflow", "version", "aliases", "nodes"], rows)
        return 0

    raise typer.Exit(query_api(work, as_json=as_json))


@credentials.command("rotate")
def rotate(
    name: Name,
    fields: FieldList = None,
    hosts: HostList = None,
    insecure: Insecure = None,
    source: Source = None,
    as_json: Json = False,
) -> None:
    """Replace values of a credential. Other values stay; nodes use the new ones from their next call on.

    Example: rune credentials rotate shop
    """

    def work(settings: Settings) -> CredentialSummary:
        known = _find(settings, name)
        partly = bool(fields) or hosts is not None or insecure is not None
        values = values_of(known.type, fields or [], source, only_given=partly)
        bound = None if hosts is None else tuple(hosts)
        return call_service(
            settings, lambda service: service.credentials.rotate(name, values, bound, insecure)
        )

    _run_change(work, "rotated", as_json=as_json)


@credentials.command("remove")
def remove(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: Json = False,
) -> None:
    """Remove a credential. Nodes that use it fail from then on."""

    def work(settings: Settings) -> CredentialSummary:
        known = _find(settings, name)
        if sys.stdin.isatty() and not yes:
            typer.confirm(f"Remove {known.name} ({known.type})?", abort=True, err=True)
        return call_service(settings, lambda service: service.credentials.remove(name))

    _run_change(work, "removed", as_json=as_json)


@credentials.command("rekey")
def rekey(as_json: Json = False) -> None:
    """Re-encrypt all credentials with the newest key. Older keys can be deleted afterwards."""

    def work(settings: Settings) -> int:
        require_local(settings, "credentials rekey")
        count = (
            call_local_service(settings, lambda service: service.credentials.reencrypt())
            if exists(settings)
            else 0
        )
        if as_json:
            print_json({"status": "ok", "rekeyed": count})
        else:
            print(f"{count} re-encrypted; older keys are no longer needed")
        return 0

    _exit(work, as_json=as_json)


@key.command("new")
def new_key(
    only_print: Annotated[
        bool, typer.Option("--print", help="Print a key for RUNE_SECRET_KEY without storing it.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Create a new encryption key for new values. `rune credentials rekey` re-encrypts existing ones."""

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
            print(f"{where}: key {name} encrypts from now on; keep a copy of the file in a safe place")
        return 0

    _exit(work, as_json=as_json)


class _CredentialReader(Protocol):
    """What these commands read, from the service of this process and from that of a server."""

    async def list(self) -> tuple[CredentialSummary, ...]:
        """Return all credentials without their values."""
        ...

    async def show(self, reference: str) -> CredentialSummary:
        """Return one credential without its values."""
        ...


def _read_credentials(
    settings: Settings, action: Callable[[_CredentialReader], Awaitable[T]], nothing: T
) -> T:
    """Read credentials from the server or the stores."""
    if settings.url:
        return with_credentials(settings, action)
    return read_store(settings, bootstrap.open_credentials, action, nothing)


def _find(settings: Settings, name: str) -> CredentialSummary:
    async def found(service: _CredentialReader) -> CredentialSummary | None:
        return await service.show(name)

    summary = _read_credentials(settings, found, None)
    if summary is None:
        raise CredentialNotFoundError(f"there is no credential `{name[:128]}`")
    return summary


def _exit(work: Callable[[Settings], int], *, as_json: bool) -> None:
    hints = {
        "CREDENTIAL_MISSING": "see `rune credentials list`",
        "CREDENTIAL_HOSTS": "--host api.example.com; --host '*' permits any host",
        "CREDENTIAL_EXISTS": "`rune credentials rotate` replaces its values",
        "SECRET_IN_ARGUMENTS": "leave it out to be prompted, or use --from-file",
        "SECRET_KEY_ENVIRONMENT": "`rune credentials key new --print` creates one",
    }
    exit_with(work, as_json=as_json, hints=hints)


def _run_change(work: Callable[[Settings], CredentialSummary], what: str, *, as_json: bool) -> None:
    def report(settings: Settings) -> int:
        summary = work(settings)
        if as_json:
            _print_one(summary, as_json=True)
        else:
            print(f"{what} {summary.name} ({summary.type}, version {summary.version})")
        return 0

    _exit(report, as_json=as_json)


def _document(each: CredentialSummary) -> dict[str, Any]:
    return {
        "id": each.id,
        "name": each.name,
        "type": each.type,
        "version": each.version,
        "fields": list(each.fields),
        "hosts": list(each.hosts),
        "insecure": each.insecure,
        "key": each.key,
        "created_at": iso(each.created_at),
        "changed_at": iso(each.changed_at),
    }


def _print_all(found: tuple[CredentialSummary, ...], *, as_json: bool) -> None:
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
                _insecure(each),
            ]
            for each in found
        ]
        print_table(("name", "type", "version", "changed", "hosts", "insecure"), rows)


def _print_one(each: CredentialSummary, granted: Sequence[str] | None = None, *, as_json: bool) -> None:
    if as_json:
        print_json(_document(each) | ({} if granted is None else {"granted": granted}))
        return
    rows: list[list[Cell]] = [
        ["id", each.id],
        ["type", each.type],
        ["version", str(each.version)],
        ["fields", ", ".join(each.fields)],
        ["hosts", ", ".join(each.hosts) or "any"],
        ["insecure", _insecure(each)],
        ["key", each.key],
        ["created", moment(each.created_at)],
        ["changed", moment(each.changed_at)],
    ]
    if granted is not None:
        rows.append(["granted", ", ".join(granted) or "no one"])
    print_table(("credential", each.name), rows)


def _insecure(each: CredentialSummary) -> str:
    """A credential of an older version has no such field and is not restricted."""
    return {True: "yes", False: "no", None: "not restricted"}[each.insecure]


class SecretInArgumentsError(CredentialError):
    """A secret value was given on the command line."""

    code = "SECRET_IN_ARGUMENTS"


def values_of(
    type: str, fields: list[str], source: str | None, *, only_given: bool = False
) -> dict[str, Any]:
    """Return the values of a credential of this type; `only_given`: do not prompt for missing ones."""
    kind = TYPES.get(type)
    if kind is None:
        raise CredentialError(f"`{type[:40]}` is not a credential type; known: {', '.join(TYPES)}")
    given: dict[str, Any] = _parse_fields(kind, type, fields)
    if source is not None:
        return given | _from_text(_read_source(source), kind, type, source)
    if only_given:
        return given
    if type == "custom":
        raise CredentialError("give the values of a custom credential with --from-file, as a JSON object")
    if not sys.stdin.isatty():
        return given | _from_text(_read_source("-"), kind, type, "standard input")
    return given | _prompt(kind, given)


def _parse_fields(kind: type[Fields], type: str, fields: list[str]) -> dict[str, Any]:
    """Parse the fields of --field; raise if one is secret."""
    hidden = secret_names(kind)
    found: dict[str, Any] = {}
    for each in fields:
        name, equals, value = each.partition("=")
        if name in hidden or type == "custom":
            raise SecretInArgumentsError(
                f"`{name[:60]}` is secret and cannot be given on the command line, which other users can read"
            )
        if not equals or name not in kind.__struct_fields__:
            known = [every for every in kind.__struct_fields__ if every not in hidden]
            raise CredentialError(f"--field expects name=value, where name is one of {', '.join(known)}")
        found[name] = value
    return found


def _read_source(source: str) -> str:
    try:
        if source == "-":
            data = sys.stdin.buffer.read(MAX_SOURCE_BYTES + 1)
        else:
            with Path(source).open("rb") as file:
                data = file.read(MAX_SOURCE_BYTES + 1)
    except OSError as error:
        raise CredentialError(
            f"{source}: {(error.strerror or str(error)).lower()}", code="UNREADABLE"
        ) from None
    if len(data) > MAX_SOURCE_BYTES:
        raise CredentialError(f"{source}: more than {MAX_SOURCE_BYTES:,} bytes", code="TOO_LARGE")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise CredentialError(f"{source}: not UTF-8 text", code="NOT_TEXT") from None


def _from_text(text: str, kind: type[Fields], type: str, source: str) -> dict[str, Any]:
    """Parse a JSON object of fields; for a type with one secret, the text may be the secret itself."""
    hidden = secret_names(kind)
    if not text.lstrip().startswith("{") and type != "custom" and len(hidden) == 1:
        alone = text.removesuffix("\n").removesuffix("\r")
        if not alone:
            raise CredentialError(f"{source}: the input is empty")
        return {hidden[0]: alone}
    found = decode_json(text.encode(), max_bytes=MAX_SOURCE_BYTES, max_depth=MAX_JSON_DEPTH)
    if found.problems or not isinstance(found.value, dict):
        # The parser's message could quote the secret.
        raise CredentialError(f"{source}: a JSON object of fields is expected", code="NOT_JSON")
    values: dict[str, Any] = found.value
    if values.get("type") == type:
        del values["type"]
    return values


def _prompt(kind: type[Fields], given: dict[str, Any]) -> dict[str, Any]:
    """Prompt for secret fields, without echo, and for other required fields."""
    hidden = secret_names(kind)
    required = {each.name for each in msgspec.structs.fields(kind) if each.required}
    answers: dict[str, Any] = {}
    for name in kind.__struct_fields__:
        if name in given or (name not in hidden and name not in required):
            continue
        answers[name] = getpass.getpass(f"{name}: ") if name in hidden else _prompt_visible(name)
    return {name: value for name, value in answers.items() if value or name in required}


def _prompt_visible(name: str) -> str:
    """Prompt for a field that is not secret, on stderr: stdout is for documents."""
    print(f"{name}: ", end="", file=sys.stderr, flush=True)
    return input()
