"""The rows that the table of meaning must have: from catalogue, functions, models of documents and commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import click
import msgspec

from rune.cli.main import COMMANDS, load_command
from rune.core.definition.model import ErrorPolicy, Node, Pin, Retry, Settings
from rune.core.expr.functions import FUNCTIONS
from rune.nodes.control import merge, schedule
from rune.nodes.registry import standard_registry

TIME = re.compile(
    r"\b(times?|ago|ages?|since|until|older|seconds|waits?|clock|dates?|minutes|hours|days|expires?|stuck|late)\b",
    re.IGNORECASE,
)
"""An option of a command whose name or help has such a word involves time."""

MODELS: dict[str, type[msgspec.Struct]] = {"node": Node, "retry": Retry, "settings": Settings, "pin": Pin}
POLICIES: dict[str, tuple[Any, str]] = {
    "error": (ErrorPolicy, "type"),
    "overlap": (schedule.Parameters, "overlap"),
    "catch_up": (schedule.Parameters, "catch_up"),
    "mode": (merge.Parameters, "mode"),
    "wait_mode": (merge.Parameters, "wait_mode"),
}


def required_rows() -> set[str]:
    """Return the key of every row."""
    rows = {f"type:{name}" for name in standard_registry().catalogue}
    rows |= {f"function:{name}" for name in FUNCTIONS}
    for kind, model in MODELS.items():
        rows |= {f"{kind}:{field.encode_name}" for field in msgspec.structs.fields(model)}
    for kind, (model, field) in POLICIES.items():
        rows |= {f"{kind}:{choice}" for choice in _choices(get_type_hints(model, include_extras=True)[field])}
    rows |= {f"command:{option}" for name in COMMANDS for option in _options(load_command(name), name)}
    return rows


def _choices(hint: Any) -> Iterator[str]:
    """Yield the texts of a type that may be given literally."""
    for each in get_args(hint):
        if isinstance(each, str):
            yield each
        elif isinstance(each, type) and issubclass(each, msgspec.Struct):
            yield from (field.encode_name for field in msgspec.structs.fields(each))
        else:
            yield from _choices(each)


def _options(command: Any, path: str) -> Iterator[str]:
    if isinstance(command, click.Group) or hasattr(command, "list_commands"):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from _options(command.get_command(context, name), f"{path} {name}")
        return
    for each in command.params:
        text = " ".join([*each.opts, getattr(each, "help", None) or ""]).replace("-", " ")
        if TIME.search(text):
            yield f"{path} {max(each.opts, key=len)}"
