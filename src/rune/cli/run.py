"""`rune run FILE`: run a workflow to its end, durable, in this process."""

from __future__ import annotations

from typing import Annotated

import typer

from rune.cli.keyoption import StartKey


def run(
    file: Annotated[
        str,
        typer.Argument(
            help="The workflow: a JSON or YAML file, a folder that holds it, or - for standard input."
        ),
    ],
    input: Annotated[
        str, typer.Option("--input", "-i", help="The start payload: JSON, or @FILE.", show_default=False)
    ] = "{}",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document, nothing else.")] = False,
    key: StartKey = None,
    labels: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="NAME=VALUE", help="A label to find it by; may be given again."),
    ] = None,
    id: Annotated[
        str | None, typer.Option("--id", help="The id of the execution; one is made up if not given.")
    ] = None,
    fake_time: Annotated[
        bool, typer.Option("--fake-time", help="Give the execution a clock of its own: waits take no time.")
    ] = False,
    nodes: Annotated[
        list[str] | None,
        typer.Option("--nodes", help="A Python module with custom nodes; may be given again."),
    ] = None,
    in_place: Annotated[
        bool, typer.Option("--in-place/--no-in-place", help="Run pure nodes together, or each on its own.")
    ] = True,
    worker: Annotated[
        bool,
        typer.Option("--worker/--no-worker", help="On a cluster: take part, or leave all of it to others."),
    ] = True,
) -> None:
    """Run a workflow to its end and show what became of every node.

    Executions that an earlier process left unfinished go on as well. Stopping it (Ctrl-C) loses nothing.

    Exits 0 completed, 1 failed, halted or cancelled, 2 invalid, 3 backend out of reach, 130 or 143 stopped.

    Examples: rune run examples/hello -i '{"name": "Ada"}'; rune run order.yaml -i @order.json --key order-7
    """
    from rune.cli.running import Request, run_to_end  # noqa: PLC0415 - help must be quick

    request = Request(
        file=file,
        input=input,
        as_json=as_json,
        key=key,
        labels=tuple(labels or ()),
        id=id,
        fake_time=fake_time,
        nodes=tuple(nodes or ()),
        in_place=in_place,
        worker=worker,
    )
    raise typer.Exit(run_to_end(request))
