"""JavaScript expressions become Rune expressions with the same values."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rune.core.expr import Names, compile_expression
from rune.core.expr.budget import ExpressionError
from rune.documents.importers import javascript as js
from rune.documents.importers.javascript import MAX_DEPTH, Step, UntranslatableError
from rune.documents.importers.translate import (
    DOLLARS,
    JSON_TEXT,
    LOOSE_EQUALITY,
    MIXED_ADDITION,
    Value,
    translate,
)
from tests.unit.importers.cases import FOLDER

DATA = {
    "name": " Ada Lovelace ",
    "n": 7,
    "half": 2.5,
    "tags": ["x", "y", "x"],
    "rows": [{"id": 1, "price": 3}, {"id": 2, "price": 5}],
    "odd key": {"deep": [10, 20]},
    "none": None,
    "flag": False,
    "empty": [],
    "qty": "2",
    "price": "2.50",
    "blank": "",
    "box": {"length": 9, "2": "two"},
    "yes": True,
}


class Scope:
    """`$json` is the start payload."""

    def resolve(self, base: Any, steps: tuple[Step, ...]) -> tuple[Value, int] | None:
        return (Value("$trigger"), 0) if isinstance(base, js.Name) and base.name == "$json" else None


def value_of(source: str) -> Any:
    text = translate(source, Scope()).text
    return compile_expression(text, Names(frozenset(), {})).evaluate({"$trigger": DATA, "@now": 0})


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("$json.n", 7),
        ("$json['odd key'].deep[1]", 20),
        ("$json.missing", None),
        ("$json.missing?.deep", None),
        ("$json.missing ?? 'none'", "none"),
        ("$json.none ?? 4", 4),
        ("$json.missing || 'x'", "x"),
        ("$json.flag || $json.n", 7),
        ("$json.n && 'yes'", "yes"),
        ("!$json.flag", True),
        ("$json.n === 7", True),
        ("$json.n !== 7", False),
        ("$json.missing == null", True),
        ("$json.n > 3 && $json.n <= 7", True),
        ("$json.n + 1 * 2", 9),
        ("($json.n + 1) * 2", 16),
        ("$json.n - 2 - 1", 4),
        ("$json.n - (2 - 1)", 6),
        ("2 ** 3 ** 2", 512),
        ("-$json.n + 10", 3),
        ("$json.n > 5 ? 'big' : 'small'", "big"),
        ("$json.n > 9 ? 'big' : $json.n > 5 ? 'mid' : 'small'", "mid"),
        ("'n=' + $json.n", "n=7"),
        ("$json.n + ' pieces'", "7 pieces"),
        ("`${$json.n} of ${10 + 1}: ${'a' + 'b'}`", "7 of 11: ab"),
        ("$json.name.trim().toUpperCase()", "ADA LOVELACE"),
        ("$json.name.trim().split(' ')[0]", "Ada"),
        ("$json.tags.join('-')", "x-y-x"),
        ("$json.tags.join()", "x,y,x"),
        ("$json.tags.includes('y')", True),
        ("'abc'.includes('d')", False),
        ("$json.name.trim().startsWith('Ada')", True),
        ("'a.b.c'.replaceAll('.', '/')", "a/b/c"),
        ("$json.tags.length", 3),
        ("$json.name.length", 14),
        ("$json.tags.slice(1)", ["y", "x"]),
        ("'abcdef'.slice(1, 3)", "bc"),
        ("$json.tags.slice(-1)", ["x"]),
        ("$json.rows.map(r => r.price * 2)", [6, 10]),
        ("$json.rows.filter((r) => r.price > 3).map(r => r.id)", [2]),
        ("$json.rows.find(r => r.id === 2).price", 5),
        ("$json.rows.find(r => r.id === 9)", None),
        ("$json.rows.some(r => r.price === 3)", True),
        ("$json.rows.every(r => r.price > 3)", False),
        ("[1, $json.n, 'x']", [1, 7, "x"]),
        ("({a: $json.n, 'b c': [1]})", {"a": 7, "b c": [1]}),
        ("({...$json.rows[0], price: 9})", {"id": 1, "price": 9}),
        ("Object.keys($json.rows[0])", ["id", "price"]),
        ("Object.values($json.rows[0])", [1, 3]),
        ("JSON.stringify($json.rows[0])", '{"id":1,"price":3}'),
        ("JSON.parse('[1, 2]')[1]", 2),
        ("Math.round(2.5)", 3),
        ("Math.round(-2.5)", -2),
        ("Math.floor(-1.5)", -2),
        ("Math.ceil(1.2)", 2),
        ("Math.max(1, $json.n, 3)", 7),
        ("parseInt('42', 10)", 42),
        ("String($json.n)", "7"),
        ("$json.n.toString() + '!'", "7!"),
        ("encodeURIComponent('a b&c')", "a%20b%26c"),
        ("Boolean($json.n)", True),
        ("$json.empty.isEmpty()", True),
        ("typeof $json.n", "number"),
        ("0x1F", 31),
        ("'\\u0041\\n\\x42'", "A\nB"),
        ("true ? 1 : 2", 1),
        ("$json.tags.concat(['z'])", ["x", "y", "x", "z"]),
        ("$json.tags.unique()", ["x", "y"]),
        ("'5' * 2", 10),
        ("$json.qty * 3", 6),
        ("$json.qty * $json.n", 14),
        ("$json.qty - 0", 2),
        ("$json.price * 2", 5),
        ("$json.n / $json.qty", 3.5),
        ("-$json.qty", -2),
        ("$json.none * 2", 0),
        ("$json.blank * 2", 0),
        ("$json.qty > 1", True),
        ("10 > '9'", True),
        ("true + 1", 2),
        ("null + 1", 1),
        ("Number('')", 0),
        ("Number($json.qty)", 2),
        ("Number('  4 ')", 4),
        ("+$json.qty + 1", 3),
        ("parseInt('42.9')", 42),
        ("Math.max($json.qty, '10')", 10),
        ("Math.round($json.price)", 3),
        ("$json.empty || 'none'", []),
        ("$json.empty && 'some'", "some"),
        ("$json.empty ? 'yes' : 'no'", "yes"),
        ("!$json.empty", False),
        ("!$json.blank", True),
        ("$json.rows.filter(r => $json.empty).length", 2),
        ("$json.missing && 'x'", None),
        ("$json.missing || $json.blank || 'last'", "last"),
        ("$json.none === undefined", False),
        ("$json.missing === undefined", True),
        ("$json.missing === null", False),
        ("$json.none === null", True),
        ("typeof $json.none", "object"),
        ("typeof $json.tags", "object"),
        ("typeof $json.missing", "undefined"),
        ("'sum: ' + $json.half * 2", "sum: 5"),
        ("`${$json.half * 2}`", "5"),
        ("String(1.0)", "1"),
        ("String($json.half * 3)", "7.5"),
        ("'' + [1, 2]", "1,2"),
        ("$json.tags[-1]", None),
        ("$json.tags[$json.tags.length - 1]", "x"),
        ("$json.tags[$json.tags.length - 9]", None),
        ("$json.box[$json.qty]", "two"),
        ("'a b'.split()", ["a b"]),
        ("$json.tags?.length", 3),
        ("$json.missing?.length", None),
        ("$json.missing?.trim()", None),
        ("[].first()", None),
        ("Array.isArray($json.tags)", True),
        ("'a'.concat(1)", "a1"),
        ("$json.box.length", 9),
        ("$json.tags['length']", 3),
        ("$json.tags['0']", "x"),
        ("$json.name.trim()['0']", "A"),
        ("$json.box['2']", "two"),
        ("$json.missing?.[0]", None),
        ("$json.none?.[0]", None),
        ("'foo'.replaceAll('o', '[$$]')", "f[$][$]"),
        ("'foo'.replaceAll('o', '$1')", "f$1$1"),
        ("String(1e21)", "1e+21"),
        ("String(1.5e-7)", "1.5e-7"),
        ("String(0.00001)", "0.00001"),
        ("String(-1e300)", "-1e+300"),
        ("'' + [1, null, 'a', 2.5, true, 4.0]", "1,,a,2.5,true,4"),
        ("[1, null, $json.half * 2].join('-')", "1--5"),
        ("Object.keys({b: 1, '2': 1, '1': 1})", ["1", "2", "b"]),
        ("Object.values({b: 1, '2': 2, '10': 3})", [2, 3, 1]),
        ("Object.entries($json.box)", [["2", "two"], ["length", 9]]),
        ("JSON.stringify({b: 1, '2': 1, '1': 1})", '{"1":1,"2":1,"b":1}'),
        ('encodeURIComponent("!\'()*%21")', "!'()*%2521"),
        ("encodeURIComponent(5)", "5"),
        ("$json.tags.concat('z')", ["x", "y", "x", "z"]),
        ("[1].concat(9, [2, [3]])", [1, 9, 2, [3]]),
        ("$json.blank.concat('!', 1)", "!1"),
        ("$json.yes * 2", 2),
        ("-$json.yes", -1),
    ],
)
def test_translated_expression_gives_value_of_javascript(source: str, expected: Any) -> None:
    assert value_of(source) == expected


RESULTS = json.loads((FOLDER / "javascript" / "results.json").read_text(encoding="utf-8"))
FAILS = {"fails": None}


def outcome(source: str) -> Any:
    """What a translation gives: a value, or that it fails or is reported, so that nobody takes it for the value of
    JavaScript."""
    try:
        found = translate(source, Scope())
    except UntranslatableError:
        return "reported"
    if found.notes:
        return "reported"
    try:
        scope = {"$trigger": RESULTS["input"], "@now": 0}
        return compile_expression(found.text, Names(frozenset(), {})).evaluate(scope)
    except ExpressionError:
        return FAILS


@pytest.mark.parametrize(("pattern", "values"), RESULTS["rows"], ids=[each[0] for each in RESULTS["rows"]])
def test_no_operator_gives_another_value_than_javascript_without_a_note(
    pattern: str, values: list[Any]
) -> None:
    found = {}
    for operand, expected in zip(RESULTS["operands"], values, strict=True):
        source = re.sub(r"\bx\b", operand, pattern)
        value = outcome(source)
        # null and a missing value are one where two values are compared.
        if "==" in source and {"none", "missing"} <= set(re.findall(r"\w+", source)):
            continue
        if value not in ("reported", FAILS) and not same(value, expected):
            found[source] = (value, expected)

    assert found == {}


def same(value: Any, expected: Any) -> bool:
    """Whether two values are the same JSON; a boolean is no number."""
    if isinstance(value, list) and isinstance(expected, list):
        return len(value) == len(expected) and all(map(same, value, expected))
    if isinstance(value, bool) or isinstance(expected, bool):
        return value is expected
    if isinstance(value, float) and isinstance(expected, int | float):
        return math.isclose(value, expected)
    return bool(value == expected)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("9007199254740991", 9007199254740991),
        ("9007199254740992", 9007199254740992),
        ("100000000000000000000", None),  # exact in JavaScript, and more than a value may have
        ("18014398509481984", 2**54),
        ("0xFFFFFFFFFFFF", 2**48 - 1),
        ("0x20000000000000", 2**53),
        ("1e5", 100000),
        ("5.0", 5),
        ("1.5e3", 1500),
        ("0.1", 0.1),
        ("3.141592653589793238462643", 3.141592653589793),
        ("1e300", 1e300),
        (".5", 0.5),
        ("5.", 5),
        ("-9007199254740991", -9007199254740991),
        ("9007199254740993", None),
        ("12345678901234567890", None),
        ("1" * 5000, None),
        ("0x20000000000001", None),
        ("0x" + "f" * 300, None),
        ("1e309", None),
        ("1e1000", None),
        ("1.0e99999", None),
        ("10n", None),
        ("1_000", None),
        ("010", None),
        ("0b101", None),
        ("0o17", None),
        ("3px", None),
    ],
)
def test_number_keeps_its_value_or_is_refused_by_name(source: str, expected: Any) -> None:
    if expected is None:
        with pytest.raises(UntranslatableError, match=f"the number `{source[:5]}"):
            value_of(source)
        return
    found = value_of(source)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("source", "note"),
    [
        ("$json.a == '1'", LOOSE_EQUALITY),
        ("'foo'.replaceAll('o', $json.qty.trim())", DOLLARS),
        ("JSON.stringify($json.rows)", JSON_TEXT),
        ("$json.a + $json.b", MIXED_ADDITION),
        (
            "'aa'.replace('a', 'b')",
            "`replace` replaces the first occurrence in JavaScript; here it replaces all",
        ),
    ],
)
def test_translation_that_differs_for_some_values_carries_a_note(source: str, note: str) -> None:
    assert translate(source, Scope()).notes == (note,)


@pytest.mark.parametrize(
    "source",
    [
        "2 * 3",
        "'5' * 2",
        "$json.qty * $json.n",
        "$json.qty > 3",
        "$json.tags.length + 1",
        "$json.qty || 'x'",
        "'n: ' + $json.qty * 2",
        "`n: ${$json.tags.length}`",
    ],
)
def test_translation_that_keeps_the_meaning_has_no_note(source: str) -> None:
    assert translate(source, Scope()).notes == ()


def test_text_that_is_no_number_fails_where_javascript_gives_no_number() -> None:
    with pytest.raises(ExpressionError, match="cannot read the text"):
        value_of("$json.name * 2")
    with pytest.raises(ExpressionError, match=r"\$trigger.missing is missing"):
        value_of("$json.missing * 2")
    with pytest.raises(ExpressionError, match="length is missing"):
        value_of("$json.rows[0].length")


@pytest.mark.parametrize(
    "source",
    [
        "'' + [1, [2, 3]]",
        "[1, {}].join()",
        "`${$json.n * 1e30}`",
        "`${$json.n / 1e9}`",
        "$json.box[2]",
        "'true' + $json.name * 1",
    ],
)
def test_value_that_javascript_writes_in_another_way_fails(source: str) -> None:
    with pytest.raises(ExpressionError):
        value_of(source)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("$json.rows.reduce((a, b) => a + b, 0)", "unexpected `,`"),
        ("(() => 1)()", "unexpected `)`"),
        ("/a+/.test($json.name)", "regular expression literals are not supported"),
        ("$json.name.match(/a/)", "regular expression literals are not supported"),
        ("function () { return 1 }", "`function` is not supported"),
        ("process.env.HOME", "`process.env` has no counterpart"),
        ("$json.name.localeCompare('b')", "the method `localeCompare` has no counterpart"),
        ("new Map()", "`new Map` is not supported"),
        ("1 +", "the expression ends too early"),
        ("'a' * 2", 'the text "a" is not a number'),
        ("[1] * 2", "a list as a number has no counterpart"),
        ("undefined - 1", "`undefined` as a number has no counterpart"),
        ("[1] == '1'", "two lists or objects are never equal in JavaScript"),
        ("parseInt($json.qty, 16)", "`parseInt` with another base than 10 has no counterpart"),
        ("$json.n.toString(2)", "`toString` with a base has no counterpart"),
        ("'foo'.replaceAll('o', '[$&]')", "the pattern `[$&]` of a replacement has no counterpart"),
        ("'foo'.replaceAll('', '-')", "replacing an empty text has no counterpart"),
        ("({...$json.box, '1': 2})", "names that are numbers beside a spread object have no counterpart"),
        ("'ab'.split('')", "splitting a text into its characters has no counterpart"),
        ("'a", "unexpected `'a`"),
        ("x => x", "a function is only supported as the argument of map, filter, find, some and every"),
        ("$json.n = 1", "unexpected `= 1`"),
        ("1; 2", "unexpected `; 2`"),
        ("`${1", "a template literal is not closed"),
        ("'\\ud800'", "a text holds half of a surrogate pair"),
    ],
)
def test_expression_outside_of_the_subset_is_refused_with_its_reason(source: str, reason: str) -> None:
    with pytest.raises(UntranslatableError) as refused:
        translate(source, Scope())

    assert refused.value.message == reason


@pytest.mark.parametrize(
    ("source", "limit"),
    [
        ("(" * 60 + "1" + ")" * 60, f"the expression is nested deeper than {MAX_DEPTH} levels"),
        ("!" * 60 + "1", f"the expression is nested deeper than {MAX_DEPTH} levels"),
        ("1" + " + 1" * 300, "the expression has more than 200 operators in a row"),
        ("$json" + ".a" * 300, "a path has more than 200 steps"),
        ("'" + "a" * 9_000 + "'", "the expression is longer than 8,192 characters"),
    ],
)
def test_expression_beyond_a_limit_is_refused_with_the_limit(source: str, limit: str) -> None:
    with pytest.raises(UntranslatableError) as refused:
        translate(source, Scope())

    assert refused.value.message == limit


PIECES = re.split(
    r" ", r"$json .a ['b'] ( ) 1 't' + - * ? : => x [ ] { } , ` ${ ! && ?? .map == new Date / ... \ ="
)


@given(st.one_of(st.text(max_size=60), st.lists(st.sampled_from(PIECES), max_size=20).map("".join)))
def test_translation_of_any_text_compiles_or_is_refused(source: str) -> None:
    try:
        text = translate(source, Scope()).text
    except UntranslatableError:
        return
    compile_expression(text, Names(frozenset(), {}))
