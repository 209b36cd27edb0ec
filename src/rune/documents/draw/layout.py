"""The layout of a drawing: places of boxes, bends of links with their captions, frames around the bodies of splits.

The body of a split is laid out by itself and takes one place in the layers around it, so that its frame contains
nothing else. Links run through the layers they pass, so that they cross no box. Captions are in the gap below a layer,
in few rows that keep them apart. The layout depends on the document only.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from rune.documents.draw.model import (
    ERROR_PORT,
    Box,
    Cell,
    Drawing,
    Link,
    Segment,
    assign_layers,
    order,
    place,
)

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


Direction = Literal["down", "right"]

CHARACTER_WIDTH = 7.4
MIN_WIDTH = 96.0
MAX_WIDTH = 260.0
HEIGHT = 46.0
GAP = 28.0
LAYER_GAP = 58.0
MARGIN = 24.0
PADDING = 20.0  # between a frame and what is inside
_BEND_SIZE = 10.0
_MAX_BENDS = 8_000
_ERROR_OFFSET = 0.35
_CAPTION_WIDTH = 7.0

_Texts = list[dict[int, tuple[str, float, float]]]
"""By layer the captions of the links that leave it: text, position at the layer and behind the gap."""


class Style(msgspec.Struct, frozen=True):
    """How boxes are sized and where the layers lead. `captions`: links have captions in the gap below a layer."""

    direction: Direction
    size: Callable[[Box], tuple[float, float]]  # width and height
    gap: float = GAP
    layer_gap: float = LAYER_GAP
    captions: bool = False


class Rectangle(msgspec.Struct, frozen=True):
    """A box or a frame, by its top left corner."""

    x: float
    y: float
    width: float
    height: float

    def intersects(self, other: Rectangle) -> bool:
        """Return whether two rectangles have a point in common that is on no border."""
        return (
            self.x < other.x + other.width
            and other.x < self.x + self.width
            and self.y < other.y + other.height
            and other.y < self.y + self.height
        )


Point = tuple[float, float]
"""Until the end of the computation: position along the layers, position across them. In a layout: x and y."""


class Layout(msgspec.Struct, frozen=True):
    """The boxes by index, the points that each link passes, captions by link, and frames by split."""

    direction: Direction
    boxes: tuple[Rectangle, ...]
    routes: tuple[tuple[Point, ...], ...]
    captions: dict[int, Caption]
    frames: dict[int, Rectangle]
    width: float
    height: float


def text_size(box: Box) -> tuple[float, float]:
    """Return the size of a box that its texts need."""
    longest = max(len(box.title or box.id), len(box.type))
    return min(MAX_WIDTH, max(MIN_WIDTH, 28 + CHARACTER_WIDTH * longest)), HEIGHT


DOWNWARD = Style("down", text_size, captions=True)
"""Top to bottom, with captions: what `rune graph --svg` draws."""


def lay_out(drawing: Drawing, style: Style = DOWNWARD) -> Layout:
    """Compute the places of boxes, links and frames."""
    block = _Level(_Frame(drawing, style), (), None).lay_out()
    down = style.direction == "down"

    def point(at: Point) -> Point:
        along, across = at[0] + MARGIN, at[1] + MARGIN
        return (across, along) if down else (along, across)

    def rectangle(at: Point, along: float, across: float) -> Rectangle:
        x, y = point(at)
        return Rectangle(x, y, across, along) if down else Rectangle(x, y, along, across)

    boxes = []
    for at, box in enumerate(drawing.boxes):
        width, height = style.size(box)
        x, y = point(block.boxes[at])
        boxes.append(Rectangle(x, y, width, height))
    routes = tuple(tuple(point(each) for each in block.points[at]) for at in range(len(drawing.links)))
    captions = {
        at: msgspec.structs.replace(each, x=each.x + MARGIN, y=each.y + MARGIN)
        for at, each in block.captions.items()
    }
    frames = {split: rectangle(at, *size) for split, (at, size) in block.frames.items()}
    along, across = block.along + 2 * MARGIN, block.across + 2 * MARGIN
    width, height = (across, along) if down else (along, across)
    return Layout(style.direction, tuple(boxes), routes, captions, frames, width, height)


def port_offsets(box: Box, style: Style) -> dict[str, float]:
    """Return where each port of a box is, from the centre of its side: spread evenly, in order."""
    width, height = style.size(box)
    size = width if style.direction == "down" else height
    if box.ports == (ERROR_PORT,):
        return {ERROR_PORT: _ERROR_OFFSET * size}
    return {
        port: ((position + 1) / (len(box.ports) + 1) - 0.5) * size for position, port in enumerate(box.ports)
    }


def port_position(place: Rectangle, offset: float, direction: Direction) -> Point:
    """Return the point at which links leave a placed box."""
    if direction == "down":
        return place.x + place.width / 2 + offset, place.y + place.height
    return place.x + place.width, place.y + place.height / 2 + offset


class _Frame:
    """What all levels of one layout share: the drawing, sizes of boxes and offsets of ports."""

    def __init__(self, drawing: Drawing, style: Style) -> None:
        self.drawing = drawing
        self.style = style
        down = style.direction == "down"
        sizes = [style.size(box) for box in drawing.boxes]
        self.along = [height if down else width for width, height in sizes]
        self.across = [width if down else height for width, height in sizes]
        self.offsets = [port_offsets(box, style) for box in drawing.boxes]
        self.bends = _MAX_BENDS
        self.members: dict[tuple[int, ...], list[int]] = {}
        for at, box in enumerate(drawing.boxes):
            self.members.setdefault(box.splits, []).append(at)
        self.links: dict[tuple[int, ...], list[int]] = {}
        for at, link in enumerate(drawing.links):
            for level in self._levels(link):
                self.links.setdefault(level, []).append(at)

    def _levels(self, link: Link) -> set[tuple[int, ...]]:
        """Return the levels that lay out a part of a link: those of its ends, and the innermost one around both."""
        src, dst = self.drawing.boxes[link.src].splits, self.drawing.boxes[link.dst].splits
        if src == dst:
            return {src}
        common = tuple(one for one, other in zip(src, dst, strict=False) if one == other)
        return {common, src, dst} if self.is_regular(link) else {common}

    def is_regular(self, link: Link) -> bool:
        """Return whether a link stays in its level, or leads from a split into its body or from a body outwards."""
        src, dst = self.drawing.boxes[link.src].splits, self.drawing.boxes[link.dst].splits
        return dst in (src, (*src, link.src)) or src[:-1] == dst

    def offset(self, link: Link) -> float:
        """Return where a link leaves its box, from the centre."""
        return self.offsets[link.src].get(link.port or "", 0.0)


class _Block:
    """A level that is laid out. Positions are relative to its corner."""

    def __init__(self, along: float, across: float) -> None:
        self.along = along
        self.across = across
        self.boxes: dict[int, Point] = {}
        self.points: dict[int, list[Point]] = {}
        self.captions: dict[int, Caption] = {}
        self.frames: dict[int, tuple[Point, tuple[float, float]]] = {}
        self.entries: dict[int, float] = {}
        self.exits: dict[int, float] = {}


class _Level:
    """The boxes of one scope, with the bodies of its splits as single cells. A body has a row of ports before its first
    layer and behind its last one, through which links enter and leave it."""

    def __init__(self, frame: _Frame, splits: tuple[int, ...], split: int | None) -> None:
        self._frame = frame
        self._style = frame.style
        self._splits = splits
        self._members = frame.members.get(splits, [])
        self._bodies = {
            at: _Level(frame, (*splits, at), at).lay_out()
            for at in self._members
            if (*splits, at) in frame.members
        }
        self._is_body = split is not None
        self._cells: dict[int, Cell] = {}
        self._body_cells: dict[int, Cell] = {}
        self._rows: list[list[Cell]] = []
        self._segments: list[Segment] = []
        self._routes: dict[int, list[Segment]] = {}
        self._entering: dict[int, Cell] = {}
        self._leaving: dict[int, Cell] = {}

    def lay_out(self) -> _Block:
        self._make_cells()
        self._make_segments()
        order(self._rows, self._segments)
        across = place(self._rows, self._style.gap)
        texts = self._caption_texts()
        if self._style.captions:
            widest = (caption_width(text) for row in texts for text, _, _ in row.values())
            across = max(across, max(widest, default=0.0))
        return self._block(across, texts)

    def _owner(self, box: int) -> tuple[int, bool]:
        """Return the member of this level that stands for a box, and whether the box is inside its body."""
        around = self._frame.drawing.boxes[box].splits
        inside = len(around) > len(self._splits)
        return (around[len(self._splits)], True) if inside else (box, False)

    def _make_cells(self) -> None:
        """Assign layers. The cell of a body is a node of its own, behind its split."""
        number = {at: position for position, at in enumerate(self._members)}
        bodies = {at: len(number) + position for position, at in enumerate(self._bodies)}
        ends: list[tuple[int, int]] = []
        for each in self._frame.links.get(self._splits, ()):
            link = self._frame.drawing.links[each]
            if link.src in number and link.dst in number:
                ends.append((number[link.src], number[link.dst]))
                continue
            owners = [self._owner(box) for box in (link.src, link.dst) if self._contains(box)]
            if len(owners) == 2:
                src, dst = [(bodies if inside else number).get(at, -1) for at, inside in owners]
                if src != dst and min(src, dst) >= 0:
                    ends.append((src, dst))
        layers = assign_layers(len(number) + len(bodies), ends)
        first = 1 if self._is_body else 0
        count = max(layers, default=-1) + 1 + 2 * first
        self._rows = [[] for _ in range(count)]
        for at in self._members:
            self._cells[at] = self._add(layers[number[at]] + first, self._frame.across[at])
            if at in self._bodies:
                size = self._bodies[at].across + 2 * PADDING
                self._body_cells[at] = self._add(layers[bodies[at]] + first, size)

    def _contains(self, box: int) -> bool:
        return self._frame.drawing.boxes[box].splits[: len(self._splits)] == self._splits

    def _add(self, layer: int, size: float) -> Cell:
        cell = Cell(layer, size)
        self._rows[layer].append(cell)
        return cell

    def _make_segments(self) -> None:
        boxes = self._frame.drawing.boxes
        for at in self._frame.links.get(self._splits, ()):
            link = self._frame.drawing.links[at]
            if not self._frame.is_regular(link):
                continue
            src_in, dst_in = (boxes[each].splits == self._splits for each in (link.src, link.dst))
            if src_in and dst_in:
                upper, out = self._cells[link.src], self._frame.offset(link)
                lower, into = self._cells[link.dst], 0.0
            elif src_in and self._contains(link.dst):
                upper, out = self._cells[link.src], self._frame.offset(link)
                body = self._bodies[link.src]
                lower, into = self._body_cells[link.src], body.entries[at] - body.across / 2
            elif dst_in and self._contains(link.src):
                owner = self._owner(link.src)[0]
                body = self._bodies[owner]
                upper, out = self._body_cells[owner], body.exits[at] - body.across / 2
                lower, into = self._cells[link.dst], 0.0
            elif dst_in:
                upper = self._entering[at] = self._add(0, _BEND_SIZE)
                lower, out, into = self._cells[link.dst], 0.0, 0.0
            else:
                upper, out = self._cells[link.src], self._frame.offset(link)
                lower = self._leaving[at] = self._add(len(self._rows) - 1, _BEND_SIZE)
                into = 0.0
            self._connect(at, upper, lower, out, into)

    def _connect(self, at: int, upper: Cell, lower: Cell, out: float, into: float) -> None:
        """Add the segments of a link, with a bend in each layer that it passes."""
        between = lower.layer - upper.layer - 1
        if between < 0 or (between and self._frame.bends < between):
            self._routes[at] = []
            return
        self._frame.bends -= between
        weight = 0.2 if self._frame.drawing.links[at].is_error else 1.0
        bends = [self._add(layer, _BEND_SIZE) for layer in range(upper.layer + 1, lower.layer)]
        chain = [upper, *bends, lower]
        found: list[Segment] = []
        for position, (one, other) in enumerate(itertools.pairwise(chain)):
            last = position == between
            found.append(
                Segment(
                    one,
                    other,
                    0.0 if position else out,
                    into if last else 0.0,
                    weight * (4.0 if position and not last else 2.0 if between else 1.0),
                )
            )
        self._routes[at] = found
        self._segments += found

    def _block(self, across: float, texts: _Texts) -> _Block:
        tops, ends, captions = self._place_layers(across, texts)
        block = _Block(ends[-1] if ends else 0.0, across)
        block.captions = captions
        for at, cell in self._cells.items():
            block.boxes[at] = (tops[cell.layer], cell.at - cell.size / 2)
        for at, body in self._bodies.items():
            self._insert(block, at, body, tops)
        for at, cell in self._entering.items():
            block.entries[at] = cell.at
        for at, cell in self._leaving.items():
            block.exits[at] = cell.at
        for at in self._frame.links.get(self._splits, ()):
            self._route(block, at, tops, ends)
        return block

    def _place_layers(
        self, across: float, texts: _Texts
    ) -> tuple[list[float], list[float], dict[int, Caption]]:
        """Return where each layer begins and ends, and the captions of the links that leave it."""
        depth = [0.0] * len(self._rows)
        for at, cell in self._cells.items():
            depth[cell.layer] = max(depth[cell.layer], self._frame.along[at])
        for at, cell in self._body_cells.items():
            depth[cell.layer] = max(depth[cell.layer], self._bodies[at].along + 2 * PADDING)
        captions: dict[int, Caption] = {}
        tops: list[float] = []
        ends: list[float] = []
        top = 0.0
        for layer in range(len(self._rows)):
            tops.append(top)
            ends.append(top + depth[layer])
            gap = self._style.layer_gap
            if self._style.captions:
                leaving = [(at, *each) for at, each in texts[layer].items()]
                placed, rows = place_captions(leaving, across, gap)
                captions |= {
                    at: msgspec.structs.replace(each, y=ends[-1] + each.y) for at, each in placed.items()
                }
                gap = layer_gap(gap, rows)
            else:
                longest = max((len(text) for text, _, _ in texts[layer].values()), default=0)
                gap = max(gap, 40 + _CAPTION_WIDTH * longest if longest else 0.0)
            if self._is_body and layer in {0, len(self._rows) - 2} and not texts[layer]:
                gap = PADDING
            top = ends[-1] + gap
        return tops, ends, captions

    def _caption_texts(self) -> _Texts:
        found: _Texts = [{} for _ in self._rows]
        for at, segments in self._routes.items():
            link = self._frame.drawing.links[at]
            text = shorten(link.caption or ("error" if link.is_error else ""))
            if text and segments and self._frame.drawing.boxes[link.src].splits == self._splits:
                first = segments[0]
                start = first.upper.at + first.out
                found[first.upper.layer][at] = (text, start, first.lower.at + first.into)
        return found

    def _insert(self, block: _Block, split: int, body: _Block, tops: Sequence[float]) -> None:
        """Copy a body into the level around it."""
        cell = self._body_cells[split]
        corner = (tops[cell.layer], cell.at - cell.size / 2)
        size = (body.along + 2 * PADDING, body.across + 2 * PADDING)
        block.frames[split] = (corner, size)
        along, across = corner[0] + PADDING, corner[1] + PADDING
        down = self._style.direction == "down"
        for at, (x, y) in body.boxes.items():
            block.boxes[at] = (x + along, y + across)
        for at, points in body.points.items():
            block.points[at] = [(x + along, y + across) for x, y in points]
        for at, caption in body.captions.items():
            shift = (across, along) if down else (along, across)
            block.captions[at] = msgspec.structs.replace(
                caption, x=caption.x + shift[0], y=caption.y + shift[1]
            )
        for inner, ((x, y), inner_size) in body.frames.items():
            block.frames[inner] = ((x + along, y + across), inner_size)

    def _route(self, block: _Block, at: int, tops: Sequence[float], ends: Sequence[float]) -> None:
        """Add the points of a link in this level to those inside a body."""
        link = self._frame.drawing.links[at]
        inside = block.points.get(at, [])
        leaves_body = bool(inside) and self._frame.drawing.boxes[link.src].splits != self._splits
        segments = self._routes.get(at)
        if not segments:
            if not inside and self._splits == self._common(link):
                block.points[at] = self._direct(block, link)
            return
        points: list[Point] = []
        first = segments[0].upper
        own = self._frame.drawing.boxes[link.src].splits == self._splits
        begin = tops[first.layer] + (self._frame.along[link.src] if own else 0.0)
        if own:
            points.append((begin, first.at + segments[0].out))
        for each in segments:
            start, end = each.upper.at + each.out, each.lower.at + each.into
            points.append((ends[each.upper.layer], start))
            points.append((tops[each.lower.layer], end))
        joined = [*inside, *points] if leaves_body else [*points, *inside]
        block.points[at] = _without_repeats(joined)

    def _common(self, link: Link) -> tuple[int, ...]:
        boxes = self._frame.drawing.boxes
        pairs = zip(boxes[link.src].splits, boxes[link.dst].splits, strict=False)
        return tuple(one for one, other in pairs if one == other)

    def _direct(self, block: _Block, link: Link) -> list[Point]:
        """Return a straight line, for a link that closes a cycle or connects scopes that must not meet."""
        (x1, y1), (x2, y2) = block.boxes[link.src], block.boxes[link.dst]
        frame = self._frame
        start = (x1 + frame.along[link.src], y1 + frame.across[link.src] / 2 + frame.offset(link))
        return [start, (x2, y2 + frame.across[link.dst] / 2)]


def _without_repeats(points: list[Point]) -> list[Point]:
    """Drop points that equal their predecessor, and those in the middle of a straight line along the layers."""
    found: list[Point] = []
    for each in points:
        if found and abs(found[-1][0] - each[0]) < 1e-6 and abs(found[-1][1] - each[1]) < 1e-6:
            continue
        if len(found) > 1 and found[-2][1] == found[-1][1] == each[1]:
            found[-1] = each
            continue
        found.append(each)
    return found
