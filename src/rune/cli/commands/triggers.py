"""`rune triggers`: webhooks and schedules of deployed workflows."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec
import typer

from rune.cli.backend import HINTS, call_local_service, exit_with, read_access, run_reporting_errors
from rune.cli.output import Cell, clean, duration, local_time, print_json, print_problems, print_table
from rune.cli.remote.connection import client
from rune.core.definition.problems import Problem
from rune.core.schedules import Schedule
from rune.nodes.control.schedule import check_schedule, next_tick, next_times
from rune.ports.clock import iso
from rune.ports.retention import parse_duration
from rune.ports.workflows import Trigger, TriggerNotFoundError
from rune.server.schemas.triggers import rotated_view, trigger_view
from rune.settings import Settings, load_settings

triggers = typer.Typer(
    name="triggers",
    help="Manage the webhooks and schedules of deployed workflows.\n\nWithout a command: list them.",
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="Trigger: WORKFLOW/NODE, its id, or a workflow with only one trigger."
    ),
]

NEXT_TIMES = 5
"""Number of coming times of a schedule that are shown."""


@triggers.callback(invoke_without_command=True)
def _triggers(context: typer.Context, as_json: Json = False) -> None:
    if context.invoked_subcommand is None:
        list_triggers(None, as_json)


@triggers.command("list")
def list_triggers(
    workflow: Annotated[
        str | None, typer.Argument(metavar="[WORKFLOW]", help="Only triggers of this workflow.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the triggers: paths of webhooks, next times of schedules."""

    def work(settings: Settings) -> None:
        print_triggers(_list(settings, workflow), as_json=as_json)

    exit_with(work, as_json=as_json, hints=HINTS)


@triggers.command()
def show(name: Name, as_json: Json = False) -> None:
    """Show a trigger, with the next times of a schedule.

    Examples:
      rune triggers show orders
      rune triggers show orders/in --json
    """

    def work(settings: Settings) -> None:
        print_trigger(_find(settings, name), settings.url, as_json=as_json)

    exit_with(work, as_json=as_json, hints=HINTS)


@triggers.command()
def enable(name: Name, as_json: Json = False) -> None:
    """Switch a trigger on. Times of a schedule that passed while it was off are skipped."""
    exit_with(
        lambda settings: _switch(settings, name, enabled=True, as_json=as_json), as_json=as_json, hints=HINTS
    )


@triggers.command()
def disable(name: Name, as_json: Json = False) -> None:
    """Switch a trigger off: a webhook responds with 404, a schedule does not fire."""
    exit_with(
        lambda settings: _switch(settings, name, enabled=False, as_json=as_json), as_json=as_json, hints=HINTS
    )


@triggers.command()
def rotate(
    name: Name,
    secret: Annotated[
        bool, typer.Option("--secret", help="Create a new secret and print it, instead of a new path.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Give a webhook a new path. The old path stops working.

    With --secret the webhook keeps its path and gets a new secret. Callers sign
    requests with it (`auth: hmac`) or send it as `Authorization: Bearer …`
    (`auth: header`). The secret is not shown again.

    Examples:
      rune triggers rotate orders
      rune triggers rotate orders --secret
    """

    def work(settings: Settings) -> None:
        _print_rotated(_rotate(settings, name, secret=secret), settings.url, as_json=as_json)

    exit_with(work, as_json=as_json, hints=HINTS)


@triggers.command()
def preview(
    cron: Annotated[
        str | None, typer.Argument(metavar="[CRON]", help="Five cron fields: minute hour day month weekday.")
    ] = None,
    timezone: Annotated[str, typer.Option("--timezone", help="IANA time zone of the cron fields.")] = "UTC",
    every: Annotated[
        str | None,
        typer.Option("--every", metavar="DURATION", help="A fixed interval instead: 90s, 15m, 2h, 1d."),
    ] = None,
    count: Annotated[int, typer.Option("--count", min=1, max=100, help="Number of times.")] = NEXT_TIMES,
    as_json: Json = False,
) -> None:
    """Print the next times of a schedule, as if it were deployed now.

    Nothing is stored. Exit codes: 0 the times were printed; 2 not a schedule.

    Examples:
      rune triggers preview '*/15 9-17 * * 1-5' --timezone Europe/Berlin
      rune triggers preview --every 90m --count 3
    """

    def done() -> int:
        given = _schedule_parameters(cron, timezone, every)
        ticks, problems = _preview(load_settings(), given, count)
        if problems:
            return print_problems(problems, as_json=as_json)
        if as_json:
            print_json({"ticks": ticks})
        else:
            print("\n".join(ticks))
        return 0

    raise typer.Exit(run_reporting_errors(done, as_json=as_json))


def _schedule_parameters(cron: str | None, timezone: str, every: str | None) -> dict[str, Any]:
    """Return the parameters of a `schedule` node."""
    given: dict[str, Any] = {"timezone": timezone}
    if cron is not None:
        given["cron"] = cron
    if every is not None:
        given |= {"amount": parse_duration(every) // 1000, "unit": "seconds"}
    return given


def _preview(
    settings: Settings, parameters: dict[str, Any], count: int
) -> tuple[list[str], Sequence[Problem]]:
    """Return the next times, or what is wrong with the parameters."""
    if settings.url:
        found = _call_server(settings, lambda api: api.preview_schedule(count=count, **parameters))
        return found.ticks, [msgspec.convert(msgspec.to_builtins(each), Problem) for each in found.problems]
    problems = check_schedule(parameters)
    ticks = [] if problems else next_times(parameters, time.time_ns() // 1_000_000, count)
    return [iso(each) or "" for each in ticks], problems


def _list(settings: Settings, workflow: str | None) -> list[dict[str, Any]]:
    """Return triggers as documents, from the server or the stores."""
    if settings.url:
        return [_to_document(each) for each in _call_server(settings, lambda api: api.triggers(workflow))]
    nothing: Sequence[Trigger] = ()
    found = read_access(settings, lambda opened: opened.triggers.list(workflow), nothing)
    return [msgspec.to_builtins(trigger_view(each)) for each in found]


def _find(settings: Settings, name: str) -> dict[str, Any]:
    workflow, _, node = name.partition("/")
    found = [
        each
        for each in _list(settings, None)
        if each["id"] == name or (each["workflow_id"] == workflow and node in ("", each["node_id"]))
    ]
    if len(found) == 1:
        return found[0]
    if not found:
        raise TriggerNotFoundError(f"there is no trigger `{name}`; see `rune triggers list`")
    named = ", ".join(f"{each['workflow_id']}/{each['node_id']}" for each in found)
    raise TriggerNotFoundError(f"`{name}` has {len(found)} triggers; choose one of {named}")


def _switch(settings: Settings, name: str, *, enabled: bool, as_json: bool) -> None:
    id = _find(settings, name)["id"]
    if settings.url:
        document = _to_document(_call_server(settings, lambda api: api.enable_trigger(id, enabled=enabled)))
    else:
        changed = call_local_service(settings, lambda service: service.triggers.enable(id, enabled))
        document = msgspec.to_builtins(trigger_view(changed))
    if as_json:
        print_json(document)
    else:
        print(f"{document['workflow_id']}/{document['node_id']} is {'on' if enabled else 'off'}")


def _rotate(settings: Settings, name: str, *, secret: bool) -> dict[str, Any]:
    id = _find(settings, name)["id"]
    if settings.url:
        return _to_document(_call_server(settings, lambda api: api.rotate_trigger(id, secret=secret)))
    found: dict[str, Any] = msgspec.to_builtins(
        rotated_view(call_local_service(settings, lambda service: service.triggers.rotate(id, secret)))
    )
    return found


def _print_rotated(document: dict[str, Any], url: str, *, as_json: bool) -> None:
    if as_json:
        print_json(document)
    elif document["new_secret"] is not None:
        print(document["new_secret"])
        print("store the secret now, it is not shown again", file=sys.stderr)
    else:
        print(f"{url}{document['webhook']['path']}")


def _call_server(settings: Settings, action: Any) -> Any:
    async def call() -> Any:
        async with client(settings) as opened:
            return await action(opened)

    return asyncio.run(call())


def _to_document(answer: Any) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(answer)
    return found


def print_triggers(found: list[dict[str, Any]], *, as_json: bool) -> None:
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
                _location(each),
            ]
            for each in found
        ]
        print_table(("trigger", "kind", "version", "state", "where or when"), rows)


def _location(each: dict[str, Any]) -> str:
    hook, schedule = each["webhook"], each["schedule"]
    if hook is not None:
        note = ", needs a secret: `rune triggers rotate --secret`" if hook["secret"] == "missing" else ""
        return f"{hook['method']} {hook['path'] or '(hidden)'}{note}"
    coming = "never" if schedule["next_at"] is None else local_time(schedule["next_at"])
    note = f", {schedule['trouble']}" if schedule["trouble"] else ""
    return f"{_times(schedule)}, next {coming}{note}"


def _times(schedule: dict[str, Any]) -> str:
    if schedule["cron"] is None:
        return f"every {duration(schedule['every_ms'])}"
    return f"{schedule['cron']} ({schedule['timezone']})"


def print_trigger(document: dict[str, Any], url: str, *, as_json: bool) -> None:
    coming = _next_times(document)
    if as_json:
        print_json({**document, "coming": coming})
        return
    rows: list[tuple[str, Any]] = [
        ("trigger", f"{document['workflow_id']}/{document['node_id']}"),
        ("id", document["id"]),
        ("version", document["version"]),
        ("state", "on" if document["enabled"] else "off"),
    ]
    hook, schedule = document["webhook"], document["schedule"]
    if hook is not None:
        rows += [
            ("address", f"{hook['method']} {url}{hook['path'] or '(hidden)'}"),
            ("auth", hook["auth"] if hook["auth"] == "none" else f"{hook['auth']}, secret {hook['secret']}"),
            ("response", hook["respond"]),
        ]
    if schedule is not None:
        rows += [
            ("times", _times(schedule)),
            ("missed", f"catch up {schedule['catch_up']}"),
            ("overlap", f"{schedule['overlap']}, {schedule['waiting']} waiting"),
            ("last", schedule["last_execution_id"] or "none"),
            *((("error", schedule["trouble"]),) if schedule["trouble"] else ()),
            *(("next", local_time(each)) for each in coming),
        ]
    for name, value in rows:
        print(f"{name:<8}  {clean(str(value))}")


def _next_times(document: dict[str, Any]) -> list[str]:
    """Return the next times of a schedule."""
    given = document["schedule"]
    if given is None or given["next_at"] is None:
        return []
    first = int(datetime.fromisoformat(given["next_at"]).timestamp() * 1000)
    # Ticks of an interval are equally spaced, so the next ones follow from the first.
    schedule = Schedule(cron=given["cron"], timezone=given["timezone"], every=given["every_ms"] or 0)
    times, found = next_tick(schedule, first), [first]
    while len(found) < NEXT_TIMES:
        after = times(found[-1])
        if after is None:
            break
        found.append(after)
    return [iso(each) or "" for each in found]
