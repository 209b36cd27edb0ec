"""A workflow as a Mermaid flowchart."""

from __future__ import annotations

from xml.sax.saxutils import escape

from rune.cli.draw.picture import Picture


def draw_mermaid(picture: Picture) -> str:
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


def _scope(picture: Picture, around: tuple[int, ...], routers: set[int], lines: list[str]) -> None:
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
