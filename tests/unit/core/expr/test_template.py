"""Templates: values, text and references inside parameters."""

from __future__ import annotations

from typing import Any

import pytest

from rune.core.expr import (
    BudgetError,
    ExpressionError,
    ExpressionSyntaxErrors,
    MissingError,
    Names,
    Reference,
    compile_template,
    is_dynamic,
)
from rune.core.expr.budget import MAX_BUILT_BYTES
from tests.unit.core.expr.evaluation import NAMES, SCOPE, resolve, same

RESOLVED: list[tuple[Any, Any]] = [
    # a single reference or expression keeps its type
    ("$trigger.n", 42),
    ("{{ $trigger.n }}", 42),
    ("{{$trigger.n}}", 42),
    ("$trigger.o", {"k": "v"}),
    ("$trigger.yes", True),
    ("$trigger.nil", None),
    ("{{ null }}", None),
    ("{{ {'a': {'b': 1}} }}", {"a": {"b": 1}}),
    ("{{{'a': 1}}}", {"a": 1}),
    ("{{ '}}' }}", "}}"),
    ("{{ '\\'}}' }}", "'}}"),
    ("$my-node.k", 3),
    ("$trigger.l[1]", 1),
    ("$trigger.l[-1]", 2),
    ('$trigger["odd key"]', 1),
    ("$trigger['odd key']", 1),
    ("$node.fetch.body.id", 9),
    ("$node['Fetch user'].body.id", 9),
    ("$2nd", "second"),
    ("$input.n", 42),
    # values inside text become text
    ("Count: $trigger.n", "Count: 42"),
    ("Count: {{ $trigger.n }}!", "Count: 42!"),
    (" {{ $trigger.n }}", " 42"),
    ("b={{ true }}", "b=true"),
    ("n={{ null }}!", "n=!"),
    ("f={{ 1.5 }}", "f=1.5"),
    ("l={{ [7] }}", "l=[7]"),
    ("o={{ $trigger.o }}", 'o={"k":"v"}'),
    ("u={{ {'a': [1, 'ü'], 'b': null} }}", 'u={"a":[1,"ü"],"b":null}'),
    ("{{ 1234567 }};", "1234567;"),
    ("{{ -3 }}°", "-3°"),
    ("{{ 1 }}{{ 2 }}", "12"),
    # a reference ends where its path ends
    ("Hello $trigger.name.", "Hello Ada."),
    ("$a.x-$b.y", "1-2"),
    ("$a-b.x-$b.y", "7-2"),
    ("($a.x)", "(1)"),
    ("https://h.example/u/$a.x/x", "https://h.example/u/1/x"),
    ("$trigger.name, bye", "Ada, bye"),
    ("$a.x$b.y", "12"),
    ("first: $a.rows[0].v!", "first: p!"),
    ("<$my-node.k>", "<3>"),
    ("$trigger.name's", "Ada's"),
    ("$trigger.name[x]", "Ada[x]"),
    ("$trigger.name[", "Ada["),
    ("$trigger.name[]", "Ada[]"),
    ("$trigger.name[-]", "Ada[-]"),
    ("$trigger.name['x]", "Ada['x]"),
    ("$trigger.name[0", "Ada[0"),
    ("$trigger.name[99999999999]", "Ada[99999999999]"),
    ("$trigger.name..", "Ada.."),
    ("$trigger.name.5", "Ada.5"),
    ("$index.", "4."),
    # dollar signs
    ("$5.00", "$5.00"),
    ("price $5.00 each", "price $5.00 each"),
    ("$$", "$"),
    ("pay $$trigger.n", "pay $trigger.n"),
    ("$$$trigger.n", "$42"),
    ("100 $ off", "100 $ off"),
    ("cost: 5$", "cost: 5$"),
    ("$USD $EUR", "$USD $EUR"),
    ("pay $USD $trigger.n to $unknown.name", "pay $USD 42 to $unknown.name"),
    ("$triggered or not", "$triggered or not"),
    ("$trigger\u00e9 x", "$trigger\u00e9 x"),
    ("$node.nosuch here", "$node.nosuch here"),
    ("$-x", "$-x"),
    ("$", "$"),
    ("${{ 1 }}", "$1"),
    ("a }} b", "a }} b"),
    ("{ $trigger.n }", "{ 42 }"),
    ("plain", "plain"),
    ("", ""),
    # nested values
    (7, 7),
    (None, None),
    ([1, "$a.x", ["$b.y"]], [1, 1, [2]]),
    ({"$a.x": "$a.x"}, {"$a.x": 1}),
    ({"deep": ["$trigger.n", "x{{ $trigger.n }}"], "lit": "$$"}, {"deep": [42, "x42"], "lit": "$"}),
    ({"a": [], "b": {}}, {"a": [], "b": {}}),
]


@pytest.mark.parametrize(("value", "expected"), RESOLVED, ids=[str(value) for value, _ in RESOLVED])
def test_template_value(value: Any, expected: Any) -> None:
    found = resolve(value)
    assert same(found, expected), found


def test_data_is_not_evaluated_as_template() -> None:
    scope = {"$trigger": {"ref": "$trigger.secret", "tpl": "{{ 1 + 1 }}", "secret": "s3cret"}}
    assert resolve("$trigger.ref", scope) == "$trigger.secret"
    assert resolve("{{ $trigger.tpl }}", scope) == "{{ 1 + 1 }}"
    assert resolve("got {{ $trigger.tpl }} and $trigger.ref", scope) == "got {{ 1 + 1 }} and $trigger.secret"
    injected = {"$trigger": {"cmd": 'x" or true or "'}}
    assert resolve('{{ $trigger.cmd == "safe" }}', injected) is False


def test_large_numbers_keep_all_digits_in_text() -> None:
    scope = {"$trigger": {"id": 12345678, "big": 9223372036854775807, "n": 2**70}}
    assert resolve("/u/{{ $trigger.id }}/$trigger.big/x", scope) == "/u/12345678/9223372036854775807/x"
    assert resolve("$trigger.n!", scope) == f"{2**70}!"


@pytest.mark.parametrize(
    ("value", "path", "message"),
    [
        ("{{ $trigger.absent }}", "", r"^\$trigger\.absent is missing"),
        ("x $trigger.absent", "", r"^\$trigger\.absent is missing"),
        (
            {"headers": {"X-Id": "{{ $trigger.absent }}"}},
            "headers.X-Id",
            r"^headers\.X-Id: \$trigger\.absent is",
        ),
        (
            {"assignments": [{"value": "$b.gone"}]},
            "assignments[0].value",
            r"^assignments\[0\]\.value: \$b\.gone",
        ),
        ({"a.b": ["{{ 1 / 0 }}"]}, '["a.b"][0]', r"^\[\"a\.b\"\]\[0\]: division by zero"),
        ({"": "{{ 1 / 0 }}"}, '[""]', "division by zero"),
        (["t {{ [] + 1 }}"], "[0]", r"^\[0\]: cannot add"),
    ],
)
def test_error_starts_with_path(value: Any, path: str, message: str) -> None:
    with pytest.raises(ExpressionError, match=message) as caught:
        resolve({"ok": "$a.x", **value} if isinstance(value, dict) else value)
    assert caught.value.path == path
    assert caught.value.code == "EXPRESSION_ERROR"


def test_missing_value_raises_missing_error() -> None:
    with pytest.raises(MissingError):
        resolve({"a": "$trigger.gone"})


REJECTED: list[tuple[Any, list[tuple[str, int, str]]]] = [
    ("{{ $nosuch.k }}", [("", 3, "unknown name \\$nosuch")]),
    ("$nosuch.k", [("", 0, "unknown name \\$nosuch ")]),
    ("$fetsh.body[0]", [("", 0, r"did you mean \$fetch")]),
    ("$nosuch", [("", 0, "unknown name")]),
    ("$no-such", [("", 0, "unknown name \\$no-such")]),
    ("$node.nosuch.x", [("", 0, r"unknown name \$node\.nosuch\.x")]),
    ("{{ 1 + }} and {{ * }}", [("", 6, "too early"), ("", 18, "too early")]),
    ("text {{ 1", [("", 5, r"\{\{ is not closed")]),
    ("{{ 'a }}", [("", 0, r"\{\{ is not closed")]),
    ("{{ }}", [("", 2, "empty")]),
    ("x $a.__class__", [("", 5, "two underscores")]),
    ("{{ $a.__class__ }}", [("", 6, "two underscores")]),
    (
        {"a": "{{ 1 + }}", "b": ["ok", "$nosuch.k"], "c": "$a.x"},
        [("a", 6, "too early"), ("b[1]", 0, "unknown name")],
    ),
]


@pytest.mark.parametrize(("value", "expected"), REJECTED, ids=[str(value) for value, _ in REJECTED])
def test_all_syntax_errors_are_reported(value: Any, expected: list[tuple[str, int, str]]) -> None:
    with pytest.raises(ExpressionSyntaxErrors) as caught:
        compile_template(value, NAMES)
    assert [(each.path, each.offset) for each in caught.value.errors] == [
        (path, at) for path, at, _ in expected
    ]
    for each, (_, _, message) in zip(caught.value.errors, expected, strict=True):
        assert each.code == "EXPRESSION_SYNTAX"
        with pytest.raises(type(each), match=message):
            raise each
        assert each.message in caught.value.message
    assert caught.value.code == "EXPRESSION_SYNTAX"


def test_nesting_above_limit_is_rejected() -> None:
    value: Any = "$a.x"
    for _ in range(100):
        value = [value]
    resolve(value)
    with pytest.raises(ExpressionSyntaxErrors, match="limit: 100"):
        compile_template([value], NAMES)


def test_template_references_are_known_at_compile_time() -> None:
    template = compile_template({"u": "a {{ 1 + $a.x }} $input.n", "v": ["{{ $b.y ?? 1 }}"], "w": 1}, NAMES)
    assert template.references == (
        Reference("$a", ("x",), False, 9),
        Reference("$trigger", ("n",), False, 17),
        Reference("$b", ("y",), True, 3),
    )
    assert template.pure
    assert not template.constant


@pytest.mark.parametrize(
    ("value", "pure", "constant"),
    [
        ("plain", True, True),
        ({"a": [1, "$5"]}, True, True),
        ("{{ 1 + 1 }}", True, True),
        ("$a.x", True, False),
        ("{{ now() }}", False, False),
        (["{{ uuid() }}", "{{ 1 }}"], False, False),
    ],
)
def test_template_purity_and_constancy(value: Any, pure: bool, constant: bool) -> None:
    template = compile_template(value, NAMES)
    assert template.pure is pure
    assert template.constant is constant


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", False),
        ("", False),
        ("$5.00", False),
        ("$$", False),
        ("$USD and $EUR", False),
        ("a { b }", False),
        ("$a.x", True),
        ("x $a.x", True),
        ("{{ 1 }}", True),
        ("{{ broken", True),
        ("$nosuch.k", True),
    ],
)
def test_is_dynamic(text: str, expected: bool) -> None:
    assert is_dynamic(text, NAMES) is expected


def test_uuids_of_one_template_are_distinct() -> None:
    template = compile_template({"a": "{{ uuid() }}", "b": "{{ uuid() }} {{ uuid() }}"}, NAMES)
    found = template.resolve(SCOPE)
    assert len({found["a"], *found["b"].split()}) == 3
    assert template.resolve(SCOPE) == found


def test_node_named_node_is_used_unless_path_names_another_node() -> None:
    names = Names(frozenset({"node", "a"}), {})
    scope = {"$node": {"x": 1}, "$a": {"x": 2}}
    assert compile_template("$node.x", names).resolve(scope) == 1
    assert compile_template("$node.a.x", names).resolve(scope) == 2


def test_text_above_size_limit_is_rejected() -> None:
    scope = {"$trigger": "x" * (MAX_BUILT_BYTES // 2)}
    assert len(resolve("$trigger{{ $trigger }}", scope)) == MAX_BUILT_BYTES
    with pytest.raises(BudgetError, match="1,048,576 bytes"):
        resolve("$trigger{{ $trigger }}!", scope)
    assert resolve({"a": "$trigger", "b": "$trigger", "c": "$trigger"}, scope)["c"] is scope["$trigger"]


def test_value_not_serialisable_to_text_is_rejected() -> None:
    with pytest.raises(ExpressionError, match="cannot be written as JSON"):
        resolve("x $trigger", {"$trigger": [float("nan")]})
    with pytest.raises(ExpressionError, match="cannot be written as JSON"):
        resolve("x $trigger", {"$trigger": object()})
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(ExpressionError, match="nested too deeply"):
        resolve("x $trigger", {"$trigger": deep})
