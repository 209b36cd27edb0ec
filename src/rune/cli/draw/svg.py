"""A workflow as a standalone SVG that follows the viewer's light or dark theme."""

from __future__ import annotations

from itertools import pairwise
from xml.sax.saxutils import escape, quoteattr

from rune.cli.draw.layout import HEIGHT, MARGIN, MOST_WIDTH, WIDTH_OF_CHARACTER, Layout, Place, lay_out
from rune.cli.draw.picture import Link, Picture

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


def draw_svg(picture: Picture) -> str:
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


def _node(picture: Picture, layout: Layout, at: int) -> str:
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
    most = int((MOST_WIDTH - 28) / WIDTH_OF_CHARACTER)
    shown = words if len(words) <= most else words[: most - 1] + "…"
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{escape(shown)}</text>'


def _line(link: Link, way: tuple[Place, ...]) -> str:
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


def _caption(link: Link, way: tuple[Place, ...]) -> str:
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


def _clear(picture: Picture, layout: Layout, split: int) -> bool:
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
