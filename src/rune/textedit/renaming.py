"""Rename nodes of a document in plain data: their ids, their edges, and every reference in parameters."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from rune.core.definition.parser import parse_data
from rune.core.definition.strict_json import Decoded
from rune.core.expr import ExpressionSyntaxError, ExpressionSyntaxErrors, Names, Reference, compile_template
from rune.core.expr.expression import compile_expression
from rune.core.plan.compiler import names_of

Ids = Mapping[str, str]
"""Old id -> new id."""

_EDGE_PARAMETERS = frozenset({"true_edge_id", "false_edge_id", "routes"})


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
