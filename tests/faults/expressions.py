"""G: expressions."""

from __future__ import annotations

import re
from typing import Any

from tests.faults.change import Change, constant, replace, skip
from tests.faults.fault import Fault, fault


def _ignore_bad_reference(evaluate: Any) -> Any:
    def changed(name: str, compiled: Any, scope: Any) -> Any:
        from rune.core.expr import ExpressionError

        try:
            return evaluate(name, compiled, scope)
        except ExpressionError:
            return getattr(compiled, "_value", "")

    return changed


def _write_scientific(to_text: Any) -> Any:
    return lambda value: f"{value:g}" if type(value) is int else to_text(value)


def _consume_full_stop(path_at: Any) -> Any:
    def changed(text: str, start: int) -> Any:
        path, end = path_at(text, start)
        return path, end + text.startswith(".", end)

    return changed


def _insert_text(quote: str) -> Change:
    """Conditions are evaluated after the data was put into their text."""

    def make(result: Any) -> Any:
        def changed(call: Any) -> Any:
            def filled(found: re.Match[str]) -> str:
                return quote + str(call.scope["$trigger"][found[1]]) + quote

            condition = call.parameters.expression
            if not isinstance(condition, str):
                return result(call)
            return bool(eval(re.sub(r"\$trigger\.(\w+)", filled, condition)))

        return changed

    return replace("rune.nodes.control.conditional:_result", make)


def _split_at_operator(result: Any) -> Any:
    def changed(call: Any) -> Any:
        condition = call.parameters.expression
        if not isinstance(condition, str):
            return result(call)
        return str(call.scope["$trigger"]["v"]) == condition.split("==")[1].strip().strip("'")

    return changed


def _resolve_again(resolve: Any) -> Any:
    def changed(self: Any, scope: Any) -> Any:
        from rune.core.expr.names import Names
        from rune.core.expr.template import compile_template

        found = resolve(self, scope)
        if type(found) is not str or "$" not in found:
            return found
        return compile_template(found, Names(frozenset(), {})).resolve(scope)

    return changed


def _compare_as_numbers(json_equal: Any) -> Any:
    def changed(a: Any, b: Any, run: Any = None) -> bool:
        try:
            return float(a) == float(b)
        except (TypeError, ValueError):
            return bool(json_equal(a, b, run))

    return changed


def _keep_only_text(call: Any) -> Any:
    def changed(self: Any, scope: Any) -> Any:
        made = call(self, scope)
        for key, _, _ in self._parts:
            if type(made[key]) is not str:
                made[key] = self._made[key]
        return made

    return changed


def _search_in_text(contains: Any) -> Any:
    def changed(holder: Any, wanted: Any, run: Any = None) -> bool:
        return str(wanted) in str(holder) if type(holder) is list else bool(contains(holder, wanted, run))

    return changed


def _read_attribute(look_up: Any) -> Any:
    def changed(value: Any, key: Any, place: str) -> Any:
        if type(value) is dict and type(key) is str and key not in value:
            return getattr(value, key)
        return look_up(value, key, place)

    return changed


def _count_without_limit(build: Any) -> Any:
    def changed(self: Any, size: int) -> None:
        self.left -= size

    return changed


INSERT_QUOTED = _insert_text("'")
INSERT_BARE = _insert_text("")

TABLE: dict[str, Fault] = {
    "g1": fault(
        "test_expressions.py::test_h_g1_bad_reference_fails_node_before_call",
        replace("rune.core.plan.model:evaluate", _ignore_bad_reference),
    ),
    "g2": fault(
        "test_expressions.py::test_h_g2_numbers_are_written_without_exponent",
        replace("rune.core.expr.values:to_text", _write_scientific),
    ),
    "g3": fault(
        "test_expressions.py::test_h_g3_full_stop_after_reference_is_kept",
        replace("rune.core.expr.names:path_at", _consume_full_stop),
    ),
    "g4": fault(
        "test_expressions.py::test_h_g4_dash_separates_references",
        constant("rune.core.expr.names:_MEMBER", re.compile(r"\.([\w-]+)")),
    ),
    "g5": fault("test_expressions.py::test_h_g5_data_is_not_parsed_as_expression", INSERT_QUOTED),
    "g6": fault("test_expressions.py::test_h_g6_null_and_booleans_compare_as_values", INSERT_BARE),
    "g7": fault(
        "test_expressions.py::test_h_g7_empty_values_count_as_false",
        replace(
            "rune.core.expr.values:truthy",
            lambda truthy: lambda value: value is not None and value is not False,
        ),
    ),
    "g8": fault(
        "test_expressions.py::test_h_g8_operator_inside_quotes_is_text",
        replace("rune.nodes.control.conditional:_result", _split_at_operator),
    ),
    "g9": fault("test_expressions.py::test_h_g9_any_text_is_valid_data", INSERT_QUOTED),
    "g10": fault(
        "test_expressions.py::test_h_g10_resolved_data_is_not_resolved_again",
        replace("rune.core.expr.template:Template.resolve", _resolve_again),
    ),
    "g11": fault(
        "test_expressions.py::test_h_g11_text_is_compared_as_text",
        replace("rune.core.expr.values:json_equal", _compare_as_numbers),
    ),
    "g12": fault(
        "test_expressions.py::test_h_g12_values_of_every_type_are_resolved",
        replace("rune.core.expr.template:_Container.__call__", _keep_only_text),
    ),
    "g13": fault(
        "test_expressions.py::test_h_g13_contains_compares_elements",
        replace("rune.core.expr.operators:contains", _search_in_text),
        replace(
            "rune.core.expr.operators:OPERATORS",
            lambda operators: {**operators, "contains": _search_in_text(operators["contains"])},
        ),
    ),
    "g14": fault(
        "test_expressions.py::test_h_g14_expression_cannot_leave_sandbox",
        skip("rune.core.expr.names:refuse_dunder"),
        replace("rune.core.expr.values:look_up", _read_attribute),
    ),
    "g15": fault(
        "test_expressions.py::test_h_g15_expression_bomb_is_stopped[replace($trigger.v, 'a', $trigger.v)]",
        replace("rune.core.expr.budget:Evaluation.build", _count_without_limit),
    ),
}
