"""`rune keys`: what others are known by when they ask a server.

`rune log`: who changed what.

`rune workflows limit` and `rune keys limit`: how many starts there may be.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from rune.bootstrap.components import Access
from rune.cli.arguments import Burst, Lifted, Rate, Running
from rune.cli.backend import read_access, with_client, write
from rune.cli.output import print_json
from rune.client import models
from rune.ports.access import NO_LIMITS, Limits, key_not_found, of_key, of_workflow
from rune.settings import Settings

if TYPE_CHECKING:
    from rune.client import AsyncClient
    from rune.client.models import ApiKey
    from rune.ports.access import ApiKey as Key
    from rune.ports.access import AuditEntry, NewApiKey

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
    from rune.cli.backend import exit_with
    from rune.ports.access import Limits

    limits = Limits(rate=rate, burst=burst, running=running)

    def work(settings: Settings) -> None:
        document, text = _made(settings, name, role.value, tuple(workflows or ()), days, limits)
        _print_key(document, text, as_json=as_json)

    exit_with(work, as_json=as_json)


def _made(
    settings: Settings, name: str, role: Any, scopes: tuple[str, ...], days: float | None, limits: Limits
) -> tuple[dict[str, Any], str]:
    from rune.cli.backend import with_client, write

    seconds = None if days is None else max(1, round(days * 86_400))
    if settings.url:
        from rune.client import models

        held = models.Limits(**document(limits)) if limits else None
        options: dict[str, Any] = {"workflows": list(scopes), "expires_in": seconds, "limits": held}
        there = with_client(settings, lambda asked: asked.create_key(name, role, **options))
        return _remote_key(there), there.key
    from rune.ports.access import digest_of, new_key
    from rune.runtime.clock import SystemClock

    made: NewApiKey = new_key()
    ends = None if seconds is None else SystemClock().now() + seconds * 1000
    given = (made.id, digest_of(made.secret), name, role, scopes, ends, limits)
    key = write(settings, lambda services: services.access.create_key(*given))
    return _key_document(key, limits), made.text


def _print_key(document: dict[str, Any], text: str, *, as_json: bool) -> None:
    import sys

    from rune.cli.output import print_json

    if as_json:
        print_json({**document, "key": text})
        return
    print(text)
    print(f"{document['id']}: keep it now, it is not shown again", file=sys.stderr)


@keys.command("list")
def list_all(as_json: Json = False) -> None:
    """List the keys, revoked ones too, without their secrets."""
    from rune.cli.backend import exit_with, read_access, with_client

    def work(settings: Settings) -> None:
        if settings.url:
            documents = [_remote_key(each) for each in with_client(settings, lambda asked: asked.keys())]
        else:
            documents = read_access(settings, _all, [])
        _print_all(documents, as_json=as_json)

    exit_with(work, as_json=as_json)


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
    from rune.cli.backend import exit_with
    from rune.ports.access import Limits

    limits = wanted(Limits(rate=rate, burst=burst, running=running), none=none)
    exit_with(lambda settings: limit_key(settings, id, limits, as_json=as_json), as_json=as_json)


@keys.command("revoke")
def revoke(
    id: Id,
    as_json: Json = False,
) -> None:
    """Let a key open nothing any more, at once and in every process."""
    from rune.cli.backend import exit_with, with_client, write

    def work(settings: Settings) -> None:
        from rune.cli.output import print_json

        if settings.url:
            with_client(settings, lambda asked: asked.revoke_key(id))
        else:
            write(settings, lambda services: services.access.revoke_key(id))
        if as_json:
            print_json({"status": "ok", "id": id})
        else:
            print(f"revoked {id}")

    exit_with(work, as_json=as_json)


async def _all(opened: Access) -> list[dict[str, Any]]:
    from rune.ports.access import NO_LIMITS, of_key

    limits = await opened.limits.all()
    return [_key_document(each, limits.get(of_key(each.id), NO_LIMITS)) for each in await opened.keys.list()]


def _key_document(key: Key, limits: Limits) -> dict[str, Any]:
    from rune.runtime.services.access import key_document

    return {**key_document(key), "limits": document(limits)}


def _remote_key(key: ApiKey) -> dict[str, Any]:
    import msgspec

    found: dict[str, Any] = msgspec.to_builtins(key)
    return {name: value for name, value in found.items() if name != "key"}


def _print_all(documents: list[dict[str, Any]], *, as_json: bool) -> None:
    from rune.cli.output import (
        Cell,
        print_json,
        print_table,
    )

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


def log(
    actor: Annotated[str | None, typer.Option("--by", metavar="WHO", help="Only by this principal.")] = None,
    action: Annotated[
        str | None, typer.Option("--action", help="Only this: workflow.deploy, or its first word: workflow.")
    ] = None,
    target: Annotated[
        str | None,
        typer.Option("--of", metavar="ID", help="Only of this workflow, execution, credential or key."),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="At most so many.")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show who changed which workflow, alias, credential, key or execution, newest first.

    An entry is written before the act; what was refused has a second one with the code of the refusal. Starts are not
    among them: an execution knows itself who started it.

    Examples: rune log; rune log --of orders; rune log --action credential --by key:k0123456789abcdef
    """
    from rune.cli.backend import exit_with, read_access, with_client

    def work(settings: Settings) -> None:
        from rune.ports.access import AuditFilter

        if settings.url:
            documents = with_client(
                settings, lambda asked: _remote_entries(asked, actor, action, target, limit)
            )
        else:
            wanted = AuditFilter(actor=actor, action=action, target=target)
            nothing: list[AuditEntry] = []
            found = read_access(settings, lambda opened: opened.log.read(wanted, limit=limit), nothing)
            documents = [_entry_document(each) for each in found]
        _print(documents, as_json=as_json)

    exit_with(work, as_json=as_json)


async def _remote_entries(
    asked: AsyncClient, actor: str | None, action: str | None, target: str | None, limit: int
) -> list[dict[str, Any]]:
    import msgspec

    found: list[dict[str, Any]] = []
    async for each in asked.log(actor=actor, action=action, target=target, page=min(limit, 1_000)):
        found.append(msgspec.to_builtins(each))
        if len(found) == limit:
            break
    return found


def _entry_document(entry: AuditEntry) -> dict[str, Any]:
    from rune.runtime.queries.history import iso

    return {
        "number": entry.number,
        "at": iso(entry.at),
        "actor": entry.actor,
        "action": entry.action,
        "target": entry.target,
        "details": entry.details,
        "outcome": entry.outcome,
    }


def _print(documents: list[dict[str, Any]], *, as_json: bool) -> None:
    from rune.cli.output import (
        Cell,
        print_json,
        print_table,
    )

    if as_json:
        print_json({"entries": documents})
        return
    if not documents:
        print("nothing was changed")
        return
    rows: list[list[Cell]] = [
        [
            each["at"],
            each["actor"],
            (each["action"], "bold"),
            each["target"],
            " ".join(f"{name}={value}" for name, value in each["details"].items()),
            "" if each["outcome"] == "asked" else (each["outcome"], "red"),
        ]
        for each in documents
    ]
    print_table(("at", "who", "what", "of", "with", "refused"), rows)


def wanted(given: Limits, *, none: bool) -> Limits | None:
    """What somebody wants to be set; None where they only want to see."""
    if none and given:
        raise typer.BadParameter("--none stands alone")
    return given if given or none else None


def limit_workflow(settings: Settings, workflow: str, limits: Limits | None, *, as_json: bool) -> None:
    """Set limits of a workflow, or show them where none are given, and say what holds."""
    found = _workflow(settings, workflow) if limits is None else _set_workflow(settings, workflow, limits)
    _print_limits({"workflow_id": workflow}, workflow, found, as_json=as_json)


def limit_key(settings: Settings, id: str, limits: Limits | None, *, as_json: bool) -> None:
    """Set limits of a key, or show them where none are given, and say what holds."""
    found = _key(settings, id) if limits is None else _set_key(settings, id, limits)
    _print_limits({"id": id}, id, found, as_json=as_json)


def document(limits: Limits) -> dict[str, Any]:
    """Limits for programs."""
    return msgspec.structs.asdict(limits)


def _print_limits(whose: dict[str, Any], name: str, found: Limits, *, as_json: bool) -> None:
    if as_json:
        print_json({**whose, **document(found)})
    else:
        print(f"{name}: {found if found else 'no limits'}")


def _workflow(settings: Settings, workflow: str) -> Limits:
    if settings.url:
        return _here(with_client(settings, lambda asked: asked.limits(workflow)))
    from rune.cli.backend import known

    known(settings, workflow, None)
    nothing: dict[str, Limits] = {}
    return read_access(settings, lambda opened: opened.limits.all(), nothing).get(
        of_workflow(workflow), NO_LIMITS
    )


def _set_workflow(settings: Settings, workflow: str, limits: Limits) -> Limits:
    if settings.url:
        return _here(with_client(settings, lambda asked: asked.limit(workflow, _there(limits))))
    return write(settings, lambda services: services.limits.limit_workflow(workflow, limits))


def _key(settings: Settings, id: str) -> Limits:
    if settings.url:
        there = {each.id: _here(each.limits) for each in with_client(settings, lambda asked: asked.keys())}
    else:
        there = read_access(settings, _keys, {})
    if id not in there:
        raise key_not_found(id)
    return there[id]


async def _keys(opened: Access) -> dict[str, Limits]:
    limits = await opened.limits.all()
    return {each.id: limits.get(of_key(each.id), NO_LIMITS) for each in await opened.keys.list()}


def _set_key(settings: Settings, id: str, limits: Limits) -> Limits:
    if settings.url:
        return _here(with_client(settings, lambda asked: asked.limit_key(id, _there(limits))))
    return write(settings, lambda services: services.limits.limit_key(id, limits))


def _here(there: models.Limits) -> Limits:
    return Limits(**msgspec.structs.asdict(there))


def _there(here: Limits) -> models.Limits:
    return models.Limits(**document(here))
