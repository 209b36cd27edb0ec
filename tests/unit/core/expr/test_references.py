"""References: their values, the messages for missing ones, and the references known at compile time."""

from __future__ import annotations

from typing import Any

import pytest

from rune.core.expr import ExpressionError, ExpressionSyntaxError, MissingError, Reference, compile_expression
from tests.unit.core.expr.evaluation import NAMES, SCOPE, evaluate

VALUES: list[tuple[str, Any]] = [
    ("$trigger.name", "Ada"),
    ("$input.name", "Ada"),
    ("$trigger['odd key']", 1),
    ('$trigger["odd key"]', 1),
    ("$a.rows[0].v", "p"),
    ("$a.rows[-1].v", "q"),
    ("$trigger.l[1:]", [1, 3, 2]),
    ("$trigger.l[::-1]", [2, 3, 1, 3]),
    ("$trigger.l[-2:]", [3, 2]),
    ("$trigger.name[0]", "A"),
    ("$trigger.name[-1]", "a"),
    ("$trigger.name[1:]", "da"),
    ("$trigger.l[$index - 4]", 3),
    ("$trigger[$error.code == 'X' ? 'name' : 'n']", "Ada"),
    ("$a.rows[$index - 3]['v'].x ?? 'none'", "none"),
    ("$a.rows[$index - 3]['v']", "q"),
    ("$my-node.k", 3),
    ("$my-node.k - 1", 2),
    ("$a-b.x", 7),
    ("$a.x-$b.y", -1),
    ("$a.x -b.y", -1),
    ("$2nd", "second"),
    ("$node.fetch.body.id", 9),
    ("$node.my-node.k", 3),
    ("$node.Mail.y", 2),
    ("$node['Fetch user'].body.id", 9),
    ('$node["fetch"].status', 200),
    ("fetch.body.id", 9),
    ("fetch.output.body.id", 9),
    ("fetch.output", {"body": {"id": 9}, "status": 200}),
    ("my-node.k", 3),
    ("join", [{"v": 6}]),
    ("join.output[0].v", 6),
    ("input.node", True),
    ("$item.v", 1),
    ("$index", 4),
    ("$json.k", 1),
    ("$execution.id", "e1"),
    ("$error.code", "X"),
    ("[1, 2][0]", 1),
    ("{'a': {'b': 2}}.a.b", 2),
    ("'abc'[1]", "b"),
    ("[[1, 2]][0][1]", 2),
    ("exists($trigger.nil)", True),
    ("exists($trigger.nil.x)", False),
    ("exists($trigger.gone)", False),
    ("exists($fetch)", True),
    ("exists($execution)", True),
    ("exists($trigger.l[9])", False),
    ("exists(1)", True),
    ("default($trigger.gone, 1)", 1),
    ("default($trigger.zero, 1)", 0),
]


@pytest.mark.parametrize(("source", "expected"), VALUES, ids=[source for source, _ in VALUES])
def test_reference_value(source: str, expected: Any) -> None:
    assert evaluate(source) == expected


def test_output_key_of_node_result_is_used() -> None:
    assert evaluate("fetch.output.x", {"$fetch": {"output": {"x": 1}}}) == 1
    assert evaluate("$fetch.output ?? 'none'") == "none"
    with pytest.raises(MissingError):
        evaluate("fetch.output.x", {})


def test_bare_input_is_the_node_named_input() -> None:
    assert evaluate("input") == {"node": True}
    assert evaluate("$input") is SCOPE["$trigger"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("$trigger.user.nickname", r"\$trigger\.user is missing; \$trigger has: n, five, zero, "),
        ("$fetch.body.name", r"\$fetch\.body\.name is missing; \$fetch\.body has: id$"),
        ("$trigger['no key']", r"\$trigger\[\"no key\"\] is missing"),
        ("$trigger.l[7]", r"\$trigger\.l\[7\] is missing; \$trigger\.l has 4 elements"),
        ("$trigger.l.x", r"\$trigger\.l\.x is missing; \$trigger\.l is a list"),
        ("$trigger.nil.x", r"\$trigger\.nil\.x is missing; \$trigger\.nil is null"),
        ("$trigger.n.x", r"\$trigger\.n is a number"),
        ("$trigger.o[0]", r"\$trigger\.o\[0\] is missing; \$trigger\.o is an object"),
        ("$trigger.name.x", r"is text"),
        ("[x.gone for x in $a.rows]", r"x\.gone is missing; x has: v, n"),
        ("$a.rows[$index]", r"\$a\.rows\[4\] is missing"),
        ("{}.a", r"the value\.a is missing; the value has: nothing"),
        ("first([])", "needs a list that is not empty"),
    ],
)
def test_missing_reference_message(source: str, message: str) -> None:
    with pytest.raises(MissingError, match=message) as caught:
        evaluate(source)
    assert caught.value.code == "EXPRESSION_ERROR"


def test_missing_root_lists_available_roots() -> None:
    with pytest.raises(MissingError, match=r"^\$b is missing; available: \$a, \$trigger$"):
        evaluate("$b.x", {"$trigger": 1, "$a": 2, "@now": 0})


def test_long_name_list_in_message_is_cut() -> None:
    wide = {"$a": {"k" * 60: 1, **{f"k{i}": i for i in range(99)}}}
    with pytest.raises(MissingError) as caught:
        evaluate("$a.gone", wide)
    assert len(caught.value.message) < 200
    assert caught.value.message.endswith("…")


def test_scope_may_load_values_lazily() -> None:
    class Lazy(dict[str, Any]):
        def __missing__(self, key: str) -> Any:
            if key == "$a":
                return {"x": 1}
            raise KeyError(key)

    assert evaluate("$a.x", Lazy()) == 1
    assert evaluate("$b.x ?? $a.x", Lazy()) == 1
    assert evaluate("exists($b)", Lazy()) is False


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("$trigger[null]", "a key is text or a whole number, not null"),
        ("$trigger[true]", "not a boolean"),
        ("$trigger.l[1.0]", "not a number"),
        ("$trigger[[]]", "not a list"),
        ("$trigger[1:]", "cannot take a slice of an object"),
        ("$trigger.l['a':]", "bounds of a slice are whole numbers, not text"),
        ("$trigger.l[::0]", "step of a slice cannot be 0"),
    ],
)
def test_key_of_wrong_type_is_rejected_despite_default(source: str, message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        evaluate(f"{source} ?? 1")


REFERENCES = [
    ("$fetch.body.users[0].name", [("$fetch", ("body", "users", 0, "name"), False, 0)]),
    ("1 + $input.n", [("$trigger", ("n",), False, 4)]),
    ("$a[$b.i].c", [("$a", (), False, 0), ("$b", ("i",), False, 3)]),
    ("$a.b[$index].c", [("$a", ("b",), False, 0), ("$index", (), False, 5)]),
    ("$a.b[-1]['k']", [("$a", ("b", -1, "k"), False, 0)]),
    ("$a.b[1:]", [("$a", ("b",), False, 0)]),
    ("$a.x ?? $b.y", [("$a", ("x",), True, 0), ("$b", ("y",), False, 8)]),
    ("$a.x ?? $b.y ?? 1", [("$a", ("x",), True, 0), ("$b", ("y",), True, 8)]),
    ("($a.x ?? $b.y) ?? 1", [("$a", ("x",), True, 1), ("$b", ("y",), True, 9)]),
    ("exists($a.x) and $a.x", [("$a", ("x",), True, 7), ("$a", ("x",), False, 17)]),
    ("$a.x | default($b.y)", [("$a", ("x",), True, 0), ("$b", ("y",), False, 15)]),
    ("$a.x | upper | exists", [("$a", ("x",), True, 0)]),
    ("$a.x | upper", [("$a", ("x",), False, 0)]),
    ("fetch.output.x", [("$fetch", ("output", "x"), False, 0)]),
    ("$node['Fetch user'].x", [("$fetch", ("x",), False, 0)]),
    ("input.x + $input.x", [("$input", ("x",), False, 0), ("$trigger", ("x",), False, 10)]),
    ("[fetch.x for fetch in $a]", [("$a", (), False, 22)]),
    ("[x + $a.n for x in [1]]", [("$a", ("n",), False, 5)]),
    ("[b for b in b]", [("$b", (), False, 12)]),
    ("{{ $a.x }}", [("$a", ("x",), False, 3)]),
    ("1 + 1", []),
]


@pytest.mark.parametrize(("source", "expected"), REFERENCES)
def test_references_are_known_at_compile_time(source: str, expected: list[Any]) -> None:
    found = compile_expression(source, NAMES).references
    assert sorted(found, key=lambda each: each.offset) == [Reference(*each) for each in expected]


@pytest.mark.parametrize(
    ("source", "pure"),
    [
        ("$a.x", True),
        ("upper('a')", True),
        ("now()", False),
        ("[uuid() for x in [1]]", False),
        ("1 | exists", True),
    ],
)
def test_expression_purity(source: str, pure: bool) -> None:
    assert compile_expression(source, NAMES).pure is pure


@pytest.mark.parametrize(
    ("source", "offset", "message"),
    [
        ("$nosuch.k", 0, "unknown name \\$nosuch .*known here: "),
        (
            "$nosuch.k",
            0,
            r"known here: .* and \d+ more: the nodes of the workflow, and the references in docs/expressions.md$",
        ),
        ("1 + $fetsh.k", 4, r"did you mean \$fetch"),
        ("fetsh.k", 0, "did you mean .*fetch"),
        ("trigger.n", 0, r"did you mean \$trigger"),
        ("$fetcher.k", 0, r"unknown name \$fetcher"),
        ("$node.nosuch", 0, r"unknown name \$node"),
        ("$node['nosuch']", 0, r"unknown name \$node"),
        ("$node", 0, r"unknown name \$node"),
        ("$", 0, r"unknown name \$ "),
        ("$-x", 0, "unknown name"),
        ("$aé.x", 0, "unknown name"),
        ("upper", 0, "upper is a function.*write upper\\(text\\)"),
        ("[y for x in [1]]", 1, "unknown name y.*did you mean|known here"),
        ("[x for x in [1]] + [x]", 20, "unknown name x"),
        ("[1 for x in x]", 12, "unknown name x"),
    ],
)
def test_unknown_name_is_rejected(source: str, offset: int, message: str) -> None:
    with pytest.raises(ExpressionSyntaxError, match=message) as caught:
        compile_expression(source, NAMES)
    assert caught.value.offset == offset
    assert caught.value.code == "EXPRESSION_SYNTAX"


def test_dash_after_variable_is_minus() -> None:
    assert evaluate("[my-node for my in [5] for node in [2]]") == [3]
    assert evaluate("[x-y for x in [5] for y in [2]]") == [3]
    assert evaluate("a.x-b.y") == -1
