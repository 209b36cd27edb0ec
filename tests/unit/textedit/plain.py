"""The actions of an editor on plain data, computed without the code that edits texts.

A document is kept with a mark in the place of every node id: in the node, in edges, and in the references of texts. A
rename gives a mark another name and changes nothing else. What follows from the language is stated here once more: an
expression with an unknown name does not compile, and the names in it stay as they are.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

from rune.documents.textedit.actions import Action

MARK = re.compile("\ue000[0-9]+\ue001")
MENTION = re.compile(r"(\$(?:node\.)?)([A-Za-z0-9_]+)(?![A-Za-z0-9_])")
ROOTS = frozenset({"trigger", "input", "item", "index", "json", "execution", "error", "node"})
BRACES = re.compile(r"\{\{.*?\}\}", re.DOTALL)

Raw = dict[str, Any]


class PlainDocument:
    """A document as plain data; `value` is what the text must say."""

    def __init__(self, value: Raw) -> None:
        self._names: dict[str, str] = {}
        self._value: Raw = {"nodes": []}
        marks = {each["id"]: self._new_mark(each["id"]) for each in value["nodes"]}
        self._value = copy.deepcopy(value)
        for node in self._value["nodes"]:
            node["id"] = marks[node["id"]]
        self._value["nodes"] = [self._marked_node(each) for each in self._value["nodes"]]
        if self._value.get("edges"):
            self._value["edges"] = [self._marked_edge(each) for each in self._value["edges"]]
        self._mark_error_edges()

    @property
    def value(self) -> Raw:
        found: Raw = _texts(self._value, lambda text, _: self._written(text))
        return found

    def apply(self, action: Action) -> None:
        getattr(self, f"_{action['do']}")(action)

    def _set(self, action: Action) -> None:
        path = action["path"]
        is_text = len(path) > 2 and path[0] == "nodes" and path[2] in {"parameters", "config"}
        value = copy.deepcopy(action["value"])
        self._owner(path)[path[-1]] = _texts(value, self._marked_text) if is_text else value

    def _remove(self, action: Action) -> None:
        del self._owner(action["path"])[action["path"][-1]]

    def _insert(self, action: Action) -> None:
        self._list(*action["path"]).append(action["value"])

    def _add_node(self, action: Action) -> None:
        node = copy.deepcopy(action["node"])
        node["id"] = self._new_mark(node["id"])
        self._list("nodes").insert(action.get("index", len(self._nodes)), node)
        self._nodes[self._nodes.index(node)] = self._marked_node(node)
        self._mark_error_edges()

    def _add_edge(self, action: Action) -> None:
        edges = self._list("edges")
        edges.insert(action.get("index", len(edges)), self._marked_edge(action["edge"]))

    def _remove_edge(self, action: Action) -> None:
        del self._value["edges"][action["index"]]

    def _move_node(self, action: Action) -> None:
        mark = self._mark_of(action["id"])
        next(each for each in self._nodes if each["id"] == mark)["position"] = action["position"]

    def _remove_node(self, action: Action) -> None:
        gone = self._mark_of(action["id"])
        self._value["nodes"] = [each for each in self._nodes if each["id"] != gone]
        if "edges" in self._value:
            kept = [each for each in self._value["edges"] if gone not in (each["src"], each["dst"])]
            self._value["edges"] = kept
        for node in self._nodes:
            if "dependencies" in node:
                node["dependencies"] = [each for each in node["dependencies"] if each != gone]

    def _rename_node(self, action: Action) -> None:
        mark = self._mark_of(action["id"])
        for node in self._nodes:
            for name in ("parameters", "config"):
                if isinstance(node.get(name), dict):
                    node[name] = _texts(node[name], lambda text, key: self._frozen(text, key, mark))
            policy = node.get("error")
            if isinstance(policy, dict) and mark in str(policy.get("error_edge")):
                policy["error_edge"] = self._frozen_edge(policy["error_edge"], mark)
        self._names[mark] = action["to"]

    @property
    def _nodes(self) -> list[Raw]:
        nodes: list[Raw] = self._value["nodes"]
        return nodes

    def _new_mark(self, name: str) -> str:
        mark = f"\ue000{len(self._names)}\ue001"
        self._names[mark] = name
        return mark

    def _mark_of(self, name: str) -> str:
        return self._marks()[name]

    def _marks(self) -> dict[str, str]:
        """Return the marks of the nodes that exist, by name."""
        return {self._names[each["id"]]: each["id"] for each in self._nodes}

    def _written(self, text: str) -> str:
        return MARK.sub(lambda found: self._names[found[0]], text)

    def _marked_node(self, node: Raw) -> Raw:
        marks = self._marks()
        made = dict(node)
        if "dependencies" in node:
            made["dependencies"] = [marks.get(each, each) for each in node["dependencies"]]
        for name in ("parameters", "config"):
            if isinstance(node.get(name), dict):
                made[name] = _texts(node[name], self._marked_text)
        return made

    def _marked_edge(self, edge: Raw) -> Raw:
        marks = self._marks()
        return {
            **edge,
            "src": marks.get(edge["src"], edge["src"]),
            "dst": marks.get(edge["dst"], edge["dst"]),
        }

    def _mark_error_edges(self) -> None:
        """Mark the ids of edges without an own one, `SRC-DST`, that error policies name."""
        generated = {
            self._written(f"{each['src']}-{each['dst']}"): f"{each['src']}-{each['dst']}"
            for each in self._value.get("edges") or []
            if "id" not in each
        }
        for node in self._nodes:
            policy = node.get("error")
            if isinstance(policy, dict) and "error_edge" in policy:
                policy["error_edge"] = generated.get(policy["error_edge"], policy["error_edge"])

    def _marked_text(self, text: str, _: str) -> str:
        marks = self._marks()
        return MENTION.sub(lambda found: found[1] + marks.get(found[2], found[2]), text)

    def _frozen(self, text: str, key: str, mark: str) -> str:
        """Return a text that a rename of a node must leave alone with the node's present name in it."""
        if mark not in text:
            return text
        expressions = [text] if key == "expression" else BRACES.findall(text)
        live = set(self._marks().values())
        is_broken = any(
            set(MARK.findall(each)) - live or {name for _, name in MENTION.findall(each)} - ROOTS
            for each in expressions
        )
        return text.replace(mark, self._names[mark]) if is_broken else text

    def _frozen_edge(self, id: str, mark: str) -> str:
        ids = {f"{each['src']}-{each['dst']}" for each in self._value.get("edges") or [] if "id" not in each}
        ids |= {f"{src}-{each['id']}" for each in self._nodes for src in each.get("dependencies") or []}
        return id if id in ids else id.replace(mark, self._names[mark])

    def _list(self, name: str) -> list[Any]:
        if not isinstance(self._value.get(name), list):
            self._value[name] = []
        found: list[Any] = self._value[name]
        return found

    def _owner(self, path: list[Any]) -> Any:
        found: Any = self._value
        for key in path[:-1]:
            found = found[key]
        return found


def _texts(value: Any, change: Callable[[str, str], str], key: str = "", depth: int = 0) -> Any:
    """Return a value with its texts changed. `change` gets a text and the name of the parameter that it is."""
    if isinstance(value, str):
        return change(value, key if depth == 1 else "")
    if isinstance(value, list):
        return [_texts(each, change, key, depth + 2) for each in value]
    if isinstance(value, dict):
        return {name: _texts(each, change, name, depth + 1) for name, each in value.items()}
    return value
