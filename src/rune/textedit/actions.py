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

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rune.textedit.document import Format, Path, SourceText, TextEdit, TextEditError, apply_edits, decode
from rune.textedit.renaming import renamed
from rune.textedit.updates import Editor, same, update

Action = Mapping[str, Any]


def act(text: str, action: Action, format: Format | None = None) -> str:
    """Return the text after an action."""
    source = SourceText(text, format)
    do = action.get("do")
    if do not in _ACTIONS:
        raise TextEditError(f"there is no action `{do}`; known: {', '.join(sorted(_ACTIONS))}")
    return _ACTIONS[do](source, action)


def _edited(source: SourceText, edits: list[TextEdit]) -> str:
    edited = apply_edits(source.text, edits)
    decode(edited, source.format)
    return edited


def _set(source: SourceText, action: Action) -> str:
    return _edited(source, Editor(source).put(tuple(action["path"]), action["value"]))


def _remove(source: SourceText, action: Action) -> str:
    return _edited(source, Editor(source).remove(tuple(action["path"])))


def _insert(source: SourceText, action: Action) -> str:
    path: Path = tuple(action["path"])
    owner = source.root.at(path)
    if owner is None and isinstance(path[-1], str):
        return _edited(source, Editor(source).put(path, [action["value"]]))
    index = action.get("index", len(owner.entries) if owner is not None else 0)
    return _edited(source, Editor(source).insert(path, index, action["value"]))


def _add_node(source: SourceText, action: Action) -> str:
    return _insert(source, {**action, "path": ["nodes"], "value": action["node"]})


def _add_edge(source: SourceText, action: Action) -> str:
    return _insert(source, {**action, "path": ["edges"], "value": action["edge"]})


def _remove_edge(source: SourceText, action: Action) -> str:
    return _remove(source, {"path": ["edges", action["index"]]})


def _move_node(source: SourceText, action: Action) -> str:
    path = ["nodes", _node_index(source.value, action["id"]), "position"]
    return _set(source, {"path": path, "value": action["position"]})


def _remove_node(source: SourceText, action: Action) -> str:
    gone = action["id"]
    _node_index(source.value, gone)
    value = dict(source.value)
    value["nodes"] = [
        _without_dependency(each, gone) for each in _entries(value, "nodes") if _field(each, "id") != gone
    ]
    if "edges" in value:
        value["edges"] = [
            each
            for each in _entries(value, "edges")
            if gone not in (_field(each, "src"), _field(each, "dst"))
        ]
    return update(source.text, value, source.format)


def _rename_node(source: SourceText, action: Action) -> str:
    _node_index(source.value, action["id"])
    value = renamed(source.value, {action["id"]: action["to"]})
    editor = Editor(source)
    edits = [
        edit for path, new in _changed_scalars(source.value, value, ()) for edit in editor.put(path, new)
    ]
    return _edited(source, edits)


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


def _without_dependency(node: Any, gone: str) -> Any:
    listed = _field(node, "dependencies")
    if not isinstance(listed, list) or gone not in listed:
        return node
    return {**node, "dependencies": [each for each in listed if each != gone]}


_ACTIONS: dict[str, Callable[[SourceText, Action], str]] = {
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
