"""`rune start`: start a stored workflow by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rune.cli.keyoption import StartKey

if TYPE_CHECKING:
    from rune.runtime.launcher import Options
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
    from rune.cli.acting import refusing  # noqa: PLC0415 - help must be quick

    async def work(settings: Settings) -> int:
        from rune.cli.given import labels_of, payload_of  # noqa: PLC0415
        from rune.runtime.launcher import Options  # noqa: PLC0415

        payload, tags = payload_of(input), labels_of(tuple(labels or ()))
        options = Options(key=key, labels=tags, fake_time=fake_time)
        return await _start(settings, given, payload, options, priority, wait=wait, as_json=as_json)

    raise typer.Exit(refusing(work, as_json=as_json))


async def _start(
    settings: Settings,
    given: str,
    payload: bytes,
    options: Options,
    priority: int | None,
    *,
    wait: bool,
    as_json: bool,
) -> int:
    from rune.cli.acting import begin  # noqa: PLC0415
    from rune.cli.library import reference  # noqa: PLC0415
    from rune.cli.reach import exists  # noqa: PLC0415
    from rune.ports.library import LATEST, unknown  # noqa: PLC0415
    from rune.runtime.launcher import new_execution_id  # noqa: PLC0415

    workflow, which = reference(given)
    if not exists(settings):  # no workflow is stored, and no file need be made to say so
        raise unknown(workflow, (), LATEST)
    name = new_execution_id()
    return await begin(
        settings,
        lambda desk: desk.start(workflow, which, payload, options, priority=priority, execution=name),
        wait=wait,
        as_json=as_json,
        name=name,
    )
