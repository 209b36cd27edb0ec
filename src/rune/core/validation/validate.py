"""Validate a parsed document: find every problem that can be detected before an execution.

Expressions have to compile and may refer only to values that exist before their node runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from rune.core.definition import problems
from rune.core.definition import problems as codes
from rune.core.definition.model import Definition, Node
from rune.core.definition.parser import Parsed, SourceLocations, SourceText
from rune.core.definition.problems import Problem, did_you_mean
from rune.core.definition.strict_json import walk
from rune.core.expr import (
    ExpressionSyntaxError,
    ExpressionSyntaxErrors,
    Names,
    Reference,
    compile_template,
    is_dynamic,
)
from rune.core.limits import LIMITS, Limits
from rune.core.node_type import Catalogue, NodeType
from rune.core.plan.compiler import names_of
from rune.core.plan.graph import Graph, Scopes, ancestors, build_graph, find_dominators, find_scopes
from rune.core.plan.model import Parameters, compile_parameter, compile_parameters
from rune.core.validation.checks import (
    ValidationInput,
    check_identity,
    check_joins,
    check_outlets,
    check_outputs,
    check_pins,
    check_policies,
    check_shape,
)

_PLACE = re.compile(r"(nodes|edges)\[(\d+)\]")

_ITEM_ROOTS = frozenset({"$item", "$index"})
_RESERVED_ROOTS = frozenset({"$trigger", "$item", "$index", "$json", "$execution", "$error"})


class ValidationResult(msgspec.Struct, frozen=True):
    """The problems of a document, and the analysis that the compiler reuses.

    Without errors, every node has a type and compiled parameters.
    """

    problems: tuple[Problem, ...]
    definition: Definition | None = None
    graph: Graph | None = None
    types: tuple[NodeType | None, ...] = ()
    scopes: Scopes | None = None
    outlets: tuple[str | None, ...] = ()
    parameters: tuple[Parameters | None, ...] = ()
    source: SourceText | None = None

    @property
    def valid(self) -> bool:
        """Whether all problems are warnings."""
        return all(each.severity == "warning" for each in self.problems)


def validate(parsed: Parsed, catalogue: Catalogue, limits: Limits = LIMITS) -> list[Problem]:
    """Return every problem of a document, in document order."""
    return list(validate_document(parsed, catalogue, limits).problems)


SchemaCheck = Callable[[dict[str, Any]], list[Problem]]
"""Finds the problems of a JSON Schema. Injected, as the core does not depend on a schema library."""


def validate_document(
    parsed: Parsed,
    catalogue: Catalogue,
    limits: Limits = LIMITS,
    *,
    check_schema: SchemaCheck | None = None,
) -> ValidationResult:
    """Validate a document and return the problems with the analysis."""
    definition = parsed.definition
    if definition is None:
        return ValidationResult(parsed.problems, source=parsed.source)
    subject = _validation_input(definition, parsed.places, catalogue)
    subject.problems.extend(parsed.problems)
    if check_schema is not None and definition.inputs is not None:
        subject.problems.extend(check_schema(definition.inputs))
    graph, edges = subject.graph, definition.edges
    names = names_of(definition)
    _check_types(subject, catalogue, names)
    check_identity(subject)
    check_shape(subject)
    scopes, problems = find_scopes(graph, subject.types, edges, parsed.places, limits)
    subject.problems.extend(problems)
    check_policies(subject)
    check_pins(subject)
    outlets = check_outlets(subject)
    before = ancestors(graph)
    compiled = check_expressions(subject, names, scopes, before)
    dominators = find_dominators(graph, edges, outlets, before)
    check_joins(subject, dominators)
    check_outputs(subject, dominators)
    ordered = tuple(sorted(subject.problems, key=_position))
    return ValidationResult(
        ordered, definition, graph, subject.types, scopes, outlets, compiled, parsed.source
    )


def _validation_input(
    definition: Definition, places: SourceLocations, catalogue: Catalogue
) -> ValidationInput:
    return ValidationInput(
        definition=definition,
        places=places,
        graph=build_graph([node.id for node in definition.nodes], definition.edges),
        types=tuple(catalogue.get(node.type) for node in definition.nodes),
        sound=[False] * len(definition.nodes),
        problems=[],
    )


def _check_types(subject: ValidationInput, catalogue: Catalogue, names: Names) -> None:
    def dynamic(text: str) -> bool:
        return is_dynamic(text, names)

    for at, node in enumerate(subject.definition.nodes):
        kind = subject.types[at]
        place = subject.places.nodes[at]
        if kind is None:
            if node.type:
                message = f"no node type is called `{node.type}`"
                subject.report(
                    f"{place}.type", codes.UNKNOWN_TYPE, message, did_you_mean(node.type, catalogue)
                )
            continue
        found = kind.check(node.parameters, dynamic)
        subject.sound[at] = not found
        for each in found:
            path = f"{place}.parameters.{each.path}" if each.path else f"{place}.parameters"
            subject.problems.append(msgspec.structs.replace(each, path=path))


def _position(problem: Problem) -> tuple[int, int]:
    place = _PLACE.match(problem.path)
    if place is None:
        return (0, 0)
    return (1 if place[1] == "nodes" else 2, int(place[2]))


def check_expressions(
    subject: ValidationInput, names: Names, scopes: Scopes, ancestors: tuple[int, ...]
) -> tuple[Parameters | None, ...]:
    """Return the compiled parameters of each node; None for those that do not compile."""
    checker = _ExpressionChecker(subject, names, scopes, ancestors)
    return tuple(checker.node(at) for at in range(len(subject.graph.ids)))


class _ExpressionChecker:
    def __init__(
        self, subject: ValidationInput, names: Names, scopes: Scopes, ancestors: tuple[int, ...]
    ) -> None:
        self._subject = subject
        self._names = names
        self._scopes = scopes
        self._ancestors = ancestors
        self._ordered = frozenset(subject.graph.order)
        known = subject.graph.index
        self._edges_known = all(each.src in known and each.dst in known for each in subject.definition.edges)

    def node(self, at: int) -> Parameters | None:
        kind = self._subject.types[at]
        if kind is None:
            return None
        node = self._subject.definition.nodes[at]
        try:
            compiled = compile_parameters(kind, node.parameters, self._names)
        except (ExpressionSyntaxError, ExpressionSyntaxErrors):
            self._report_errors(at, node, kind)
            return None
        if at in self._ordered and any(self._objection(at, each) for each in compiled.references):
            self._report_references(at, node, kind)
        return compiled

    def _report_errors(self, at: int, node: Node, kind: NodeType) -> None:
        for name, value in node.parameters.items():
            path = f"{self._subject.places.nodes[at]}.parameters.{name}"
            try:
                compile_parameter(kind, name, value, self._names)
            except ExpressionSyntaxError as error:
                self._report_syntax(path, error)
            except ExpressionSyntaxErrors as errors:
                for each in errors.errors:
                    joint = "." if each.path and not each.path.startswith("[") else ""
                    self._report_syntax(f"{path}{joint}{each.path}", each)

    def _report_syntax(self, path: str, error: ExpressionSyntaxError) -> None:
        message = f"{error.problem} at character {error.offset + 1}"
        self._subject.report(path, problems.BAD_EXPRESSION, message, error.hint)

    def _report_references(self, at: int, node: Node, kind: NodeType) -> None:
        """Report each invalid reference at the path of the value that contains it."""
        binds = kind.binds_item(node.parameters) if self._subject.sound[at] else True
        for name, value in node.parameters.items():
            own_item = binds and kind.kinds.get(name) == "element"
            for path, reference in self._references(kind, name, value):
                if own_item and reference.root in _ITEM_ROOTS:
                    continue
                objection = self._objection(at, reference)
                if objection is not None:
                    code, message, hint = objection
                    self._subject.report(
                        f"{self._subject.places.nodes[at]}.parameters.{path}", code, message, hint
                    )

    def _references(self, kind: NodeType, name: str, value: Any) -> Iterator[tuple[str, Reference]]:
        """Yield the references of one parameter, each root once per text, with the path of the text."""
        seen: set[tuple[str, str]] = set()
        if kind.kinds.get(name) == "literal":
            return
        if not isinstance(value, str):
            parts = [
                (path, compile_template(part, self._names))
                for path, part in walk(value, name)
                if isinstance(part, str)
            ]
            found = [(path, each) for path, template in parts for each in template.references]
        else:
            compiled = compile_parameter(kind, name, value, self._names)
            found = [(name, each) for each in compiled.references] if compiled else []
        for path, reference in found:
            if (path, reference.root) not in seen:
                seen.add((path, reference.root))
                yield path, reference

    def _objection(self, at: int, reference: Reference) -> tuple[str, str, str] | None:
        root = reference.root
        if root in _ITEM_ROOTS:
            if self._scopes.split[at] is not None:
                return None
            message = f"`{root}` has no value here: `{self._subject.graph.ids[at]}` is not inside a split"
            return problems.NO_ITEM, message, "use it between a `split` and its `aggregator`"
        target = self._subject.graph.index.get(root[1:])
        if target is None or root in _RESERVED_ROOTS:
            return None
        if not self._ancestors[at] >> target & 1:
            # An edge that leads nowhere is reported by itself; the path may run over it.
            return self._not_an_ancestor(at, root) if self._edges_known or target == at else None
        split = self._scopes.split[target]
        if split is None or split == self._scopes.split[at] or split in self._scopes.enclosing(at):
            return None
        return self._out_of_scope(root, split)

    def _not_an_ancestor(self, at: int, root: str) -> tuple[str, str, str]:
        here = self._subject.graph.ids[at]
        if root[1:] == here:
            return (
                problems.NOT_AN_ANCESTOR,
                f"`{here}` refers to its own output",
                "use `$json` for the input of the node",
            )
        message = f"`{root}` cannot have run before `{here}`: no path leads from `{root[1:]}` to it"
        return problems.NOT_AN_ANCESTOR, message, "add an edge, or name a node that comes before"

    def _out_of_scope(self, root: str, split: int) -> tuple[str, str, str]:
        ids = self._subject.graph.ids
        gathered = self._scopes.aggregator.get(split)
        message = f"`{root}` runs once per item of split `{ids[split]}` and is not visible outside of it"
        if gathered is None:
            return problems.OUT_OF_SCOPE, message, "gather the items with an `aggregator`"
        return problems.OUT_OF_SCOPE, message, f"the items' results are in `${ids[gathered]}`"
