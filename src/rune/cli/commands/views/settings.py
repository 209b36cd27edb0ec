"""`rune settings`: the settings in effect."""

from __future__ import annotations

import json
from typing import Annotated

import msgspec
import typer

from rune.cli.backend import run_reporting_errors, with_client
from rune.cli.output import Cell, print_json, print_table
from rune.client import models
from rune.settings import describe_settings, load_settings


def settings(
    changed: Annotated[
        bool, typer.Option("--changed", help="Only settings that the file or the environment sets.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """List the settings and where each comes from.

    A setting comes from a default, the file or the environment. With RUNE_URL,
    those of the server are listed. A secret is shown as set or not set.

    Example: rune settings --changed
    """

    def work() -> int:
        found = [each for each in _settings() if not changed or each.source != "default"]
        if as_json:
            print_json({"settings": msgspec.to_builtins(found)})
        else:
            rows: list[list[Cell]] = [
                [f"RUNE_{each.name.upper()}", _value(each), each.source] for each in found
            ]
            print_table(("setting", "value", "from"), rows)
        return 0

    raise typer.Exit(run_reporting_errors(work, as_json=as_json))


def _settings() -> list[models.Setting]:
    """Return the settings of the server, or of this process."""
    loaded = load_settings()
    if loaded.url:
        return with_client(loaded, lambda client: client.settings())
    return msgspec.convert(msgspec.to_builtins(describe_settings(loaded)), list[models.Setting])


def _value(each: models.Setting) -> str:
    if each.secret:
        return "set" if each.value else "not set"
    return each.value if isinstance(each.value, str) else json.dumps(each.value, ensure_ascii=False)
