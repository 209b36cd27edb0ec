"""Patterns are compiled in one place, which refuses those that would hold the interpreter for long."""

from __future__ import annotations

import time

import pytest
import re2
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rune.core.expr import BudgetError, ExpressionError, Meter
from rune.core.expr.budget import MAX_PATTERN_REPEATS, MAX_PATTERN_SIZE, UNMETERED
from rune.core.expr.patterns import Pattern, compiled, found_in, weigh

COMPILED_S = 0.5
"""CPU time: the largest pattern takes a fifth of it; without a limit, one of 990 characters takes 140 s."""

ATOMS = st.sampled_from(
    [
        *("z", "é", "k", ".", "^", r"\pL", r"\P{Greek}", r"[\pL\pN]", "[^a]", r"\W", r"\x{1f600}", "[à-ž]"),
        *("[a-z0-9]", "[]a]", r"[\]a]", "[[:alpha:]]", r"\b", r"\Qa{9}\E", "(?i)", "(?i)k"),
    ]
)
COUNTS = st.sampled_from(
    ["{0,1000}", "{1000}", "{0,30}", "{10,30}", "{3}", "{100,}", "{0,80}", "*", "+?", "?"]
)


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("{}{}".format, inner, inner),
        st.builds("(?:{}|{})".format, inner, inner),
        st.builds("({}){}".format, inner, COUNTS),
        st.builds("(?P<name>{}){}".format, inner, COUNTS),
        st.builds(lambda part, times: part * times, inner, st.integers(1, 50)),
    )


PATTERNS = st.recursive(ATOMS, _larger, max_leaves=12).filter(lambda each: len(each) <= 1000)


@settings(max_examples=150, deadline=None)
@example(r"\pL" * 80)
@example("z{0,1000}" * 3)
@given(PATTERNS)
def test_pattern_within_the_limits_is_compiled_at_once(source: str) -> None:
    instructions, repeats = weigh(source)
    pattern = Pattern(source)
    began = time.thread_time()

    message = ""
    try:
        pattern.compile(UNMETERED)
    except ExpressionError as error:
        message = error.message

    refused = repeats > MAX_PATTERN_REPEATS or instructions > MAX_PATTERN_SIZE
    assert ("limit: " in message) == refused
    assert time.thread_time() - began < COMPILED_S
    assert pattern.size <= 2 * instructions + 10


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("z{0,1000}" * 25, r"25,000 times in all \(limit: 3,000 times\)"),
        ("a{0,1000}" * 110, r"110,000 times in all \(limit: 3,000 times\)"),
        ("(((a{0,10}){0,20}){0,30})", r"6,630 times in all \(limit: 3,000 times\)"),
        (r"\pL" * 330, r"396,000 instructions \(limit: 65,000\)"),
        (r"(?:[\pL]x){90}", r"instructions \(limit: 65,000\)"),
        ("x" * 1001, r"too long \(limit: 1000 characters\)"),
    ],
)
def test_too_large_pattern_is_refused_before_it_is_compiled(source: str, message: str) -> None:
    began = time.thread_time()

    with pytest.raises(BudgetError, match=message):
        compiled(source, UNMETERED)

    assert time.thread_time() - began < COMPILED_S


@pytest.mark.parametrize(
    "source",
    [
        r"^[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63}){1,8}$",
        r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$",
        r"^\p{L}{1,50}$",
        ".{0,1000}",
        r"(?i)^(?:mon|tues|wednes)day\b",
        r'"(?:[^"\\]|\\.){0,500}"',
    ],
)
def test_usual_pattern_is_compiled(source: str) -> None:
    assert compiled(source, UNMETERED).size > 0


@pytest.mark.parametrize("source", ["[", "(", "a)", "\\", "(?", "a{2", "[^", r"\p", r"\Qa", r"\x{"])
def test_part_of_a_pattern_can_be_weighed(source: str) -> None:
    instructions, repeats = weigh(source)

    assert instructions > 0
    assert repeats == 0


def test_estimate_follows_the_nesting_of_groups() -> None:
    assert weigh("(a(b{3}){4}c){5}")[1] == 5 + 5 * 4 + 5 * 4 * 3
    assert weigh("((a{3}){4}")[1] == 4 + 4 * 3
    assert weigh(r"[a{3}]\{3}\Q{3}\E(?P<a>b)")[1] == 0
    assert weigh("a{2}{3}")[1] == 3 + 3 * 2


def test_compiling_and_matching_are_charged() -> None:
    charged: list[int] = []

    def refill(cost: int) -> int:
        charged.append(cost)
        return 0

    meter = Meter(0, refill)

    assert found_in("xay" * 1_000, "a{0,900}y", meter)
    assert found_in("xay" * 1_000, "a{0,900}y", meter)

    compiling, *matching = charged
    assert compiling > 900 * 900
    assert len(matching) == 2
    assert min(matching) > 3_000 * re2.compile("a{0,900}y").programsize


def test_surrogates_are_refused() -> None:
    with pytest.raises(ExpressionError, match="surrogate"):
        compiled("\ud800", UNMETERED)
    with pytest.raises(ExpressionError, match="surrogate"):
        found_in("\ud800", "a", UNMETERED)
