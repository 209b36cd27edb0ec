"""Command lines in files of a deployment are read as `rune` itself would read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer.main

from rune.cli.main import app


class NotUnderstood(Exception):
    """`rune` has no such command, or not with these options."""


def understood(arguments: Sequence[str]) -> str:
    """The name of the command. Nothing is run."""
    try:
        return _read(list(arguments))
    except Exception as error:
        raise NotUnderstood(f"rune {' '.join(arguments)}: {error}") from error


def _read(rest: list[str]) -> str:
    command: Any = typer.main.get_command(app)
    context = command.context_class(command, info_name="rune")
    while hasattr(command, "resolve_command"):
        name, command, rest = command.resolve_command(context, rest)
        context = command.context_class(command, parent=context, info_name=name)
    command.parse_args(context, rest)
    return str(context.command_path)
