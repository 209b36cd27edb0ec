"""Ids of traces and spans follow from what they name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rune.telemetry.counters import Histogram
from rune.telemetry.tracing import TraceContext, execution_span, node_span, read_header, trace_of

COMING = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_a_header_is_read_and_written() -> None:
    found = read_header(COMING)
    assert found == TraceContext(0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331, True)
    assert found.header() == COMING
    unwanted = read_header(COMING[:-2] + "00")
    assert unwanted is not None
    assert not unwanted.sampled


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00",
        COMING[:-1],
        COMING + "-more",
        COMING.replace("00-0", "ff-0", 1),
        "00-" + "0" * 32 + COMING[35:],
        COMING[:36] + "0" * 16 + "-01",
        COMING.replace("a", "g"),
        "x" * 10_000,
    ],
)
def test_what_is_no_header_is_as_if_nothing_had_come(text: str) -> None:
    assert read_header(text) is None
    assert trace_of("x1", text) == trace_of("x1", "")


def test_a_newer_version_may_say_more() -> None:
    assert read_header("01" + COMING[2:] + "-more") == read_header(COMING)


def test_the_same_names_give_the_same_ids_and_others_do_not() -> None:
    named = [
        execution_span("x1"),
        execution_span("x2"),
        node_span("x1", "a@/"),
        node_span("x2", "a@/"),
        node_span("x1", "a@/s:1"),
        node_span("x1", "a@/", "attempt", "1"),
    ]
    assert len(set(named)) == len(named)
    assert node_span("x1", "a@/") == named[2]
    assert trace_of("x1", "").trace == trace_of("x1", "").trace != trace_of("x2", "").trace


def test_a_share_is_decided_by_the_id_and_a_wish_is_followed() -> None:
    sampled = sum(trace_of(f"x{number}", "", 0.25).sampled for number in range(2_000))
    assert 400 < sampled < 600
    assert trace_of("x1", COMING, 0.0).sampled
    assert not trace_of("x1", "", 0.0).sampled


@given(st.lists(st.integers(-5, 2**60)))
def test_a_spread_counts_everything_once(durations: list[int]) -> None:
    spread = Histogram()
    for each in durations:
        spread.add(each)
    assert spread.count == len(durations)
    assert spread.total == sum(max(each, 0) for each in durations)
    for edge, count in spread.buckets():
        assert count == sum(max(each, 0) < round(edge * 1e9) for each in durations)
