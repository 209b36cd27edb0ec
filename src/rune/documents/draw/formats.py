"""Drawings as standalone SVG documents, with a light and a dark theme, and as Mermaid flowcharts."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from xml.sax.saxutils import escape, quoteattr

from rune.documents.draw.layout import Layout, Point, Rectangle, lay_out, shorten
from rune.documents.draw.model import Drawing, Link

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
  .success { stroke: #2f9e5c; stroke-width: 2; }
  .failed { stroke: #d1443c; stroke-width: 2; }
  .cancelled { stroke: #c98a1b; stroke-width: 2; }
  .skipped { opacity: 0.5; }
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


def draw_svg(drawing: Drawing, states: Mapping[str, tuple[str, str]] | None = None) -> str:
    """Return the drawing as an SVG document, top to bottom. `states` are the state and a note of each node that ran."""
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
    parts += [_rectangle("region", frame, 12) for frame in layout.frames.values()]
    parts += [_line(link, route) for link, route in zip(drawing.links, layout.routes, strict=True)]
    parts += [_node(drawing, layout, at, states or {}) for at in range(len(drawing.boxes))]
    parts += [_text("caption", each.x, each.y, each.text) for each in layout.captions.values()]
    return "\n".join([*parts, "</svg>"])


def _node(drawing: Drawing, layout: Layout, at: int, states: Mapping[str, tuple[str, str]]) -> str:
    box, place = drawing.boxes[at], layout.boxes[at]
    x, y = place.x + place.width / 2, place.y + place.height / 2
    state, note = states.get(box.id, ("", ""))
    style = " ".join(each for each in ("box", "inside" if box.splits else "", state) if each)
    frame = _rectangle(style, place, 9)
    title = _text("title", x, y - 2, shorten(box.title or box.id))
    return f"<g>{frame}{title}{_text('type', x, y + 14, shorten(note or box.type))}</g>"


def _rectangle(style: str, place: Rectangle, corner: int) -> str:
    return (
        f'<rect class="{style}" x="{place.x:.1f}" y="{place.y:.1f}"'
        f' width="{place.width:.1f}" height="{place.height:.1f}" rx="{corner}"/>'
    )


def _text(style: str, x: float, y: float, text: str) -> str:
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{escape(text)}</text>'


def _line(link: Link, route: tuple[Point, ...]) -> str:
    """Draw a curve from the bottom of one box to the top of the other, vertical at each bend."""
    path = f"M{route[0][0]:.1f} {route[0][1]:.1f}"
    for (x1, y1), (x2, y2) in pairwise(route):
        middle = (y1 + y2) / 2
        curve = f"C{x1:.1f} {middle:.1f} {x2:.1f} {middle:.1f} {x2:.1f} {y2:.1f}"
        path += f"V{y2:.1f}" if x1 == x2 else curve
    style, marker = ("link error", "bad") if link.is_error else ("link", "end")
    return f'<path class="{style}" d="{path}" marker-end="url(#{marker})"/>'


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
