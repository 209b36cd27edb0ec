"""`rune start`: start a stored workflow by its name.

`rune cancel`: end an execution.

`rune pause` and `rune resume`: hold an execution where it is, and let it go on.

`rune signal`: say something to an execution that waits for it.

`rune retry` and `rune rerun`: do it again, and keep what need not be done again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rune.cli.arguments import StartKey, not_empty

if TYPE_CHECKING:
    from rune.runtime.lifecycle.launcher import StartOptions
    from rune.settings import Settings


def start(
    given: Annotated[
        str,
        typer.Argument(
            metavar="NAME[@VERSION]", help="A stored workflow; a version number or an alias, or the latest."
        ),
    ],
    input: Annotated[
        str, typer.Option("--input", "-i", help="The start payload: JSON, or @FILE.", show_default=False)
    ] = "{}",
    key: StartKey = None,
    labels: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="NAME=VALUE", help="A label to find it by; may be given again."),
    ] = None,
    priority: Annotated[
        int | None,
        typer.Option("--priority", min=0, max=10, help="0 to 10; the workflow's own unless given."),
    ] = None,
    fake_time: Annotated[
        bool, typer.Option("--fake-time", help="Give the execution a clock of its own: waits take no time.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="See it to its end, as `rune run` does, and exit like it.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Start a workflow that was deployed, and print the id of the execution.

    Whichever process owns the file runs it. With --wait this one does where there is none.

    Examples: rune start orders -i @order.json --key order-7; rune start orders@stable --wait
    """
    from rune.cli.follow import refusing

    async def work(settings: Settings) -> int:
        from rune.cli.arguments import labels_of, payload_of
        from rune.runtime.lifecycle.launcher import StartOptions

        payload, tags = payload_of(input), labels_of(tuple(labels or ()))
        options = StartOptions(key=key, labels=tags, fake_time=fake_time)
        return await _start(settings, given, payload, options, priority, wait=wait, as_json=as_json)

    raise typer.Exit(refusing(work, as_json=as_json))


async def _start(
    settings: Settings,
    given: str,
    payload: bytes,
    options: StartOptions,
    priority: int | None,
    *,
    wait: bool,
    as_json: bool,
) -> int:
    from rune.cli.backend import (
        exists,
        reference,
    )
    from rune.cli.follow import begin
    from rune.ports.workflows import LATEST, workflow_not_found
    from rune.runtime.lifecycle.launcher import new_execution_id

    workflow, which = reference(given)
    if not exists(settings):  # no workflow is stored, and no file need be made to say so
        raise workflow_not_found(workflow, (), LATEST)
    name = new_execution_id()
    return await begin(
        settings,
        lambda services: services.executions.start(
            workflow, which, payload, options, priority=priority, execution=name
        ),
        wait=wait,
        as_json=as_json,
        name=name,
    )


def cancel(
    execution: Annotated[
        str, typer.Argument(metavar="ID", help="An execution; the beginning of its id is enough.")
    ],
    reason: Annotated[str, typer.Option("--reason", help="Why; kept with the execution.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Cancel an execution: nothing of it begins any more, and what runs is told to stop.

    Exits 0 cancelled, 1 if it had ended before.

    Example: rune cancel x019a --reason "ordered twice"
    """
    from rune.cli.follow import act

    async def work(found: str, settings: Settings) -> int:
        from rune.cli.follow import ask
        from rune.cli.output import print_json

        status = await ask(settings, lambda services: services.executions.cancel(found, reason))
        if as_json:
            print_json({"execution_id": found, "status": status})
        else:
            print(f"{status} {found}")
        return 0

    raise typer.Exit(act(execution, work, as_json=as_json))


Id = Annotated[str, typer.Argument(metavar="ID", help="An execution; the beginning of its id is enough.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def pause(execution: Id, as_json: Json = False) -> None:
    """Let nothing new of an execution begin. What runs may finish.

    Exits 0 paused, now or before; 1 if it has ended.

    Example: rune pause x019a
    """
    _set(execution, paused=True, as_json=as_json)


def resume(execution: Id, as_json: Json = False) -> None:
    """Let a paused execution go on.

    Exits 0 running, now or before; 1 if it has ended.

    Example: rune resume x019a
    """
    _set(execution, paused=False, as_json=as_json)


def _set(execution: str, *, paused: bool, as_json: bool) -> None:
    from rune.cli.follow import act

    async def work(found: str, settings: Settings) -> int:
        from rune.cli.follow import ask
        from rune.cli.output import print_json

        changed = await ask(
            settings,
            lambda services: (
                services.executions.pause(found) if paused else services.executions.resume(found)
            ),
        )
        status = "paused" if paused else "running"
        if as_json:
            print_json({"execution_id": found, "status": status, "changed": changed})
        elif changed:
            print(f"{status} {found}")
        else:
            print(f"{found} was {'paused already' if paused else 'not paused'}")
        return 0

    raise typer.Exit(act(execution, work, as_json=as_json))


def signal(
    execution: Annotated[
        str, typer.Argument(metavar="ID", help="An execution; the beginning of its id is enough.")
    ],
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the waiting node calls the signal.")],
    value: Annotated[
        str, typer.Option("--value", "-v", help="What to tell it: JSON, or @FILE.", show_default=False)
    ] = "null",
    item: Annotated[
        str | None,
        typer.Option(
            "--item", help="Only the one in this item: `users:5`, or `users:5/orders:2`.", show_default=False
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option("--key", callback=not_empty, help="Heard at most once under this key, now and later."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Send a signal to the node that waits for its name; if none does yet it is kept. Of several, name the item.

    Exits 0 heard or kept, 1 if the execution has ended.

    Examples: rune signal x019a approve -v '{"by": "Ada"}'; rune signal x019a paid --item orders:3
    """
    from rune.cli.follow import act

    async def work(found: str, settings: Settings) -> int:
        from rune.cli.arguments import value_of
        from rune.cli.follow import ask_and_see, tell
        from rune.cli.output import print_json

        data = value_of(value, "--value")
        heard, owned = await ask_and_see(
            settings, lambda services: services.executions.signal(found, name, data, key=key, item=item)
        )
        if as_json:
            print_json({"execution_id": found, "signal_id": heard.id, "resumed": heard.resumed})
        elif heard.resumed:
            print(f"{found} goes on: `{name}` was waited for")
        else:
            print(f"{found} keeps `{name}` until something waits for it")
        if not as_json and not owned:
            tell("No process runs executions here now: it goes on with the next `rune run`.")
        return 0

    raise typer.Exit(act(execution, work, as_json=as_json))


Key = Annotated[
    str | None, typer.Option("--key", callback=not_empty, help="Do it at most once under this key.")
]
Wait = Annotated[
    bool,
    typer.Option("--wait", help="See the new execution to its end, as `rune run` does, and exit like it."),
]


def retry(
    execution: Id,
    failed_items: Annotated[
        bool, typer.Option("--failed-items", help="Only the items of splits that failed.")
    ] = False,
    key: Key = None,
    wait: Wait = False,
    as_json: Json = False,
) -> None:
    """Run again what failed, was cancelled or never ended, in a new execution that keeps the rest; prints its id.

    Exits 0 started, 1 if it has not ended or there is nothing to run again; with --wait like `rune run`.

    Example: rune retry x019a --failed-items --wait
    """
    from rune.cli.follow import act

    async def work(found: str, settings: Settings) -> int:
        from rune.cli.follow import begin
        from rune.runtime.lifecycle.launcher import new_execution_id

        mark = key or new_execution_id()
        return await begin(
            settings,
            lambda services: services.executions.retry(found, failed_items=failed_items, key=mark),
            wait=wait,
            as_json=as_json,
        )

    raise typer.Exit(act(execution, work, as_json=as_json))


def rerun(
    execution: Id,
    node: Annotated[
        str, typer.Option("--from", metavar="NODE", help="The node to begin at; what lies before it is kept.")
    ],
    item: Annotated[
        str | None,
        typer.Option(
            "--item", help="Only in this item: `users:5`, or `users:5/orders:2`.", show_default=False
        ),
    ] = None,
    key: Key = None,
    wait: Wait = False,
    as_json: Json = False,
) -> None:
    """Run a node and everything behind it again, in a new execution; prints its id.

    Examples: rune rerun x019a --from mail; rune rerun x019a --from fetch --item users:5 --wait
    """
    from rune.cli.follow import act

    async def work(found: str, settings: Settings) -> int:
        from rune.cli.follow import begin
        from rune.runtime.lifecycle.launcher import new_execution_id

        mark = key or new_execution_id()
        return await begin(
            settings,
            lambda services: services.executions.rerun(found, node, item=item, key=mark),
            wait=wait,
            as_json=as_json,
        )

    raise typer.Exit(act(execution, work, as_json=as_json))
