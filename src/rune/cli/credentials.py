"""`rune credentials`: what nodes log in with. Values go in and never come out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import typer

from rune.cli.granting import grant, withdraw

if TYPE_CHECKING:
    from rune.cli.remote.vault import RemoteVault
    from rune.ports.secret import Listing
    from rune.runtime.vault import Vault
    from rune.settings import Settings

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


Name = Annotated[str, typer.Argument(metavar="NAME", help="Its name, or its id.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
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
    from rune.cli.access import changed  # noqa: PLC0415 - help must be quick
    from rune.cli.secretvalues import values_of  # noqa: PLC0415
    from rune.runtime.vault import new_id  # noqa: PLC0415

    def work(settings: Settings) -> Listing:
        values = values_of(type.value, fields or [], source)
        id = new_id()  # asked again because a connection broke, it is still the same one
        return changed(
            settings, lambda desk: desk.add_credential(name, type.value, values, tuple(hosts or ()), id)
        )

    _done(work, "added", as_json=as_json)


@credentials.command("list")
def list_all(as_json: Json = False) -> None:
    """List the credentials, without values."""

    def work(settings: Settings) -> int:
        found: tuple[Listing, ...] = _read(settings, lambda vault: vault.credentials(), ())
        _print_all(found, as_json=as_json)
        return 0

    _exit(work, as_json=as_json)


@credentials.command("show")
def show(name: Name, as_json: Json = False) -> None:
    """Show what is known of one: type, fields, hosts, version, key, who may use it. No values."""

    def work(settings: Settings) -> int:
        from rune.cli.granting import granted_to  # noqa: PLC0415

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
    from rune.cli.access import changed  # noqa: PLC0415 - help must be quick
    from rune.cli.secretvalues import values_of  # noqa: PLC0415

    def work(settings: Settings) -> Listing:
        known = _known(settings, name)
        partly = bool(fields) or hosts is not None
        values = values_of(known.type, fields or [], source, only_given=partly)
        bound = None if hosts is None else tuple(hosts)
        return changed(settings, lambda desk: desk.rotate_credential(name, values, bound))

    _done(work, "rotated", as_json=as_json)


@credentials.command("remove")
def remove(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask on a terminal.")] = False,
    as_json: Json = False,
) -> None:
    """Forget a credential. Nodes that name it fail from then on."""

    def work(settings: Settings) -> Listing:
        import sys  # noqa: PLC0415

        from rune.cli.access import changed  # noqa: PLC0415

        known = _known(settings, name)
        if sys.stdin.isatty() and not yes:
            typer.confirm(f"Remove {known.name} ({known.type})?", abort=True, err=True)
        return changed(settings, lambda desk: desk.remove_credential(name))

    _done(work, "removed", as_json=as_json)


@credentials.command("rekey")
def rekey(as_json: Json = False) -> None:
    """Seal everything with the newest key. Afterwards older keys open nothing and can go."""

    def work(settings: Settings) -> int:
        from rune import compose  # noqa: PLC0415
        from rune.cli.access import write  # noqa: PLC0415
        from rune.cli.local import stay_here  # noqa: PLC0415

        stay_here(settings, "credentials rekey")
        count = write(settings, lambda desk: desk.rekey()) if compose.exists(settings) else 0
        if as_json:
            from rune.cli.problems import print_json  # noqa: PLC0415

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
    from rune import compose  # noqa: PLC0415
    from rune.cli.local import stay_here  # noqa: PLC0415
    from rune.cli.problems import print_json  # noqa: PLC0415

    def work(settings: Settings) -> int:
        if only_print:
            made = compose.fresh_key()
            if as_json:
                print_json({"key": made})
            else:
                print(made)
            return 0
        stay_here(settings, "credentials key new")
        name, where = compose.add_key(settings)
        if as_json:
            print_json({"status": "ok", "key": name, "file": where})
        else:
            print(f"{where}: key {name} seals from now on; keep a copy of the file in a safe place")
        return 0

    _exit(work, as_json=as_json)


def _read(settings: Settings, wish: Callable[[Vault], Awaitable[T]], nothing: T) -> T:
    """Look, beside whoever owns the file, or have a server look."""
    from rune import compose  # noqa: PLC0415
    from rune.cli.access import beside, over_vault  # noqa: PLC0415

    if settings.url:
        return over_vault(settings, cast("Callable[[RemoteVault], Awaitable[T]]", wish))
    return beside(settings, compose.credentials, wish, nothing)


def _known(settings: Settings, name: str) -> Listing:
    from rune.ports.secret import Missing  # noqa: PLC0415

    async def found(vault: Vault) -> Listing | None:
        return await vault.show(name)

    listing = _read(settings, found, None)
    if listing is None:
        raise Missing(f"there is no credential `{name[:128]}`")
    return listing


def _exit(work: Callable[[Settings], int], *, as_json: bool) -> None:
    from rune.cli.problems import INTERRUPTED, refuse_error  # noqa: PLC0415
    from rune.errors import RuneError  # noqa: PLC0415
    from rune.settings import load_settings  # noqa: PLC0415

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


def _done(work: Callable[[Settings], Listing], what: str, *, as_json: bool) -> None:
    def told(settings: Settings) -> int:
        listing = work(settings)
        if as_json:
            _print_one(listing, as_json=True)
        else:
            print(f"{what} {listing.name} ({listing.type}, version {listing.version})")
        return 0

    _exit(told, as_json=as_json)


def _document(each: Listing) -> dict[str, Any]:
    from rune.runtime.history import iso  # noqa: PLC0415

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


def _print_all(found: tuple[Listing, ...], *, as_json: bool) -> None:
    from rune.cli.problems import print_json  # noqa: PLC0415
    from rune.cli.text import Cell, moment, print_table  # noqa: PLC0415

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


def _print_one(each: Listing, granted: list[str] | None = None, *, as_json: bool) -> None:
    from rune.cli.problems import print_json  # noqa: PLC0415
    from rune.cli.text import Cell, moment, print_table  # noqa: PLC0415

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
