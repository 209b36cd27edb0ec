"""Captions of links: in the gap below a layer, in few rows that keep them apart."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

CAPTION_CHARACTER_WIDTH = 6.6
TOP = 20.0  # from the end of a layer to the baseline of the first row
ROW_HEIGHT = 14.0
SPACE = 6.0
MAX_LENGTH = 31

Leaving = tuple[int, str, float, float]
"""A link with its text, and its position at the layer it leaves and behind the gap."""


class Caption(msgspec.Struct, frozen=True):
    """The text of a link, at the middle of its baseline."""

    text: str
    x: float
    y: float
    width: float


def shorten(text: str) -> str:
    return text if len(text) <= MAX_LENGTH else text[: MAX_LENGTH - 1] + "…"


def caption_width(text: str) -> float:
    return CAPTION_CHARACTER_WIDTH * len(text)


def layer_gap(gap: float, rows: int) -> float:
    """Return the space below a layer whose links have captions in this many rows."""
    return gap + ROW_HEIGHT * max(0, rows - 1)


def place_captions(links: Sequence[Leaving], width: float, gap: float) -> tuple[dict[int, Caption], int]:
    """Place the captions of the links that leave a layer; return them with the number of rows. Their vertical positions
    are relative to the end of the layer."""
    ordered = sorted(links, key=lambda each: (each[3], each[2], each[0]))
    count = 1
    while (placed := _fill_rows(ordered, count, width, gap)) is None:
        count += max(1, count // 2)
    return placed, count


def _fill_rows(links: Sequence[Leaving], count: int, width: float, gap: float) -> dict[int, Caption] | None:
    """Put each caption on its link, in the first row with space for it; None if the rows do not suffice."""
    rows: list[list[Caption]] = [[] for _ in range(count)]
    placed: dict[int, Caption] = {}
    for at, text, start, end in links:
        needed = caption_width(text)
        for number, row in enumerate(rows):
            y = TOP + ROW_HEIGHT * number
            x = max(needed / 2, min(width - needed / 2, _x_at(start, end, y / layer_gap(gap, count))))
            if all(abs(x - each.x) >= (needed + each.width) / 2 + SPACE for each in row):
                placed[at] = Caption(text, x, y, needed)
                row.append(placed[at])
                break
        else:
            return None
    return placed


def _x_at(start: float, end: float, share: float) -> float:
    """Return the horizontal position of a link after a share of the gap."""
    low, high = 0.0, 1.0
    for _ in range(20):  # the curve that `svg` draws, whose vertical position grows with the parameter
        t = (low + high) / 2
        low, high = (t, high) if 1.5 * t - 1.5 * t**2 + t**3 < share else (low, t)
    return start + (end - start) * (3 * low**2 - 2 * low**3)
