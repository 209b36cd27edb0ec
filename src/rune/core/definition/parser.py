"""The dependency dialect: `handler`, `config` and `dependencies` beside `type`, `parameters` and `edges`.

Where each node and edge stands in the document it came from.

Text to definition: both dialects, every field checked, every problem reported at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from rune.core.definition import fields
from rune.core.definition import problems as codes
from rune.core.definition.fields import ID, Reader, slug
from rune.core.definition.model import Definition, Edge, ErrorPolicy, Node, Settings
from rune.core.definition.problems import Problem
from rune.core.definition.strict_json import Decoded, decode_json
from rune.core.limits import LIMITS, Limits

SYNONYMS = {"handler": "type", "config": "parameters"}
"""What the dependency dialect calls a field -> what the definition calls it."""


class DraftEdge(msgspec.Struct):
    """An edge that may not have an id yet, and where it stands in the document."""

    id: str | None
    src: str
    dst: str
    label: str | None
    is_error: bool
    place: str


def dependency_edges(node: str, dependencies: Sequence[str], place: str) -> Iterable[DraftEdge]:
    """The edges that a node's dependencies stand for, in their order."""
    for at, source in enumerate(dependencies):
        yield DraftEdge(None, source, node, None, False, f"{place}.dependencies[{at}]")


def named(drafts: Sequence[DraftEdge]) -> list[Edge]:
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


class SourceLocations(msgspec.Struct, frozen=True):
    """Document paths by index. A document may leave gaps (an entry that is no object is dropped), and an edge
    made from a dependency stands at its node, so neither can be told from the definition alone."""

    nodes: tuple[str, ...]
    edges: tuple[str, ...]

    @classmethod
    def of(cls, nodes: Sequence[Node], edges: Sequence[Edge]) -> SourceLocations:
        """The places of a definition in its canonical form."""
        return cls(
            tuple(f"nodes[{each}]" for each in range(len(nodes))),
            tuple(f"edges[{each}]" for each in range(len(edges))),
        )


NO_LOCATIONS = SourceLocations((), ())


class Parsed(msgspec.Struct, frozen=True):
    """What a document says. With problems the definition is as much of it as could be understood, so that the
    rest can be checked too; None if nothing could."""

    definition: Definition | None
    problems: tuple[Problem, ...] = ()
    places: SourceLocations = NO_LOCATIONS

    @property
    def refused(self) -> bool:
        """Is there a problem that is not a mere warning?"""
        return any(each.severity == "error" for each in self.problems)


def parse_document(data: bytes | str, *, suffix: str = "json", limits: Limits = LIMITS) -> Parsed:
    """Read a JSON document. YAML is read outside of the core and enters at `parse_data`."""
    if suffix != "json":
        return Parsed(None, (unknown_format(suffix),))
    decoded = decode_json(data, max_bytes=limits.definition_bytes, max_depth=limits.json_depth)
    return parse_data(decoded, limits=limits)


def parse_input(data: bytes | str, *, limits: Limits = LIMITS) -> Decoded:
    """Read a start payload: JSON within the limits."""
    return decode_json(data, max_bytes=limits.payload_bytes, max_depth=limits.json_depth, root="input")


def unknown_format(suffix: str) -> Problem:
    """The problem of a format that is neither JSON nor YAML."""
    return Problem(
        "", codes.UNKNOWN_FORMAT, f"`{suffix}` is no format for documents", "use `json`, `yaml` or `yml`"
    )


def parse_data(decoded: Decoded, *, limits: Limits = LIMITS) -> Parsed:
    """Read plain data: what JSON or YAML text was decoded to, with the problems found so far."""
    problems = list(decoded.problems)
    if any(each.code in _FATAL for each in problems):
        return Parsed(None, tuple(problems))
    return _Parser(problems, limits).document(decoded.value)


# Behind these the value is missing, or holds something that is no plain data.
_FATAL = frozenset(
    {
        codes.BAD_TEXT,
        codes.BAD_NUMBER,
        codes.NOT_JSON,
        codes.NOT_TEXT,
        codes.NOT_YAML,
        codes.TOO_DEEP,
        codes.TOO_LARGE,
        codes.ALIAS_REFUSED,
        codes.TAG_REFUSED,
    }
)

_DOCUMENT: Mapping[str, Reader] = {
    "id": fields.identifier,
    "name": fields.text,
    "inputs": fields.mapping,
    "settings": fields.settings,
    "nodes": fields.anything,
    "edges": fields.anything,
    "metadata": fields.anything,
    "notes": fields.anything,
}

_NODE: Mapping[str, Reader] = {
    "id": fields.identifier,
    "type": fields.word,
    "handler": fields.word,
    "name": fields.text,
    "parameters": fields.mapping,
    "config": fields.mapping,
    "dependencies": fields.texts,
    "credentials": fields.credentials,
    "retry": fields.retry,
    "timeout": fields.duration,
    "join": fields.one_of("all", "any"),
    "error": fields.error_policy,
    "queue": fields.identifier,
    "at_most_once": fields.flag,
    "idempotency_key": fields.flag,
    "trigger": fields.flag,
    "output": fields.anything,
    "position": fields.anything,
    "metadata": fields.anything,
    "notes": fields.anything,
}


def _label(value: Any, path: str, problems: list[Problem]) -> str | None:
    """Text; `true` and `false` too, which YAML reads as booleans."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return fields.text(value, path, problems)


def _is_error(value: Any, path: str, problems: list[Problem]) -> bool | None:
    if value == "error":
        return True
    if isinstance(value, bool):
        return value
    fields.wrong_type(value, "true, false or `error`", path, problems)
    return None


_EDGE: Mapping[str, Reader] = {
    "id": fields.identifier,
    "src": fields.word,
    "dst": fields.word,
    "label": _label,
    "is_error": _is_error,
}


class _Parser:
    def __init__(self, problems: list[Problem], limits: Limits) -> None:
        self._problems = problems
        self._limits = limits
        self._drafts: list[DraftEdge] = []

    def document(self, raw: Any) -> Parsed:
        top = fields.fields(raw, _DOCUMENT, "", self._problems)
        if top is None:
            return Parsed(None, tuple(self._problems))
        made_of = self._list(top, "nodes", self._limits.nodes)
        if not made_of and "nodes" not in top:
            self._report(
                "nodes", codes.NO_NODES, "a workflow needs `nodes`", "a list of objects with `id` and `type`"
            )
        elif top.get("nodes") == []:
            self._report("nodes", codes.NO_NODES, "a workflow needs at least one node")
        for at, each in enumerate(self._list(top, "edges", self._limits.edges)):
            self._edge(each, f"edges[{at}]")
        if not made_of and top.get("nodes"):  # without them every edge would seem to lead nowhere
            return Parsed(None, tuple(self._problems))
        nodes: list[Node] = []
        places: list[str] = []
        for at, each in enumerate(made_of):
            node = self._node(each, f"nodes[{at}]")
            if node is not None:
                nodes.append(node)
                places.append(f"nodes[{at}]")
        if len(self._drafts) > self._limits.edges:
            self._too_many("edges", len(self._drafts), self._limits.edges)
            return Parsed(None, tuple(self._problems))
        edges = self._policies(nodes, named(self._drafts), places)
        definition = Definition(
            id=top.get("id") or fields.slug(top.get("name", "")).lower() or "workflow",
            name=top.get("name", ""),
            inputs=top.get("inputs"),
            settings=top.get("settings") or Settings(),
            nodes=tuple(nodes),
            edges=tuple(edges),
            metadata=top.get("metadata"),
            notes=top.get("notes"),
        )
        return Parsed(
            definition,
            tuple(self._problems),
            SourceLocations(tuple(places), tuple(each.place for each in self._drafts)),
        )

    def _list(self, top: dict[str, Any], name: str, most: int) -> list[Any]:
        value = top.get(name, [])
        if not isinstance(value, list):
            fields.wrong_type(value, "a list", name, self._problems)
            return []
        if len(value) > most:
            self._too_many(name, len(value), most)
            return []
        return value

    def _node(self, raw: Any, place: str) -> Node | None:
        found = fields.fields(raw, _NODE, place, self._problems)
        if found is None:
            return None
        for other, name in SYNONYMS.items():
            if other in found:
                if found.setdefault(name, found[other]) != found[other]:
                    message = f"`{name}` and `{other}` both say the same thing, differently"
                    self._report(f"{place}.{other}", codes.CONFLICT, message, f"keep `{name}`")
                del found[other]
        for name, other in (("id", "id"), ("type", "handler")):
            if name not in found:
                found[name] = ""
                if raw.get(name) is None and raw.get(other) is None:
                    self._report(place, codes.MISSING_FIELD, f"`{name}` is required")
        dependencies = found.pop("dependencies", ())
        self._drafts.extend(dependency_edges(found["id"], dependencies, place))
        return Node(**found)

    def _edge(self, raw: Any, place: str) -> None:
        found = fields.fields(raw, _EDGE, place, self._problems)
        if found is None:
            return
        for name in ("src", "dst"):
            if raw.get(name) is None:
                self._report(place, codes.MISSING_FIELD, f"`{name}` is required", "the id of a node")
        self._drafts.append(
            DraftEdge(
                found.get("id"),
                found.get("src", ""),
                found.get("dst", ""),
                found.get("label"),
                found.get("is_error", False),
                place,
            )
        )

    def _policies(self, nodes: list[Node], edges: list[Edge], places: list[str]) -> list[Edge]:
        """Bring both ways of marking an error edge together: the edge says so, or its node names it."""
        marked: dict[str, list[str]] = {}
        for edge in edges:
            if edge.is_error:
                marked.setdefault(edge.src, []).append(edge.id)
        named_by: set[tuple[str, str | None]] = set()
        for at, node in enumerate(nodes):
            policy = node.error
            if policy is None:
                continue
            if policy.type == "branch" and policy.error_edge is None:
                policy = self._take_only(node, marked.get(node.id, []), places[at])
                nodes[at] = msgspec.structs.replace(node, error=policy)
            named_by.add((node.id, policy.error_edge))
        return [
            msgspec.structs.replace(edge, is_error=True) if (edge.src, edge.id) in named_by else edge
            for edge in edges
        ]

    def _take_only(self, node: Node, candidates: list[str], place: str) -> ErrorPolicy:
        if len(candidates) == 1:
            return ErrorPolicy(type="branch", error_edge=candidates[0])
        message = f"no error edge leaves `{node.id}`"
        if candidates:
            listed = ", ".join(f"`{each}`" for each in candidates)
            message = f"several error edges leave `{node.id}`: {listed}"
        hint = "name the edge to follow in `error.error_edge`"
        self._report(f"{place}.error", codes.NO_ERROR_EDGE, message, hint)
        return ErrorPolicy(type="branch")

    def _too_many(self, name: str, count: int, most: int) -> None:
        self._report(name, codes.TOO_MANY, f"{count:,} {name}, at most {most:,} are allowed")

    def _report(self, path: str, code: str, message: str, hint: str = "") -> None:
        self._problems.append(Problem(path, code, message, hint))
