"""Imported state machines give the values that the States Language and JSONata define, or the report says what differs.

The results are those of the documentation of Step Functions, of the States Language and of JSONata. Each expression is
imported and run.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from rune.core.expr import ExpressionError, Names, compile_expression
from rune.documents.importers import Import, import_document
from rune.documents.importers.asl.jsonata import translate_jsonata
from rune.nodes.registry import standard_catalogue
from tests.unit.importers.mocked import run_mocked

FAILS = "the state fails"
INPUT = {
    "n": 5, "s": "10", "a": [3, 1, 2], "length": 7, "b": True, "z": None, "f": 2.5, "one": [0], "empty": [],
    "o": {"k": [{"v": 1}, {"v": 2}, {"x": 3}], "a.b": 3, "m": {"v": 4}}, "t": " a \n b ", "lines": "x\ny",
    "d": "2024-01-01T00:00:00Z", "later": "2024-01-01T01:00:00.5+01:00", "all": [{"a": 1}, {"b": 2, "a": 3}],
    "deep": [{"k": [1, 2]}, {"k": [3]}],
}  # fmt: skip


def imported(machine: dict[str, Any]) -> Import:
    return import_document(json.dumps(machine), standard_catalogue())


def remarks(found: Import) -> list[str]:
    return [f"{each.status}: {each.message}" for each in found.report.entries if each.status != "carried"]


def outcome(found: Import, payload: Any, node: str = "A") -> Any:
    result, _ = run_mocked(found.document, payload, {}, {})
    if result["status"] != "completed":
        return FAILS
    return next(each["output"] for each in result["nodes"] if each["node_id"] == node)


def passing(expression: str) -> dict[str, Any]:
    return {
        "StartAt": "A",
        "States": {"A": {"Type": "Pass", "Parameters": {"v.$": expression}, "End": True}},
    }


def asking(expression: str) -> dict[str, Any]:
    state = {"Type": "Pass", "Output": {"v": f"{{% {expression} %}}"}, "End": True}
    return {"QueryLanguage": "JSONata", "StartAt": "A", "States": {"A": state}}


def choosing(rule: dict[str, Any]) -> dict[str, Any]:
    def ends(text: str) -> dict[str, Any]:
        return {"Type": "Pass", "Result": {"v": text}, "ResultPath": "$.took", "End": True}

    choice = {"Type": "Choice", "Choices": [{**rule, "Next": "Y"}], "Default": "N"}
    return {"StartAt": "C", "States": {"C": choice, "Y": ends("yes"), "N": ends("no")}}


PATHS = [
    ("$.n", 5),
    ("$.nope", FAILS),
    ("$.length", 7),
    ("$.a[0]", 3),
    ("$.a[-1]", 2),
    ("$.a[5]", FAILS),
    ("$.s[0]", FAILS),
    ("$.a[0:2]", [3, 1]),
    ("$.s[0:1]", FAILS),
    ("$.o.k[*].v", [1, 2]),
    ("$.o.k[*].w", []),
    ("$.o.k[*].v[0]", []),
    ("$.deep[*].k[-1]", [2, 3]),
    ("$.o.k[0:2].v", [1, 2]),
    ("$.o.m[*]", [4]),
    ("$.o.m.*", [4]),
    ("$.a[*]", [3, 1, 2]),
    ("$.nope[*].v", FAILS),
    ("$.o.k.v", FAILS),
    ("$['o']['a.b']", 3),
]
INTRINSICS = [
    ("States.Format('{}', $.z)", "null"),
    ("States.Format('{}', null)", "null"),
    ("States.Format('{}/{}', $.n, $.b)", "5/true"),
    (r"States.Format('\'{}\' \{x\} {{ $json.n }} $x {}', $.s, 1)", "'10' {x} {{ $json.n }} $x 1"),
    ("States.Format('{}', States.ArrayGetItem($.a, 0))", "3"),
    ("States.Format('{}', States.StringToJson('null'))", "null"),
    ("States.Format('{}', $.nope)", FAILS),
    ("States.StringToJson('{\"a\":[1]}')", {"a": [1]}),
    ("States.JsonToString($.o.m)", '{"v":4}'),
    ("States.Array(1,'x',null,$.a)", [1, "x", None, [3, 1, 2]]),
    ("States.ArrayLength($.a)", 3),
    ("States.ArrayLength($.s)", FAILS),
    ("States.ArrayLength($.o)", FAILS),
    ("States.ArrayContains($.a, 1)", True),
    ("States.ArrayContains($.a, '1')", False),
    ("States.ArrayContains($.s, '1')", FAILS),
    ("States.ArrayContains($.o, 'k')", FAILS),
    ("States.ArrayRange(1, 9, 2)", [1, 3, 5, 7, 9]),
    ("States.ArrayRange(1, 10, 3)", [1, 4, 7, 10]),
    ("States.ArrayRange(9, 1, -2)", [9, 7, 5, 3, 1]),
    ("States.ArrayRange($.n, $.a[1], States.MathAdd($.a[2], -4))", [5, 3, 1]),
    ("States.ArrayGetItem($.a, 1)", 1),
    ("States.ArrayGetItem($.a, 9)", FAILS),
    ("States.ArrayGetItem($.s, 0)", FAILS),
    ("States.ArrayUnique(States.Array(1, 1, '1'))", [1, "1"]),
    ("States.StringSplit('a,b;c', ',;')", ["a", "b", "c"]),
    ("States.StringSplit('a,,b,', ',')", ["a", "b"]),
    (r"States.StringSplit('a]b^c-d\\e', ']^-\\')", ["a", "b", "c", "d", "e"]),
    ("States.StringSplit($.lines, 'x')", ["\ny"]),
    ("States.StringSplit($.n, ',')", FAILS),
    ("States.MathAdd($.n, -1)", 4),
    ("States.MathAdd($.a, 1)", FAILS),
    ("States.MathAdd($.s, 1)", FAILS),
    ("States.Base64Encode('ü')", "w7w="),
    ("States.Base64Decode('w7w=')", "ü"),
    ("States.JsonMerge($.o.m, $.o.k[2], false)", {"v": 4, "x": 3}),
    ("States.JsonMerge($.o.m, $.a, false)", FAILS),
]
JSONATA = [
    ("$exists($states.input.nope)", False),
    ("$exists($states.input.z)", True),
    ("$exists($states.input.a[9])", False),
    ("$states.input.length", 7),
    ("$states.input.nope", FAILS),
    ("$states.input.o.`a.b`", 3),
    ("$states.input.o.'a.b'", 3),
    ("10 % -3", 1),
    ("-7 % 3", -1),
    ("-$states.input.n % 3", -2),
    ("$boolean([0])", False),
    ("$boolean($states.input.one)", False),
    ("$boolean($states.input.a)", True),
    ("$boolean('0')", True),
    ("$not($states.input.empty)", True),
    ("$states.input.n and 0", False),
    ("'x' or false", True),
    ("$states.input.nope or 'x'", True),
    ("'10' & 2", "102"),
    ("$states.input.s * 2", FAILS),
    ("2 * $states.input.a", FAILS),
    ("$states.input.s + $states.input.s", FAILS),
    ("$states.input.a + $states.input.a", FAILS),
    ("$states.input.nope + 1", FAILS),
    ("$states.input.n = '5'", False),
    ("$states.input.nope != 1", False),
    ("$states.input.nope = null", False),
    ("$states.input.z = null", True),
    ("$states.input.n > '4'", FAILS),
    ("$states.input.nope > 4 ? 1 : 2", 2),
    ("$states.input.empty ? 1 : 2", 2),
    ("1 - 2 - 3", -4),
    ("2 + 3 * 4 = 14 and true", True),
    ("1 < 2 = true", True),
    ("$states.input.n[0]", 5),
    ("$states.input.s[0]", "10"),
    ("$states.input.a[-1]", 2),
    ("$states.input.z & 'x'", "nullx"),
    ("$states.input.nope & 'x'", "x"),
    ("$states.input.a & ''", "[3,1,2]"),
    ("[$states.input.a, 4]", [3, 1, 2, 4]),
    ("[[$states.input.a], 4]", [[3, 1, 2], 4]),
    ("[$states.input.nope, 1]", [1]),
    ("{'a': $states.input.nope, 'b': 1}", {"b": 1}),
    ("{'a': $states.input.z}", {"a": None}),
    ("$merge([{'a': 1}, {'b': 2}])", {"a": 1, "b": 2}),
    ("$merge($states.input.all)", {"a": 3, "b": 2}),
    ("$merge({'a': 1})", {"a": 1}),
    ("$keys({'a': 1})", "a"),
    ("$keys({'a': 1, 'b': 2})", ["a", "b"]),
    ("$keys({})", FAILS),
    ("$length($states.input.s)", 2),
    ("$length($states.input.a)", FAILS),
    ("$count($states.input.n)", 1),
    ("$count($states.input.nope)", 0),
    ("$sum($states.input.n)", 5),
    ("$sum(['1'])", FAILS),
    ("$max(['a'])", FAILS),
    ("$max([])", FAILS),
    ("$average([1, 2, 6])", 3),
    ("$string(null)", "null"),
    ("$string([1, 'a'])", '[1,"a"]'),
    ("$number('12.5')", 12.5),
    ("$number('0x10') = 16 ? 1 : 2", FAILS),
    ("$number('12px')", FAILS),
    ("$join(['a', 'b'])", "ab"),
    ("$join($states.input.a, '-')", FAILS),
    ("$join('a', '-')", "a"),
    ("$split('a b', ' ')", ["a", "b"]),
    ("$trim($states.input.t)", "a b"),
    ("$contains('abc', 'b')", True),
    ("$contains($states.input.a, 3)", FAILS),
    ("$replace('a.b.', '.', '-')", "a-b-"),
    ("$uppercase('ß')", "SS"),
    ("$distinct([1, 1, '1'])", [1, "1"]),
    ("$distinct('aa')", "aa"),
    ("$reverse([1, 2])", [2, 1]),
    ("$abs(-5)", 5),
    ("$parse('[1]')", [1]),
    ("1/0", FAILS),
    ("$states.context.Execution.Input", INPUT),
    ("$states.context.Execution.Input.o.m.v", 4),
    ("$states.context.State.Name & '!'", "A!"),
]
DIFFERENT = [
    (asking("$states.input.o.k.v"), [1, 2], "a field of a list"),
    (asking("$exists($states.input.o.k.v)"), True, "a field of a list"),
    (asking("$string(6 / 2)"), "3", "5.0 stays 5.0"),
    (asking("$number(true)"), 1, "of a boolean"),
    (asking("$base64encode('ü')"), "/A==", "UTF-8"),
    (asking("$encodeUrlComponent('a!')"), "a!", "are encoded too"),
    (asking("$boolean([[0]])"), False, "lists in lists"),
    (passing("States.ArrayGetItem($.a, States.MathAdd($.n, -6))"), FAILS, "negative index"),
    (passing("States.Format('{}', $.a)"), "[3, 1, 2]", "written into texts as JSON"),
    (passing("States.Format('{}', $.o.m)"), "{v=4}", "written into texts as JSON"),
    (passing("$$.Execution.Id"), "arn:aws:states:…", "not an ARN"),
    (asking("$states.context.Execution.Name"), "a name", "not an ARN"),
    (passing("States.Hash($.a, 'SHA-256')"), "a hash", "not a text"),
]
REFUSED = [
    *map(asking, (
        "$states.input.o.k[v=2].v", "$states.input.o['k']", "$states.input.a[$states.input.n]",
        "$states.input.a.length()",
        "$states.input.s.toUpperCase()", "$x := 1", "$states.input.a ~> $sum()", "[1..3]", "$map($states.input.a, $f)",
        "$sum(1, 2)", "$split('a b', '')", "$now('[Y]')", "n", "1 === 1", "$states.input.a.(n)", "'a' * 2", "-'a'",
        "$length(1)",
    )),
    *map(passing, (
        "States.MathAdd($.n, 1.5)", "States.StringSplit($.s, $.s)", "States.StringSplit($.s, '')",
        "States.ArrayGetItem($.a, -1)", "States.ArrayRange(1, 5, 0)", "States.Hash('x', 'MD5')", "States.Format('{}')",
        "States.JsonMerge($.o, $.o, true)", "States.MathRandom(1, 2)", "$.deep[*].k[*]", "$..v", "$.o.k[?(@.v==2)]",
    )),
]  # fmt: skip
RULES: list[tuple[dict[str, Any], str]] = [
    ({"Variable": "$.n", "NumericEquals": 5}, "yes"),
    ({"Variable": "$.s", "NumericEquals": 10}, "no"),
    ({"Variable": "$.n", "StringEquals": "5"}, "no"),
    ({"Variable": "$.n", "StringLessThan": "9"}, "no"),
    ({"Not": {"Variable": "$.n", "StringEquals": "5"}}, "yes"),
    ({"Variable": "$.b", "NumericEquals": 1}, "no"),
    ({"Variable": "$.b", "BooleanEquals": True}, "yes"),
    ({"Variable": "$.s", "BooleanEquals": True}, "no"),
    ({"Variable": "$.n", "NumericLessThanPath": "$.s"}, "no"),
    ({"Variable": "$.n", "NumericGreaterThanPath": "$.f"}, "yes"),
    ({"Variable": "$.s", "StringEqualsPath": "$.n"}, "no"),
    ({"Variable": "$.nope", "IsPresent": False}, "yes"),
    ({"Variable": "$.nope.x", "IsPresent": True}, "no"),
    ({"Variable": "$.a[9]", "IsPresent": True}, "no"),
    ({"Variable": "$.s[0]", "IsPresent": True}, "no"),
    ({"Variable": "$.z", "IsPresent": True}, "yes"),
    ({"Variable": "$.z", "IsNull": True}, "yes"),
    ({"Variable": "$.nope", "StringEquals": "x"}, FAILS),
    ({"Variable": "$.nope", "IsNull": True}, FAILS),
    ({"And": [{"Variable": "$.nope", "IsPresent": True}, {"Variable": "$.nope", "NumericEquals": 1}]}, "no"),
    ({"Variable": "$.s", "StringMatches": "1*"}, "yes"),
    ({"Variable": "$.s", "StringMatches": "1?"}, "no"),
    ({"Variable": "$.s", "StringMatches": "1\\*"}, "no"),
    ({"Variable": "$.n", "StringMatches": "5"}, "no"),
    ({"Variable": "$.lines", "StringMatches": "x*y"}, "yes"),
    ({"Variable": "$.d", "TimestampEquals": "2024-01-01T01:00:00+01:00"}, "yes"),
    ({"Variable": "$.later", "TimestampGreaterThan": "2024-01-01T00:00:00Z"}, "yes"),
    ({"Variable": "$.later", "TimestampLessThanPath": "$.d"}, "no"),
    ({"Variable": "$.s", "TimestampLessThan": "2024-01-01T00:00:00Z"}, "no"),
    ({"Variable": "$.n", "TimestampLessThan": "2024-01-01T00:00:00Z"}, "no"),
    ({"Variable": "$.d", "IsTimestamp": True}, "yes"),
    ({"Variable": "$.s", "IsTimestamp": True}, "no"),
    ({"Variable": "$.b", "IsNumeric": True}, "no"),
]


@pytest.mark.parametrize(("expression", "expected"), PATHS + INTRINSICS)
def test_imported_path_or_intrinsic_function_gives_the_value_of_step_functions(
    expression: str, expected: Any
) -> None:
    found = outcome(imported(passing(expression)), INPUT)

    assert found == (expected if expected is FAILS else {"v": expected})


@pytest.mark.parametrize(("expression", "expected"), JSONATA)
def test_imported_jsonata_gives_the_value_of_jsonata(expression: str, expected: Any) -> None:
    found = outcome(imported(asking(expression)), INPUT)

    assert found == (expected if expected is FAILS else {"v": expected})


@pytest.mark.parametrize(("machine", "expected", "remark"), DIFFERENT)
def test_report_names_the_difference_of_a_value(machine: dict[str, Any], expected: Any, remark: str) -> None:
    found = imported(machine)

    assert outcome(found, INPUT) not in ({"v": expected}, expected)
    assert [each for each in remarks(found) if each.startswith("approximated: ") and remark in each]


@pytest.mark.parametrize("machine", REFUSED)
def test_expression_without_counterpart_is_by_hand(machine: dict[str, Any]) -> None:
    assert [each for each in remarks(imported(machine)) if each.startswith("by_hand: ")]


@pytest.mark.parametrize(("rule", "expected"), RULES)
def test_imported_rule_chooses_as_step_functions_does(rule: dict[str, Any], expected: str) -> None:
    result, _ = run_mocked(imported(choosing(rule)).document, INPUT, {}, {})

    chosen = [
        each["node_id"]
        for each in result["nodes"]
        if each["node_id"] in ("Y", "N") and each["status"] == "success"
    ]
    assert chosen == {"yes": ["Y"], "no": ["N"], FAILS: []}[expected]


@pytest.mark.parametrize("payload", [[{"a": 1}], []])
def test_result_path_on_a_list_fails(payload: Any) -> None:
    state = {"Type": "Pass", "Result": 1, "ResultPath": "$.x", "End": True}

    assert outcome(imported({"StartAt": "A", "States": {"A": state}}), payload) == FAILS


@pytest.mark.parametrize(
    "state",
    [
        {"Type": "Choice", "Choices": [{"Variable": "$.v", "NumericEquals": 4, "Next": "A"}], "Default": "F"},
        {"Type": "Wait", "Seconds": 0, "Next": "A"},
    ],
)
def test_input_path_of_a_choice_or_wait_gives_its_output(state: dict[str, Any]) -> None:
    states = {"C": {**state, "InputPath": "$.o.m"}, "A": {"Type": "Pass", "End": True}, "F": {"Type": "Fail"}}

    assert outcome(imported({"StartAt": "C", "States": states}), INPUT) == {"v": 4}


@pytest.mark.parametrize("payload", [{"v": 1}, [1]])
def test_wait_at_the_end_gives_its_input(payload: Any) -> None:
    found = imported({"StartAt": "A", "States": {"A": {"Type": "Wait", "Seconds": 0, "End": True}}})

    result, _ = run_mocked(found.document, payload, {}, {})

    assert list(result["output"].values()) == [payload]


def test_item_selector_reads_the_selected_input() -> None:
    body = {"StartAt": "E", "States": {"E": {"Type": "Pass", "End": True}}}
    state = {
        "Type": "Map",
        "InputPath": "$.o",
        "ItemsPath": "$.k",
        "ItemSelector": {"x.$": "$.m.v"},
        "End": True,
    }
    machine = {"StartAt": "A", "States": {"A": {**state, "ItemProcessor": body}}}

    assert outcome(imported(machine), INPUT) == [{"x": 4}] * 3


def test_result_that_looks_like_an_expression_is_data() -> None:
    state = {"Type": "Pass", "Result": {"t": "{% 1 + 1 %}"}, "End": True}

    assert outcome(imported({"StartAt": "A", "States": {"A": state}}), {}) == {"t": "{% 1 + 1 %}"}


def test_report_is_free_of_remarks_where_nothing_differs() -> None:
    noted = ("MathAdd($", "Format('{", r"Format('\'", ", $.a[1], ")
    agreeing = [each for each, _ in PATHS + INTRINSICS if not any(part in each for part in noted)]
    agreeing += ["States.Format('{}', null)", "States.Format('{}', States.ArrayLength($.a))"]

    assert [each for each in agreeing if remarks(imported(passing(each)))] == []


def test_field_of_a_response_has_no_remark() -> None:
    arguments = {"ApiEndpoint": "https://api.example/", "Method": "GET"}
    output = {"code": "{% $states.result.StatusCode %}"}
    state = {"Type": "Task", "Resource": "arn:aws:states:::http:invoke", "Arguments": arguments, "End": True}
    machine = {"QueryLanguage": "JSONata", "StartAt": "A", "States": {"A": {**state, "Output": output}}}

    assert remarks(imported(machine)) == []


def test_output_that_may_be_neither_object_nor_list_is_approximated() -> None:
    state = {"Type": "Pass", "Output": "{% 1 + 1 %}", "End": True}
    machine = {"QueryLanguage": "JSONata", "StartAt": "A", "States": {"A": state}}

    assert [each for each in remarks(imported(machine)) if "neither an object nor a list" in each]


# Operators of JSONata on every pair of values

MISSING = object()
VALUES = {
    "zero": 0, "n": 5, "negative": -7, "decimal": 2.5, "blank": "", "text": "10", "yes": True, "no": False,
    "nothing": None, "empty": [], "false": [0], "list": [3, 1], "bare": {}, "object": {"a": 1}, "missing": MISSING,
}  # fmt: skip


class BrokenError(Exception):
    """The expression is an error."""


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_true(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(is_true, value))
    return value is not MISSING and bool(value)


def text_of(value: Any) -> str:
    if value is MISSING:
        return ""
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def calculated(work: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def apply(left: Any, right: Any) -> Any:
        if any(each is not MISSING and not is_number(each) for each in (left, right)):
            raise BrokenError
        if MISSING in (left, right):
            return MISSING
        try:
            return work(left, right)
        except (ZeroDivisionError, ValueError):
            raise BrokenError from None

    return apply


def ordered(work: Callable[[Any, Any], bool]) -> Callable[[Any, Any], Any]:
    def apply(left: Any, right: Any) -> Any:
        sides = (left, right)
        if any(each is not MISSING and not is_number(each) and not isinstance(each, str) for each in sides):
            raise BrokenError
        if MISSING in sides:
            return MISSING
        if is_number(left) != is_number(right):
            raise BrokenError
        return work(left, right)

    return apply


def same(left: Any, right: Any) -> bool:
    return isinstance(left, bool) == isinstance(right, bool) and left == right


OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": calculated(lambda left, right: left + right),
    "-": calculated(lambda left, right: left - right),
    "*": calculated(lambda left, right: left * right),
    "/": calculated(lambda left, right: left / right),
    "%": calculated(math.fmod),
    "<": ordered(lambda left, right: left < right),
    ">=": ordered(lambda left, right: left >= right),
    "=": lambda left, right: MISSING not in (left, right) and same(left, right),
    "!=": lambda left, right: MISSING not in (left, right) and not same(left, right),
    "and": lambda left, right: is_true(left) and is_true(right),
    "or": lambda left, right: is_true(left) or is_true(right),
    "&": lambda left, right: text_of(left) + text_of(right),
}


class Input:
    """`$states.input` is the start payload."""

    def resolve(self, steps: list[str]) -> tuple[str, int, str]:
        return "$trigger", 1, ""


def value_of(expression: str, payload: Any) -> Any:
    """Return the value of translated JSONata; no value and an error are the same to a state."""
    text = translate_jsonata(expression, Input()).text
    try:
        return compile_expression(text, Names(frozenset(), {})).evaluate({"$trigger": payload, "@now": 0})
    except ExpressionError:
        return FAILS


def expected_of(operator: str, left: Any, right: Any) -> Any:
    try:
        found = OPERATORS[operator](left, right)
    except BrokenError:
        return FAILS
    return FAILS if found is MISSING else found


@pytest.mark.parametrize("operator", OPERATORS)
def test_operator_gives_the_value_of_jsonata_for_every_pair_of_values(operator: str) -> None:
    payload = {name: value for name, value in VALUES.items() if value is not MISSING}
    different = []
    for left, right in itertools.product(VALUES, repeat=2):
        expected = expected_of(operator, VALUES[left], VALUES[right])
        found = value_of(f"$states.input.{left} {operator} $states.input.{right}", payload)
        if not same(found, expected):
            different.append((left, operator, right, found, expected))

    assert different == []
