"""Compilation and evaluation of node parameters."""

from __future__ import annotations

from typing import Any

import pytest

from rune.core.expr import ExpressionError, Names
from rune.core.node_type import NodeType
from rune.core.plan.model import Rules, compile_parameters, evaluate, expression_source

NAMES = Names(frozenset({"a"}), {})
TYPE = NodeType(
    name="t", kinds={"lit": "literal", "when": "expression", "each": "element", "rules": "expression"}
)


def test_parameters_are_resolved_by_kind() -> None:
    compiled = compile_parameters(
        TYPE,
        {"lit": "{{ $a }}", "text": "is {{ $a }}", "fixed": [1, "x"], "when": "$a > 1", "each": "$item"},
        NAMES,
    )

    assert compiled.resolve({"$a": 5}) == {
        "lit": "{{ $a }}",
        "text": "is 5",
        "fixed": [1, "x"],
        "when": "$a > 1",
    }
    assert set(compiled.elements) == {"when", "each"}
    assert compiled.pure


def test_parameter_that_reads_clock_is_not_pure() -> None:
    assert not compile_parameters(TYPE, {"text": "{{ now() }}"}, NAMES).pure


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("$a > 1", "$a > 1"),
        ("{{ $a > 1 }}", " $a > 1 "),
        ("  {{ $a }}  ", " $a "),
        ("{{ $a }} and {{ $a }}", "{{ $a }} and {{ $a }}"),
    ],
)
def test_expression_source_strips_braces(text: str, source: str) -> None:
    assert expression_source(text) == source


def rules(value: Any) -> Rules:
    compiled = compile_parameters(TYPE, {"rules": value}, NAMES).elements["rules"]
    assert isinstance(compiled, Rules)
    return compiled


def test_rule_fields_are_evaluated_separately() -> None:
    found = rules([{"left": "{{ $a }}"}, {"left": "{{ $a.nope.deeper }}"}])

    assert found.value(0, "left", {"$a": 3}) == 3
    assert found.value(0, "right", {"$a": 3}) is None


def test_error_starts_with_parameter_path() -> None:
    compiled = compile_parameters(TYPE, {"deep": {"k": ["{{ 1 / 0 }}"]}}, NAMES)

    with pytest.raises(ExpressionError, match=r"^parameters\.deep\.k\[0\]: "):
        compiled.resolve({})
    with pytest.raises(ExpressionError, match=r"^parameters\.rules\[1\]\.left: "):
        rules([{}, {"left": "{{ 1 / 0 }}"}]).value(1, "left", {})


def test_failed_expression_names_its_parameter() -> None:
    compiled = compile_parameters(TYPE, {"when": "1 / 0"}, NAMES).elements["when"]
    assert not isinstance(compiled, Rules)

    with pytest.raises(ExpressionError, match=r"^parameters\.when: "):
        evaluate("when", compiled, {})


def test_uuids_of_one_node_are_distinct_and_repeatable() -> None:
    compiled = compile_parameters(
        TYPE,
        {
            "one": "{{ uuid() }}",
            "two": "{{ uuid() }}",
            "both": ["{{ uuid() }}", {"x": "{{ uuid() }} {{ uuid() }}"}],
            "when": "uuid()",
            "each": "uuid()",
            "rules": [{"left": "{{ uuid() }}", "right": "{{ uuid() }}"}, {"left": "{{ uuid() }}"}],
        },
        NAMES,
    )
    scope = {"@seed": "s"}

    values = compiled.resolve(scope)
    uuids = [values["one"], values["two"], values["both"][0], *values["both"][1]["x"].split()]
    for name in ("when", "each"):
        element = compiled.elements[name]
        assert not isinstance(element, Rules)
        uuids.append(evaluate(name, element, scope))
    found = compiled.elements["rules"]
    assert isinstance(found, Rules)
    uuids += [found.value(at, field, scope) for at, field in ((0, "left"), (0, "right"), (1, "left"))]

    assert len(set(uuids)) == len(uuids) == 10
    assert compiled.resolve(scope) == values
