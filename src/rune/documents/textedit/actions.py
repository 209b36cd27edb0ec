"""The actions of an editor on a workflow document, as text edits.

An action is plain data: `{"do": NAME, …}`. The corpus of cases in `tests/unit/textedit/cases` specifies each of them
as `(text, action, text)`, for every implementation.

| do | fields |
|---|---|
| `set` | `path`, `value`: change a value, or add a key to an object |
| `remove` | `path`: remove a key or an element, with its comments |
| `insert` | `path` of a list, `index` (default: the end), `value` |
| `add_node` | `node`, `index` (default: the end) |
| `remove_node` | `id`: the node, its edges and its place in `dependencies` |
| `rename_node` | `id`, `to`: the node, its edges and all references to it |
| `move_node` | `id`, `position` |
| `add_edge` | `edge`, `index` (default: the end) |
| `remove_edge` | `index`: position in `edges` |
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rune.core.definition.parser import parse_data
from rune.core.definition.strict_json import Decoded
from rune.core.expr import ExpressionSyntaxError, ExpressionSyntaxErrors, Names, Reference, compile_template
from rune.core.expr.expression import compile_expression
from rune.core.plan.compiler import names_of
from rune.documents.textedit.document import (
    Format,
    Path,
    SourceText,
    TextEdit,
    TextEditError,
    apply_edits,
    decode,
)
from rune.documents.textedit.updates import Editor, same

Action = Mapping[str, Any]

Ids = Mapping[str, str]
"""Old id -> new id."""

_EDGE_PARAMETERS = frozenset({"true_edge_id", "false_edge_id", "routes"})


def act(text: str, action: Action, format: Format | None = None) -> str:
    """Return the text after an action."""
    source = SourceText(text, format)
    edited = apply_edits(source.text, edits_of(source, action))
    decode(edited, source.format)
    return edited


def edits_of(source: SourceText, action: Action) -> list[TextEdit]:
    """Return the text edits of an action."""
    do = action.get("do")
    if do not in _ACTIONS:
        raise TextEditError(f"there is no action `{do}`; known: {', '.join(sorted(_ACTIONS))}")
    return _ACTIONS[do](source, action)


def _set(source: SourceText, action: Action) -> list[TextEdit]:
    return Editor(source).put(tuple(action["path"]), action["value"])


def _remove(source: SourceText, action: Action) -> list[TextEdit]:
    return Editor(source).remove(tuple(action["path"]))


def _insert(source: SourceText, action: Action) -> list[TextEdit]:
    path: Path = tuple(action["path"])
    owner = source.root.at(path)
    if owner is None and isinstance(path[-1], str):
        return Editor(source).put(path, [action["value"]])
    index = action.get("index", len(owner.entries) if owner is not None else 0)
    return Editor(source).insert(path, index, action["value"])


def _add_node(source: SourceText, action: Action) -> list[TextEdit]:
    return _insert(source, {**action, "path": ["nodes"], "value": action["node"]})


def _add_edge(source: SourceText, action: Action) -> list[TextEdit]:
    return _insert(source, {**action, "path": ["edges"], "value": action["edge"]})


def _remove_edge(source: SourceText, action: Action) -> list[TextEdit]:
    return _remove(source, {"path": ["edges", action["index"]]})


def _move_node(source: SourceText, action: Action) -> list[TextEdit]:
    path = ["nodes", _node_index(source.value, action["id"]), "position"]
    return _set(source, {"path": path, "value": action["position"]})


def _remove_node(source: SourceText, action: Action) -> list[TextEdit]:
    gone = action["id"]
    _node_index(source.value, gone)
    editor = Editor(source)
    nodes, edges = _entries(source.value, "nodes"), _entries(source.value, "edges")
    edits = editor.remove_elements(
        ("nodes",), [at for at, each in enumerate(nodes) if _field(each, "id") == gone]
    )
    touching = [at for at, each in enumerate(edges) if gone in (_field(each, "src"), _field(each, "dst"))]
    if touching:
        edits += editor.remove_elements(("edges",), touching)
    for at, node in enumerate(nodes):
        listed = _field(node, "dependencies")
        if _field(node, "id") != gone and isinstance(listed, list) and gone in listed:
            named = [index for index, each in enumerate(listed) if each == gone]
            edits += editor.remove_elements(("nodes", at, "dependencies"), named)
    return edits


def _rename_node(source: SourceText, action: Action) -> list[TextEdit]:
    _node_index(source.value, action["id"])
    value = renamed(source.value, {action["id"]: action["to"]})
    editor = Editor(source)
    return [edit for path, new in _changed_scalars(source.value, value, ()) for edit in editor.put(path, new)]


def _changed_scalars(old: Any, new: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """Yield the scalars that differ between two values of the same shape."""
    if isinstance(old, dict):
        for key in old:
            yield from _changed_scalars(old[key], new[key], (*path, key))
    elif isinstance(old, list):
        for at, each in enumerate(old):
            yield from _changed_scalars(each, new[at], (*path, at))
    elif not same(old, new):
        yield path, new


def _node_index(value: Any, id: str) -> int:
    for at, each in enumerate(_entries(value, "nodes")):
        if _field(each, "id") == id:
            return at
    raise TextEditError(f"the document has no node `{id}`")


def _entries(value: Any, name: str) -> list[Any]:
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, list) else []


def _field(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


_ACTIONS: dict[str, Callable[[SourceText, Action], list[TextEdit]]] = {
    "set": _set,
    "remove": _remove,
    "insert": _insert,
    "add_node": _add_node,
    "remove_node": _remove_node,
    "rename_node": _rename_node,
    "move_node": _move_node,
    "add_edge": _add_edge,
    "remove_edge": _remove_edge,
}


def renamed(document: Any, ids: Ids) -> Any:
    """Return the document with nodes renamed. References in texts that do not compile stay as they are."""
    before = parse_data(Decoded(document)).definition
    names = names_of(before) if before is not None else Names(frozenset(ids), {})
    made = dict(document)
    made["nodes"] = [_node(each, ids, names) for each in document.get("nodes") or []]
    if document.get("edges"):
        made["edges"] = [_edge(each, ids) for each in document["edges"]]
    after = parse_data(Decoded(made)).definition
    if before is None or after is None or len(before.edges) != len(after.edges):
        return made
    # The generated id of an edge contains the ids of its nodes.
    edges = {old.id: new.id for old, new in zip(before.edges, after.edges, strict=True) if old.id != new.id}
    return with_edge_ids(made, edges) if edges else made


def with_edge_ids(document: Any, ids: Ids) -> Any:
    """Return the document with edge ids replaced wherever a node names an edge."""
    return {**document, "nodes": [_node_with_edge_ids(each, ids) for each in document["nodes"]]}


def _node_with_edge_ids(node: Any, ids: Ids) -> Any:
    if not isinstance(node, dict):
        return node
    made = dict(node)
    policy = node.get("error")
    if isinstance(policy, dict) and isinstance(policy.get("error_edge"), str):
        made["error"] = {**policy, "error_edge": ids.get(policy["error_edge"], policy["error_edge"])}
    for name in ("parameters", "config"):
        if isinstance(node.get(name), dict):
            made[name] = {
                key: _edge_names(each, ids) if key in _EDGE_PARAMETERS else each
                for key, each in node[name].items()
            }
    return made


def _edge_names(value: Any, ids: Ids) -> Any:
    if isinstance(value, list):
        return [_edge_names(each, ids) for each in value]
    return ids.get(value, value) if isinstance(value, str) else value


def _edge(edge: Any, ids: Ids) -> Any:
    if not isinstance(edge, dict):
        return edge
    return {
        key: ids.get(each, each) if key in ("src", "dst") and isinstance(each, str) else each
        for key, each in edge.items()
    }


def _node(node: Any, ids: Ids, names: Names) -> Any:
    if not isinstance(node, dict):
        return node
    made = dict(node)
    if isinstance(node.get("id"), str):
        made["id"] = ids.get(node["id"], node["id"])
    if isinstance(node.get("dependencies"), list):
        made["dependencies"] = [
            ids.get(each, each) if isinstance(each, str) else each for each in node["dependencies"]
        ]
    for name in ("parameters", "config"):
        if isinstance(node.get(name), dict):
            made[name] = {
                key: _value(each, ids, names, whole=key == "expression") for key, each in node[name].items()
            }
    return made


def _value(value: Any, ids: Ids, names: Names, *, whole: bool) -> Any:
    if isinstance(value, dict):
        return {key: _value(each, ids, names, whole=False) for key, each in value.items()}
    if isinstance(value, list):
        return [_value(each, ids, names, whole=False) for each in value]
    return _text(value, ids, names, whole=whole) if isinstance(value, str) else value


def _text(text: str, ids: Ids, names: Names, *, whole: bool) -> str:
    """Rename the references of a text, from its end, so that earlier offsets stay correct."""
    found = {each.offset: each.root[1:] for each in _references(text, names, whole=whole)}
    for at in sorted(found, reverse=True):
        id = found[at]
        if id not in ids:
            continue
        for prefix in (f"${id}", f"$node.{id}", id):
            if text.startswith(prefix, at):
                text = text[:at] + prefix.removesuffix(id) + ids[id] + text[at + len(prefix) :]
                break
    return text


def _references(text: str, names: Names, *, whole: bool) -> list[Reference]:
    """Return the references of a template, or of a parameter whose whole text is an expression."""
    with contextlib.suppress(ExpressionSyntaxError, ExpressionSyntaxErrors):
        if whole:
            return list(compile_expression(text, names).references)
        return list(compile_template(text, names).references)
    return []
