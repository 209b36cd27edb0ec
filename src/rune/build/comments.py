"""Comments that stand at nodes and edges, as the document or the Python file has them."""

from __future__ import annotations

import sys
from contextvars import ContextVar
from types import FrameType

LOADING: ContextVar[str] = ContextVar("rune_loading_file", default="")
"""The Python file that is being loaded; its lines are remembered for the comments at them."""


class Comment:
    """The comment lines above a node or edge, and the one behind it, without `#`."""

    __slots__ = ("lead", "trailing")

    def __init__(self) -> None:
        self.lead: list[str] = []
        self.trailing = ""

    def __bool__(self) -> bool:
        return bool(self.lead or self.trailing)


class Comments:
    """The comments of a workflow. `others` are those that no node or edge owns, with their line numbers; `lines` are
    the lines of the Python file that made the nodes and edges."""

    def __init__(self) -> None:
        self.header: list[str] = []
        self.nodes: dict[str, Comment] = {}
        self.edges: dict[int, Comment] = {}
        self.others: list[tuple[int, str]] = []
        self.lines: dict[tuple[str, str | int], int] = {}

    def place_node(self, id: str) -> None:
        """Remember the line of the Python file that made a node, if one is being loaded."""
        if LOADING.get():
            self.lines["node", id] = _caller_line(LOADING.get())

    def place_edge(self, index: int) -> None:
        if LOADING.get():
            self.lines["edge", index] = _caller_line(LOADING.get())


def _caller_line(filename: str) -> int:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == filename:
            return frame.f_lineno
        frame = frame.f_back
    return 0


def comment_text(comment: str) -> str:
    """Return a comment without its `#` and the space after it."""
    return comment.lstrip("#").removeprefix(" ").rstrip()
