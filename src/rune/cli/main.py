"""The `rune` command. Commands import what they need when they run, so that help is quick."""

from __future__ import annotations

from typing import Annotated

import typer

import rune
from rune.cli.commands.access import keys, log
from rune.cli.commands.bench import bench
from rune.cli.commands.check import check
from rune.cli.commands.cluster import migrate, topology, workers
from rune.cli.commands.control import cancel, pause, rerun, resume, retry, signal, start
from rune.cli.commands.credentials import credentials
from rune.cli.commands.dlq import dlq
from rune.cli.commands.doctor import doctor
from rune.cli.commands.executions import explain, list_executions, show, watch
from rune.cli.commands.graph import graph
from rune.cli.commands.maintenance import audit, backup, gc, restore
from rune.cli.commands.nodes import nodes
from rune.cli.commands.run import run
from rune.cli.commands.serve import serve, up
from rune.cli.commands.triggers import triggers
from rune.cli.commands.workflows import deploy, workflows

app = typer.Typer(
    name="rune",
    help="A durable workflow engine: one definition, one journal, every step exactly once.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)
app.command()(up)
app.command()(run)
app.command()(deploy)
app.add_typer(workflows, name="workflows")
app.command()(check)
app.command()(graph)
app.command("list")(list_executions)
app.command()(show)
app.command()(watch)
app.command()(explain)
app.command()(start)
app.command()(signal)
app.command()(cancel)
app.command()(pause)
app.command()(resume)
app.command()(retry)
app.command()(rerun)
app.add_typer(dlq, name="dlq")
app.command()(audit)
app.command()(gc)
app.command()(backup)
app.command()(restore)
app.add_typer(credentials, name="credentials")
app.add_typer(keys, name="keys")
app.command()(log)
app.command()(nodes)
app.add_typer(triggers, name="triggers")
app.add_typer(serve, name="serve")
app.command()(workers)
app.command()(migrate)
app.command()(topology)
app.command()(doctor)
app.command()(bench)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rune {rune.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Entry point of the `rune` script."""
    app()


if __name__ == "__main__":
    main()
