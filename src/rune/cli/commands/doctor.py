"""`rune doctor`, `rune settings` and `rune bench`: check an installation, list its settings, and measure the embedded
engine, each result next to the limit of the machine.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import typer
from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

from rune.bootstrap.doctor import check_installation, settings_finding
from rune.bootstrap.interpreter import describe
from rune.cli.arguments import Nodes, with_modules, without_file_modules
from rune.cli.backend import run_reporting_errors, with_client
from rune.cli.bench.measures import MEASURES, summarized
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


def bench(
    names: Annotated[
        list[str] | None, typer.Argument(help="Measures to run. Default: all.", metavar="[MEASURE]...")
    ] = None,
    listing: Annotated[
        bool, typer.Option("--list", help="Print the names of the measures, and run none.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON list and nothing else.")] = False,
    scale: Annotated[
        float, typer.Option("--scale", min=0.001, max=10.0, help="Factor for the size of the measures.")
    ] = 1.0,
) -> None:
    """Measure how fast Rune is on this machine.

    Each measure runs in a process and on a database file of its own, and counts
    only executions that have completed. Your data is not used. `CPU µs` is the CPU
    time per unit of all threads, next to that of a loop that writes the same rows.

    Example: rune bench chain-async fan-effect-10k --scale 0.1
    """
    if listing:
        summaries = summarized()
        if as_json:
            print_json(summaries)
        else:
            print_table(("measure", "what it runs"), [[name, text] for name, text in summaries.items()])
        return
    unknown = [name for name in names or () if name not in MEASURES]
    if unknown:
        typer.echo(f"rune bench: there is no measure `{unknown[0]}`; known: {', '.join(MEASURES)}", err=True)
        raise typer.Exit(2)
    reports = []
    if not as_json:
        typer.echo(describe(), err=True)
    for name in names or MEASURES:
        if not as_json:
            typer.echo(f"measuring {name} …", err=True)
        reports.append(_measure(name, scale))
    if as_json:
        typer.echo(json.dumps(reports))
    else:
        _print(reports)


FIGURES = {
    "cpu_us": "CPU µs",
    "limit_cpu_us": "of limit",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "rss_mb": "MB",
}
"""The columns of further figures, by the field of the report."""


def _measure(name: str, scale: float) -> dict[str, Any]:
    """Run one measure in a separate process, so that measures do not share memory and caches."""
    command = [sys.executable, "-m", "rune.cli.bench", name, str(scale)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"name": name, "error": done.stderr.strip().splitlines()[-1:] or ["failed"]}
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def _print(reports: list[dict[str, Any]]) -> None:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("measure", "rate", "limit", "ratio", *FIGURES.values(), "goal", ""):
        table.add_column(column, justify="left" if column in ("measure", "goal", "") else "right")
    for each in reports:
        if "error" in each:
            table.add_row(each["name"], *[""] * (3 + len(FIGURES)), str(each["error"][0]), "[red]failed[/]")
            continue
        met = each.get("met")
        verdict = "" if met is None else "[green]met[/]" if met else "[yellow]missed[/]"
        rate = f"{each['rate']:,.0f} {each['unit']}" if "rate" in each else ""
        numbers = [_number(each.get(key)) for key in ("limit", "ratio", *FIGURES)]
        table.add_row(each["name"], rate, *numbers, each.get("goal", ""), verdict)
    Console(width=160).print(table)


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:,.2f}"
