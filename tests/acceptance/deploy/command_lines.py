"""Parses `rune` command lines of deployment files without running them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer.main

from rune.cli.main import app


class InvalidCommandLineError(Exception):
    """`rune` has no such command or option."""


def command_path(arguments: Sequence[str]) -> str:
    """The full name of the command of a command line."""
    try:
        return _parse(list(arguments))
    except Exception as error:
        raise InvalidCommandLineError(f"rune {' '.join(arguments)}: {error}") from error


def _parse(rest: list[str]) -> str:
    command: Any = typer.main.get_command(app)
    context = command.context_class(command, info_name="rune")
    while hasattr(command, "resolve_command"):
        name, command, rest = command.resolve_command(context, rest)
        context = command.context_class(command, parent=context, info_name=name)
    command.parse_args(context, rest)
    return str(context.command_path)
