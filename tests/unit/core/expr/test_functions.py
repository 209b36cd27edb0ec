"""Functions of the expression language: values and rejected arguments."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rune.core.expr import FUNCTIONS, ExpressionError, ExpressionSyntaxError, MissingError, compile_expression
from rune.core.expr.budget import Evaluation
from rune.core.expr.compiler import WRITTEN_AS
from tests.unit.core.expr.evaluation import NAMES, SCOPE, evaluate, same, trigger

ALL = (
    "len str int float bool json parse_json upper lower trim split join replace starts_with ends_with matches"
    " find_all min max sum avg round abs sorted reversed unique flatten range keys values items merge first"
    " last zip now parse_date format_date add_time base64 from_base64 sha256 hmac_sha256 url_encode uuid"
    " exists get default type"
)


def test_function_table_is_complete() -> None:
    assert sorted(FUNCTIONS) == sorted(ALL.split())


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_function_example_gives_its_result(name: str) -> None:
    function = FUNCTIONS[name]
    assert f"{name}(" in function.example
    assert same(evaluate(function.example), json.loads(function.result))


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_function_entry_is_complete(name: str) -> None:
    function = FUNCTIONS[name]
    assert function.name == name
    assert function.signature.startswith(f"{name}(")
    assert function.doc.endswith(".")
    assert callable(function.call)


VALUES: list[tuple[str, Any]] = [
    # text
    ("upper('straße')", "STRASSE"),
    ("lower('ÄB')", "äb"),
    ("trim('\\n a \\t')", "a"),
    ("split('a b  c')", ["a", "b", "c"]),
    ("split('a,,b', ',')", ["a", "", "b"]),
    ("join(['a', 1, 1.5, null, false, [1]], '-')", "a-1-1.5--false-[1]"),
    ("join([])", ""),
    ("join(['a', 'b'])", "ab"),
    ("replace('aaa', 'a', 'bb')", "bbbbbb"),
    ("starts_with('abc', 'b')", False),
    ("ends_with('abc', 'b')", False),
    ("matches('order', '^[0-9]+$')", False),
    ("matches('an order', 'order')", True),
    ("matches('x', r'\\w')", True),
    ("find_all('a1b2', '[a-z]([0-9])')", ["1", "2"]),
    ("find_all('a1b2', '([a-z])([0-9])')", [["a", "1"], ["b", "2"]]),
    ("find_all('ab', '(a)|(b)')", [["a", None], [None, "b"]]),
    ("find_all('', 'x')", []),
    # lists and objects
    ("len('ab') + len([1]) + len({'a': 1})", 4),
    ("sorted([3, 1.5, 2])", [1.5, 2, 3]),
    ("sorted(['b', 'a'])", ["a", "b"]),
    ("sorted([])", []),
    ("sorted([1, 2], reverse=true)", [2, 1]),
    ("sorted([1, 2], null, true)", [2, 1]),
    ("sorted($a.rows, 'n')", [{"v": "q", "n": 1}, {"v": "p", "n": 2}]),
    ("sorted($a.rows, key='v', reverse=true)", [{"v": "q", "n": 1}, {"v": "p", "n": 2}]),
    ("sorted([{'k': 1, 'i': 1}, {'k': 0, 'i': 2}, {'k': 1, 'i': 3}], 'k') | last", {"k": 1, "i": 3}),
    ("sorted([[2, 'a'], [1, 'b']], '0')", [[1, "b"], [2, "a"]]),
    ("reversed(sorted([2, 3]))", [3, 2]),
    (
        "unique([1, 1.0, true, '1', null, null, [1], [1.0], {'a': 1}, {'a': 1.0}, [true]])",
        [1, True, "1", None, [1], {"a": 1}, [True]],
    ),
    ("flatten([[1], 2, [[3]]])", [1, 2, [3]]),
    ("range(2, 5)", [2, 3, 4]),
    ("range(5, 0, -2)", [5, 3, 1]),
    ("range(0, 5, 2)", [0, 2, 4]),
    ("range(3, 0)", []),
    ("range(0)", []),
    ("[first([1, 2]), last([1, 2])]", [1, 2]),
    ("first([]) ?? 'none'", "none"),
    ("zip([1, 2, 3], ['a', 'b'])", [[1, "a"], [2, "b"]]),
    ("zip([1])", [[1]]),
    ("keys({'x': 1})", ["x"]),
    ("values({'x': [1]})", [[1]]),
    ("items({'x': 1, 'y': 2})", [["x", 1], ["y", 2]]),
    ("merge({'a': 1})", {"a": 1}),
    ("merge({'a': 1}, {'b': 2}, {'a': 3})", {"a": 3, "b": 2}),
    ("get({'a': [{'b': 1}]}, 'a.0.b')", 1),
    ("get({'a': [{'b': 1}]}, 'a.-1.b')", 1),
    ("get({'a': {'0': 1}}, 'a.0')", 1),
    ("get([1, 2], 1)", 2),
    ("get([1, 2], 9, 'd')", "d"),
    ("get({'a': null}, 'a', 'd')", None),
    ("get(null, 'a', 'd')", "d"),
    ("get({}, 'a')", None),
    ("default(false, 1)", False),
    # numbers
    ("int(' -7 ')", -7),
    ("int(3.9)", 3),
    ("int(true)", 1),
    ("int('+1')", 1),
    ("float(' -1.5e3 ')", -1500.0),
    ("float(1)", 1.0),
    ("float(true)", 1.0),
    ("bool('')", False),
    ("round(2.5)", 2),
    ("round(3.7)", 4),
    ("round(1234, -2)", 1200),
    ("round(7)", 7),
    ("abs(1.5)", 1.5),
    ("min(3, 1, 2)", 1),
    ("max('a', 'b')", "b"),
    ("max([1, 2.5])", 2.5),
    ("max([]) ?? 0", 0),
    ("sum([])", 0),
    ("sum([1, 0.5])", 1.5),
    ("sum(x.n for x in $a.rows)", 3),
    ("avg([1, 2])", 1.5),
    ("avg([]) ?? 0", 0),
    # JSON and types
    ("str('a')", "a"),
    ("str(null)", ""),
    ("str(true)", "true"),
    ("str(1.5)", "1.5"),
    ("json('a')", '"a"'),
    ("json(null)", "null"),
    ("json({'a': [1, 'ü']})", '{"a":[1,"ü"]}'),
    ("parse_json(json({'a': [1, 1.5, null, true]}))", {"a": [1, 1.5, None, True]}),
    ("parse_json('123456789012345678901234567890')", 123456789012345678901234567890),
    (
        "[type(x) for x in [null, true, 1, 1.5, '', [], {}]]",
        ["null", "boolean", "number", "number", "string", "array", "object"],
    ),
    # dates
    ("now()", "2023-11-14T22:13:20.250Z"),
    ("parse_date('2024-03-01T06:00:00+02:00')", "2024-03-01T04:00:00Z"),
    ("parse_date('2024-03-01')", "2024-03-01T00:00:00Z"),
    ("parse_date('2024-03-01T00:00:00.5')", "2024-03-01T00:00:00.500Z"),
    ("parse_date('2024-03-01T00:00:00.000001Z')", "2024-03-01T00:00:00.000001Z"),
    ("parse_date('20240301')", "2024-03-01T00:00:00Z"),
    ("parse_date('2025-W01-2')", "2024-12-31T00:00:00Z"),
    ("parse_date('2025-W01')", "2024-12-30T00:00:00Z"),
    ("parse_date(0)", "1970-01-01T00:00:00Z"),
    ("parse_date(1.5)", "1970-01-01T00:00:01.500Z"),
    ("parse_date('3 Feb 2024 5:07 PM', '%d %b %Y %I:%M %p')", "2024-02-03T17:07:00Z"),
    ("parse_date('12:00 am', '%I:%M %p')", "1900-01-01T00:00:00Z"),
    ("parse_date('Tuesday, 3 December 24', '%A, %e %B %y')", "2024-12-03T00:00:00Z"),
    ("parse_date('Tue 99', '%a %y')", "1999-01-01T00:00:00Z"),
    ("parse_date('2024-01-01 10:00:00.25 +0130', '%F %T.%f %z')", "2024-01-01T08:30:00.250Z"),
    ("parse_date('2024-01-01 -02:00', '%F %z')", "2024-01-01T02:00:00Z"),
    ("parse_date('2024-01-01Z', '%F%z')", "2024-01-01T00:00:00Z"),
    ("parse_date('2024-01-01 UTC 5%', '%F %Z 5%%')", "2024-01-01T00:00:00Z"),
    ("parse_date('1700000000', '%s')", "2023-11-14T22:13:20Z"),
    (
        "format_date('2024-12-31T13:05:09.25Z', '%Y|%y|%m|%d|%e|%H|%I|%M|%S|%f|%p|%j')",
        "2024|24|12|31|31|13|01|05|09|250000|PM|366",
    ),
    (
        "format_date('2024-02-04T00:00:00Z', '%a|%A|%b|%B|%u|%w|%G|%V|%s|%z|%Z|%%|%F|%T|%R|%D')",
        "Sun|Sunday|Feb|February|7|0|2024|05|1707004800|+0000|UTC|%|2024-02-04|00:00:00|00:00|02/04/24",
    ),
    ("format_date('2024-02-04T00:00:00Z', '%e|%I|%p')", " 4|12|AM"),
    ("format_date('2024-03-01T06:00:00+02:00', '%H')", "04"),
    ("format_date(0, '')", ""),
    ("add_time('2024-02-28T00:00:00Z', 2, 'days')", "2024-03-01T00:00:00Z"),
    ("add_time('2024-01-31T00:00:00Z', 1, 'month')", "2024-02-29T00:00:00Z"),
    ("add_time('2024-02-29T00:00:00Z', -1, 'years')", "2023-02-28T00:00:00Z"),
    ("add_time('2024-12-15', 1, 'months')", "2025-01-15T00:00:00Z"),
    ("add_time('2024-01-01', 1.5, 'hours')", "2024-01-01T01:30:00Z"),
    ("add_time('2024-01-01', -1, 'week')", "2023-12-25T00:00:00Z"),
    ("add_time(0, 90, 'minutes')", "1970-01-01T01:30:00Z"),
    ("add_time(0, 1, 'second')", "1970-01-01T00:00:01Z"),
    # encoding
    ("base64('ü')", "w7w="),
    ("from_base64('w7w=')", "ü"),
    ("from_base64('w7w')", "ü"),
    ("from_base64('Pz8_')", "???"),
    ("url_encode('ü/ ?')", "%C3%BC%2F%20%3F"),
    ("url_encode(1.5)", "1.5"),
    ("url_encode(true)", "true"),
    ("hmac_sha256('', '')", "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad"),
]


@pytest.mark.parametrize(("source", "expected"), VALUES, ids=[source for source, _ in VALUES])
def test_function_value(source: str, expected: Any) -> None:
    found = evaluate(source)
    assert same(found, expected), found


REJECTED = [
    ("upper(1)", r"upper\(\) takes text, not a number"),
    ("lower(null)", r"lower\(\) takes text, not null"),
    ("split('a', '')", "separator that is not empty"),
    ("split('a', 1)", "takes text"),
    ("join('a')", r"join\(\) takes a list, not text"),
    ("join(['a'], 1)", "takes text"),
    ("replace('a', '', 'b')", "not empty"),
    ("replace('a', 'a', 1)", "takes text"),
    ("starts_with(1, 'a')", "starts_with takes text and text, not a number and text"),
    ("ends_with('a', null)", "ends_with takes text and text"),
    ("matches('a', '(')", "not a regular expression"),
    ("matches('a', '(?=a)')", "not a regular expression"),
    ("matches('a', null)", "takes text"),
    ("find_all(1, 'a')", "takes text"),
    ("len(1)", "len\\(\\) takes text, a list or an object"),
    ("sorted('ba')", "takes a list"),
    ("sorted([1, 'a'])", r"sorted\(\) cannot order a number and text"),
    ("sorted([null])", "cannot order null and null"),
    ("sorted([true, false])", "cannot order a boolean"),
    ("sorted([[1]])", "cannot order a list"),
    ("sorted([1], reverse=1)", "true or false for reverse, not a number"),
    ("sorted([1], key=1)", "takes text"),
    ("reversed('ab')", "takes a list"),
    ("unique({})", "takes a list"),
    ("flatten(1)", "takes a list"),
    ("range(1.5)", "takes a whole number"),
    ("range(true)", "takes a whole number, not a boolean"),
    ("range(1, 2, 0)", "step other than 0"),
    ("first('a')", "takes a list"),
    ("zip([1], 1)", "takes a list"),
    ("keys([])", "takes an object"),
    ("values(1)", "takes an object"),
    ("items(null)", "takes an object"),
    ("merge({}, [])", "takes an object"),
    ("get({}, null)", "takes text"),
    ("int('1.5')", 'int\\(\\) cannot read "1.5"'),
    ("int('x')", "cannot read"),
    ("int(null)", "takes text or a number, not null"),
    ("int('9' * 2000)", "cannot read"),
    ("float('x')", "cannot read"),
    ("float('1e')", "cannot read"),
    ("float('nan')", "cannot read"),
    ("float('1e999')", "not a finite number"),
    ("float([])", "takes text or a number"),
    ("float(10 ** 1000)", "out of range"),
    ("round('1')", "takes a number"),
    ("round(1, 1.5)", "takes a whole number"),
    ("round(1, -1000000000)", "at most 300 digits"),
    ("abs(true)", "takes a number, not a boolean"),
    ("min(1)", "takes a list"),
    ("max([1, 'a'])", r"max\(\) cannot order"),
    ("sum([1, '2'])", "takes a number, not text"),
    ("sum([1e308, 1e308])", "not a finite number"),
    ("avg('a')", "takes a list"),
    ("parse_json('{')", "cannot read the text"),
    (r"""parse_json('"\\ud800"')""", "half of a surrogate pair"),
    ("parse_json('NaN')", "cannot read the text"),
    ("parse_json('1e999')", "cannot read the text"),
    ("parse_json('[' * 101 + ']' * 101)", "nested too deeply"),
    ("parse_json('[' * 5000)", "nested too deeply|cannot read"),
    ("parse_json('[' * 5000 + ']' * 5000)", "nested too deeply"),
    ("parse_date('yesterday')", 'cannot read the date "yesterday"'),
    ("parse_date('2024-366')", "cannot read the date"),
    ("parse_date('2024-12')", "cannot read the date"),
    ("parse_date('2024-12-31T00:00:00z')", "cannot read the date"),
    ("parse_date(null)", "takes a date as text or in seconds, not null"),
    ("parse_date(1e300)", "cannot read the date"),
    ("parse_date('x', '%Y')", "does not fit"),
    ("parse_date('2024x', '%Y')", "does not fit"),
    ("parse_date('2024-13', '%Y-%m')", "does not fit"),
    ("parse_date('2024', '%Y-%m')", "does not fit"),
    ("parse_date('Foo', '%b')", "does not fit"),
    ("parse_date('+1', '%z')", "does not fit"),
    ("parse_date('+9999', '%z')", "does not fit"),
    ("parse_date('1', '%j')", "cannot be read with %j"),
    ("format_date('2024-01-01', '%Q')", "unknown %Q; available: %Y "),
    ("format_date('2024-01-01', '%')", "unknown %;"),
    ("format_date('2024-01-01', 1)", "takes text"),
    ("add_time('2024-01-01', 1, 'fortnights')", 'no unit "fortnights"; available: seconds'),
    ("add_time('2024-01-01', 1.5, 'months')", "whole number of months"),
    ("add_time('9999-12-31', 1, 'days')", "leaves the years"),
    ("add_time('2024-01-01', 9999, 'years')", "leaves the years"),
    ("add_time('2024-01-01', 10 ** 500, 'days')", "leaves the years"),
    ("add_time('2024-01-01', true, 'days')", "takes a number"),
    ("from_base64('a')", "cannot read the text"),
    ("from_base64('////')", "cannot read the text"),
    ("from_base64('§')", "cannot read the text"),
    ("sha256(1)", "takes text"),
    ("hmac_sha256('a', 1)", "takes text"),
    ("url_encode([])", "takes text or a number, not a list"),
]


@pytest.mark.parametrize(("source", "message"), REJECTED)
def test_invalid_argument_raises_expression_error(source: str, message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        evaluate(source)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("upper()", r"upper\(\) does not take 0 arguments.*write upper\(text\)"),
        ("upper('a', 'b')", "does not take 2 arguments"),
        ("'a' | upper('b')", "does not take 2 arguments"),
        ("uuid(1)", "does not take 1 arguments"),
        ("exists()", "does not take 0 arguments"),
        ("1 | exists(1)", "does not take 2 arguments"),
        ("default(1)", "does not take 1 arguments"),
        ("default(1, 2, x=3)", "no further argument called x"),
        ("upper(text='a')", "does not take 0 arguments"),
        ("upper('a', text='a')", "no further argument called text"),
        ("sorted([1], items=[1])", "no further argument called items"),
        ("sorted([1], 'a', key='b')", "no further argument called key"),
        ("sorted([1], key='a', key='b')", "no further argument called key"),
        ("sorted(key='a')", "does not take 0 arguments"),
        ("sorted([1], **{})", r"no further argument called \*\*"),
        ("uper('a')", "unknown function uper.*did you mean upper"),
        ("frobnicate(1)", "unknown function frobnicate.*known here"),
        ("frobnicate(1)", f"exists and {len(FUNCTIONS) - 8} more: the functions in docs/expressions.md$"),
        ("'a' | nosuch", "unknown function nosuch"),
        ("any([1])", r"unknown function any at character 1; write true in \[x > 0 for x in list\]$"),
        ("[1] | all", r"unknown function all at character 7; write false not in \[x > 0 for x in list\]$"),
        ("any(x > 1 for x in [1])", r"unknown function any .*; write true in \["),
        ("$a.x()", "only functions can be called.*values have no methods"),
        ("$a()", "only functions can be called"),
        ("'a'.upper()", "only functions can be called"),
        ("'a' | $a", "only functions can be called"),
        ("'a' | ('b' | upper)", "only functions can be called"),
        ("len(*[1])", r"\* does not unpack"),
    ],
)
def test_invalid_call_is_rejected_at_compile_time(source: str, message: str) -> None:
    with pytest.raises(ExpressionSyntaxError, match=message):
        compile_expression(source, NAMES)


WRITTEN: list[tuple[str, Any, Any]] = [
    ("all", [1, 2], True),
    ("all", [1, -2], False),
    ("all", [], True),
    ("any", [-1, 2], True),
    ("any", [-1], False),
    ("any", [], False),
    ("concat", [], "xy"),
    ("count", [1, -2], 2),
    ("filter", [1, -2], [1]),
    ("length", [1, -2], 2),
    ("map", [1, -2], [2, -4]),
    ("size", [], 0),
    ("slice", [1, 2, 3], [1, 2]),
    ("substring", [], "wo"),
]


@pytest.mark.parametrize(("name", "elements", "expected"), WRITTEN)
def test_advice_for_a_function_of_another_language_can_be_written(
    name: str, elements: list[int], expected: Any
) -> None:
    with pytest.raises(ExpressionSyntaxError) as caught:
        compile_expression(f"{name}(1)", NAMES)
    written = caught.value.hint.removeprefix("write ")

    values = f"for list in [{elements}] for text in ['word'] for a in ['x'] for b in ['y']"
    assert evaluate(f"[{written} {values}]") == [expected]


def test_every_advice_is_tried() -> None:
    assert {name for name, _, _ in WRITTEN} == WRITTEN_AS.keys()


def test_exists_and_default_accept_present_values() -> None:
    run = Evaluation({})
    assert FUNCTIONS["exists"].call(run, None) is True
    assert FUNCTIONS["default"].call(run, None, 1) == 1
    assert FUNCTIONS["default"].call(run, 0, 1) == 0


def test_function_name_is_not_shadowed_by_node_or_variable() -> None:
    assert evaluate("join(join, ',')") == '{"v":6}'
    assert evaluate("[len(len) for len in ['ab']]") == [2]
    assert evaluate("['a'] | join") == "a"


def test_dates_with_six_decimals_compare_in_order_of_time() -> None:
    dates = [
        "2024-01-01T00:00:00Z",
        "2024-01-01T00:00:00.000001Z",
        "2024-01-01T00:00:00.5Z",
        "2024-01-01T00:00:01Z",
    ]
    texts = [evaluate(f"format_date(parse_date('{each}'), '%F %T.%f')") for each in dates]
    assert sorted(texts) == texts


def test_uuids_differ_within_evaluation_and_repeat_with_seed() -> None:
    expression = compile_expression("[uuid() for x in range(3)]", NAMES)
    first = expression.evaluate(SCOPE)
    assert len(set(first)) == 3
    assert expression.evaluate(SCOPE) == first
    assert expression.evaluate({"@seed": "another"}) != first
    assert all(each[14] == "5" and each[19] in "89ab" for each in first)


def test_now_and_uuid_without_source_are_rejected() -> None:
    with pytest.raises(ExpressionError, match=r"now\(\) is not available here"):
        evaluate("now()", {})
    with pytest.raises(ExpressionError, match=r"uuid\(\) is not available here"):
        evaluate("uuid()", {})


def test_lone_surrogate_is_rejected() -> None:
    for source in (
        "sha256($trigger)",
        "matches($trigger, 'a')",
        "find_all($trigger, 'a')",
        "matches('a', $trigger)",
    ):
        with pytest.raises(ExpressionError, match="half of a surrogate pair"):
            trigger(source, "\ud800")
    with pytest.raises(ExpressionError, match="cannot read"):
        trigger("parse_json($trigger)", "\ud800")


def test_missing_argument_raises_missing_error() -> None:
    with pytest.raises(MissingError):
        evaluate("get($trigger.gone, 'a', 1)")
