"""Places for boxes and links: layers from top to bottom, few crossings, long links led around boxes."""

from __future__ import annotations

from itertools import pairwise

import msgspec

from rune.cli.draw.picture import Picture

WIDTH_OF_CHARACTER = 7.4
LEAST_WIDTH = 96.0
MOST_WIDTH = 260.0
HEIGHT = 46.0
GAP = 28.0
LAYER_GAP = 58.0
MARGIN = 24.0
_BEND_WIDTH = 10.0
_MOST_BENDS = 20_000
_SWEEPS = 4


class Place(msgspec.Struct):
    """Where something stands: its middle and its width. A bend of a long link is a place too."""

    layer: int
    width: float
    x: float = 0.0
    y: float = 0.0


class Layout(msgspec.Struct, frozen=True):
    """Places of all boxes, and for each link the places it passes."""

    boxes: tuple[Place, ...]
    ways: tuple[tuple[Place, ...], ...]
    width: float
    height: float


def lay_out(picture: Picture) -> Layout:
    """Give everything a place."""
    boxes = tuple(Place(box.layer, _width(box.title or box.id, box.type)) for box in picture.boxes)
    rows: list[list[Place]] = [[boxes[at] for at in row] for row in picture.layers]
    bends = sum(boxes[link.dst].layer - boxes[link.src].layer - 1 for link in picture.links) <= _MOST_BENDS
    ways: list[tuple[Place, ...]] = []
    for link in picture.links:
        src, dst = boxes[link.src], boxes[link.dst]
        between = [Place(layer, _BEND_WIDTH) for layer in range(src.layer + 1, dst.layer)] if bends else []
        for bend in between:
            rows[bend.layer].append(bend)
        ways.append((src, *between, dst))
    _order(rows, ways)
    width = _spread(rows)
    for place in (each for row in rows for each in row):
        place.y = MARGIN + HEIGHT / 2 + place.layer * (HEIGHT + LAYER_GAP)
    height = 2 * MARGIN + len(rows) * (HEIGHT + LAYER_GAP) - (LAYER_GAP if rows else 0)
    return Layout(boxes, tuple(ways), width, height)


def _width(title: str, kind: str) -> float:
    return min(MOST_WIDTH, max(LEAST_WIDTH, 28 + WIDTH_OF_CHARACTER * max(len(title), len(kind))))


def _order(rows: list[list[Place]], ways: list[tuple[Place, ...]]) -> None:
    """Sort each row by the mean position of what it is linked to, down and up a few times."""
    above: dict[int, list[Place]] = {}
    below: dict[int, list[Place]] = {}
    for way in ways:
        for upper, lower in pairwise(way):
            above.setdefault(id(lower), []).append(upper)
            below.setdefault(id(upper), []).append(lower)
    for row in rows:
        _number(row)
    for sweep in range(_SWEEPS):
        neighbours, ordered = (above, rows) if sweep % 2 == 0 else (below, rows[::-1])
        for row in ordered:
            mean = {id(each): _mean(neighbours.get(id(each)), each.x) for each in row}
            row.sort(key=lambda each, mean=mean: mean[id(each)])  # type: ignore[misc]
            _number(row)


def _number(row: list[Place]) -> None:
    """Positions within a row, as shares of its length, so that rows of different length compare."""
    for position, place in enumerate(row):
        place.x = (position + 0.5) / len(row)


def _mean(places: list[Place] | None, otherwise: float) -> float:
    return sum(each.x for each in places) / len(places) if places else otherwise


def _spread(rows: list[list[Place]]) -> float:
    """Real positions: each row beside itself, centred."""
    lengths = [sum(each.width for each in row) + GAP * (len(row) - 1) for row in rows]
    widest = max(lengths, default=0.0)
    for row, length in zip(rows, lengths, strict=True):
        left = MARGIN + (widest - length) / 2
        for place in row:
            place.x = left + place.width / 2
            left += place.width + GAP
    return widest + 2 * MARGIN
