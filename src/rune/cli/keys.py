"""`rune keys`: what others are known by when they ask a server."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rune.cli.limitoptions import Burst, Lifted, Rate, Running

if TYPE_CHECKING:
    from rune.client.models import ApiKey
    from rune.compose.parts import Access
    from rune.ports.keys import Key, Made
    from rune.ports.limits import Limits
    from rune.settings import Settings

keys = typer.Typer(
    name="keys",
    help="Make, list, limit and revoke keys of the API. A key is shown once; what is kept is a digest.",
    no_args_is_help=True,
)


class RoleName(StrEnum):
    """What a key may do."""

    viewer = "viewer"
    runner = "runner"
    editor = "editor"
    admin = "admin"


Id = Annotated[str, typer.Argument(metavar="ID", help="Its id, as `rune keys list` shows it.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@keys.command("create")
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whom it is for.")],
    role: Annotated[RoleName, typer.Option("--role", "-r", help="What it may do.")],
    workflows: Annotated[
        list[str] | None,
        typer.Option(
            "--workflow", metavar="ID", help="Only for this workflow; `*` for anything; may be given again."
        ),
    ] = None,
    days: Annotated[
        float | None,
        typer.Option("--days", min=0.001, max=3_660, help="How long it holds; for ever if not given."),
    ] = None,
    rate: Rate = None,
    burst: Burst = None,
    running: Running = None,
    as_json: Json = False,
) -> None:
    """Make a key and print it, this once. From the first key on, servers ask for one on loopback too.

    viewer looks; runner also starts and steers executions; editor also changes workflows; admin also changes keys and
    credentials, and reads the log.

    Example: rune keys create nightly --role runner --workflow 'import-*' --days 90 --rate 100/m
    """
    from rune.cli.access import leave  # noqa: PLC0415 - help must be quick
    from rune.ports.limits import Limits  # noqa: PLC0415

    limits = Limits(rate=rate, burst=burst, running=running)

    def work(settings: Settings) -> None:
        document, text = _made(settings, name, role.value, tuple(workflows or ()), days, limits)
        _tell(document, text, as_json=as_json)

    leave(work, as_json=as_json)


def _made(
    settings: Settings, name: str, role: Any, scopes: tuple[str, ...], days: float | None, limits: Limits
) -> tuple[dict[str, Any], str]:
    from rune.cli import limiting  # noqa: PLC0415
    from rune.cli.access import over_url, write  # noqa: PLC0415

    seconds = None if days is None else max(1, round(days * 86_400))
    if settings.url:
        from rune.client import models  # noqa: PLC0415

        held = models.Limits(**limiting.document(limits)) if limits else None
        options: dict[str, Any] = {"workflows": list(scopes), "expires_in": seconds, "limits": held}
        there = over_url(settings, lambda asked: asked.create_key(name, role, **options))
        return _remote(there), there.key
    from rune.ports.keys import digest_of, new_key  # noqa: PLC0415
    from rune.runtime.clock import SystemClock  # noqa: PLC0415

    made: Made = new_key()
    ends = None if seconds is None else SystemClock().now() + seconds * 1000
    given = (made.id, digest_of(made.secret), name, role, scopes, ends, limits)
    key = write(settings, lambda desk: desk.create_key(*given))
    return _document(key, limits), made.text


def _tell(document: dict[str, Any], text: str, *, as_json: bool) -> None:
    import sys  # noqa: PLC0415

    from rune.cli.problems import print_json  # noqa: PLC0415

    if as_json:
        print_json({**document, "key": text})
        return
    print(text)
    print(f"{document['id']}: keep it now, it is not shown again", file=sys.stderr)


@keys.command("list")
def list_all(as_json: Json = False) -> None:
    """List the keys, revoked ones too, without their secrets."""
    from rune.cli.access import leave, over_url, read  # noqa: PLC0415 - help must be quick

    def work(settings: Settings) -> None:
        if settings.url:
            documents = [_remote(each) for each in over_url(settings, lambda asked: asked.keys())]
        else:
            documents = read(settings, _all, [])
        _print_all(documents, as_json=as_json)

    leave(work, as_json=as_json)


@keys.command("limit")
def limit(
    id: Id,
    rate: Rate = None,
    burst: Burst = None,
    running: Running = None,
    none: Lifted = False,
    as_json: Json = False,
) -> None:
    """Limit the starts of a key from its next one on; without options show its limits.

    Limits that are not given are lifted.

    Example: rune keys limit k0123456789abcdef --rate 100/m --running 50
    """
    from rune.cli.access import leave  # noqa: PLC0415 - help must be quick
    from rune.cli.limiting import limit_key, wanted  # noqa: PLC0415
    from rune.ports.limits import Limits  # noqa: PLC0415

    limits = wanted(Limits(rate=rate, burst=burst, running=running), none=none)
    leave(lambda settings: limit_key(settings, id, limits, as_json=as_json), as_json=as_json)


@keys.command("revoke")
def revoke(
    id: Id,
    as_json: Json = False,
) -> None:
    """Let a key open nothing any more, at once and in every process."""
    from rune.cli.access import leave, over_url, write  # noqa: PLC0415 - help must be quick

    def work(settings: Settings) -> None:
        from rune.cli.problems import print_json  # noqa: PLC0415

        if settings.url:
            over_url(settings, lambda asked: asked.revoke_key(id))
        else:
            write(settings, lambda desk: desk.revoke_key(id))
        if as_json:
            print_json({"status": "ok", "id": id})
        else:
            print(f"revoked {id}")

    leave(work, as_json=as_json)


async def _all(opened: Access) -> list[dict[str, Any]]:
    from rune.ports.limits import NONE, of_key  # noqa: PLC0415

    limits = await opened.limits.all()
    return [_document(each, limits.get(of_key(each.id), NONE)) for each in await opened.keys.list()]


def _document(key: Key, limits: Limits) -> dict[str, Any]:
    from rune.cli import limiting  # noqa: PLC0415
    from rune.runtime.accessdesk import key_document  # noqa: PLC0415

    return {**key_document(key), "limits": limiting.document(limits)}


def _remote(key: ApiKey) -> dict[str, Any]:
    import msgspec  # noqa: PLC0415

    found: dict[str, Any] = msgspec.to_builtins(key)
    return {name: value for name, value in found.items() if name != "key"}


def _print_all(documents: list[dict[str, Any]], *, as_json: bool) -> None:
    from rune.cli.problems import print_json  # noqa: PLC0415
    from rune.cli.text import Cell, print_table  # noqa: PLC0415

    if as_json:
        print_json({"keys": documents})
        return
    if not documents:
        print("no keys")
        return
    rows: list[list[Cell]] = [
        [
            (each["id"], "bold"),
            each["name"],
            each["role"],
            ", ".join(each["workflows"]) or "all",
            "revoked" if each["revoked_at"] else each["expires_at"] or "does not end",
            each["used_at"] or "never",
            _limits_text(each["limits"]),
        ]
        for each in documents
    ]
    print_table(("id", "name", "role", "workflows", "ends", "used", "limits"), rows)


def _limits_text(limits: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in limits.items() if value is not None)
