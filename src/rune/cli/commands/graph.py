"""`rune graph`: draw a workflow."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from rune.cli.arguments import examine_file
from rune.cli.commands.check import print_verdict
from rune.cli.draw import draw_definition, draw_mermaid, draw_svg, print_drawing


def graph(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Workflow document, JSON or YAML; `-` reads standard input.")
    ],
    svg: Annotated[
        str | None, typer.Option(metavar="OUT", help="Write an SVG file; `-` writes to standard output.")
    ] = None,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Print a Mermaid flowchart.")] = False,
) -> None:
    """Draw a workflow in the terminal, as SVG or as Mermaid text."""
    verdict = examine_file(file)
    if not verdict.valid:
        print_verdict(Console(stderr=True, highlight=False, soft_wrap=True), file, verdict)
        raise typer.Exit(2)
    picture = draw_definition(verdict)
    if svg is not None:
        _write(svg, draw_svg(picture))
    elif mermaid:
        typer.echo(draw_mermaid(picture))
    else:
        print_drawing(picture)


def _write(target: str, text: str) -> None:
    if target == "-":
        typer.echo(text)
        return
    try:
        Path(target).write_text(text, encoding="utf-8")
    except OSError as error:
        print(f"cannot write {target}: {(error.strerror or str(error)).lower()}", file=sys.stderr)
        raise typer.Exit(2) from None
