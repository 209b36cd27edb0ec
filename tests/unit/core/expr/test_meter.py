"""The meter: what is charged before it is done, in pieces that change no result."""

from __future__ import annotations

from typing import Any

import pytest

from rune.core.execution.scope import ExpressionScope
from rune.core.expr import BudgetError, Meter, Names, compile_expression, compile_template
from rune.core.expr.budget import METER, UNMETERED, Evaluation, meter_of
from rune.core.expr.operators import OPERATORS
from rune.core.expr.values import json_equal, json_size, write_json
from rune.core.node_type import NodeType
from rune.core.plan.model import compile_parameters

NAMES = Names(frozenset({"a"}), {})


@pytest.mark.parametrize(
    ("source", "payload"),
    [
        ("sorted($trigger, reverse=true)", [at * 7919 % 10_007 for at in range(60_000)]),
        ("sorted($trigger, 'k')", [{"k": f"{at % 50:020}" * 100, "n": at} for at in range(2_000)]),
        ("replace($trigger, 'ab', 'c')", "abx" * 200_000),
        ("replace($trigger, 'aa', '')", "a" * 600_001),
        ("'yx' in $trigger", "x" * 1_048_575 + "yx" + "x" * 1_048_575),
        ("json($trigger)", [{"a": at / 7, "b": "x" * 50, "c": {"d": [at]}} for at in range(5_000)]),
        ("str($trigger)", {f"k{at}": "x" * 100 for at in range(5_000)}),
        ("unique($trigger)", [{"k": [at % 10, 1.0]} for at in range(3_000)]),
        ("[min($trigger), max($trigger), sum($trigger)]", [at * 7919 % 10_007 for at in range(30_000)]),
        ("find_all($trigger, '[0-9]+')", "a1 b22 " * 2_000),
    ],
)
def test_a_meter_changes_no_result(source: str, payload: Any) -> None:
    """Each allowance ends the evaluation or leaves its value as it is."""
    expression = compile_expression(source, NAMES)
    free = expression.evaluate({"$trigger": payload})

    class Moved(BaseException):
        pass

    def leave(cost: int) -> int:
        raise Moved

    ends = set()
    for allowance in (0, 10**6, 10**9, 10**13):
        try:
            assert expression.evaluate({"$trigger": payload, METER: Meter(allowance, leave)}) == free
            ends.add("value")
        except Moved:
            ends.add("moved")
    assert ends == {"value", "moved"}


def test_long_texts_are_replaced_as_short_ones_are() -> None:
    for text, old, new in (
        ("ab" * 300_000 + "a", "aba", "-"),
        ("a" * 262_145, "aa", "b"),
        ("x" * 262_143 + "abc" + "x" * 10, "abc", ""),
        ("x" * 300_000, "x" * 280_000, "y"),
    ):
        replaced = compile_expression("replace($trigger[0], $trigger[1], $trigger[2])", NAMES)
        assert replaced.evaluate({"$trigger": [text, old, new]}) == text.replace(old, new)


def test_an_empty_meter_is_refilled() -> None:
    refills: list[int] = []

    def refill(cost: int) -> int:
        refills.append(cost)
        return 10

    meter = Meter(5, refill)
    for cost in (3, 4, 10, 1):
        meter.charge(cost)
    assert (refills, meter.left) == ([4, 1], 10)
    assert UNMETERED._refill(1) > 0


def test_evaluations_that_share_a_meter_use_it_up_together() -> None:
    class Moved(BaseException):
        pass

    def leave(cost: int) -> int:
        raise Moved

    expression = compile_expression("$trigger + 1", NAMES)
    scope = {"$trigger": 1, METER: Meter(50_000, leave)}
    for _ in range(40):
        expression.evaluate(scope)
    with pytest.raises(Moved):
        _ = [expression.evaluate(scope) for _ in range(1_000)]


def test_steps_are_taken_from_the_reserve_and_then_from_the_slice() -> None:
    run = Evaluation({})
    run.depth = 1
    run.iterate(99_999)
    run.spend(1)
    with pytest.raises(BudgetError):
        run.spend(1)


def test_operators_of_rules_account_for_long_values() -> None:
    charged: list[int] = []

    def refill(cost: int) -> int:
        charged.append(cost)
        return 0

    long, same = "x" * 5_000, "x" * 5_000
    for operator in ("==", "!=", "<", "<=", ">", ">=", "contains", "starts_with", "ends_with", "matches"):
        charged.clear()
        OPERATORS[operator](
            long, same[:900] if operator == "matches" else same, Evaluation({METER: Meter(0, refill)})
        )
        assert sum(charged) > 1_000, operator
    assert OPERATORS["matches"]("abc", "b") is True
    assert OPERATORS["starts_with"]("abc", "a") is True
    assert OPERATORS["ends_with"]("abc", "c") is True
    assert OPERATORS["<"]("abc", "b") is True
    assert OPERATORS["contains"]("abc", "b") is True


@pytest.mark.parametrize(
    "value",
    [
        [],
        {},
        "text",
        [2**70, 1.5, None, True, "x"],
        {"a": [1, {"b": "c"}], "d": 2**5000},
        ["x" * 20_000, {"k": "y" * 40_000}, [1] * 9_000, 5],
        {"x" * 20_000: 1, "b": ["z" * 30_000], "c": 2},
        [["x" * 17_000]],
    ],
)
def test_json_is_the_same_in_pieces(value: Any) -> None:
    whole = compile_expression("json($trigger)", NAMES)
    written = write_json(value, UNMETERED)
    assert written == whole.evaluate({"$trigger": value})
    assert json_size(value, UNMETERED, 1 << 30) <= len(written)


def test_values_too_deep_for_pieces_are_refused() -> None:
    value: Any = "x" * 20_000
    for _ in range(3_000):
        value = [value]
    with pytest.raises(Exception, match="nested too deeply"):
        write_json(value, UNMETERED)


def test_a_constant_that_takes_long_is_left_to_the_run() -> None:
    kind = NodeType(name="t")
    parameters = compile_parameters(
        kind, {"short": "{{ 1 + 1 }}", "long": "{{ sorted(range(20000)) }}"}, NAMES
    )
    assert parameters.fixed == {"short": 2}
    assert [name for name, _ in parameters.dynamic] == ["long"]


def test_text_with_a_list_is_refused_before_it_is_written() -> None:
    template = compile_template("all: {{ $trigger }}", NAMES)
    with pytest.raises(BudgetError, match="too long"):
        template.resolve({"$trigger": [1] * 600_000})
    assert len(template.resolve({"$trigger": [1] * 100_000})) == 200_006


@pytest.mark.parametrize(
    ("source", "payload", "expected"),
    [
        ("int($trigger)", " " * 2_000 + "42", 42),
        ("get({'a': {'b': 1}}, $trigger, 'none')", "a.b" + ".c" * 1_000, "none"),
        ("$trigger.a == $trigger.b", {"a": [1] * 3_000, "b": [1] * 3_000}, True),
        ("$trigger.a == $trigger.b", {"a": {str(n): n for n in range(2_000)}, "b": {}}, False),
        ("1 < $trigger.a < $trigger.b", {"a": 2, "b": 3}, True),
        ("'' in $trigger", "", True),
        ("'xy' in $trigger", "x" * 5_000, False),
        ("len(unique([$trigger, $trigger]))", {"a": {}, "b": [2**70, 1e300, 2**70]}, 1),
        ("unique([$trigger, 1.0 * $trigger])", 2**61, [2**61]),
        ("len(unique([$trigger]))", "x" * 2_000, 1),
        ("sorted($trigger)", ["b", "a"], ["a", "b"]),
        ("sorted([])", None, []),
        ("upper($trigger)", "a" * 2_000, "A" * 2_000),
        ("parse_date($trigger)", "2024-01-01T00:00:00." + "1" * 2_000, "2024-01-01T00:00:00.111111Z"),
        ("$trigger.gone ?? 1", {"x" * 200: 1}, 1),
        ("{'a': 1}[$trigger] ?? 1", "k" * 200, 1),
        ("len(find_all($trigger, '(a)(b)'))", "abéab", 2),
        ("matches($trigger, '(?i)A{12}')", "a" * 12, True),
    ],
)
def test_large_values_keep_their_meaning(source: str, payload: Any, expected: Any) -> None:
    assert compile_expression(source, NAMES).evaluate({"$trigger": payload}) == expected


def test_a_long_list_of_long_texts_is_sorted_in_blocks() -> None:
    texts = [f"{at * 7919 % 1_009:05}" * 4_000 for at in range(300)]
    assert compile_expression("sorted($trigger)", NAMES).evaluate({"$trigger": texts}) == sorted(texts)
    down = compile_expression("sorted($trigger, reverse=true)", NAMES).evaluate({"$trigger": texts})
    assert down == sorted(texts, reverse=True)


def test_values_are_compared_without_an_evaluation_too() -> None:
    assert json_equal({"a": [1, {"b": 2}]}, {"a": [1.0, {"b": 2}]})
    assert not json_equal({"a": [1]}, {"a": [2]})
    assert json_equal("x" * 2_000, "x" * 2_000)


def test_the_least_and_the_greatest_text_are_found() -> None:
    found = compile_expression("[min($trigger), max($trigger)]", NAMES)
    assert found.evaluate({"$trigger": ["b", "a", "c"]}) == ["a", "c"]


def test_a_scope_without_a_meter_has_none() -> None:
    unused: Any = None
    scope = ExpressionScope(unused, unused, unused, 0.0, "")
    with pytest.raises(KeyError):
        scope[METER]
    assert meter_of(scope) is UNMETERED
