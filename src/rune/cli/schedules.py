"""Triggers as text: where hooks are, when schedules are due."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from rune.cli.problems import print_json
from rune.cli.text import Cell, clean, duration, print_table
from rune.core.ticks import Schedule
from rune.nodes.crontimes import following

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
    times, found = following(schedule, first), [first]
    while len(found) < AHEAD:
        after = times(found[-1])
        if after is None:
            break
        found.append(after)
    return [datetime.fromtimestamp(each / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") for each in found]
