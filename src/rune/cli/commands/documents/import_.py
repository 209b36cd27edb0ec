"""`rune import`: convert a workflow of another tool, with a report."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from rune.cli.output import count
from rune.core.limits import LIMITS
from rune.documents.importers import Import, import_document
from rune.documents.importers.report import FORMATS, STATUSES, Entry
from rune.documents.yaml import to_yaml
from rune.errors import InvalidDocumentError, RuneError
from rune.nodes.registry import full_registry
from rune.settings import load_settings

_STYLES = {
    "carried": "bold green",
    "changed": "bold cyan",
    "approximated": "bold yellow",
    "by_hand": "bold red",
}


def import_workflow(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="Document of another tool, JSON or YAML; `-` reads standard input."
        ),
    ],
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="FORMAT", help=f"One of {', '.join(FORMATS)}. Default: detected."),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "-o", "--output", metavar="OUT", help="File for the workflow. Default: standard output."
        ),
    ] = None,
    report: Annotated[
        str | None, typer.Option("--report", metavar="OUT", help="File for the report, as JSON.")
    ] = None,
    stubs: Annotated[
        str | None,
        typer.Option(
            "--stubs",
            metavar="OUT",
            help="Import tasks of a state machine as custom nodes and write a Python module with them.",
        ),
    ] = None,
    tests: Annotated[
        str | None,
        typer.Option(
            "--tests",
            metavar="OUT",
            help="File for a test whose mocks are the pinned data of an n8n export, for `rune test`.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the workflow and the report as one JSON document.")
    ] = False,
) -> None:
    """Import a workflow of another tool and report what became of every element.

    Exit codes: 0 everything was carried over; 1 something was changed or
    approximated, or has to be completed by hand; 2 the document cannot be
    imported.

    Example: rune import workflow.json -o orders.yaml --report report.json
    """
    try:
        catalogue = full_registry(load_settings().nodes).catalogue
        found = import_document(
            _read(file), catalogue, format=source, name=_name(file), stubs=stubs is not None
        )
        _write_files(found, output=output, report=report, stubs=stubs, tests=tests)
    except RuneError as error:
        raise typer.Exit(_refuse(error, as_json)) from None
    if as_json:
        typer.echo(_encode({"document": found.document, **_described(found)}))
    else:
        if output is None:
            sys.stdout.write(_text(found.document, None))
            sys.stdout.flush()
        _print(file, found)
        if tests and not found.test:
            typer.echo(f"{tests} was not written: the document has no pinned data", err=True)
    if not found.report.complete:
        raise typer.Exit(1)


def _write_files(
    found: Import, *, output: str | None, report: str | None, stubs: str | None, tests: str | None
) -> None:
    """Write the workflow, the report, the stubs and the test to the files that were named."""
    if output:
        _write(output, _text(found.document, output))
    if report:
        _write(report, _encode(_described(found)))
    if stubs:
        _write(stubs, found.stubs)
    if tests and found.test:
        _write(tests, _text(_test(found, output, tests), tests))


def _read(file: str) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read(LIMITS.definition_bytes + 1)
    try:
        with Path(file).open("rb") as opened:
            return opened.read(LIMITS.definition_bytes + 1)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise RuneError(f"`{file}` cannot be read: {reason}", code="UNREADABLE") from None


def _name(file: str) -> str:
    return "" if file == "-" else Path(file).stem


def _text(document: dict[str, Any], output: str | None) -> str:
    if output is not None and output.endswith(".json"):
        return _encode(document) + "\n"
    return to_yaml(document)


def _write(target: str, text: str) -> None:
    try:
        Path(target).write_text(text, encoding="utf-8")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise RuneError(f"cannot write {target}: {reason}", code="UNWRITABLE") from None


def _test(found: Import, output: str | None, tests: str) -> dict[str, Any]:
    """Return the test of an import, which names the file of its workflow or has the document itself."""
    case, *rest = found.test.items()
    if output is None:
        return dict([case, ("document", found.document), *rest])
    workflow = os.path.relpath(output, Path(tests).parent)
    return dict([case, ("workflow", Path(workflow).as_posix()), *rest])


def _described(found: Import) -> dict[str, Any]:
    """Return the report as plain data."""
    report = found.report
    return {
        "format": report.format,
        "complete": report.complete,
        "counts": report.counts(),
        "entries": [msgspec.to_builtins(each) for each in report.entries],
        "problems": [msgspec.to_builtins(each) for each in report.problems],
    }


def _encode(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def _refuse(error: RuneError, as_json: bool) -> int:
    problems = (
        [msgspec.to_builtins(each) for each in error.problems]
        if isinstance(error, InvalidDocumentError)
        else [{"path": "", "code": error.code, "message": error.message, "hint": "", "severity": "error"}]
    )
    if as_json:
        typer.echo(_encode({"status": "invalid", "problems": problems}))
        return 2
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    for each in problems:
        hint = f"  {each['hint']}" if each["hint"] else ""
        console.print(
            Text.assemble(("error ", "bold red"), f"{each['path'] or 'document'}: {each['message']}{hint}")
        )
    return 2


def _print(file: str, found: Import) -> None:
    """Print what was not carried, then a summary, on standard error."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    report = found.report
    for each in report.entries:
        if each.status != "carried":
            _print_entry(console, each)
    for problem in report.problems:
        style = "bold red" if problem.severity == "error" else "bold yellow"
        line = f"{problem.path or 'document'}: {problem.message} [{problem.code}]"
        console.print(Text.assemble((f"{problem.severity} ", style), line))
    counts = report.counts()
    summed = ", ".join(f"{counts[each]} {each.replace('_', ' ')}" for each in STATUSES if counts[each])
    nodes = count(len(found.document["nodes"]), "node")
    console.print(Text.assemble((f"{file}", "bold"), f" ({report.format}): {nodes}; elements: {summed}"))


def _print_entry(console: Console, entry: Entry) -> None:
    where = f"{entry.source} → {entry.target}" if entry.target else entry.source
    console.print(
        Text.assemble(
            (f"{entry.status.replace('_', ' ')} ", _STYLES[entry.status]),
            (f"{where}: ", "bold"),
            entry.message,
        )
    )
    if entry.hint:
        console.print(Text(f"        {entry.hint}", "dim"))
