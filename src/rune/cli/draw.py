"""What is drawn: nodes in layers and edges between them.

Places for boxes and links: layers from top to bottom, few crossings, long links led around boxes.

A workflow as a standalone SVG that follows the viewer's light or dark theme.

A workflow as a Mermaid flowchart.

A workflow in the terminal: layer by layer, with what each node leads to.
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


class Box(msgspec.Struct, frozen=True):
    """A node as it is drawn."""

    id: str
    type: str
    title: str
    layer: int
    splits: tuple[int, ...]  # the splits around it, outermost first


class Link(msgspec.Struct, frozen=True):
    """An edge as it is drawn."""

    src: int
    dst: int
    caption: str
    is_error: bool


class Drawing(msgspec.Struct, frozen=True):
    """A workflow as it is drawn. Links go from a layer to a later one."""

    title: str
    boxes: tuple[Box, ...]
    links: tuple[Link, ...]
    order: tuple[int, ...]
    bodies: dict[int, tuple[int, ...]]  # split -> the nodes inside, nested ones included

    @property
    def layers(self) -> list[list[int]]:
        """Boxes by layer, in document order."""
        rows: list[list[int]] = [[] for _ in range(max((box.layer for box in self.boxes), default=-1) + 1)]
        for at, box in enumerate(self.boxes):
            rows[box.layer].append(at)
        return rows

    def leaving(self) -> list[list[Link]]:
        """The links out of each box, in edge order."""
        found: list[list[Link]] = [[] for _ in self.boxes]
        for link in self.links:
            found[link.src].append(link)
        return found


def draw_definition(verdict: ValidationResult) -> Drawing:
    """The picture of a document that is valid."""
    definition, graph, scopes = verdict.definition, verdict.graph, verdict.scopes
    if definition is None or graph is None or scopes is None:
        raise ValueError("only a document that could be read can be drawn")
    boxes = _boxes(definition, graph, scopes)
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


def _boxes(definition: Definition, graph: Graph, scopes: Scopes) -> tuple[Box, ...]:
    layer = [0] * len(graph.ids)
    for node in graph.order:
        layer[node] = max((layer[source] + 1 for source in graph.predecessors(node)), default=0)
    return tuple(
        Box(node.id, node.type, node.name, layer[at], scopes.enclosing(at))
        for at, node in enumerate(definition.nodes)
    )


WIDTH_OF_CHARACTER = 7.4
MIN_WIDTH = 96.0
MAX_WIDTH = 260.0
HEIGHT = 46.0
GAP = 28.0
LAYER_GAP = 58.0
MARGIN = 24.0
_BEND_WIDTH = 10.0
_MAX_BENDS = 20_000
_SWEEPS = 4


class Position(msgspec.Struct):
    """Where something stands: its middle and its width. A bend of a long link is a place too."""

    layer: int
    width: float
    x: float = 0.0
    y: float = 0.0


class Layout(msgspec.Struct, frozen=True):
    """Places of all boxes, and for each link the places it passes."""

    boxes: tuple[Position, ...]
    ways: tuple[tuple[Position, ...], ...]
    width: float
    height: float


def lay_out(picture: Drawing) -> Layout:
    """Give everything a place."""
    boxes = tuple(Position(box.layer, _width(box.title or box.id, box.type)) for box in picture.boxes)
    rows: list[list[Position]] = [[boxes[at] for at in row] for row in picture.layers]
    bends = sum(boxes[link.dst].layer - boxes[link.src].layer - 1 for link in picture.links) <= _MAX_BENDS
    ways: list[tuple[Position, ...]] = []
    for link in picture.links:
        src, dst = boxes[link.src], boxes[link.dst]
        between = [Position(layer, _BEND_WIDTH) for layer in range(src.layer + 1, dst.layer)] if bends else []
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
    return min(MAX_WIDTH, max(MIN_WIDTH, 28 + WIDTH_OF_CHARACTER * max(len(title), len(kind))))


def _order(rows: list[list[Position]], ways: list[tuple[Position, ...]]) -> None:
    """Sort each row by the mean position of what it is linked to, down and up a few times."""
    above: dict[int, list[Position]] = {}
    below: dict[int, list[Position]] = {}
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


def _number(row: list[Position]) -> None:
    """Positions within a row, as shares of its length, so that rows of different length compare."""
    for position, place in enumerate(row):
        place.x = (position + 0.5) / len(row)


def _mean(places: list[Position] | None, otherwise: float) -> float:
    return sum(each.x for each in places) / len(places) if places else otherwise


def _spread(rows: list[list[Position]]) -> float:
    """Real positions: each row beside itself, centred."""
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


def draw_svg(picture: Drawing) -> str:
    """The whole picture."""
    layout = lay_out(picture)
    width, height = f"{layout.width:.0f}", f"{layout.height:.0f}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
        f' viewBox="0 0 {width} {height}" role="img" aria-label={quoteattr(picture.title)}>',
        f"<title>{escape(picture.title)}</title>",
        f"<style>{_STYLE}</style>",
        "<defs>",
        _MARKER.format(name="end", colour="#8793a5"),
        _MARKER.format(name="bad", colour="#d1443c"),
        "</defs>",
    ]
    drawn = list(zip(picture.links, layout.ways, strict=True))
    parts += [
        _region(layout, body) for split, body in picture.bodies.items() if _clear(picture, layout, split)
    ]
    parts += [_line(link, way) for link, way in drawn]
    parts += [_node(picture, layout, at) for at in range(len(picture.boxes))]
    parts += [_caption(link, way) for link, way in drawn if _words(link)]
    return "\n".join([*parts, "</svg>"])


def _node(picture: Drawing, layout: Layout, at: int) -> str:
    box, place = picture.boxes[at], layout.boxes[at]
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


def _text(style: str, x: float, y: float, words: str) -> str:
    most = int((MAX_WIDTH - 28) / WIDTH_OF_CHARACTER)
    shown = words if len(words) <= most else words[: most - 1] + "…"
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{escape(shown)}</text>'


def _line(link: Link, way: tuple[Position, ...]) -> str:
    """A curve from the bottom of one box to the top of the other, upright where it passes a bend."""
    points = [(each.x, each.y) for each in way]
    points[0] = (points[0][0], points[0][1] + HEIGHT / 2)
    points[-1] = (points[-1][0], points[-1][1] - HEIGHT / 2)
    path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for (x1, y1), (x2, y2) in pairwise(points):
        middle = (y1 + y2) / 2
        path += f"C{x1:.1f} {middle:.1f} {x2:.1f} {middle:.1f} {x2:.1f} {y2:.1f}"
    style, marker = ("link error", "bad") if link.is_error else ("link", "end")
    return f'<path class="{style}" d="{path}" marker-end="url(#{marker})"/>'


def _words(link: Link) -> str:
    return link.caption or ("error" if link.is_error else "")


def _caption(link: Link, way: tuple[Position, ...]) -> str:
    """Near the start of the link, where it has not met others yet."""
    src, following = way[0], way[1]
    x = src.x + (following.x - src.x) * 0.35
    return _text("caption", x, src.y + HEIGHT / 2 + 20, _words(link))


def _bounds(layout: Layout, body: tuple[int, ...]) -> tuple[float, float, float, float]:
    places = [layout.boxes[at] for at in body]
    return (
        min(each.x - each.width / 2 for each in places) - MARGIN / 2,
        min(each.y for each in places) - HEIGHT / 2 - MARGIN / 2,
        max(each.x + each.width / 2 for each in places) + MARGIN / 2,
        max(each.y for each in places) + HEIGHT / 2 + MARGIN / 2,
    )


def _clear(picture: Drawing, layout: Layout, split: int) -> bool:
    """Would a frame around the body of this split hold nothing else?"""
    body = set(picture.bodies[split])
    left, top, right, bottom = _bounds(layout, picture.bodies[split])
    return not any(
        left < place.x + place.width / 2 and place.x - place.width / 2 < right and top < place.y < bottom
        for at, place in enumerate(layout.boxes)
        if at not in body
    )


def _region(layout: Layout, body: tuple[int, ...]) -> str:
    left, top, right, bottom = _bounds(layout, body)
    return _rectangle("region", left, top, right - left, bottom - top, 12)


def draw_mermaid(picture: Drawing) -> str:
    """The flowchart's text. Nodes are numbered, since Mermaid gives some ids a meaning of their own."""
    routers = {link.src for link in picture.links if link.caption and not link.is_error}
    lines = ["flowchart TD"]
    _scope(picture, (), routers, lines)
    for link in picture.links:
        arrow = "-.->" if link.is_error else "-->"
        caption = link.caption or ("error" if link.is_error else "")
        words = f'|"{_escaped(caption)}"|' if caption else ""
        lines.append(f"    n{link.src} {arrow}{words} n{link.dst}")
    return "\n".join(lines)


def _scope(picture: Drawing, around: tuple[int, ...], routers: set[int], lines: list[str]) -> None:
    """Declare the nodes that stand right in this scope, then each split's body as a box of its own."""
    indent = "    " * (len(around) + 1)
    for at, box in enumerate(picture.boxes):
        if box.splits == around:
            opening, closing = ("{", "}") if at in routers else ("[", "]")
            label = f"{_escaped(box.title or box.id)}<br/><small>{_escaped(box.type)}</small>"
            lines.append(f'{indent}n{at}{opening}"{label}"{closing}')
    for split, body in picture.bodies.items():
        if picture.boxes[body[0]].splits[: len(around) + 1] == (*around, split):
            lines.append(f'{indent}subgraph s{split} ["each item of {_escaped(picture.boxes[split].id)}"]')
            _scope(picture, (*around, split), routers, lines)
            lines.append(f"{indent}end")


def _escaped(text: str) -> str:
    return escape(text, {'"': "&quot;", "\n": " "})


def print_drawing(picture: Drawing, console: Console | None = None) -> None:
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


def _link(label: str, picture: Drawing, box: Box, link: Link) -> Text:
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
