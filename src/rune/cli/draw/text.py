"""A workflow in the terminal: layer by layer, with what each node leads to."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from rune.cli.draw.picture import Box, Link, Picture


def print_picture(picture: Picture, console: Console | None = None) -> None:
    """Print the layers. The body of a split stands behind a bar, one per split around it."""
    console = console or Console(highlight=False, soft_wrap=True)
    console.print(Text(picture.title, "bold"))
    leaving = picture.leaving()
    width = len(str(len(picture.layers)))
    for number, row in enumerate(picture.layers, start=1):
        for place, at in enumerate(row):
            label = f"{number:>{width}}" if place == 0 else " " * width
            console.print(_box(label, picture.boxes[at]))
            for link in leaving[at]:
                console.print(_link(" " * width, picture, picture.boxes[at], link))


def _bars(box: Box) -> str:
    return "│ " * len(box.splits)


def _box(label: str, box: Box) -> Text:
    line = Text.assemble(
        (f"{label}  ", "dim"), (_bars(box), "cyan"), (box.id, "bold"), (f"  {box.type}", "dim")
    )
    if box.title:
        line.append(f"  {box.title}")
    return line


def _link(label: str, picture: Picture, box: Box, link: Link) -> Text:
    arrow, colour = ("╌╌▶ ", "red") if link.is_error else ("──▶ ", "green")
    line = Text.assemble(
        (f"{label}  ", "dim"), (_bars(box), "cyan"), "  ", (arrow, colour), picture.boxes[link.dst].id
    )
    notes = [link.caption] if link.caption else []
    if link.is_error:
        notes.append("on error")
    elif link.src in picture.boxes[link.dst].splits and link.src not in box.splits:
        notes.append("each item")
    if notes:
        line.append(f"  ({', '.join(notes)})", "dim")
    return line
