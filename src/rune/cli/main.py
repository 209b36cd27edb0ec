"""The `rune` command. A command's module is imported when the command is called, so that `rune --help` is quick."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from functools import cache
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

import rune
from rune.cli.stdout import keep_stdout


class Entry(NamedTuple):
    """Where a command is defined, and its line in `rune --help`."""

    module: str
    attribute: str
    short_help: str


PANELS = {
    "Run": {
        "up": Entry("serve", "up", "Serve the API and run executions in one process, until Ctrl-C."),
        "run": Entry("run", "run", "Run a workflow to its end and show the result of every node."),
        "start": Entry("control", "start", "Start a deployed workflow and print the id of the execution."),
        "serve": Entry("serve", "serve", "Run one process of a cluster: a worker, a scheduler or the API."),
    },
    "Inspect": {
        "list": Entry("executions", "list_executions", "List executions, newest first."),
        "show": Entry("executions", "show", "Show the result of every node of an execution."),
        "watch": Entry("executions", "watch", "Print the events of an execution until it ends."),
        "items": Entry("details", "items", "List the items of a split, or count them by state and error."),
        "value": Entry("details", "value", "Print a part of an input or output, or search in it."),
        "compare": Entry("details", "compare", "Compare two executions and list what differs."),
        "waiting": Entry("executions", "waiting", "List the nodes that wait for a signal."),
        "stats": Entry("executions", "stats", "Count executions by status or workflow."),
        "explain": Entry("executions", "explain", "Explain what an execution is waiting for."),
        "logs": Entry("details", "logs", "Print what the nodes of an execution logged."),
        "verify": Entry(
            "maintenance", "verify", "Replay the journal and check its invariants. Exits 1 on a violation."
        ),
    },
    "Operate": {
        "signal": Entry("control", "signal", "Send a signal to an execution."),
        "cancel": Entry(
            "control", "cancel", "Cancel an execution: running nodes are stopped, no new ones start."
        ),
        "pause": Entry("control", "pause", "Pause an execution: running nodes finish, no new ones start."),
        "resume": Entry("control", "resume", "Resume a paused execution."),
        "retry": Entry("control", "retry", "Run the failed nodes of an execution again, in a new execution."),
        "rerun": Entry("control", "rerun", "Run a node and everything after it again, in a new execution."),
        "bulk": Entry("bulk", "bulk", "Cancel, pause, resume, retry or requeue many executions."),
        "dlq": Entry("dlq", "dlq", "List, show, requeue or drop dead letters."),
    },
    "Workflows": {
        "deploy": Entry("workflows", "deploy", "Store a workflow as its next version."),
        "workflows": Entry(
            "workflows", "workflows", "List, show, compare, limit or remove deployed workflows."
        ),
        "check": Entry("documents.check", "check", "Check workflow documents and list every problem."),
        "test": Entry("documents.test", "run_tests", "Run workflow tests that are written in YAML or JSON."),
        "record": Entry(
            "documents.test", "record", "Write a test for `rune test` from an execution that has ended."
        ),
        "import": Entry(
            "documents.convert",
            "import_workflow",
            "Import a workflow of another tool and report what became of every element.",
        ),
        "graph": Entry(
            "documents.check", "graph", "Draw a workflow in the terminal, as SVG or as Mermaid text."
        ),
        "convert": Entry("documents.convert", "convert", "Convert a workflow between YAML, JSON and Python."),
        "stubs": Entry("documents.convert", "stubs", "Write typed constructors for custom node types."),
        "nodes": Entry("documents.nodes", "nodes", "List the node types, or show one of them in full."),
        "schema": Entry(
            "documents.nodes", "schema", "Print the JSON Schema of workflow documents, for editors."
        ),
        "triggers": Entry("triggers", "triggers", "Manage the webhooks and schedules of deployed workflows."),
        "handlers": Entry(
            "handlers", "handlers", "Set the workflows that handle failed, late and missing executions."
        ),
    },
    "Administer": {
        "prune": Entry("maintenance", "prune", "Delete ended executions."),
        "backup": Entry("maintenance", "backup", "Back up the database while it is in use."),
        "restore": Entry("maintenance", "restore", "Restore a backup. No process may be using the database."),
        "credentials": Entry(
            "credentials", "credentials", "Manage the credentials that nodes use. Values are never shown."
        ),
        "keys": Entry("access", "keys", "Create, list, limit or revoke the keys of the API."),
        "audit-log": Entry(
            "access", "audit_log", "List changes and the principal that made each, newest first."
        ),
        "workers": Entry(
            "cluster", "workers", "List the running processes of a cluster, or drain one of its workers."
        ),
        "migrate": Entry("cluster", "migrate", "Prepare the stores of a cluster for this version of Rune."),
        "topology": Entry("cluster", "topology", "Print the queues and users that a cluster needs."),
        "settings": Entry("doctor", "settings", "List the settings and where each comes from."),
        "doctor": Entry(
            "doctor", "doctor", "Check the configuration and the stores, and advise on problems."
        ),
        "bench": Entry("doctor", "bench", "Measure how fast Rune is on this machine."),
    },
}
"""The commands as `rune --help` lists them."""

FORMER_NAMES = {"audit": "verify", "gc": "prune", "log": "audit-log"}
"""Names that commands had before version 0.2. They still work and are not listed."""

FORMER_OPTIONS = {"--idempotency-key": "--key"}
"""Names that options had before version 0.2. They still work and are not listed."""

COMMANDS = {name: entry for entries in PANELS.values() for name, entry in entries.items()}


@cache
def load_command(name: str) -> Any:
    """Import a command: a function, or a Typer with subcommands."""
    entry = COMMANDS[name]
    target = getattr(import_module(f"rune.cli.commands.{entry.module}"), entry.attribute)
    holder = typer.Typer()
    if isinstance(target, typer.Typer):
        holder.add_typer(target, name=name)
    else:
        holder.command(name)(target)
    command = get_group(holder).commands[name]
    for parameter in command.params:
        for option in FORMER_OPTIONS.keys() & set(parameter.opts):
            _accept_also(parameter, FORMER_OPTIONS[option])
    return command


def _accept_also(parameter: Any, former: str) -> None:
    """Parse an option under its former name too, which the help does not list."""
    add_to_parser = parameter.add_to_parser

    def add(parser: Any, context: Any) -> None:
        parameter.opts.append(former)
        add_to_parser(parser, context)
        parameter.opts.remove(former)

    parameter.add_to_parser = add


class LazyCommands(MutableMapping[str, Any]):
    """The commands by name. Only looking one up imports its module."""

    def __getitem__(self, name: str) -> Any:
        return load_command(name)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)

    def __contains__(self, name: object) -> bool:
        return name in COMMANDS

    def __setitem__(self, name: str, command: Any) -> None:
        raise TypeError("commands are added to PANELS")

    def __delitem__(self, name: str) -> None:
        raise TypeError("commands are removed from PANELS")


class LazyGroup(TyperGroup):
    """Lists commands from the table and imports the one that is called."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = LazyCommands()

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a placeholder that is enough for the list of commands."""
        cmd_name = FORMER_NAMES.get(cmd_name, cmd_name)
        for panel, entries in PANELS.items():
            if cmd_name in entries:
                return TyperCommand(cmd_name, short_help=entries[cmd_name].short_help, rich_help_panel=panel)
        return None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, placeholder, rest = super().resolve_command(ctx, args)
        return name, placeholder and load_command(placeholder.name), rest


app = typer.Typer(
    name="rune",
    cls=LazyGroup,
    help="A durable workflow engine: executions resume after a crash, every result is recorded exactly once.\n\n"
    "Without configuration, everything is stored in the folder .rune. RUNE_URL names a server to use instead.\n\n"
    'Example: rune run workflow.yaml --input \'{"name": "World"}\'',
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"rune {rune.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Entry point of the `rune` script. No command ends in a traceback: what no command expects is reported here."""
    keep_stdout()
    try:
        app(prog_name="rune")
    except Exception as error:
        from rune.cli.unexpected import report  # noqa: PLC0415 - rarely needed

        raise SystemExit(report(error)) from None


if __name__ == "__main__":
    main()
