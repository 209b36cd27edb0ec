"""`rune keys` and `rune audit-log`: API keys and the audit log.

Also the limits on starts, which `rune keys limit` and `rune workflows limit` set.
"""

from __future__ import annotations

import sys
import time
from enum import StrEnum
from typing import Annotated, Any

import msgspec
import typer

from rune.bootstrap.components import Access
from rune.cli.arguments import Burst, Rate, RemoveLimits, Running
from rune.cli.backend import call_local_service, exit_with, find_version, read_access, with_client
from rune.cli.output import Cell, local_time, moment, print_json, print_table
from rune.client import AsyncClient, models
from rune.client.models import ApiKey
from rune.ports.access import (
    ALL_ENTRIES,
    DONE,
    NO_LIMITS,
    REQUESTED,
    AuditEntry,
    AuditFilter,
    Limits,
    NewApiKey,
    digest_of,
    key_not_found,
    new_key,
    of_key,
    of_workflow,
)
from rune.ports.access import ApiKey as Key
from rune.ports.clock import SystemClock, iso
from rune.runtime.services.access import key_document
from rune.settings import Settings

keys = typer.Typer(
    name="keys",
    help="Create, list, limit or revoke the keys of the API.\n\nA key is printed once, when it is created; only its "
    "digest is stored. Without a command: list the keys.\n\nExample: rune keys create ci --role runner --days 90",
)


class RoleName(StrEnum):
    """The role of an API key."""

    viewer = "viewer"
    approver = "approver"
    runner = "runner"
    editor = "editor"
    admin = "admin"


Id = Annotated[str, typer.Argument(metavar="ID", help="Id of the key, see `rune keys list`.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@keys.command("create")
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the key.")],
    role: Annotated[RoleName, typer.Option("--role", "-r", help="Permissions of the key.")],
    workflows: Annotated[
        list[str] | None,
        typer.Option(
            "--workflow",
            metavar="ID",
            help="Restrict the key to this workflow; `*` matches any text. Repeatable.",
        ),
    ] = None,
    days: Annotated[
        float | None,
        typer.Option(
            "--days", min=0.001, max=3_660, help="Days until the key expires. Default: it does not expire."
        ),
    ] = None,
    rate: Rate = None,
    burst: Burst = None,
    running: Running = None,
    as_json: Json = False,
) -> None:
    """Create an API key and print it. It is not shown again.

    Creating the first API key turns authentication on, also on loopback.

    Roles: viewer reads; approver lists the nodes that wait for a signal and sends
    signals; runner reads, starts and controls executions; editor also changes
    workflows; admin also manages keys and credentials and reads the
    audit log.

    Example: rune keys create nightly --role runner --workflow 'import-*' --days 90 --rate 100/m
    """
    limits = Limits(rate=rate, burst=burst, running=running)

    def work(settings: Settings) -> None:
        document, text = _create_key(settings, name, role.value, tuple(workflows or ()), days, limits)
        _print_key(document, text, as_json=as_json)

    exit_with(work, as_json=as_json)


def _create_key(
    settings: Settings, name: str, role: Any, scopes: tuple[str, ...], days: float | None, limits: Limits
) -> tuple[dict[str, Any], str]:
    seconds = None if days is None else max(1, round(days * 86_400))
    if settings.url:
        held = models.Limits(**limits_document(limits)) if limits else None
        options: dict[str, Any] = {"workflows": list(scopes), "expires_in": seconds, "limits": held}
        remote = with_client(settings, lambda api: api.create_key(name, role, **options))
        return _remote_key(remote), remote.key

    made: NewApiKey = new_key()
    ends = None if seconds is None else SystemClock().now() + seconds * 1000
    given = (made.id, digest_of(made.secret), name, role, scopes, ends, limits)
    key = call_local_service(settings, lambda service: service.access.create_key(*given))
    return _key_document(key, limits), made.text


def _print_key(document: dict[str, Any], text: str, *, as_json: bool) -> None:
    if as_json:
        print_json({**document, "key": text})
        return
    print(text)
    print(f"{document['id']}: store the key now, it is not shown again", file=sys.stderr)


@keys.callback(invoke_without_command=True)
def _keys(context: typer.Context, as_json: Json = False) -> None:
    if context.invoked_subcommand is None:
        list_all(as_json)


@keys.command("list")
def list_all(as_json: Json = False) -> None:
    """List the keys, including revoked ones, without their secrets."""

    def work(settings: Settings) -> None:
        if settings.url:
            documents = [_remote_key(each) for each in with_client(settings, lambda api: api.keys())]
        else:
            documents = read_access(settings, _list_keys, [])
        _print_all(documents, as_json=as_json)

    exit_with(work, as_json=as_json)


@keys.command("limit")
def limit(
    id: Id,
    rate: Rate = None,
    burst: Burst = None,
    running: Running = None,
    none: RemoveLimits = False,
    as_json: Json = False,
) -> None:
    """Limit the executions that a key may start. Without options, show its limits.

    The given limits replace all previous ones.

    Example: rune keys limit k0123456789abcdef --rate 100/m --running 50
    """
    limits = limits_to_set(Limits(rate=rate, burst=burst, running=running), none=none)
    exit_with(lambda settings: limit_key(settings, id, limits, as_json=as_json), as_json=as_json)


@keys.command("revoke")
def revoke(
    id: Id,
    as_json: Json = False,
) -> None:
    """Revoke a key, effective at once in every process."""

    def work(settings: Settings) -> None:
        if settings.url:
            with_client(settings, lambda api: api.revoke_key(id))
        else:
            call_local_service(settings, lambda service: service.access.revoke_key(id))
        if as_json:
            print_json({"status": "ok", "id": id})
        else:
            print(f"revoked {id}")

    exit_with(work, as_json=as_json)


async def _list_keys(opened: Access) -> list[dict[str, Any]]:
    limits = await opened.limits.all()
    return [_key_document(each, limits.get(of_key(each.id), NO_LIMITS)) for each in await opened.keys.list()]


def _key_document(key: Key, limits: Limits) -> dict[str, Any]:
    return {**key_document(key), "limits": limits_document(limits)}


def _remote_key(key: ApiKey) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(key)
    return {name: value for name, value in found.items() if name != "key"}


def _when(time: str | None) -> str:
    return "never" if time is None else local_time(time)


def _print_all(documents: list[dict[str, Any]], *, as_json: bool) -> None:
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
            "revoked" if each["revoked_at"] else _when(each["expires_at"]),
            _when(each["used_at"]),
            _limits_text(each["limits"]),
        ]
        for each in documents
    ]
    print_table(("id", "name", "role", "workflows", "expires", "used", "limits"), rows)


def _limits_text(limits: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in limits.items() if value is not None)


def audit_log(
    actor: Annotated[
        str | None, typer.Option("--by", metavar="PRINCIPAL", help="Only actions of this principal.")
    ] = None,
    action: Annotated[
        str | None,
        typer.Option(
            "--action", help="Only this action, for example workflow.deploy, or all of a kind: workflow."
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--of", metavar="ID", help="Only actions on this workflow, execution, credential or key."
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=10_000, help="Maximum number of results.")
    ] = 50,
    after: Annotated[
        int | None,
        typer.Option(
            "--after", min=0, metavar="NUMBER", help="Entries behind this number, oldest first; 0: all."
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print entries as they are written, until interrupted.")
    ] = False,
    lines: Annotated[bool, typer.Option("--lines", help="Print each entry as one line of JSON.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """List changes and the principal that made each, newest first.

    The audit log has an entry for each change of a workflow, an alias, a
    credential, a key or an execution, and for refused requests. The entry is
    written before the change; a second entry has the error code if the change is
    rejected, or what it has made, such as a version. Starts of deployed workflows
    are not in the log: `rune show` prints the principal of an execution.

    `--after 0 --lines` exports the whole log, oldest first; `--follow` goes on
    from there.

    Examples:
      rune audit-log
      rune audit-log --of orders
      rune audit-log --action credential --by key:k0123456789abcdef
      rune audit-log --after 0 --lines
    """
    wanted = AuditFilter(actor=actor, action=action, target=target)
    if lines and as_json:
        raise typer.BadParameter("--lines cannot be combined with --json")

    def work(settings: Settings) -> None:
        if after is None and not follow:
            documents = _entries(settings, wanted, None, limit)
            if lines:
                _print_lines(documents)
            else:
                _print_entries(documents, as_json=as_json)
            return
        place = _last_number(settings) if after is None else after
        while True:
            documents = _entries(settings, wanted, place, FOLLOW_PAGE)
            _print_lines(documents)
            if documents:
                place = documents[-1]["number"]
            elif not follow:
                return
            else:
                time.sleep(FOLLOW_INTERVAL_S)

    exit_with(work, as_json=as_json)


FOLLOW_PAGE = 1_000
FOLLOW_INTERVAL_S = 1.0


def _entries(settings: Settings, wanted: AuditFilter, after: int | None, limit: int) -> list[dict[str, Any]]:
    """Return the newest entries, or the next ones behind a number."""
    if settings.url:
        return with_client(settings, lambda asked: _remote_entries(asked, wanted, after, limit))

    async def read(opened: Access) -> list[AuditEntry]:
        if after is None:
            return await opened.log.read(wanted, limit=limit)
        return await opened.log.follow(after, wanted, limit=limit)

    nothing: list[AuditEntry] = []
    return [_entry_document(each) for each in read_access(settings, read, nothing)]


def _last_number(settings: Settings) -> int:
    newest = _entries(settings, ALL_ENTRIES, None, 1)
    return newest[0]["number"] if newest else 0


def _print_lines(documents: list[dict[str, Any]]) -> None:
    for each in documents:
        print(msgspec.json.encode(each).decode(), flush=True)


async def _remote_entries(
    api: AsyncClient, wanted: AuditFilter, after: int | None, limit: int
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    filters = msgspec.structs.asdict(wanted)
    async for each in api.log(**filters, after=after, page=min(limit, 1_000)):
        found.append(msgspec.to_builtins(each))
        if len(found) == limit:
            break
    return found


def _entry_document(entry: AuditEntry) -> dict[str, Any]:
    return {
        "number": entry.number,
        "at": iso(entry.at),
        "actor": entry.actor,
        "action": entry.action,
        "target": entry.target,
        "details": entry.details,
        "outcome": entry.outcome,
        "address": entry.address,
        "request_id": entry.request,
    }


def _print_entries(documents: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        print_json({"entries": documents})
        return
    if not documents:
        print("no entries")
        return
    rows: list[list[Cell]] = [
        [
            local_time(each["at"]),
            each["actor"],
            (each["action"], "bold"),
            each["target"],
            " ".join(f"{name}={_detail(name, value)}" for name, value in each["details"].items()),
            "" if each["outcome"] in {REQUESTED, DONE} else (each["outcome"], "red"),
        ]
        for each in documents
    ]
    print_table(("at", "principal", "action", "target", "details", "error"), rows)


def _detail(name: str, value: Any) -> Any:
    return moment(int(value)) if name.endswith("_at") and str(value).isdigit() else value


def limits_to_set(given: Limits, *, none: bool) -> Limits | None:
    """Return the limits to set; None if the options only show them."""
    if none and given:
        raise typer.BadParameter("--none cannot be combined with limits")
    return given if given or none else None


def limit_workflow(settings: Settings, workflow: str, limits: Limits | None, *, as_json: bool) -> None:
    """Set the limits of a workflow if given, and print the current ones."""
    found = (
        _workflow_limits(settings, workflow)
        if limits is None
        else _set_workflow_limits(settings, workflow, limits)
    )
    _print_limits({"workflow_id": workflow}, workflow, found, as_json=as_json)


def limit_key(settings: Settings, id: str, limits: Limits | None, *, as_json: bool) -> None:
    """Set the limits of a key if given, and print the current ones."""
    found = _key_limits(settings, id) if limits is None else _set_key_limits(settings, id, limits)
    _print_limits({"id": id}, id, found, as_json=as_json)


def limits_document(limits: Limits) -> dict[str, Any]:
    return msgspec.structs.asdict(limits)


def _print_limits(subject: dict[str, Any], name: str, found: Limits, *, as_json: bool) -> None:
    if as_json:
        print_json({**subject, **limits_document(found)})
    else:
        print(f"{name}: {found if found else 'no limits'}")


def _workflow_limits(settings: Settings, workflow: str) -> Limits:
    if settings.url:
        return _to_local(with_client(settings, lambda api: api.limits(workflow)))

    find_version(settings, workflow, None)
    nothing: dict[str, Limits] = {}
    return read_access(settings, lambda opened: opened.limits.all(), nothing).get(
        of_workflow(workflow), NO_LIMITS
    )


def _set_workflow_limits(settings: Settings, workflow: str, limits: Limits) -> Limits:
    if settings.url:
        return _to_local(with_client(settings, lambda api: api.limit(workflow, _to_remote(limits))))
    return call_local_service(settings, lambda service: service.limits.limit_workflow(workflow, limits))


def _key_limits(settings: Settings, id: str) -> Limits:
    if settings.url:
        limits_by_key = {
            each.id: _to_local(each.limits) for each in with_client(settings, lambda api: api.keys())
        }
    else:
        limits_by_key = read_access(settings, _all_key_limits, {})
    if id not in limits_by_key:
        raise key_not_found(id)
    return limits_by_key[id]


async def _all_key_limits(opened: Access) -> dict[str, Limits]:
    limits = await opened.limits.all()
    return {each.id: limits.get(of_key(each.id), NO_LIMITS) for each in await opened.keys.list()}


def _set_key_limits(settings: Settings, id: str, limits: Limits) -> Limits:
    if settings.url:
        return _to_local(with_client(settings, lambda api: api.limit_key(id, _to_remote(limits))))
    return call_local_service(settings, lambda service: service.limits.limit_key(id, limits))


def _to_local(remote: models.Limits) -> Limits:
    return Limits(**msgspec.structs.asdict(remote))


def _to_remote(limits: Limits) -> models.Limits:
    return models.Limits(**limits_document(limits))
