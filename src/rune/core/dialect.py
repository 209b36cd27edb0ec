"""The dependency dialect: `handler`, `config` and `dependencies` beside `type`, `parameters` and `edges`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from rune.core.definition import Edge
from rune.core.fields import ID, slug

SYNONYMS = {"handler": "type", "config": "parameters"}
"""What the dependency dialect calls a field -> what the definition calls it."""


class Draft(msgspec.Struct):
    """An edge that may not have an id yet, and where it stands in the document."""

    id: str | None
    src: str
    dst: str
    label: str | None
    is_error: bool
    place: str


def dependency_edges(node: str, dependencies: Sequence[str], place: str) -> Iterable[Draft]:
    """The edges that a node's dependencies stand for, in their order."""
    for at, source in enumerate(dependencies):
        yield Draft(None, source, node, None, False, f"{place}.dependencies[{at}]")


def named(drafts: Sequence[Draft]) -> list[Edge]:
    """Edges with an id each. Ids made up here depend on the document alone and avoid those written in it."""
    taken: set[str | None] = {draft.id for draft in drafts if draft.id is not None}
    edges: list[Edge] = []
    for draft in drafts:
        edge_id = draft.id
        if edge_id is None:
            edge_id = _free(draft.src, draft.dst, taken)
            taken.add(edge_id)
        edges.append(
            Edge(id=edge_id, src=draft.src, dst=draft.dst, label=draft.label, is_error=draft.is_error)
        )
    return edges


def _free(src: str, dst: str, taken: set[str | None]) -> str:
    wished = f"{src}-{dst}"
    if not ID.match(wished):
        wished = slug(wished) or "edge"
    found, count = wished, 1
    while found in taken:
        count += 1
        found = f"{wished}-{count}"
    return found
