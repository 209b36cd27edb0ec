"""The document that an importer builds, and the report: for each element of the source, what became of it.

Every entry covers the part of the source at its path and everything below. `Recorder.finish` adds an entry for each
part that no entry covers, and for each field that an entry covers but that was never read, so that nothing is dropped
in silence.

The document has unique ids, nodes, edges, and steps that could not be imported.
"""

from __future__ import annotations

import json
import re
from typing import Any, Literal

import msgspec

from rune.core.definition.problems import Problem
from rune.core.definition.strict_json import join
from rune.core.expr.names import ROOTS
from rune.core.limits import LIMITS
from rune.documents.importers.source import unread
from rune.errors import LimitExceededError

Status = Literal["carried", "changed", "approximated", "by_hand"]
STATUSES: tuple[Status, ...] = ("carried", "changed", "approximated", "by_hand")

Format = Literal["canvas", "n8n", "asl"]
FORMATS: tuple[Format, ...] = ("canvas", "n8n", "asl")


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of one element of the source.

    `source` and `target` are paths in the two documents; `target` is empty if nothing in the new document corresponds.
    `node` is the name of the node that the element belongs to, as the source has it.
    `carried`: the same meaning. `changed`: the same result, if what `hint` says is done. `approximated`: `message` says
    what differs at run time. `by_hand`: not imported; `message` says why, `hint` what to do.
    """

    source: str
    status: Status
    target: str = ""
    message: str = ""
    hint: str = ""
    node: str = ""


class Report(msgspec.Struct, frozen=True):
    """All entries in the order of the source, and the problems that `rune check` finds in the new document."""

    format: Format
    entries: tuple[Entry, ...]
    problems: tuple[Problem, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether everything was carried and the new document is valid."""
        return all(each.status == "carried" for each in self.entries) and not any(
            each.severity == "error" for each in self.problems
        )

    def counts(self) -> dict[Status, int]:
        """Return the number of entries by status."""
        found: dict[Status, int] = dict.fromkeys(STATUSES, 0)
        for each in self.entries:
            found[each.status] += 1
        return found


class Import(msgspec.Struct, frozen=True):
    """A new document, the report, Python source of custom nodes to implement (empty if there are none), and a test for
    `rune test` without its workflow (empty if the source has no pinned data)."""

    document: dict[str, Any]
    report: Report
    stubs: str = ""
    test: dict[str, Any] = {}


_NODE = re.compile(r"(workflow_data\.)?nodes\[(\d+)\]")


def with_names(found: Import, source: Any) -> Import:
    """Return an import whose entries name their nodes. People know a node by its name, not by its position."""
    graph = source.get("workflow_data", source) if isinstance(source, dict) else {}
    named = [_names(mapping(each).get("nodes")) for each in (graph, found.document)]
    entries = tuple(
        msgspec.structs.replace(each, node=_name_in(named[0], each.source) or _name_in(named[1], each.target))
        for each in found.report.entries
    )
    return msgspec.structs.replace(found, report=msgspec.structs.replace(found.report, entries=entries))


def _names(nodes: Any) -> list[str]:
    """Return what people call each node: its name, its label on a canvas, or its id."""
    found: list[str] = []
    for each in map(mapping, sequence(nodes)):
        given = (each.get("name"), mapping(each.get("data")).get("label"), each.get("id"))
        found.append(next((name for name in given if isinstance(name, str) and name), ""))
    return found


def _name_in(names: list[str], path: str) -> str:
    match = _NODE.match(path)
    return names[int(match[2])] if match is not None and int(match[2]) < len(names) else ""


class Recorder:
    """Collects the entries of a report while a source document is read."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self._entries: list[Entry] = []
        self._covered: set[str] = set()

    def add(self, source: str, status: Status, target: str = "", message: str = "", hint: str = "") -> None:
        self._covered.add(source)
        self._entries.append(Entry(source, status, target, message, hint))

    def has(self, source: str) -> bool:
        """Return whether an entry is at this path."""
        return source in self._covered

    def carried(self, source: str, target: str, message: str = "") -> None:
        self.add(source, "carried", target, message)

    def changed(self, source: str, target: str, message: str, hint: str = "") -> None:
        self.add(source, "changed", target, message, hint)

    def approximated(self, source: str, target: str, message: str, hint: str = "") -> None:
        self.add(source, "approximated", target, message, hint)

    def by_hand(self, source: str, message: str, hint: str, target: str = "") -> None:
        self.add(source, "by_hand", target, message, hint)

    def finish(self) -> tuple[Entry, ...]:
        """Return the entries in the order of the source, with one for each part that no entry covers."""
        order: dict[str, int] = {}
        for path in self._unread():
            self.by_hand(
                path, "the importer does not read this element", "check whether the workflow depends on it"
            )
        for path in uncovered(self._source, self._covered, order):
            self.by_hand(
                path,
                "the importer does not know this element",
                "check whether the workflow depends on it",
            )
        ranked = sorted(
            range(len(self._entries)),
            key=lambda at: (order.get(self._entries[at].source, len(order)), at),
        )
        return tuple(self._entries[at] for at in ranked)

    def _unread(self) -> list[str]:
        """Return the fields that count as imported only because of an entry above them, and that were never read. A
        message, or a place that keeps the original, tells what became of them."""
        entries: dict[str, list[Entry]] = {}
        for each in self._entries:
            entries.setdefault(each.source, []).append(each)
        return [path for path in unread("", self._source) if _is_claimed(path, entries)]


_KEPT = re.compile(r"(?:^|\.)(?:metadata|notes|position)\b")
"""Places of the new document that keep a part of the source as it is."""


def _is_claimed(path: str, entries: dict[str, list[Entry]]) -> bool:
    """Return whether the entries next above a path say that it was imported."""
    for at in range(len(path), 0, -1):
        if (at == len(path) or path[at] in ".[") and path[:at] in entries:
            return all(
                each.status != "by_hand" and not each.message and not _KEPT.search(each.target)
                for each in entries[path[:at]]
            )
    return False


def uncovered(source: Any, covered: set[str], order: dict[str, int] | None = None) -> list[str]:
    """Return the paths of the outermost parts of which nothing is covered. Nulls and empty parts hold no content.

    `order` receives the position of every visited path.
    """
    found: list[str] = []
    stack: list[tuple[str, Any, bool]] = [("", source, False)]
    holds_covered = _ancestors(covered)
    while stack:
        path, part, inside = stack.pop()
        if order is not None:
            order[path] = len(order)
        is_covered = inside or (path in covered and path != "")
        children = _children(path, part)
        if is_covered or (path and not is_empty(part) and (path not in holds_covered or not children)):
            if not is_covered:
                found.append(path)
            if order is not None:
                kept = [each for each in children if each[0] in covered or each[0] in holds_covered]
                stack.extend((*each, is_covered) for each in reversed(kept))
            continue
        stack.extend((*each, False) for each in reversed(children))
    return found


def _children(path: str, part: Any) -> list[tuple[str, Any]]:
    if isinstance(part, dict):
        return [(join(path, key), each) for key, each in dict.items(part)]
    if isinstance(part, list):
        return [(f"{path}[{at}]", each) for at, each in enumerate(part)]
    return []


def is_empty(part: Any) -> bool:
    """Return whether a part holds no content: null, or a container of nothing else."""
    stack = [part]
    while stack:
        each = stack.pop()
        if isinstance(each, dict):
            stack.extend(dict.values(each))
        elif isinstance(each, list):
            stack.extend(each)
        elif each is not None:
            return False
    return True


def _ancestors(paths: set[str]) -> set[str]:
    """Return every prefix of the paths that ends before a `.` or a `[`."""
    found: set[str] = set()
    for path in paths:
        for at, char in enumerate(path):
            if char in ".[":
                found.add(path[:at])
    return found


NOT_IMPORTED = "NOT_IMPORTED"
"""The error code of steps that could not be imported."""

_RESERVED = frozenset({*ROOTS, "node"})
_MAX_ID = 60
_MAX_ESCAPED = 20
"""Opening braces that are escaped one by one, each by an expression. A text with more becomes few long expressions."""

_QUOTED_CHARS = 1_000
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
    if text.count("{{") > _MAX_ESCAPED:
        parts = (text[at : at + _QUOTED_CHARS] for at in range(0, len(text), _QUOTED_CHARS))
        return "".join(f"{{{{ {json.dumps(each, ensure_ascii=False)} }}}}" for each in parts)
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
        self._node_ids: dict[str, int] = dict.fromkeys(_RESERVED, 1)
        self._edge_ids: dict[str, int] = {}
        self._places: dict[str, int] = {}
        self._following: dict[str, list[str]] = {}

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
        for each in self.edges[edges:]:
            self._following[each["src"]].pop()
        del self.nodes[nodes:]
        del self.edges[edges:]

    def leads_to(self, start: str, end: str) -> bool:
        """Return whether a path of edges leads from one node to another."""
        if start == end:
            return True
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            each_id = waiting.pop()
            if each_id == end:
                return True
            if each_id not in seen:
                seen.add(each_id)
                waiting += self._following.get(each_id, [])
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
        self._following.setdefault(src, []).append(dst)
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
        """Add a step that fails because it could not be imported, and keeps its original; return its path. It takes the
        place of a node with its id."""
        message = literal_text(f"not imported: {reason}"[:500])
        if node_id in self._places:
            return self._replace_by_gap(node_id, message, name, position, {**metadata, "original": original})
        return self.add_node(
            node_id,
            "fail",
            {"message": message, "code": NOT_IMPORTED},
            name=name or None,
            error={"type": "halt"},
            position=position,
            metadata={**metadata, "original": original},
        )

    def _replace_by_gap(
        self, node_id: str, message: str, name: str, position: Any, metadata: dict[str, Any]
    ) -> str:
        kept, at = self.nodes, self._places[node_id]
        self.nodes = []
        self.add_node(
            node_id,
            "fail",
            {"message": message, "code": NOT_IMPORTED},
            name=name or None,
            error={"type": "halt"},
            position=position,
            metadata=metadata,
        )
        kept[at] = self.nodes[0]
        self.nodes, self._places[node_id] = kept, at
        return f"nodes[{at}]"

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


def _unused(wanted: str, taken: dict[str, int]) -> str:
    """Return an id that is not taken. With each id is kept the last number behind it, so that the next one is found
    without trying all numbers before it."""
    wanted = re.sub(r"[^A-Za-z0-9_-]+", "_", wanted)[:100] or "step"
    found, count = wanted, taken.get(wanted, 0)
    while found in taken:
        count += 1
        found = f"{wanted}_{count}"
    taken[wanted] = max(count, 1)
    taken.setdefault(found, 1)
    return found
