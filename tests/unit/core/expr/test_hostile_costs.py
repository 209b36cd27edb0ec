"""Whatever an expression and its data are, work is charged before it is done, so that it can be moved or stopped."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rune.core.expr import (
    BudgetError,
    ExpressionError,
    Meter,
    Names,
    TimeBudgetError,
    compile_expression,
    compile_template,
)
from rune.core.expr.budget import METER

NAMES = Names(frozenset({"a"}), {})
LIMIT_S = 0.2
SLICE_NS = 1_000_000
GAP_S = 0.05  # of CPU time between two charges
TOTAL_S = LIMIT_S + 2 * GAP_S

MB = 1_000_000


class Clocked(Meter):
    """A meter with a limit on CPU time that notes the longest time between two charges."""

    left: int = SLICE_NS
    _refill: Callable[[int], int] = abs
    began: float = 0.0
    last: float = 0.0
    longest: float = 0.0

    def __post_init__(self) -> None:
        self._refill = self._check
        self.began = self.last = time.thread_time()

    def charge(self, cost: int) -> None:
        now = time.thread_time()
        self.longest = max(self.longest, now - self.last)
        self.last = now
        super().charge(cost)

    def end(self) -> float:
        """Count the time since the last charge; return the CPU time of the evaluation."""
        now = time.thread_time()
        self.longest = max(self.longest, now - self.last)
        return now - self.began

    def _check(self, cost: int) -> int:
        if time.thread_time() - self.began + (cost / 1e9 if cost > SLICE_NS else 0) > LIMIT_S:
            raise TimeBudgetError("too long")
        return SLICE_NS


def deep(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def _long_texts() -> dict[str, Any]:
    return {"t": "x" * (3 * MB) + "a", "u": "x" * (3 * MB) + "b", "n": 50_000}


def _numbers() -> list[int]:
    return [(at * 7919) % 1_000_003 for at in range(MB)]


DATA: dict[str, Callable[[], Any]] = {
    "text": lambda: "x" * 60_000,
    "long": lambda: "x" * (8 * MB),
    "spaces": lambda: " " * (8 * MB),
    "digits": lambda: "7" * (8 * MB),
    "dots": lambda: "." * (8 * MB),
    "names": lambda: {"path": "a." * MB, "value": {"a": {"a": 1}}, "rows": [{"a": 1}] * 100_000},
    "letters": lambda: "ab" * (4 * MB),
    "umlauts": lambda: "äß" * (2 * MB),
    "texts": _long_texts,
    "numbers": _numbers,
    "floats": lambda: [at / 7 for at in range(400_000)],
    "words": lambda: [f"{at:07}" for at in range(600_000)],
    "pair": lambda: [[[at] for at in range(300_000)], [[at] for at in range(300_000)]],
    "objects": lambda: [{f"k{at}": at for at in range(300_000)}] * 2,
    "object": lambda: {f"k{at}": at for at in range(500_000)},
    "deep": lambda: [deep(90), deep(90)],
    "collide": lambda: [at * ((1 << 61) - 1) for at in range(1, 60_000)],
    "date": lambda: "2024-01-01T00:00:00." + "1" * (8 * MB),
    "pattern": lambda: "%Y-" * (2 * MB),
    "classes": lambda: {"p": "(?i)\\pL{10}", "t": "é" * 100_000},
    "blowup": lambda: {"p": "(?:a?){300}(?:[ab]*a[ab]{300}){2}c", "t": "abbababb" * 50_000},
}

HOSTILE = [
    ("text", 'find_all($trigger, "x*y|x")'),
    ("text", 'find_all($trigger, "(x*)y|(x)")'),
    ("text", "find_all($trigger, '" + "()" * 300 + "')"),
    ("long", 'find_all($trigger, "x*y|x")'),
    ("long", 'matches($trigger, "x*y|x+z|(x?){50}w")'),
    ("classes", "[matches($trigger.t, $trigger.p) for i in range(100)]"),
    ("classes", "[matches('a', $trigger.p + str(i)) for i in range(100)]"),
    ("classes", "[matches('a', '(' + $trigger.p + '|' + str(i) + '){3}') for i in range(100)]"),
    ("blowup", "matches($trigger.t, $trigger.p)"),
    ("blowup", "find_all($trigger.t, $trigger.p)"),
    ("long", "[1 for i in range(1000) if 'y' in $trigger]"),
    ("letters", "'abababababababababababababac' in $trigger"),
    ("letters", "[1 for i in range(99) if $trigger contains ('ab' * 500 + 'c')]"),
    ("long", 'replace($trigger, "x", "")'),
    ("letters", 'replace($trigger, "ab", "")'),
    ("letters", '[replace($trigger, "a", "") for i in range(50)]'),
    ("letters", 'len(split($trigger, "a"))'),
    ("long", "upper($trigger)"),
    ("umlauts", "upper($trigger[:900000])"),
    ("long", "trim($trigger)"),
    ("spaces", "int($trigger)"),
    ("digits", "int($trigger)"),
    ("digits", "[int($trigger) ?? 0 for i in range(1000)]"),
    ("spaces", "float($trigger)"),
    ("dots", "get({}, $trigger)"),
    ("dots", "[get({}, $trigger) for i in range(1000)]"),
    ("names", "get($trigger.value, $trigger.path)"),
    ("names", "sorted($trigger.rows, key=$trigger.path)"),
    ("texts", "[1 for i in range($trigger.n) if $trigger.t == $trigger.u]"),
    ("texts", "[1 for i in range($trigger.n) if $trigger.t < $trigger.u]"),
    ("texts", "$trigger.u in [$trigger.t] * $trigger.n"),
    ("texts", "sorted([$trigger.t, $trigger.u] * $trigger.n)"),
    ("texts", "min([$trigger.t, $trigger.u] * $trigger.n)"),
    ("texts", "max([$trigger.t, $trigger.u] * $trigger.n)"),
    ("texts", "unique([$trigger.t, $trigger.u] * $trigger.n)"),
    ("texts", "[1 for i in range($trigger.n) if starts_with($trigger.t, $trigger.u)]"),
    ("texts", "[1 for i in range($trigger.n) if ends_with($trigger.t, $trigger.t[1:])]"),
    ("texts", "[sha256($trigger.t) for i in range(1000)]"),
    ("texts", "[hmac_sha256('a', $trigger.t) for i in range(1000)]"),
    ("numbers", "min($trigger)"),
    ("numbers", "sorted($trigger)"),
    ("numbers", "sorted($trigger[:200000])"),
    ("floats", "sorted($trigger[:200000], reverse=true)"),
    ("words", "sorted($trigger[:200000])"),
    ("numbers", "reversed($trigger)"),
    ("numbers", "$trigger + $trigger"),
    ("numbers", "$trigger[::-1]"),
    ("numbers", "sum($trigger)"),
    ("numbers", "-1 in $trigger"),
    ("numbers", "[1 for x in $trigger if -1 in $trigger]"),
    ("numbers", "unique($trigger)"),
    ("numbers", "flatten([$trigger, $trigger])"),
    ("numbers", "zip($trigger, $trigger)"),
    ("collide", "len(unique($trigger))"),
    ("numbers", "join($trigger, ',')"),
    ("floats", "json($trigger)"),
    ("floats", "str($trigger[:200000])"),
    ("pair", "$trigger[0] == $trigger[1]"),
    ("pair", "[1 for i in range(100) if $trigger[0] == $trigger[1]]"),
    ("pair", "unique($trigger)"),
    ("objects", "unique($trigger)"),
    ("objects", "$trigger[0] == $trigger[1]"),
    ("object", "keys($trigger)"),
    ("object", "items($trigger)"),
    ("object", "merge($trigger, $trigger)"),
    ("object", "[1 for i in range(1000) for k in $trigger]"),
    ("deep", "[1 for i in range(20000) if $trigger[0] == $trigger[1]]"),
    ("date", "parse_date($trigger)"),
    ("date", "[add_time($trigger, 1, 'days') for i in range(100)]"),
    ("pattern", "parse_date($trigger, $trigger)"),
    ("pattern", "format_date(0, $trigger[:1000000])"),
    ("long", "[$trigger[i] ?? 1 for i in range(200000)]"),
    ("long", "{}[$trigger] ?? 1"),
]


def outcome(source: str, payload: Any, meter: Meter) -> Any:
    """Return the value or the error of an expression."""
    try:
        return compile_expression(source, NAMES).evaluate({"$trigger": payload, METER: meter})
    except ExpressionError as error:
        return error


@contextmanager
def payload_not_collected() -> Iterator[None]:
    """Within the block a collection of garbage visits only what the block creates. Visiting the payload and the tests
    would take longer than many an expression."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@pytest.fixture(scope="module", params=list(DATA))
def prepared(request: pytest.FixtureRequest) -> Iterator[tuple[str, Any]]:
    yield request.param, DATA[request.param]()
    gc.collect()


def test_every_kind_of_data_stays_bounded(prepared: tuple[str, Any]) -> None:
    kind, payload = prepared
    sources = [source for wanted, source in HOSTILE if wanted == kind]
    assert sources
    for source in sources:
        for _ in range(3):  # other processes on the same core make a gap longer, and never shorter
            with payload_not_collected():
                meter = Clocked()
                result = outcome(source, payload, meter)
                took = meter.end()
            if meter.longest < GAP_S:
                break
        assert meter.longest < GAP_S, (source, meter.longest)
        assert took < TOTAL_S, (source, took, result)
        if isinstance(result, TimeBudgetError):
            assert result.code == "BUDGET_EXCEEDED"


def test_the_table_is_large_enough() -> None:
    assert len(set(HOSTILE)) == len(HOSTILE) >= 50


def test_text_in_a_template_is_measured_before_it_is_written() -> None:
    template = compile_template("all: {{ $trigger }}", NAMES)
    meter = Clocked()
    with pytest.raises(BudgetError, match="too long"):
        template.resolve({"$trigger": [list(range(100))] * 100_000, METER: meter})
    assert meter.longest < GAP_S
    assert template.resolve({"$trigger": [1] * 300_000, METER: Meter(1 << 60, int)}).count("1") == 300_000


def test_a_million_elements_are_no_attack() -> None:
    numbers = list(range(1_000_000))
    scope = {"$trigger": numbers, METER: Meter(1, lambda cost: SLICE_NS)}
    assert compile_expression("[min($trigger), max($trigger)]", NAMES).evaluate(scope) == [0, 999_999]
    assert compile_expression("sum($trigger)", NAMES).evaluate(scope) == sum(numbers)
    few = compile_expression("[x * 2 for x in $trigger if x % 100000 == 0]", NAMES).evaluate(scope)
    assert few == [at * 200_000 for at in range(10)]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab.", max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3),
    max_leaves=6,
)
CALLS = st.sampled_from(
    [
        "sorted(X)", "unique(X)", "min(X)", "max(X)", "sum(X)", "flatten(X)", "reversed(X)", "zip(X, X)",
        "X == Y", "X < Y", "Y in X", "X contains Y", "X + Y", "X[::2]", "json(X)", "str(X)", "join(X, '.')",
        "find_all(X, Y)", "matches(X, Y)", "replace(X, Y, '')", "split(X, Y)", "get(X, Y)", "upper(X)",
        "int(X)", "float(X)", "keys(X)", "items(X)", "merge(X, X)", "parse_date(X, Y)", "sha256(X)",
        "[x for x in X if x == Y]", "[x in X for x in X]", "url_encode(X)", "parse_json(X)", "base64(X)",
    ]
)  # fmt: skip


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(call=CALLS, small=JSON, other=JSON, times=st.sampled_from([1, 1_000, 100_000]))
def test_every_evaluation_ends(call: str, small: Any, other: Any, times: int) -> None:
    large = small * times if isinstance(small, str | list) else [small] * times
    source = call.replace("X", "$trigger.x").replace("Y", "$trigger.y")
    with payload_not_collected():
        meter = Clocked()
        outcome(source, {"x": large, "y": other}, meter)
        took = meter.end()
    assert meter.longest < GAP_S
    assert took < TOTAL_S
