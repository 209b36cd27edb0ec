"""`rune triggers`: what starts executions by itself.

Triggers as text: where hooks are, when schedules are due.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rune.cli.output import Cell, clean, duration, print_json, print_table
from rune.core.triggers import Schedule
from rune.nodes.cron import next_tick

if TYPE_CHECKING:
    from rune.settings import Settings

triggers = typer.Typer(
    name="triggers",
    help="Hooks and schedules of stored workflows: list them, switch them on and off, renew what is secret.",
    no_args_is_help=True,
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Name = Annotated[
    str, typer.Argument(metavar="NAME", help="A workflow with one trigger, WORKFLOW/NODE, or an id.")
]


@triggers.command("list")
def list_triggers(
    workflow: Annotated[
        str | None, typer.Argument(metavar="[WORKFLOW]", help="Only those of this workflow.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the triggers: where hooks are, and when schedules are due."""

    def work(settings: Settings) -> None:
        print_triggers(_found(settings, workflow), as_json=as_json)

    _leave(work, as_json=as_json)


@triggers.command()
def show(name: Name, as_json: Json = False) -> None:
    """Show a trigger, and the next times of a schedule.

    Examples: rune triggers show orders; rune triggers show orders/in --json
    """

    def work(settings: Settings) -> None:
        print_trigger(_one(settings, name), settings.url, as_json=as_json)

    _leave(work, as_json=as_json)


@triggers.command()
def enable(name: Name, as_json: Json = False) -> None:
    """Switch a trigger on. What was due while it was off is not made up for."""
    _leave(lambda settings: _switch(settings, name, enabled=True, as_json=as_json), as_json=as_json)


@triggers.command()
def disable(name: Name, as_json: Json = False) -> None:
    """Switch a trigger off: a hook is not there then, a schedule is never due."""
    _leave(lambda settings: _switch(settings, name, enabled=False, as_json=as_json), as_json=as_json)


@triggers.command()
def rotate(
    name: Name,
    secret: Annotated[
        bool, typer.Option("--secret", help="Make a new secret, and print it this once; the path stays.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Give a hook a new path. The old one leads nowhere from now on.

    With --secret it gets a new secret instead: what callers sign with (`auth: hmac`), or send as
    `Authorization: Bearer …` (`auth: header`).

    Examples: rune triggers rotate orders; rune triggers rotate orders --secret
    """

    def work(settings: Settings) -> None:
        _tell_rotated(_rotated(settings, name, secret=secret), settings.url, as_json=as_json)

    _leave(work, as_json=as_json)


def _leave(work: Any, *, as_json: bool) -> None:
    from rune.cli.backend import run_reporting_errors
    from rune.settings import load_settings

    def done() -> int:
        work(load_settings())
        return 0

    raise typer.Exit(run_reporting_errors(done, as_json=as_json))


def _found(settings: Settings, workflow: str | None) -> list[dict[str, Any]]:
    """Triggers as documents, from wherever they are."""
    import msgspec

    from rune.cli import backend
    from rune.cli.backend import ask

    if settings.url:
        return [_plain(each) for each in _over_url(settings, lambda asked: asked.triggers(workflow))]
    if not backend.exists(settings):
        return []
    from rune.server.schemas import trigger_view

    found = ask(settings, lambda services: services.triggers.list(workflow))
    return [msgspec.to_builtins(trigger_view(each)) for each in found]


def _one(settings: Settings, name: str) -> dict[str, Any]:
    from rune.ports.triggers import TriggerNotFoundError

    workflow, _, node = name.partition("/")
    found = [
        each
        for each in _found(settings, None)
        if each["id"] == name or (each["workflow_id"] == workflow and node in ("", each["node_id"]))
    ]
    if len(found) == 1:
        return found[0]
    if not found:
        raise TriggerNotFoundError(f"there is no trigger `{name}`; `rune triggers list` shows what there is")
    named = ", ".join(f"{each['workflow_id']}/{each['node_id']}" for each in found)
    raise TriggerNotFoundError(f"`{name}` has {len(found)} triggers: say which, of {named}")


def _switch(settings: Settings, name: str, *, enabled: bool, as_json: bool) -> None:
    import msgspec

    from rune.cli.backend import ask
    from rune.cli.output import print_json
    from rune.server.schemas import trigger_view

    id = _one(settings, name)["id"]
    if settings.url:
        document = _plain(_over_url(settings, lambda asked: asked.enable_trigger(id, enabled=enabled)))
    else:
        changed = ask(settings, lambda services: services.triggers.enable(id, enabled))
        document = msgspec.to_builtins(trigger_view(changed))
    if as_json:
        print_json(document)
    else:
        print(f"{document['workflow_id']}/{document['node_id']} is {'on' if enabled else 'off'}")


def _rotated(settings: Settings, name: str, *, secret: bool) -> dict[str, Any]:
    import msgspec

    from rune.cli.backend import ask
    from rune.server.schemas import rotated_view

    id = _one(settings, name)["id"]
    if settings.url:
        return _plain(_over_url(settings, lambda asked: asked.rotate_trigger(id, secret=secret)))
    found: dict[str, Any] = msgspec.to_builtins(
        rotated_view(ask(settings, lambda services: services.triggers.rotate(id, secret)))
    )
    return found


def _tell_rotated(document: dict[str, Any], url: str, *, as_json: bool) -> None:
    import sys

    from rune.cli.output import print_json

    if as_json:
        print_json(document)
    elif document["new_secret"] is not None:
        print(document["new_secret"])
        print("keep it now, it is not shown again", file=sys.stderr)
    else:
        print(f"{url}{document['webhook']['path']}")


def _over_url(settings: Settings, wish: Any) -> Any:
    import asyncio

    from rune.cli.remote import client

    async def asked() -> Any:
        async with client(settings) as opened:
            return await wish(opened)

    return asyncio.run(asked())


def _plain(answer: Any) -> dict[str, Any]:
    import msgspec

    found: dict[str, Any] = msgspec.to_builtins(answer)
    return found


AHEAD = 5


def print_triggers(found: list[dict[str, Any]], *, as_json: bool) -> None:
    """All of them in a table."""
    if as_json:
        print_json({"triggers": found})
    elif not found:
        print("no triggers")
    else:
        rows: list[list[Cell]] = [
            [
                (f"{each['workflow_id']}/{each['node_id']}", "bold" if each["enabled"] else "grey"),
                each["kind"],
                f"{each['version']}",
                ("on", "green") if each["enabled"] else ("off", "grey"),
                _place(each),
            ]
            for each in found
        ]
        print_table(("trigger", "kind", "version", "state", "where or when"), rows)


def _place(each: dict[str, Any]) -> str:
    hook, schedule = each["webhook"], each["schedule"]
    if hook is not None:
        note = ", needs a secret: `rune triggers rotate --secret`" if hook["secret"] == "missing" else ""
        return f"{hook['method']} {hook['path'] or '(hidden)'}{note}"
    note = f", {schedule['trouble']}" if schedule["trouble"] else ""
    return f"{_times(schedule)}, next {schedule['next_at'] or 'never'}{note}"


def _times(schedule: dict[str, Any]) -> str:
    if schedule["cron"] is None:
        return f"every {duration(schedule['every_ms'])}"
    return f"{schedule['cron']} ({schedule['timezone']})"


def print_trigger(document: dict[str, Any], url: str, *, as_json: bool) -> None:
    """One of them, with the next times of a schedule."""
    coming = _coming(document)
    if as_json:
        print_json({**document, "coming": coming})
        return
    said: list[tuple[str, Any]] = [
        ("trigger", f"{document['workflow_id']}/{document['node_id']}"),
        ("id", document["id"]),
        ("version", document["version"]),
        ("state", "on" if document["enabled"] else "off"),
    ]
    hook, schedule = document["webhook"], document["schedule"]
    if hook is not None:
        said += [
            ("address", f"{hook['method']} {url}{hook['path'] or '(hidden)'}"),
            ("proof", hook["auth"] if hook["auth"] == "none" else f"{hook['auth']}, secret {hook['secret']}"),
            ("answer", hook["respond"]),
        ]
    if schedule is not None:
        said += [
            ("times", _times(schedule)),
            ("missed", f"catch up {schedule['catch_up']}"),
            ("overlap", f"{schedule['overlap']}, {schedule['waiting']} waiting"),
            ("last", schedule["last_execution_id"] or "none"),
            *((("trouble", schedule["trouble"]),) if schedule["trouble"] else ()),
            *(("next", each) for each in coming),
        ]
    for name, value in said:
        print(f"{name:<8}  {clean(str(value))}")


def _coming(document: dict[str, Any]) -> list[str]:
    """The next times of a schedule."""
    given = document["schedule"]
    if given is None or given["next_at"] is None:
        return []
    first = int(datetime.fromisoformat(given["next_at"]).timestamp() * 1000)
    # Ticks of an interval lie at equal distances from any one of them.
    schedule = Schedule(cron=given["cron"], timezone=given["timezone"], every=given["every_ms"] or 0)
    times, found = next_tick(schedule, first), [first]
    while len(found) < AHEAD:
        after = times(found[-1])
        if after is None:
            break
        found.append(after)
    return [datetime.fromtimestamp(each / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") for each in found]
