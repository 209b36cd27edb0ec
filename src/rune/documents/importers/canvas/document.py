"""Import documents of the Go engine's canvas editor: nodes with `data`, edges with `source`, `target`, `sourceHandle`.

References in that format use the label of a node, written as a word: `$Fetch_users.body`. The label therefore becomes
the id. `$json` is the list or object that the last `edit`, `filter`, `sort` or `limit` before a node has made.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from rune.core.definition.strict_json import join
from rune.documents.importers.canvas.conditions import NoCounterpartError
from rune.documents.importers.canvas.data import DataReader
from rune.documents.importers.draft import (
    Draft,
    Import,
    Recorder,
    Report,
    is_empty,
    mapping,
    sequence,
    slug,
)
from rune.documents.importers.javascript import UntranslatableError

_KEPT_FIELDS = (
    "description",
    "category",
    "icon",
    "tags",
    "author",
    "official",
    "viewport",
    "id",
    "version",
)
"""Fields of a document that are carried over to the metadata."""

_MAKES_JSON = frozenset({"edit", "filter", "sort", "limit"})
_LISTS = frozenset({"filter", "sort", "limit"})
# Fields of nodes and edges that only the drawing uses.
_DRAWN = frozenset(
    [
        "measured",
        "width",
        "height",
        "selected",
        "dragging",
        "positionAbsolute",
        "style",
        "className",
        "zIndex",
        "draggable",
        "selectable",
        "hidden",
        "sourcePosition",
        "targetPosition",
        "animated",
        "labelStyle",
        "labelShowBg",
        "labelBgStyle",
        "labelBgPadding",
        "labelBgBorderRadius",
        "markerEnd",
        "markerStart",
        "interactionWidth",
        "targetHandle",
        "reconnectable",
        "focusable",
    ]
)


def import_canvas(source: Any, *, name: str = "") -> Import:
    """Import a canvas document: `{nodes, edges}`, alone or under `workflow_data` of a template."""
    return CanvasDocument(source, name).run()


def is_canvas(source: Any) -> bool:
    graph = source.get("workflow_data", source) if isinstance(source, dict) else None
    if not isinstance(graph, dict) or not isinstance(graph.get("nodes"), list):
        return False
    nodes = [each for each in graph["nodes"] if isinstance(each, dict)]
    edges = [each for each in sequence(graph.get("edges")) if isinstance(each, dict)]
    return any("source" in each and "target" in each for each in edges) or any(
        "data" in each and "parameters" not in each for each in nodes
    )


class CanvasDocument:
    def __init__(self, source: Any, name: str) -> None:
        self._source = source
        self._record = Recorder(source)
        is_template = isinstance(source.get("workflow_data"), dict)
        self._graph: dict[str, Any] = source["workflow_data"] if is_template else source
        self._root = "workflow_data." if is_template else ""
        title = source.get("name") if isinstance(source.get("name"), str) else name
        self._draft = Draft(str(source.get("external_id") or title or "workflow"), title)
        self._ids: dict[str, str] = {}  # canvas id -> node id
        self._placed: dict[str, str] = {}  # path -> node id
        self._words: dict[str, str] = {}  # label as a word -> node id
        self._kinds: dict[str, str] = {}  # node id -> canvas type
        self._before: dict[str, list[str]] = {}  # node id -> predecessors
        self._labelled: Counter[tuple[str, str]] = Counter()  # edges by source and outlet
        self._made: dict[str, dict[str, None]] | None = None

    def run(self) -> Import:
        self._read_top()
        nodes = [each for each in self._parts("nodes") if self._is_step(*each)]
        for path, node in nodes:
            self._name_node(path, node)
        edges = self._parts("edges")
        for _, edge in edges:
            src, dst = (self._ids.get(str(edge.get(end))) for end in ("source", "target"))
            if src and dst:
                self._before.setdefault(dst, []).append(src)
        for path, node in nodes:
            self._read_node(path, node)
        for path, edge in edges:
            self._read_edge(path, edge)
        entries = self._record.finish()
        return Import(self._draft.document(), Report("canvas", entries))

    # Parts of the document

    def _parts(self, key: str) -> list[tuple[str, dict[str, Any]]]:
        found = self._graph.get(key)
        items = found if isinstance(found, list) else []
        return [(f"{self._root}{key}[{at}]", each) for at, each in enumerate(items) if isinstance(each, dict)]

    def _read_top(self) -> None:
        source, kept = self._source, {}
        if isinstance(source.get("name"), str):
            self._record.carried("name", "name")
        if source.get("external_id"):
            self._record.carried("external_id", "id")
        for key in _KEPT_FIELDS:
            for holder, root in ((source, ""), (self._graph, self._root)):
                if key in holder and not is_empty(holder[key]) and (key != "id" or holder is source):
                    kept[key] = holder[key]
                    self._record.carried(join(root.rstrip("."), key), f"metadata.canvas.{key}")
        if kept:
            self._draft.metadata["canvas"] = kept
        for at, note in enumerate(sequence(self._graph.get("notes"))):
            self._draft.notes.append(note)
            self._record.carried(f"{self._root}notes[{at}]", f"notes[{len(self._draft.notes) - 1}]")

    def _is_step(self, path: str, node: dict[str, Any]) -> bool:
        if node.get("type") != "stickyNote":
            return True
        self._draft.notes.append(node)
        self._record.carried(path, f"notes[{len(self._draft.notes) - 1}]", "a note of the drawing")
        return False

    def _name_node(self, path: str, node: dict[str, Any]) -> None:
        data = mapping(node.get("data"))
        kind = str(node.get("type") or "")
        label = data["label"] if isinstance(data.get("label"), str) else ""
        word = _word(label) or _word(kind[:1].upper() + kind[1:]) or "step"
        node_id = self._draft.new_id(word)
        self._ids.setdefault(str(node.get("id")), node_id)
        self._words.setdefault(word, node_id)
        self._kinds[node_id] = kind
        self._placed[path] = node_id

    def _read_node(self, path: str, node: dict[str, Any]) -> None:
        node_id = self._placed[path]
        data = mapping(node.get("data"))
        kind = str(node.get("type") or "")
        kept = {key: node[key] for key in node if key in _DRAWN}
        fields: dict[str, Any] = {"name": data.get("label") if isinstance(data.get("label"), str) else None}
        if "position" in node:
            fields["position"] = node["position"]
        reader = DataReader(self, path, node_id, kind, data)
        try:
            target_type, parameters = reader.read()
        except (NoCounterpartError, UntranslatableError) as error:
            place = self._draft.add_gap(
                node_id, str(error), node, name=fields["name"] or "", position=fields.get("position")
            )
            self._record.by_hand(
                path,
                str(error),
                "replace the node by a node of Rune, or by a custom node",
                place,
            )
            return
        metadata = {
            "canvas": {
                "id": node.get("id"),
                **kept,
                **({"pinned": data["pinned"]} if "pinned" in data else {}),
            }
        }
        place = self._draft.add_node(node_id, target_type, parameters, **fields, metadata=metadata)
        note = (
            "" if node.get("id") == node_id else f"the id is `{node_id}`, by which expressions name the node"
        )
        self._record.carried(f"{path}.id", f"{place}.id", note)
        self._record.carried(f"{path}.type", f"{place}.type")
        if "position" in node:
            self._record.carried(f"{path}.position", f"{place}.position")
        for key in kept:
            self._record.carried(join(path, key), f"{place}.metadata.canvas.{key}")
        if node.get("trigger") is not None:
            self._record.carried(f"{path}.trigger", f"{place}.type")
        for key, name in (("label", "name"), ("pinned", "metadata.canvas.pinned")):
            if key in data:
                self._record.carried(f"{path}.data.{key}", f"{place}.{name}")
        for source, status, target, message, hint in reader.entries:
            self._record.add(source, status, f"{place}.{target}" if target else "", message, hint)
        if isinstance(data.get("credential"), dict):
            self._read_credential(path, place, node_id, data["credential"])

    def _read_credential(self, path: str, place: str, node_id: str, given: dict[str, Any]) -> None:
        reference = {key: str(given[key]) for key in ("name", "type") if given.get(key)}
        if "name" not in reference:
            reference = {"name": f"credential-{given.get('id', node_id)}", **reference}
        self._draft.node(node_id)["credentials"] = reference
        self._record.changed(
            f"{path}.data.credential",
            f"{place}.credentials",
            "a document names a credential and never contains it",
            f"create the credential `{reference['name']}` with `rune credentials`",
        )

    # Edges

    def _read_edge(self, path: str, edge: dict[str, Any]) -> None:
        src, dst = (self._ids.get(str(edge.get(end))) for end in ("source", "target"))
        if src is None or dst is None:
            missing = edge.get("source") if src is None else edge.get("target")
            self._record.by_hand(
                path, f"the edge names `{missing}`, which is no node", "remove the edge, or name a node"
            )
            return
        label = self._outlet(path, edge, src)
        place = self._draft.add_edge(src, dst, label, edge_id=slug(str(edge.get("id") or f"{src}-{dst}")))
        for key, field in (("id", "id"), ("source", "src"), ("target", "dst")):
            if key in edge:
                self._record.carried(f"{path}.{key}", f"{place}.{field}")
        kept = {key: each for key, each in edge.items() if key in _DRAWN or key == "type"}
        if kept:
            drawn = self._draft.metadata.setdefault("canvas", {}).setdefault("edges", {})
            edge_id = self._draft.edges[-1]["id"]
            drawn[edge_id] = kept
            for key in kept:
                self._record.carried(join(path, key), f"metadata.canvas.edges.{edge_id}.{key}")
        if label is None:
            for key in ("sourceHandle", "label"):
                if edge.get(key) is not None:
                    self._record.carried(f"{path}.{key}", place, "the source node has one outlet")
            return
        self._labelled[src, label] += 1
        for key in ("sourceHandle", "label"):
            if edge.get(key) is None:
                continue
            if self._labelled[src, label] > 1:
                self._record.approximated(
                    f"{path}.{key}",
                    f"{place}.label",
                    f"the source engine follows only the first edge of `{label}`",
                )
            else:
                self._record.carried(f"{path}.{key}", f"{place}.label")

    def _outlet(self, path: str, edge: dict[str, Any], src: str) -> str | None:
        handle = str(edge.get("sourceHandle") or edge.get("label") or "").strip().lower()
        kind = self._kinds.get(src)
        if kind == "if":
            return handle if handle in ("true", "false") else None
        if kind != "switch":
            return None
        found = re.fullmatch(r"(?:switch-case-(\d+)|case (\d+))", handle)
        if found:
            return f"case_{found[1] if found[1] else int(found[2]) - 1}"
        return "fallback" if handle in ("switch-fallback", "fallback") else None

    # References

    def working_value(self, node_id: str) -> str:
        """Return the expression for `$json` in a node."""
        if self._made is None:
            self._made = self._find_made()
        found = self._made.get(node_id, {})
        if len(found) > 1:
            raise NoCounterpartError("`$json` is made by several nodes before this one")
        return next(iter(found), "$trigger")

    def _find_made(self) -> dict[str, dict[str, None]]:
        """Return the expressions for `$json` by node, of several the first two. They are passed on along the edges
        from the nodes that make them, once for the whole document: each node receives at most two."""
        found: dict[str, dict[str, None]] = {}
        after: dict[str, list[str]] = {}
        for node_id, sources in self._before.items():
            for each in sources:
                after.setdefault(each, []).append(node_id)
        waiting = [(each, made) for each in self._kinds if (made := self._maker(each)) is not None]
        while waiting:
            source, made = waiting.pop()
            for node_id in after.get(source, ()):
                known = found.setdefault(node_id, {})
                if made not in known and len(known) < 2:
                    known[made] = None
                    if self._maker(node_id) is None:
                        waiting.append((node_id, made))
        return found

    def _maker(self, node_id: str) -> str | None:
        """Return the expression for what a node makes `$json`; None if it does not."""
        kind = self._kinds.get(node_id)
        if kind == "split":
            return "$item"
        if kind not in _MAKES_JSON:
            return None
        return f"${node_id}.items" if kind in _LISTS else f"${node_id}"

    def reference(self, node_id: str, root: str, path: str) -> str | None:
        """Return the expression for `$root.path`; None if the root is no name of the document."""
        if root in ("item", "index", "trigger"):
            return f"${root}{path}"
        if root == "json":
            return self.working_value(node_id) + path
        # An id may contain dashes, so that a reference may be followed by one.
        target = self._words.get(root)
        if target is None:
            return None
        if self._kinds[target] in _MAKES_JSON and path.startswith(".$json"):
            return (
                f"${target}{'.items' if self._kinds[target] in _LISTS else ''}{path.removeprefix('.$json')}"
            )
        return f"${target}{path}"


def _word(label: str) -> str:
    """Write a label as the word that references use."""
    word = re.sub(r"_+", "_", re.sub(r"[^a-zA-Z0-9_-]", "_", re.sub(r"\s+", "_", label.strip())))
    return re.sub(r"^[-0-9]+", "", word)
