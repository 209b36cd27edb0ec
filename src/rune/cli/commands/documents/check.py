"""`rune check` and `rune graph`: check workflow documents and draw them."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec.structs import replace
from rich.console import Console
from rich.text import Text

from rune.cli.arguments import Nodes, examine_file
from rune.cli.backend import children_to_deploy
from rune.cli.lines import line_of
from rune.cli.output import clean, clean_lines, count, file_of, place_in
from rune.core.definition import problems
from rune.core.definition.model import content_hash
from rune.core.validation.validate import ValidationResult
from rune.documents.draw.formats import draw_mermaid, draw_svg
from rune.documents.draw.model import Box, Drawing, Link, draw_definition
from rune.errors import RuneError
from rune.runtime.queries.children import children
from rune.settings import load_settings

if TYPE_CHECKING:
    from rich.console import Console


_FIELDS = ("path", "code", "message", "hint", "severity", "line", "column")


def check(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE...", help="Workflow documents, JSON or YAML; `-` reads standard input."),
    ],
    modules: Nodes = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Check workflow documents and list every problem.

    Known node types are the built-in ones, the installed ones, and those of
    --nodes and RUNE_NODES. The modules that rune.toml names are not imported.

    A child workflow that is neither among the documents nor deployed, on the
    server of RUNE_URL or in the stores of this machine, is a warning.

    Exit codes: 0 valid; 2 a document has errors or cannot be read.

    Examples:
      rune check order.yaml
      rune check order.yaml --nodes acme_nodes
    """
    verdicts = _with_children([(name, examine_file(name, modules)) for name in files])
    if as_json:
        typer.echo(_encode([_report(name, verdict) for name, verdict in verdicts]))
    else:
        _print(verdicts)
    if not all(verdict.valid for _, verdict in verdicts):
        raise typer.Exit(2)


def _with_children(verdicts: list[tuple[str, ValidationResult]]) -> list[tuple[str, ValidationResult]]:
    """Add a warning for each child that is neither deployed nor one of the documents."""
    definitions = [verdict.definition for _, verdict in verdicts if verdict.valid]
    given = {each.id for each in definitions if each is not None}

    async def look_up() -> list[tuple[str, ValidationResult]]:
        settings = load_settings()
        return [
            (
                name,
                replace(
                    verdict,
                    problems=(*verdict.problems, *await children_to_deploy(settings, verdict, given)),
                ),
            )
            for name, verdict in verdicts
        ]

    if not any(True for _, verdict in verdicts for _ in children(verdict)):
        return verdicts
    try:
        return asyncio.run(look_up())
    except RuneError as error:
        print(f"whether child workflows are deployed is unknown: {error.message}", file=sys.stderr)
        return verdicts


def _report(name: str, verdict: ValidationResult) -> dict[str, Any]:
    report: dict[str, Any] = {
        "file": name,
        "status": "valid" if verdict.valid else "invalid",
        "problems": [{field: getattr(each, field) for field in _FIELDS} for each in verdict.problems],
    }
    if verdict.valid and verdict.definition is not None:
        report["workflow_id"] = verdict.definition.id
        report["nodes"] = len(verdict.definition.nodes)
        report["edges"] = len(verdict.definition.edges)
        report["hash"] = content_hash(verdict.definition)
    return report


def _encode(reports: list[dict[str, Any]]) -> str:
    if len(reports) == 1:
        return json.dumps(reports[0], ensure_ascii=False, indent=2)
    status = "valid" if all(each["status"] == "valid" for each in reports) else "invalid"
    return json.dumps({"status": status, "files": reports}, ensure_ascii=False, indent=2)


def _print(verdicts: list[tuple[str, ValidationResult]]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    for name, verdict in verdicts:
        print_verdict(console, name, verdict)
    if len(verdicts) > 1:
        invalid = sum(not verdict.valid for _, verdict in verdicts)
        console.print(f"{len(verdicts)} files: {len(verdicts) - invalid} valid, {invalid} invalid")


def print_verdict(console: Console, name: str, verdict: ValidationResult) -> None:
    """Print the problems of one document, then a summary line."""
    file = file_of(name, verdict.source)
    for each in verdict.problems:
        style = "bold red" if each.severity == "error" else "bold yellow"
        console.print(
            line_of(
                place_in(file, each),
                (f"{each.severity} ", style),
                (f"{each.path or 'document'}: ", "bold"),
                each.message,
            )
        )
        console.print(line_of((f"        {f'{each.hint}  ' if each.hint else ''}[{each.code}]", "dim")))
    errors = sum(each.severity == "error" for each in verdict.problems)
    warnings = len(verdict.problems) - errors
    counts = [count(errors, "problem")] if errors else []
    counts += [count(warnings, "warning")] if warnings else []
    shown = "stdin" if name == "-" else name
    definition = verdict.definition
    if verdict.valid and definition is not None:
        counts = [count(len(definition.nodes), "node"), count(len(definition.edges), "edge"), *counts]
        summed = f" valid: {', '.join(counts)}, {content_hash(definition)[:12]}"
        console.print(line_of(("✓ ", "bold green"), (shown, "bold"), summed))
    else:
        console.print(line_of(("✗ ", "bold red"), (shown, "bold"), f" invalid: {', '.join(counts)}"))


def graph(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Workflow document, JSON or YAML; `-` reads standard input.")
    ],
    svg: Annotated[
        str | None, typer.Option(metavar="OUT", help="Write an SVG file; `-` writes to standard output.")
    ] = None,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Print a Mermaid flowchart.")] = False,
    modules: Nodes = None,
) -> None:
    """Draw a workflow in the terminal, as SVG or as Mermaid text.

    The modules that rune.toml names are not imported. A node whose type may be
    defined there is drawn without its outlets.

    Example: rune graph order.yaml --svg order.svg
    """
    verdict = examine_file(file, modules)
    if not _is_drawable(verdict):
        print_verdict(Console(stderr=True, highlight=False, soft_wrap=True), file, verdict)
        raise typer.Exit(2)
    picture = draw_definition(verdict)
    if svg is not None:
        _write(svg, draw_svg(picture))
    elif mermaid:
        typer.echo(clean_lines(draw_mermaid(picture)))
    else:
        print_drawing(picture)


def _is_drawable(verdict: ValidationResult) -> bool:
    """Return whether a document has no errors but unknown types that modules of `rune.toml` may contain."""
    errors = {each.code for each in verdict.problems if each.severity == "error"}
    return not errors or (errors == {problems.UNKNOWN_TYPE} and load_settings().nodes_in_file)


def _write(target: str, text: str) -> None:
    if target == "-":
        typer.echo(clean_lines(text))
        return
    try:
        Path(target).write_text(text, encoding="utf-8")
    except OSError as error:
        print(f"cannot write {target}: {(error.strerror or str(error)).lower()}", file=sys.stderr)
        raise typer.Exit(2) from None


def print_drawing(drawing: Drawing, console: Console | None = None) -> None:
    """Print the drawing layer by layer. Nodes in the body of a split are indented by a bar per split."""
    console = console or Console(highlight=False, soft_wrap=True)
    console.print(line_of((drawing.title, "bold")))
    leaving = drawing.leaving()
    width = len(str(len(drawing.layers)))
    for number, row in enumerate(drawing.layers, start=1):
        for place, at in enumerate(row):
            label = f"{number:>{width}}" if place == 0 else " " * width
            console.print(_box(label, drawing.boxes[at]))
            for link in leaving[at]:
                console.print(_link(" " * width, drawing, drawing.boxes[at], link))


def _bars(box: Box) -> str:
    return "│ " * len(box.splits)


def _box(label: str, box: Box) -> Text:
    line = line_of((f"{label}  ", "dim"), (_bars(box), "cyan"), (box.id, "bold"), (f"  {box.type}", "dim"))
    if box.title:
        line.append(clean(f"  {box.title}"))
    return line


def _link(label: str, drawing: Drawing, box: Box, link: Link) -> Text:
    arrow, colour = ("╌╌▶ ", "red") if link.is_error else ("──▶ ", "green")
    line = line_of(
        (f"{label}  ", "dim"), (_bars(box), "cyan"), "  ", (arrow, colour), drawing.boxes[link.dst].id
    )
    notes = [link.caption] if link.caption else []
    if link.is_error:
        notes.append("on error")
    elif link.src in drawing.boxes[link.dst].splits and link.src not in box.splits:
        notes.append("each item")
    if notes:
        line.append(clean(f"  ({', '.join(notes)})"), "dim")
    return line
