"""Limits on the size, nesting, steps and built bytes of expressions."""

from __future__ import annotations

from typing import Any

import pytest

from rune.core.expr import BudgetError, ExpressionError, ExpressionSyntaxError, compile_expression
from rune.core.expr.budget import MAX_BUILT_BYTES, MAX_NESTING, MAX_NODES, MAX_SOURCE_BYTES
from tests.unit.core.expr.evaluation import NAMES, evaluate, trigger


@pytest.mark.parametrize(
    ("source", "limit"),
    [
        ("'" + "a" * MAX_SOURCE_BYTES + "'", "8,192 bytes"),
        ("'" + "é" * (MAX_SOURCE_BYTES // 2) + "'", "8,192 bytes"),
        ("[" + "1," * MAX_NODES + "]", "500 syntax nodes"),
        ("1" + "+1" * MAX_NODES, "500 syntax nodes"),
        ("[" + "1," * 2500 + "]", "2000 tokens"),
        ("(" * MAX_NESTING + "1" + ")" * MAX_NESTING, "limit: 50"),
        ("not " * MAX_NESTING + "1", "limit: 50"),
        ("-" * MAX_NESTING + "1", "limit: 50"),
        ("1 ? 2 : " * MAX_NESTING + "1", "limit: 50"),
        ("2" + " ** 2" * MAX_NESTING, "limit: 50"),
        ("'a'" + " | upper" * 60, "limit: 50"),
        ("$a" + "[$index]" * 60, "limit: 50"),
        ("1 ** " * 1500 + "1", "limit"),
        ("1 if 1 else " * 600 + "1", "limit"),
    ],
    ids=lambda text: text[:12],
)
def test_oversized_expression_is_rejected(source: str, limit: str) -> None:
    with pytest.raises(ExpressionSyntaxError, match=limit):
        compile_expression(source, NAMES)


def test_parser_memory_error_is_syntax_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def out_of_memory(*_: Any, **__: Any) -> Any:
        raise MemoryError

    # No other test compiles this expression, since syntax trees are cached. The patch ends before the assertions, since
    # pytest needs the parser to report a failure.
    rejection: ExpressionSyntaxError | None = None
    with monkeypatch.context() as patch:
        patch.setattr("ast.parse", out_of_memory)
        try:
            compile_expression("1 + 2 - 3 + 4 - 5 - 6 + 7 - 8 - 9 + 10 - 11", NAMES)
        except ExpressionSyntaxError as error:
            rejection = error
    assert rejection is not None
    assert "nested too deeply" in str(rejection)


def test_long_chains_do_not_count_as_nesting() -> None:
    assert evaluate("1" + " + 1" * 240) == 241
    assert evaluate("$trigger.gone" + " ?? null" * 120 + " ?? 1") == 1
    assert evaluate(" and ".join(["true"] * 240)) is True
    deep: Any = 5
    for _ in range(200):
        deep = {"k": deep}
    assert trigger("$trigger" + ".k" * 200, deep) == 5


@pytest.mark.parametrize(
    "source",
    [
        "'a' * 1000000000000",
        "[0] * 1000000000000",
        "10 ** 100 * 'a'",
        "'a' * 600000 + 'a' * 600000",
        "[1] * 200000 + [1] * 200000",
        "['a' * 1000 for x in range(2000)]",
        "{str(x): 'a' * 1000 for x in range(2000)}",
        "range(10 ** 9)",
        "range(10 ** 1000)",
        "[range(1000) for x in range(1000)]",
        "join([1] * 1000, 'a' * 10000)",
        "join([['\\0' * 200000]])",
        "json('\\0' * 200000)",
        "str(['\\0' * 200000])",
        "replace('a' * 1000, 'a', 'b' * 10000)",
        "upper('a' * 600000)",
        "upper('ß' * 400000)",
        "base64('a' * 600000)",
        "url_encode('a' * 400000)",
        "split('a' * 300000, 'a')",
        "find_all('a' * 300000, '')",
        "[$trigger.wide for x in range(100)]",
        "[[$trigger.wide] for x in range(100)]",
        "{str(x): $trigger.wide for x in range(100)}",
        "[$trigger.wide] * 100",
        "[[$trigger.long] for x in range(100)]",
        "[2 ** 4000 for x in range(10000)]",
        "($trigger.long * 5)[1:] + $trigger.long * 6",
        "format_date(0, '%B' * 120000)",
        "parse_json('[' + '1,' * 400000 + '1]')",
    ],
)
def test_oversized_value_is_rejected(source: str) -> None:
    payload = {"wide": {"text": "x" * 50_000}, "long": "x" * 100_000}
    with pytest.raises(ExpressionError, match=r"\(limit: .+\)"):
        trigger(source, payload)


@pytest.mark.parametrize(
    "source",
    [
        "[1 for a in range(400) for b in range(400) for c in range(400)]",
        "[1 for a in range(400) if [1 for b in range(400) for c in range(400) if false]]",
        "[x in $trigger for x in range(2000)]",
        "[$trigger == $trigger for x in range(2000)]",
        "[unique($trigger) for x in range(2000)]",
        "[sum($trigger[2:]) for x in range(2000)]",
        "[sha256($trigger[0]) for x in range(2000)]",
        "['z' in $trigger[0] for x in range(2000)]",
        "[1 for x in range(500) for y in range(500) if matches('a', $trigger[1])]",
        "find_all('a' * 90000, 'a')",
        "[{'a': $trigger} == {'a': $trigger} for x in range(2000)]",
        "[flatten([$trigger]) for x in range(2000) if false or len(flatten([$trigger])) < 0]",
    ],
)
def test_superlinear_work_exceeds_budget(source: str) -> None:
    payload = ["x" * 1_000_000, "(a?){200}a{200}", *range(3000)]
    with pytest.raises(BudgetError, match=r"\(limit: .+\)"):
        trigger(source, payload)


def test_shared_values_count_each_time() -> None:
    source = "[[1, 2, 3]]"
    for _ in range(22):
        source = f"[[y, y] for y in {source}]"
    for wrapped in (source, f"json({source})", f"{source} == {source}", f"len(unique({source}))"):
        with pytest.raises(BudgetError):
            evaluate(wrapped)


def test_passing_data_through_costs_no_budget() -> None:
    rows = [{"id": i, "text": "x" * 1000} for i in range(20_000)]
    scope = {"$trigger": rows}
    assert evaluate("$trigger", scope) is rows
    assert evaluate("{'rows': $trigger}", scope) == {"rows": rows}
    assert len(evaluate("[x for x in $trigger if x.id % 2 == 0]", scope)) == 10_000
    assert evaluate("sorted($trigger, 'id', true) | reversed | first", scope) is rows[0]
    assert evaluate("sum(x.id for x in $trigger)", scope) == sum(range(20_000))


def test_step_budget_grows_with_data() -> None:
    scope = {"$trigger": list(range(100_000))}
    source = "sum(x + 1 + 2 + 3 + 4 + 5 + 6 + 7 + 8 for x in $trigger)"
    assert evaluate(source, scope) == sum(range(100_000)) + 36 * 100_000
    assert evaluate("$trigger == $trigger + []", scope) is True
    assert evaluate("99999 in $trigger and len(unique($trigger)) == 100000", scope) is True


def test_literal_list_for_membership_is_built_once() -> None:
    rows = [{"kind": "tea"}] * 100_000
    assert trigger("sum(1 for x in $trigger if x.kind not in ['tea', 'cup', -1, null])", rows) == 0
    assert trigger("$trigger[0].kind in ['tea', $trigger[1].kind]", rows) is True


def test_default_does_not_catch_budget_error() -> None:
    with pytest.raises(BudgetError):
        evaluate("'a' * 10 ** 9 ?? 1")


def test_failed_loop_does_not_consume_steps_of_later_loop() -> None:
    rows = [{"v": 1} for _ in range(10_000)]
    source = "([x.gone for x in $trigger] ?? []) + [x.v + 1 + 1 + 1 + 1 + 1 + 1 for x in $trigger]"
    assert len(trigger(source, rows)) == 10_000


def test_deeply_nested_values_are_rejected() -> None:
    first: Any = []
    second: Any = []
    for _ in range(5000):
        first, second = [first], [second]
    for source in (
        "$trigger.a == $trigger.b",
        "json($trigger.a)",
        "unique([$trigger.a])",
        "'x' + str($trigger.a)",
    ):
        with pytest.raises(ExpressionError, match="nested too deeply"):
            trigger(source, {"a": first, "b": second})


def test_text_may_use_whole_budget() -> None:
    assert len(evaluate(f"'a' * {MAX_BUILT_BYTES}")) == MAX_BUILT_BYTES
    with pytest.raises(BudgetError):
        evaluate(f"'a' * {MAX_BUILT_BYTES + 1}")


def test_long_pattern_is_rejected() -> None:
    with pytest.raises(BudgetError, match="limit: 1000 characters"):
        evaluate("matches('a', 'a' * 1001)")
