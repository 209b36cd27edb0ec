"""What the checks look at: a definition with what is already known of it."""

from __future__ import annotations

from typing import Literal

import msgspec

from rune.core.definition import Definition, Node
from rune.core.graph import Graph
from rune.core.nodetype import NodeType
from rune.core.places import Places
from rune.core.problem import Problem


class Subject(msgspec.Struct):
    """A definition under examination."""

    definition: Definition
    places: Places
    graph: Graph
    types: tuple[NodeType | None, ...]
    sound: list[bool]  # by node: the type is known and its parameters fit, so its declaration may be asked
    problems: list[Problem]

    def report(
        self,
        path: str,
        code: str,
        message: str,
        hint: str = "",
        severity: Literal["error", "warning"] = "error",
    ) -> None:
        """Add a problem."""
        self.problems.append(Problem(path, code, message, hint, severity))

    def warn(self, path: str, code: str, message: str, hint: str = "") -> None:
        """Add a problem that does not make the document invalid."""
        self.report(path, code, message, hint, "warning")

    def is_trigger(self, at: int) -> bool:
        """Does this node pass on the start payload instead of running?"""
        kind = self.types[at]
        return self.definition.nodes[at].trigger or (kind is not None and kind.trigger)

    def known(self, at: int) -> tuple[Node, NodeType] | None:
        """The node and its type, if its declaration may be asked."""
        kind = self.types[at]
        return (self.definition.nodes[at], kind) if kind is not None and self.sound[at] else None
