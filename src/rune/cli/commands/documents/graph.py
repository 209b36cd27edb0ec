"""`rune graph`: draw a workflow."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from rune.cli.arguments import Nodes, examine_file
from rune.cli.commands.documents.check import print_verdict
from rune.core.definition import problems
from rune.core.validation.validate import ValidationResult
from rune.documents.draw.formats import draw_mermaid, draw_svg
from rune.documents.draw.model import Box, Drawing, Link, draw_definition
from rune.settings import load_settings


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

    The modules that rune.toml names are not imported: a node whose type they may
    contain is drawn without its outlets.

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
        typer.echo(draw_mermaid(picture))
    else:
        print_drawing(picture)


def _is_drawable(verdict: ValidationResult) -> bool:
    """Return whether a document has no errors but unknown types that modules of `rune.toml` may contain."""
    errors = {each.code for each in verdict.problems if each.severity == "error"}
    return not errors or (errors == {problems.UNKNOWN_TYPE} and load_settings().nodes_in_file)


def _write(target: str, text: str) -> None:
    if target == "-":
        typer.echo(text)
        return
    try:
        Path(target).write_text(text, encoding="utf-8")
    except OSError as error:
        print(f"cannot write {target}: {(error.strerror or str(error)).lower()}", file=sys.stderr)
        raise typer.Exit(2) from None


def print_drawing(drawing: Drawing, console: Console | None = None) -> None:
    """Print the drawing layer by layer. Nodes in the body of a split are indented by a bar per split."""
    console = console or Console(highlight=False, soft_wrap=True)
    console.print(Text(drawing.title, "bold"))
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
    line = Text.assemble(
        (f"{label}  ", "dim"), (_bars(box), "cyan"), (box.id, "bold"), (f"  {box.type}", "dim")
    )
    if box.title:
        line.append(f"  {box.title}")
    return line


def _link(label: str, drawing: Drawing, box: Box, link: Link) -> Text:
    arrow, colour = ("╌╌▶ ", "red") if link.is_error else ("──▶ ", "green")
    line = Text.assemble(
        (f"{label}  ", "dim"), (_bars(box), "cyan"), "  ", (arrow, colour), drawing.boxes[link.dst].id
    )
    notes = [link.caption] if link.caption else []
    if link.is_error:
        notes.append("on error")
    elif link.src in drawing.boxes[link.dst].splits and link.src not in box.splits:
        notes.append("each item")
    if notes:
        line.append(f"  ({', '.join(notes)})", "dim")
    return line
