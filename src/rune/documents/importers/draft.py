"""The document that an importer builds: unique ids, nodes, edges, and steps that could not be imported."""

from __future__ import annotations

import re
from typing import Any

from rune.core.expr.names import ROOTS
from rune.core.limits import LIMITS
from rune.errors import LimitExceededError

NOT_IMPORTED = "NOT_IMPORTED"
"""The error code of steps that could not be imported."""

_RESERVED = frozenset({*ROOTS, "node"})
_MAX_ID = 60
_REFERENCE_LIKE = re.compile(r"\$(?=[\w$])")


def slug(text: str, *, fallback: str = "step") -> str:
    """Make an id that can be used in expressions from any text."""
    found = re.sub(r"[^A-Za-z0-9_]+", "_", text).strip("_")[:_MAX_ID].rstrip("_")
    if not found:
        return fallback
    return f"{fallback}_{found}" if found[0].isdigit() else found


def mapping(value: Any) -> dict[str, Any]:
    """Return the value if it is an object, else an empty object."""
    return value if isinstance(value, dict) else {}


def sequence(value: Any) -> list[Any]:
    """Return the value if it is a list, else an empty list."""
    return value if isinstance(value, list) else []


def literal_text(text: str) -> str:
    """Return a template whose value is this text."""
    if "$" not in text and "{{" not in text:
        return text
    return _REFERENCE_LIKE.sub("$$", text).replace("{{", '{{ "{{" }}')


def literal(value: Any) -> Any:
    """Return a template whose value is this JSON value."""
    if isinstance(value, str):
        return literal_text(value)
    if isinstance(value, list):
        return [literal(each) for each in value]
    if isinstance(value, dict):
        return {key: literal(each) for key, each in value.items()}
    return value


class Draft:
    """A document under construction. Nodes and edges are only appended, so that their paths stay valid."""

    def __init__(self, workflow_id: str, name: str = "") -> None:
        self._top: dict[str, Any] = {"id": slug(workflow_id, fallback="workflow").replace("_", "-").lower()}
        if name:
            self._top["name"] = name
        self.settings: dict[str, Any] = {}
        self.metadata: dict[str, Any] = {}
        self.notes: list[Any] = []
        self.nodes: list[dict[str, Any]] = []
        self.edges: list[dict[str, Any]] = []
        self._node_ids: set[str] = set(_RESERVED)
        self._edge_ids: set[str] = set()
        self._places: dict[str, int] = {}

    def new_id(self, wanted: str) -> str:
        """Reserve an unused node id."""
        return _unused(wanted, self._node_ids)

    def add_node(
        self, node_id: str, kind: str, parameters: dict[str, Any] | None = None, **fields: Any
    ) -> str:
        """Add a node with a reserved id; return its path."""
        if len(self.nodes) == LIMITS.nodes:
            raise LimitExceededError("nodes of the imported document", LIMITS.nodes)
        node: dict[str, Any] = {"id": node_id, "type": kind}
        if parameters:
            node["parameters"] = parameters
        node.update({key: value for key, value in fields.items() if value is not None and value != {}})
        self._places[node_id] = len(self.nodes)
        self.nodes.append(node)
        return f"nodes[{len(self.nodes) - 1}]"

    def has(self, node_id: str) -> bool:
        return node_id in self._places

    def truncate(self, nodes: int, edges: int) -> None:
        """Remove what was added after a state of the lists; ids stay reserved."""
        for each in self.nodes[nodes:]:
            del self._places[each["id"]]
        del self.nodes[nodes:]
        del self.edges[edges:]

    def leads_to(self, start: str, end: str) -> bool:
        """Return whether a path of edges leads from one node to another."""
        if start == end:
            return True
        following: dict[str, list[str]] = {}
        for each in self.edges:
            following.setdefault(each["src"], []).append(each["dst"])
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            each_id = waiting.pop()
            if each_id == end:
                return True
            if each_id not in seen:
                seen.add(each_id)
                waiting += following.get(each_id, [])
        return False

    def node(self, node_id: str) -> dict[str, Any]:
        return self.nodes[self._places[node_id]]

    def place(self, node_id: str) -> str:
        """Return the path of a node."""
        return f"nodes[{self._places[node_id]}]"

    def add_edge(
        self, src: str, dst: str, label: str | None = None, *, edge_id: str = "", is_error: bool = False
    ) -> str:
        """Add an edge; return its path. An error edge becomes the error branch of its source."""
        if len(self.edges) == LIMITS.edges:
            raise LimitExceededError("edges of the imported document", LIMITS.edges)
        edge: dict[str, Any] = {
            "id": _unused(edge_id or f"{src}-{dst}", self._edge_ids),
            "src": src,
            "dst": dst,
        }
        if label is not None:
            edge["label"] = label
        if is_error:
            edge["is_error"] = True
            self.node(src)["error"] = {"type": "branch", "error_edge": edge["id"]}
        self.edges.append(edge)
        return f"edges[{len(self.edges) - 1}]"

    def add_gap(
        self,
        node_id: str,
        reason: str,
        original: Any,
        *,
        name: str = "",
        position: Any = None,
        **metadata: Any,
    ) -> str:
        """Add a step that fails because it could not be imported, and keeps its original; return its path."""
        message = literal_text(f"not imported: {reason}"[:500])
        return self.add_node(
            node_id,
            "fail",
            {"message": message, "code": NOT_IMPORTED},
            name=name or None,
            error={"type": "halt"},
            position=position,
            metadata={**metadata, "original": original},
        )

    def document(self) -> dict[str, Any]:
        """Return the document."""
        result = dict(self._top)
        for key, value in (
            ("settings", self.settings),
            ("nodes", self.nodes),
            ("edges", self.edges),
            ("metadata", self.metadata),
            ("notes", self.notes),
        ):
            if value or key == "nodes":
                result[key] = value
        return result


def _unused(wanted: str, taken: set[str]) -> str:
    wanted = re.sub(r"[^A-Za-z0-9_-]+", "_", wanted)[:100] or "step"
    found, count = wanted, 1
    while found in taken:
        count += 1
        found = f"{wanted}_{count}"
    taken.add(found)
    return found
