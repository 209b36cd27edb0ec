"""`rune bench`: measure the embedded engine, each result next to the limit of the machine."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from rune.bootstrap.interpreter import describe
from rune.cli.bench.measures import MEASURES


def bench(
    names: Annotated[
        list[str] | None, typer.Argument(help="Measures to run. Default: all.", metavar="[MEASURE]...")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON list and nothing else.")] = False,
    scale: Annotated[
        float, typer.Option("--scale", min=0.001, max=10.0, help="Factor for the size of the measures.")
    ] = 1.0,
) -> None:
    """Measure how fast Rune is on this machine.

    Each measure runs in a process and on a database file of its own, and counts
    only executions that have completed. Your data is not used.

    Example: rune bench --scale 0.1
    """
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
    for column in ("measure", "rate", "limit", "ratio", "p50 ms", "p99 ms", "MB", "goal", ""):
        table.add_column(column, justify="left" if column in ("measure", "goal", "") else "right")
    for each in reports:
        if "error" in each:
            table.add_row(each["name"], *[""] * 6, str(each["error"][0]), "[red]failed[/]")
            continue
        met = each.get("met")
        verdict = "" if met is None else "[green]met[/]" if met else "[yellow]missed[/]"
        rate = f"{each['rate']:,.0f} {each['unit']}" if "rate" in each else ""
        numbers = [_number(each.get(key)) for key in ("limit", "ratio", "p50_ms", "p99_ms", "rss_mb")]
        table.add_row(each["name"], rate, *numbers, each.get("goal", ""), verdict)
    Console(width=160).print(table)


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:,.2f}"
