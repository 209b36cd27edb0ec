"""Compose workflows: copy one into another, and add the edges that references imply."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rune.core.definition.parser import parse_data
from rune.core.definition.strict_json import Decoded, walk
from rune.core.expr import ExpressionSyntaxError, ExpressionSyntaxErrors, Names, compile_template
from rune.core.expr.expression import compile_expression
from rune.core.plan.compiler import names_of
from rune.core.plan.graph import ancestors, build_graph
from rune.errors import InvalidDocumentError
from rune.textedit.renaming import renamed, with_edge_ids


def prefixed(document: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Return a document whose nodes and edges have ids with a prefix, in references too."""
    if not prefix:
        return document
    ids = {
        each["id"]: prefix + each["id"]
        for each in document.get("nodes") or []
        if isinstance(each, dict) and isinstance(each.get("id"), str)
    }
    made: dict[str, Any] = renamed(document, ids)
    edges = {
        each["id"]: prefix + each["id"]
        for each in made.get("edges") or []
        if isinstance(each, dict) and isinstance(each.get("id"), str)
    }
    made = with_edge_ids(made, edges)
    if "edges" in made:
        made["edges"] = [
            {**each, "id": edges[each["id"]]} if each.get("id") in edges else each for each in made["edges"]
        ]
    return made


def missing_edges(document: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the edges to add so that every node that is mentioned comes before the node that mentions it."""
    parsed = parse_data(Decoded(document))
    definition = parsed.definition
    if definition is None:
        raise InvalidDocumentError(parsed.problems)
    graph = build_graph([node.id for node in definition.nodes], definition.edges)
    before = ancestors(graph)
    names = names_of(definition)
    found: list[tuple[str, str]] = []
    for at, node in enumerate(definition.nodes):
        for id in dict.fromkeys(_mentioned(node.parameters, names)):
            source = graph.index.get(id)
            if source is not None and source != at and not before[at] >> source & 1:
                found.append((id, node.id))
    return found


def _mentioned(parameters: Any, names: Names) -> Iterator[str]:
    """Yield the ids of the nodes that parameters refer to."""
    for path, value in walk(parameters):
        if not isinstance(value, str):
            continue
        try:
            whole = path == "expression"
            compiled = compile_expression(value, names) if whole else compile_template(value, names)
        except (ExpressionSyntaxError, ExpressionSyntaxErrors):
            continue
        yield from (each.root[1:] for each in compiled.references)
