"""Text for terminals: aligned columns, a little colour, and nothing that could act on the terminal."""

from __future__ import annotations

import os
import sys
import time
import unicodedata
from collections.abc import Sequence

CODES = {"red": 31, "green": 32, "yellow": 33, "blue": 34, "magenta": 35, "cyan": 36, "grey": 90, "bold": 1}
COLOURS = {
    "success": "green",
    "completed": "green",
    "ok": "green",
    "failed": "red",
    "halted": "red",
    "bad": "red",
    "skipped": "grey",
    "cancelled": "yellow",
    "warn": "yellow",
    "running": "cyan",
    "waiting": "magenta",
    "paused": "yellow",
}
"""By status."""

Cell = str | tuple[str, str]
"""Text, or text and its colour."""


def colourful() -> bool:
    """Whether stdout shows colours."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def clean(text: str) -> str:
    """The text without characters that a terminal would obey."""
    return "".join(each if each.isprintable() else " " if each in "\r\n\t" else "\ufffd" for each in text)


def paint(text: str, colour: str) -> str:
    """Coloured, where that is shown."""
    if not colour or not colourful():
        return text
    return f"\x1b[{CODES[colour]}m{text}\x1b[0m"


def by_status(status: str) -> Cell:
    """A status in its colour."""
    return status, COLOURS.get(status, "")


def width(text: str) -> int:
    """How many columns a text takes."""
    if text.isascii():
        return len(text)
    return sum(
        2 if unicodedata.east_asian_width(each) in "WF" else not unicodedata.combining(each) for each in text
    )


def print_table(header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    """Columns as wide as they must be; the last one runs on."""
    cells = [
        [(clean(each), "") if isinstance(each, str) else (clean(each[0]), each[1]) for each in row]
        for row in rows
    ]
    table = [[(each, "bold") for each in header], *cells]
    widths = [max(width(row[column][0]) for row in table) for column in range(len(header))]
    for row in table:
        parts = [
            paint(text, colour) + " " * (widths[i] - width(text)) for i, (text, colour) in enumerate(row)
        ]
        print("  ".join(parts).rstrip())


def count(number: int, noun: str) -> str:
    """`1 node`, `2,000 nodes`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def duration(ms: float) -> str:
    """`12 ms`, `3.2 s`, `4 min 10 s`, `2 h 5 min`, `3 d 4 h`."""
    if ms < 1000:
        return f"{ms:.0f} ms"
    seconds = ms / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days:,} d {hours} h" if hours else f"{days:,} d"


def moment(at: int) -> str:
    """A time (epoch ms) as the reader's clock shows it."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at / 1000))


def until(due: int, now: int) -> str:
    """`in 3.0 s (2026-01-01 12:00:00)`, or that the time has come."""
    left = f"in {duration(due - now)}" if due > now else "due"
    return f"{left} ({moment(due)})"
