"""A workflow as a Mermaid flowchart."""

from __future__ import annotations

from rune.cli.draw.picture import Picture


def draw_mermaid(picture: Picture) -> str:
    """The flowchart's text. Nodes are numbered, since Mermaid gives some ids a meaning of their own."""
    lines = ["flowchart TD"]
    _scope(picture, (), lines, "    ")
    for link in picture.links:
        arrow = "-.->" if link.is_error else "-->"
        caption = link.caption or ("error" if link.is_error else "")
        lines.append(f"    n{link.src} {arrow}{f'|{_quoted(caption)}|' if caption else ''} n{link.dst}")
    return "\n".join(lines)


def _scope(picture: Picture, around: tuple[int, ...], lines: list[str], indent: str) -> None:
    """Declare the nodes that stand right in this scope, then each split's body as a box of its own."""
    for at, box in enumerate(picture.boxes):
        if box.splits == around:
            opening, closing = ("{", "}") if _routes(picture, at) else ("[", "]")
            label = f"{box.title or box.id}<br/><small>{box.type}</small>"
            lines.append(f"{indent}n{at}{opening}{_quoted(label)}{closing}")
    for split, body in picture.bodies.items():
        if picture.boxes[body[0]].splits[: len(around) + 1] == (*around, split):
            lines.append(f"{indent}subgraph s{split} [{_quoted(f'each item of {picture.boxes[split].id}')}]")
            _scope(picture, (*around, split), lines, indent + "    ")
            lines.append(f"{indent}end")


def _routes(picture: Picture, at: int) -> bool:
    return any(link.src == at and link.caption and not link.is_error for link in picture.links)


def _quoted(text: str) -> str:
    return '"' + text.replace("&", "&amp;").replace('"', "&quot;").replace("\n", " ") + '"'
