"""Drawings as Mermaid flowcharts."""

from __future__ import annotations

from xml.sax.saxutils import escape

from rune.draw.drawing import Drawing


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
