"""Parse a document into a definition. Every field is checked, and all problems are reported together.

Two dialects are accepted and may be mixed: `type`, `parameters` and `edges`, or `handler`, `config` and
`dependencies`. The parser records the document path of each node and edge, so that later checks can report it. A parsed
document may be given pins: outputs of nodes, so that these nodes are not called.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from rune.core.definition import fields
from rune.core.definition import problems as codes
from rune.core.definition.fields import ID, Reader, slug
from rune.core.definition.model import Definition, Edge, ErrorPolicy, Node, Pin, Settings, canonical
from rune.core.definition.problems import Problem, did_you_mean
from rune.core.definition.strict_json import Decoded, decode_json
from rune.core.limits import LIMITS, Limits

SYNONYMS = {"handler": "type", "config": "parameters"}
"""Field of the dependency dialect -> field of the definition."""


class DraftEdge(msgspec.Struct):
    """An edge that may not have an id yet, and its path in the document."""

    id: str | None
    src: str
    dst: str
    label: str | None
    is_error: bool
    place: str


def dependency_edges(node: str, dependencies: Sequence[str], place: str) -> Iterable[DraftEdge]:
    """Return the edges that the dependencies of a node denote, in order."""
    for at, source in enumerate(dependencies):
        yield DraftEdge(None, source, node, None, False, f"{place}.dependencies[{at}]")


def with_ids(drafts: Sequence[DraftEdge]) -> list[Edge]:
    """Give every edge an id. Generated ids are deterministic and avoid those in the document."""
    taken: set[str | None] = {draft.id for draft in drafts if draft.id is not None}
    edges: list[Edge] = []
    for draft in drafts:
        edge_id = draft.id
        if edge_id is None:
            edge_id = _free_id(draft.src, draft.dst, taken)
            taken.add(edge_id)
        edges.append(
            Edge(id=edge_id, src=draft.src, dst=draft.dst, label=draft.label, is_error=draft.is_error)
        )
    return edges


def _free_id(src: str, dst: str, taken: set[str | None]) -> str:
    wanted = f"{src}-{dst}"
    if not ID.match(wanted):
        wanted = slug(wanted) or "edge"
    found, count = wanted, 1
    while found in taken:
        count += 1
        found = f"{wanted}-{count}"
    return found


class SourceLocations(msgspec.Struct, frozen=True):
    """Document paths by index.

    They cannot be derived from the definition: entries that are not objects are dropped, and an edge made from a
    dependency has the path of its node.
    """

    nodes: tuple[str, ...]
    edges: tuple[str, ...]

    @classmethod
    def of(cls, nodes: Sequence[Node], edges: Sequence[Edge]) -> SourceLocations:
        """Return the paths of a definition in canonical form."""
        return cls(
            tuple(f"nodes[{each}]" for each in range(len(nodes))),
            tuple(f"edges[{each}]" for each in range(len(edges))),
        )


NO_LOCATIONS = SourceLocations((), ())


class SourceText(msgspec.Struct, frozen=True):
    """The text of a document. `suffix` is its format, `name` the file it was read from."""

    data: bytes
    suffix: str = "json"
    name: str = ""


class Parsed(msgspec.Struct, frozen=True):
    """A parsed document. With problems, the definition holds the parts that could be read, so that these are checked
    too; None if no part could. `source` is None if the document was not read from text."""

    definition: Definition | None
    problems: tuple[Problem, ...] = ()
    places: SourceLocations = NO_LOCATIONS
    source: SourceText | None = None

    @property
    def refused(self) -> bool:
        """Whether a problem is more than a warning."""
        return any(each.severity == "error" for each in self.problems)


def parse_document(data: bytes | str, *, suffix: str = "json", limits: Limits = LIMITS) -> Parsed:
    """Read a JSON document. YAML is decoded outside the core and passed to `parse_data`."""
    if suffix != "json":
        return Parsed(None, (unknown_format(suffix),))
    decoded = decode_json(data, max_bytes=limits.definition_bytes, max_depth=limits.json_depth)
    return parse_data(decoded, limits=limits)


def unknown_format(suffix: str) -> Problem:
    return Problem(
        "", codes.UNKNOWN_FORMAT, f"`{suffix}` is not a document format", "use `json`, `yaml` or `yml`"
    )


def parse_data(decoded: Decoded, *, limits: Limits = LIMITS) -> Parsed:
    """Read decoded JSON or YAML, with the problems found while decoding."""
    problems = list(decoded.problems)
    if any(each.code in _FATAL for each in problems):
        return Parsed(None, tuple(problems))
    return _Parser(problems, limits).document(decoded.value)


# After these problems the value is missing or is not plain data.
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
    "pin": fields.pin,
    "output": fields.anything,
    "position": fields.anything,
    "metadata": fields.anything,
    "notes": fields.anything,
}


def _read_label(value: Any, path: str, problems: list[Problem]) -> str | None:
    """Read text, or `true` and `false`, which YAML decodes as booleans."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return fields.text(value, path, problems)


def _read_is_error(value: Any, path: str, problems: list[Problem]) -> bool | None:
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
    "label": _read_label,
    "is_error": _read_is_error,
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
        raw_nodes = self._read_list(top, "nodes", self._limits.nodes)
        if not raw_nodes and "nodes" not in top:
            self._report(
                "nodes", codes.NO_NODES, "a workflow needs `nodes`", "a list of objects with `id` and `type`"
            )
        elif top.get("nodes") == []:
            self._report("nodes", codes.NO_NODES, "a workflow needs at least one node")
        for at, each in enumerate(self._read_list(top, "edges", self._limits.edges)):
            self._read_edge(each, f"edges[{at}]")
        # Without nodes, every edge would be reported as leading to an unknown node.
        if not raw_nodes and top.get("nodes"):
            return Parsed(None, tuple(self._problems))
        nodes: list[Node] = []
        places: list[str] = []
        for at, each in enumerate(raw_nodes):
            node = self._read_node(each, f"nodes[{at}]")
            if node is not None:
                nodes.append(node)
                places.append(f"nodes[{at}]")
        if len(self._drafts) > self._limits.edges:
            self._report_too_many("edges", len(self._drafts), self._limits.edges)
            return Parsed(None, tuple(self._problems))
        edges = self._mark_error_edges(nodes, with_ids(self._drafts), places)
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

    def _read_list(self, top: dict[str, Any], name: str, most: int) -> list[Any]:
        value = top.get(name, [])
        if not isinstance(value, list):
            fields.wrong_type(value, "a list", name, self._problems)
            return []
        if len(value) > most:
            self._report_too_many(name, len(value), most)
            return []
        return value

    def _read_node(self, raw: Any, place: str) -> Node | None:
        found = fields.fields(raw, _NODE, place, self._problems)
        if found is None:
            return None
        for other, name in SYNONYMS.items():
            if other in found:
                if found.setdefault(name, found[other]) != found[other]:
                    message = f"`{name}` and `{other}` are synonyms with different values"
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

    def _read_edge(self, raw: Any, place: str) -> None:
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

    def _mark_error_edges(self, nodes: list[Node], edges: list[Edge], places: list[str]) -> list[Edge]:
        """Unify the two ways to mark an error edge: `is_error` on the edge, or `error_edge` on its node."""
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
                policy = self._single_error_edge(node, marked.get(node.id, []), places[at])
                nodes[at] = msgspec.structs.replace(node, error=policy)
            named_by.add((node.id, policy.error_edge))
        return [
            msgspec.structs.replace(edge, is_error=True) if (edge.src, edge.id) in named_by else edge
            for edge in edges
        ]

    def _single_error_edge(self, node: Node, candidates: list[str], place: str) -> ErrorPolicy:
        if len(candidates) == 1:
            return ErrorPolicy(type="branch", error_edge=candidates[0])
        message = f"no error edge leaves `{node.id}`"
        if candidates:
            listed = ", ".join(f"`{each}`" for each in candidates)
            message = f"several error edges leave `{node.id}`: {listed}"
        hint = "name the edge to follow in `error.error_edge`"
        self._report(f"{place}.error", codes.NO_ERROR_EDGE, message, hint)
        return ErrorPolicy(type="branch")

    def _report_too_many(self, name: str, count: int, most: int) -> None:
        self._report(name, codes.TOO_MANY, f"{count:,} {name}, at most {most:,} are allowed")

    def _report(self, path: str, code: str, message: str, hint: str = "") -> None:
        self._problems.append(Problem(path, code, message, hint))


class Pins(msgspec.Struct, frozen=True):
    """Outputs of nodes that are not to be called, by node, and the outlets that those with outlets leave by."""

    outputs: dict[str, Any] = {}
    outlets: dict[str, str] = {}


NO_PINS = Pins()


def with_pins(parsed: Parsed, pins: Pins, limits: Limits = LIMITS) -> Parsed:
    """Return a document in which nodes have these pins, with the problems of pins that fit no node."""
    definition = parsed.definition
    if definition is None or pins == NO_PINS:
        return parsed
    nodes = tuple(
        replace(node, pin=Pin(output=pins.outputs[node.id], outlet=pins.outlets.get(node.id)))
        if node.id in pins.outputs
        else node
        for node in definition.nodes
    )
    pinned = replace(definition, nodes=nodes)
    return replace(parsed, definition=pinned, problems=(*parsed.problems, *_problems(pinned, pins, limits)))


def _problems(pinned: Definition, pins: Pins, limits: Limits) -> Iterator[Problem]:
    ids = {node.id for node in pinned.nodes}
    for name, given in (("pins", pins.outputs), ("outlets", pins.outlets)):
        for node in sorted(given.keys() - ids):
            message = f"the workflow has no node `{node}`"
            yield Problem(f"{name}.{node}", codes.UNKNOWN_NODE, message, did_you_mean(node, ids))
    for node in sorted((pins.outlets.keys() & ids) - pins.outputs.keys()):
        message = f"`{node}` has an outlet, but no output in `pins`"
        yield Problem(f"outlets.{node}", codes.NO_EFFECT, message)
    if len(canonical(pinned)) > limits.definition_bytes:
        message = f"the definition with its pins exceeds {limits.definition_bytes:,} bytes"
        yield Problem("pins", codes.TOO_LARGE, message)


def pinned_nodes(definition: Definition) -> list[int]:
    """Return the positions of the nodes that are pinned."""
    return [at for at, node in enumerate(definition.nodes) if node.pin is not None]
