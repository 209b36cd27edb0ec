"""`rune graph`: a picture of a workflow."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def graph(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A workflow, JSON or YAML; `-` reads stdin.")],
    svg: Annotated[
        str | None, typer.Option(metavar="OUT", help="Write an SVG file; `-` writes to stdout.")
    ] = None,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Print a Mermaid flowchart.")] = False,
) -> None:
    """Draw a workflow: in the terminal, as SVG or as Mermaid text."""
    from rune.cli.draw.picture import picture_of  # noqa: PLC0415
    from rune.cli.source import examine_file  # noqa: PLC0415

    verdict = examine_file(file)
    if not verdict.valid:
        from rich.console import Console  # noqa: PLC0415

        from rune.cli.check import print_verdict  # noqa: PLC0415

        print_verdict(Console(stderr=True, highlight=False, soft_wrap=True), file, verdict)
        raise typer.Exit(2)
    picture = picture_of(verdict)
    if svg is not None:
        from rune.cli.draw.svg import draw_svg  # noqa: PLC0415

        _write(svg, draw_svg(picture))
    elif mermaid:
        from rune.cli.draw.mermaid import draw_mermaid  # noqa: PLC0415

        typer.echo(draw_mermaid(picture))
    else:
        from rune.cli.draw.text import print_picture  # noqa: PLC0415

        print_picture(picture)


def _write(target: str, text: str) -> None:
    if target == "-":
        typer.echo(text)
        return
    try:
        Path(target).write_text(text, encoding="utf-8")
    except OSError as error:
        print(f"cannot write {target}: {(error.strerror or str(error)).lower()}", file=sys.stderr)
        raise typer.Exit(2) from None
