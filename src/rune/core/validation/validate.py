"""Validate a parsed document: find every problem that can be detected before an execution."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from rune.core.definition import problems as codes
from rune.core.definition.model import Definition
from rune.core.definition.parser import Parsed, SourceLocations, SourceText
from rune.core.definition.problems import Problem, did_you_mean
from rune.core.expr import Names, is_dynamic
from rune.core.limits import LIMITS, Limits
from rune.core.node_type import Catalogue, NodeType
from rune.core.plan.analysis import Scopes, find_scopes
from rune.core.plan.compiler import names_of
from rune.core.plan.graph import Graph, ancestors, build_graph, find_dominators
from rune.core.plan.parameters import Parameters
from rune.core.validation.checks import (
    ValidationInput,
    check_identity,
    check_joins,
    check_outlets,
    check_outputs,
    check_policies,
    check_shape,
)
from rune.core.validation.expressions import check_expressions

_PLACE = re.compile(r"(nodes|edges)\[(\d+)\]")


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
