"""Drawings of workflows: as a standalone SVG with a light and a dark theme, as a Mermaid flowchart, and as text.

The layout places nodes in layers from top to bottom, with few crossings, and leads long links around boxes.
"""

from __future__ import annotations

from itertools import pairwise
from xml.sax.saxutils import escape, quoteattr

import msgspec
from rich.console import Console
from rich.text import Text

from rune.core.definition.model import Definition
from rune.core.plan.analysis import Scopes
from rune.core.plan.graph import Graph
from rune.core.validation.validate import ValidationResult

CHARACTER_WIDTH = 7.4
CAPTION_CHARACTER_WIDTH = 6.6
CAPTION_TOP = 20.0  # from the bottom of a box to the baseline of the first row of captions
CAPTION_HEIGHT = 14.0
CAPTION_GAP = 6.0
MIN_WIDTH = 96.0
MAX_WIDTH = 260.0
HEIGHT = 46.0
GAP = 28.0
LAYER_GAP = 58.0
MARGIN = 24.0
_BEND_WIDTH = 10.0
_MAX_BENDS = 20_000
_ORDER_SWEEPS = 4


class Box(msgspec.Struct, frozen=True):
    """A node of the drawing."""

    id: str
    type: str
    title: str
    layer: int
    splits: tuple[int, ...]  # the splits around it, outermost first


class Link(msgspec.Struct, frozen=True):
    """An edge of the drawing."""

    src: int
    dst: int
    caption: str
    is_error: bool


class Drawing(msgspec.Struct, frozen=True):
    """A workflow, independent of the output format. Links lead from a layer to a later one."""

    title: str
    boxes: tuple[Box, ...]
    links: tuple[Link, ...]
    order: tuple[int, ...]
    bodies: dict[int, tuple[int, ...]]  # split -> the nodes inside, nested ones included

    @property
    def layers(self) -> list[list[int]]:
        """The boxes of each layer, in document order."""
        rows: list[list[int]] = [[] for _ in range(max((box.layer for box in self.boxes), default=-1) + 1)]
        for at, box in enumerate(self.boxes):
            rows[box.layer].append(at)
        return rows

    def leaving(self) -> list[list[Link]]:
        """Return the outgoing links of each box, in edge order."""
        found: list[list[Link]] = [[] for _ in self.boxes]
        for link in self.links:
            found[link.src].append(link)
        return found


def draw_definition(verdict: ValidationResult) -> Drawing:
    """Return the drawing of a valid document."""
    definition, graph, scopes = verdict.definition, verdict.graph, verdict.scopes
    if definition is None or graph is None or scopes is None:
        raise ValueError("only a valid document can be drawn")
    boxes = _make_boxes(definition, graph, scopes)
    bodies: dict[int, list[int]] = {}
    for at, box in enumerate(boxes):
        for split in box.splits:
            bodies.setdefault(split, []).append(at)
    links = tuple(
        Link(graph.src[at], graph.dst[at], verdict.outlets[at] or edge.label or "", edge.is_error)
        for at, edge in enumerate(definition.edges)
    )
    return Drawing(
        definition.name or definition.id,
        boxes,
        links,
        graph.order,
        {split: tuple(nodes) for split, nodes in bodies.items()},
    )


def _make_boxes(definition: Definition, graph: Graph, scopes: Scopes) -> tuple[Box, ...]:
    layer = [0] * len(graph.ids)
    for node in graph.order:
        layer[node] = max((layer[source] + 1 for source in graph.predecessors(node)), default=0)
    return tuple(
        Box(node.id, node.type, node.name, layer[at], scopes.enclosing(at))
        for at, node in enumerate(definition.nodes)
    )


class Position(msgspec.Struct):
    """The centre and the width of a box, or of a bend of a long link."""

    layer: int
    width: float
    x: float = 0.0
    y: float = 0.0


class Caption(msgspec.Struct, frozen=True):
    """The text of a link: the middle of its baseline, `y` from the bottom of the box that the link leaves."""

    text: str
    x: float
    y: float
    width: float


class Layout(msgspec.Struct, frozen=True):
    """The positions of all boxes, for each link the positions it passes, and the captions by link."""

    boxes: tuple[Position, ...]
    routes: tuple[tuple[Position, ...], ...]
    captions: dict[int, Caption]
    width: float
    height: float


def lay_out(drawing: Drawing) -> Layout:
    """Compute the positions of boxes and links."""
    boxes = tuple(Position(box.layer, _width(box.title or box.id, box.type)) for box in drawing.boxes)
    rows: list[list[Position]] = [[boxes[at] for at in row] for row in drawing.layers]
    bends = sum(boxes[link.dst].layer - boxes[link.src].layer - 1 for link in drawing.links) <= _MAX_BENDS
    routes: list[tuple[Position, ...]] = []
    for link in drawing.links:
        src, dst = boxes[link.src], boxes[link.dst]
        between = [Position(layer, _BEND_WIDTH) for layer in range(src.layer + 1, dst.layer)] if bends else []
        for bend in between:
            rows[bend.layer].append(bend)
        routes.append((src, *between, dst))
    _order(rows, routes)
    width = _spread(rows)
    leaving: list[list[tuple[int, str]]] = [[] for _ in rows]
    for at, link in enumerate(drawing.links):
        if text := _shorten(_caption_text(link)):
            leaving[boxes[link.src].layer].append((at, text))
    captions: dict[int, Caption] = {}
    top = MARGIN
    for row, links in zip(rows, leaving, strict=True):
        placed, caption_rows = _place_captions(links, routes, width)
        captions |= placed
        for place in row:
            place.y = top + HEIGHT / 2
        top += HEIGHT + _layer_gap(caption_rows)
    height = top - LAYER_GAP + MARGIN if rows else 2 * MARGIN
    return Layout(boxes, tuple(routes), captions, width, height)


def _layer_gap(caption_rows: int) -> float:
    """Return the space below a layer whose links have captions in this many rows."""
    return LAYER_GAP + CAPTION_HEIGHT * max(0, caption_rows - 1)


def _place_captions(
    links: list[tuple[int, str]], routes: list[tuple[Position, ...]], width: float
) -> tuple[dict[int, Caption], int]:
    """Place the captions of the links that leave a layer, in few rows that keep them apart; return the rows too."""
    ordered = sorted(links, key=lambda each: (routes[each[0]][1].x, each[0]))
    count = 1
    while (placed := _fill_rows(ordered, routes, count, width)) is None:
        count += max(1, count // 2)
    return placed, count


def _fill_rows(
    links: list[tuple[int, str]], routes: list[tuple[Position, ...]], count: int, width: float
) -> dict[int, Caption] | None:
    """Put each caption on its link, in the first row with space for it; None if the rows do not suffice."""
    rows: list[list[Caption]] = [[] for _ in range(count)]
    placed: dict[int, Caption] = {}
    for at, text in links:
        needed = CAPTION_CHARACTER_WIDTH * len(text)
        for number, row in enumerate(rows):
            y = CAPTION_TOP + CAPTION_HEIGHT * number
            centre = _x_at(routes[at], y, _layer_gap(count))
            x = max(needed / 2, min(width - needed / 2, centre))
            if all(abs(x - each.x) >= (needed + each.width) / 2 + CAPTION_GAP for each in row):
                placed[at] = Caption(text, x, y, needed)
                row.append(placed[at])
                break
        else:
            return None
    return placed


def _x_at(route: tuple[Position, ...], y: float, gap: float) -> float:
    """Return the horizontal position of a link at a distance below the box it leaves."""
    src, following = route[0], route[1]
    wanted = y / (gap if len(route) == 2 else gap + HEIGHT / 2)
    low, high = 0.0, 1.0
    for _ in range(20):  # the curve of `_line`, whose vertical position grows with the parameter
        t = (low + high) / 2
        low, high = (t, high) if 1.5 * t - 1.5 * t**2 + t**3 < wanted else (low, t)
    return src.x + (following.x - src.x) * (3 * low**2 - 2 * low**3)


def _width(title: str, kind: str) -> float:
    return min(MAX_WIDTH, max(MIN_WIDTH, 28 + CHARACTER_WIDTH * max(len(title), len(kind))))


def _order(rows: list[list[Position]], routes: list[tuple[Position, ...]]) -> None:
    """Sort each row by the mean position of its neighbours, in alternating downward and upward sweeps."""
    above: dict[int, list[Position]] = {}
    below: dict[int, list[Position]] = {}
    for route in routes:
        for upper, lower in pairwise(route):
            above.setdefault(id(lower), []).append(upper)
            below.setdefault(id(upper), []).append(lower)
    for row in rows:
        _number(row)
    for sweep in range(_ORDER_SWEEPS):
        neighbours, ordered = (above, rows) if sweep % 2 == 0 else (below, rows[::-1])
        for row in ordered:
            mean = {id(each): _mean(neighbours.get(id(each)), each.x) for each in row}
            row.sort(key=lambda each, mean=mean: mean[id(each)])  # type: ignore[misc]
            _number(row)


def _number(row: list[Position]) -> None:
    """Set positions as fractions of the row length, so that rows of different length are comparable."""
    for position, place in enumerate(row):
        place.x = (position + 0.5) / len(row)


def _mean(places: list[Position] | None, otherwise: float) -> float:
    return sum(each.x for each in places) / len(places) if places else otherwise


def _spread(rows: list[list[Position]]) -> float:
    """Set the final horizontal positions, each row centred; return the total width."""
    lengths = [sum(each.width for each in row) + GAP * (len(row) - 1) for row in rows]
    widest = max(lengths, default=0.0)
    for row, length in zip(rows, lengths, strict=True):
        left = MARGIN + (widest - length) / 2
        for place in row:
            place.x = left + place.width / 2
            left += place.width + GAP
    return widest + 2 * MARGIN


_STYLE = """
  svg { color-scheme: light dark; }
  .box { fill: #ffffff; stroke: #c4ccd8; }
  .inside { fill: #f1f6ff; }
  .title { font: 600 13px system-ui, sans-serif; fill: #1d2430; }
  .type, .caption { font: 11px system-ui, sans-serif; fill: #6b7686; }
  .caption { paint-order: stroke; stroke: #ffffff; stroke-width: 4px; }
  .link { fill: none; stroke: #8793a5; stroke-width: 1.5; }
  .error { stroke: #d1443c; stroke-dasharray: 5 4; }
  .region { fill: none; stroke: #6ea8fe; stroke-dasharray: 3 4; }
  @media (prefers-color-scheme: dark) {
    .box { fill: #1e2530; stroke: #465163; }
    .inside { fill: #1c2a40; }
    .title { fill: #e8edf5; }
    .type, .caption { fill: #97a3b4; }
    .caption { stroke: #11161d; }
    .link { stroke: #76839a; }
    .error { stroke: #ff7b72; }
    .region { stroke: #3d6db5; }
  }
"""

_MARKER = (
    '<marker id="{name}" viewBox="0 0 10 10" refX="9" refY="5" orient="auto"'
    ' markerWidth="7" markerHeight="7">'
    '<path d="M0 0L10 5L0 10z" fill="{colour}"/></marker>'
)


def draw_svg(drawing: Drawing) -> str:
    """Return the drawing as an SVG document."""
    layout = lay_out(drawing)
    width, height = f"{layout.width:.0f}", f"{layout.height:.0f}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
        f' viewBox="0 0 {width} {height}" role="img" aria-label={quoteattr(drawing.title)}>',
        f"<title>{escape(drawing.title)}</title>",
        f"<style>{_STYLE}</style>",
        "<defs>",
        _MARKER.format(name="end", colour="#8793a5"),
        _MARKER.format(name="bad", colour="#d1443c"),
        "</defs>",
    ]
    drawn = list(zip(drawing.links, layout.routes, strict=True))
    parts += [
        _region(layout, body)
        for split, body in drawing.bodies.items()
        if _is_separate(drawing, layout, split)
    ]
    parts += [_line(link, route) for link, route in drawn]
    parts += [_node(drawing, layout, at) for at in range(len(drawing.boxes))]
    parts += [
        _text("caption", caption.x, layout.routes[at][0].y + HEIGHT / 2 + caption.y, caption.text)
        for at, caption in layout.captions.items()
    ]
    return "\n".join([*parts, "</svg>"])


def _node(drawing: Drawing, layout: Layout, at: int) -> str:
    box, place = drawing.boxes[at], layout.boxes[at]
    style = "box inside" if box.splits else "box"
    left, top = place.x - place.width / 2, place.y - HEIGHT / 2
    frame = _rectangle(style, left, top, place.width, HEIGHT, 9)
    title = _text("title", place.x, place.y - 2, box.title or box.id)
    return f"<g>{frame}{title}{_text('type', place.x, place.y + 14, box.type)}</g>"


def _rectangle(style: str, left: float, top: float, width: float, height: float, corner: int) -> str:
    return (
        f'<rect class="{style}" x="{left:.1f}" y="{top:.1f}"'
        f' width="{width:.1f}" height="{height:.1f}" rx="{corner}"/>'
    )


def _text(style: str, x: float, y: float, text: str) -> str:
    return (
        f'<text class="{style}" x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{escape(_shorten(text))}</text>'
    )


def _shorten(text: str) -> str:
    limit = int((MAX_WIDTH - 28) / CHARACTER_WIDTH)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _line(link: Link, route: tuple[Position, ...]) -> str:
    """Draw a curve from the bottom of one box to the top of the other, vertical at each bend."""
    points = [(each.x, each.y) for each in route]
    points[0] = (points[0][0], points[0][1] + HEIGHT / 2)
    points[-1] = (points[-1][0], points[-1][1] - HEIGHT / 2)
    path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for (x1, y1), (x2, y2) in pairwise(points):
        middle = (y1 + y2) / 2
        path += f"C{x1:.1f} {middle:.1f} {x2:.1f} {middle:.1f} {x2:.1f} {y2:.1f}"
    style, marker = ("link error", "bad") if link.is_error else ("link", "end")
    return f'<path class="{style}" d="{path}" marker-end="url(#{marker})"/>'


def _caption_text(link: Link) -> str:
    return link.caption or ("error" if link.is_error else "")


def _bounds(layout: Layout, body: tuple[int, ...]) -> tuple[float, float, float, float]:
    places = [layout.boxes[at] for at in body]
    return (
        min(each.x - each.width / 2 for each in places) - MARGIN / 2,
        min(each.y for each in places) - HEIGHT / 2 - MARGIN / 2,
        max(each.x + each.width / 2 for each in places) + MARGIN / 2,
        max(each.y for each in places) + HEIGHT / 2 + MARGIN / 2,
    )


def _is_separate(drawing: Drawing, layout: Layout, split: int) -> bool:
    """Return whether a frame around the body of this split would contain no other box."""
    body = set(drawing.bodies[split])
    left, top, right, bottom = _bounds(layout, drawing.bodies[split])
    return not any(
        left < place.x + place.width / 2 and place.x - place.width / 2 < right and top < place.y < bottom
        for at, place in enumerate(layout.boxes)
        if at not in body
    )


def _region(layout: Layout, body: tuple[int, ...]) -> str:
    left, top, right, bottom = _bounds(layout, body)
    return _rectangle("region", left, top, right - left, bottom - top, 12)


def draw_mermaid(drawing: Drawing) -> str:
    """Return the drawing as a Mermaid flowchart. Nodes are numbered, since Mermaid reserves some ids."""
    routers = {link.src for link in drawing.links if link.caption and not link.is_error}
    lines = ["flowchart TD"]
    _scope(drawing, (), routers, lines)
    for link in drawing.links:
        arrow = "-.->" if link.is_error else "-->"
        caption = link.caption or ("error" if link.is_error else "")
        text = f'|"{_escape(caption)}"|' if caption else ""
        lines.append(f"    n{link.src} {arrow}{text} n{link.dst}")
    return "\n".join(lines)


def _scope(drawing: Drawing, around: tuple[int, ...], routers: set[int], lines: list[str]) -> None:
    """Declare the nodes directly in this scope, then the body of each split as a subgraph."""
    indent = "    " * (len(around) + 1)
    for at, box in enumerate(drawing.boxes):
        if box.splits == around:
            opening, closing = ("{", "}") if at in routers else ("[", "]")
            label = f"{_escape(box.title or box.id)}<br/><small>{_escape(box.type)}</small>"
            lines.append(f'{indent}n{at}{opening}"{label}"{closing}')
    for split, body in drawing.bodies.items():
        if drawing.boxes[body[0]].splits[: len(around) + 1] == (*around, split):
            lines.append(f'{indent}subgraph s{split} ["each item of {_escape(drawing.boxes[split].id)}"]')
            _scope(drawing, (*around, split), routers, lines)
            lines.append(f"{indent}end")


def _escape(text: str) -> str:
    return escape(text, {'"': "&quot;", "\n": " "})


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
