"""Builders for workflow documents, and their validation."""

from __future__ import annotations

import json
from typing import Any

from rune.core.definition.parser import Parsed, parse_document
from rune.core.definition.problems import Problem
from rune.core.validation.validate import ValidationResult, validate, validate_document
from rune.nodes.registry import standard_catalogue

Raw = dict[str, Any]


def node(id: str, type: str = "noop", parameters: Raw | None = None, **more: Any) -> Raw:
    found: Raw = {"id": id, "type": type, **more}
    return found if parameters is None else found | {"parameters": parameters}


def edit(id: str, value: Any, **more: Any) -> Raw:
    """An `edit` node whose output is `{"k": value}`; it does not bind `$item`."""
    return node(id, "edit", {"mode": "keep_only", "assignments": [{"name": "k", "value": value}]}, **more)


def edges(*pairs: str) -> list[Raw]:
    """`a>b` is an edge; `a>b:true` one with a label; `a>b!` an error edge."""
    found: list[Raw] = []
    for pair in pairs:
        ends, _, label = pair.partition(":")
        src, _, dst = ends.rstrip("!").partition(">")
        edge: Raw = {"src": src, "dst": dst}
        if label:
            edge["label"] = label
        if ends.endswith("!"):
            edge["is_error"] = True
        found.append(edge)
    return found


def document(nodes: list[Raw], *pairs: str, **more: Any) -> Raw:
    return {"id": "test", "nodes": nodes, "edges": edges(*pairs), **more}


def parsed(raw: Any) -> Parsed:
    return parse_document(json.dumps(raw))


def verdict(raw: Raw) -> ValidationResult:
    return validate_document(parsed(raw), standard_catalogue())


def problems(raw: Raw) -> list[Problem]:
    return validate(parsed(raw), standard_catalogue())


def problem_codes(raw: Raw, *, warnings: bool = False) -> list[tuple[str, str]]:
    """Path and code of each error, or of each warning."""
    expected = "warning" if warnings else "error"
    return [(each.path, each.code) for each in problems(raw) if each.severity == expected]


def only_problem(raw: Raw) -> Problem:
    (problem,) = problems(raw)
    return problem
