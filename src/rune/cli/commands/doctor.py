"""`rune doctor` and `rune settings`: check an installation and list its settings."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Annotated

import msgspec
import typer
from msgspec.structs import replace

from rune.bootstrap.doctor import check_installation, settings_finding
from rune.cli.arguments import Nodes, with_modules, without_file_modules
from rune.cli.backend import run_reporting_errors, with_client
from rune.cli.output import Cell, by_status, print_json, print_table
from rune.client import models
from rune.errors import RuneError
from rune.nodes.base import RunnableType
from rune.nodes.registry import load_module
from rune.ports.inspection import Finding
from rune.settings import describe_settings, load_settings


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    modules: Nodes = None,
) -> None:
    """Check the configuration and the stores, and advise on problems.

    Checks Python, the stores, disk space, encryption keys, telemetry and custom
    nodes. On a cluster, also permissions, clocks, workers and schedulers.
    Nothing is changed. Exits 1 if a check fails.

    Example: rune doctor
    """
    findings = _findings(tuple(modules or ()))
    bad = any(each.verdict == "bad" for each in findings)
    if as_json:
        print_json({"status": "bad" if bad else "ok", "checks": msgspec.to_builtins(findings)})
    else:
        print_table(
            ("", "check", "found", "what to do"),
            [[by_status(each.verdict), each.check, each.found, each.advice] for each in findings],
        )
    raise typer.Exit(1 if bad else 0)


def _findings(modules: tuple[str, ...]) -> list[Finding]:
    try:
        settings = load_settings()
    except RuneError as error:
        return [settings_finding(error)]

    def load(name: str) -> Sequence[RunnableType]:
        # Only a module that is named by hand may be in the current folder.
        if name in modules:
            with_modules(replace(settings, nodes=()), (name,))
        return load_module(name)

    found = asyncio.run(check_installation(without_file_modules(settings), modules, load))
    unread = [each for each in settings.nodes if settings.nodes_in_file and each not in modules]
    return [*found, *map(_not_imported, unread)]


def _not_imported(name: str) -> Finding:
    """Return the finding about a module that `rune.toml` names: only commands that run workflows import it."""
    advice = f"`rune doctor --nodes {name}` imports and checks it"
    return Finding(f"nodes of {name}", "ok", "named in rune.toml, not imported", advice)


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
