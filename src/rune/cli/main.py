"""The `rune` command. Commands import what they need when they run, so that help is quick."""

from __future__ import annotations

from typing import Annotated

import typer

import rune
from rune.cli.audit import audit
from rune.cli.backup import backup, restore
from rune.cli.bench import bench
from rune.cli.cancel import cancel
from rune.cli.check import check
from rune.cli.credentials import credentials
from rune.cli.deploy import deploy
from rune.cli.doctor import doctor
from rune.cli.explain import explain
from rune.cli.gc import gc
from rune.cli.graph import graph
from rune.cli.keys import keys
from rune.cli.letters import letters
from rune.cli.listing import list_executions
from rune.cli.log import log
from rune.cli.migrate import migrate
from rune.cli.nodes import nodes
from rune.cli.pausing import pause, resume
from rune.cli.retrying import rerun, retry
from rune.cli.run import run
from rune.cli.serve import serve
from rune.cli.show import show
from rune.cli.signal import signal
from rune.cli.start import start
from rune.cli.topology import topology
from rune.cli.triggers import triggers
from rune.cli.up import up
from rune.cli.watch import watch
from rune.cli.workers import workers
from rune.cli.workflows import workflows

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
app.add_typer(letters, name="dlq")
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
