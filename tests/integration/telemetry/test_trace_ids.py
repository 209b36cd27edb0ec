"""Trace context, deterministic span ids and histograms."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rune.telemetry.counters import Histogram
from rune.telemetry.tracing import TraceContext, execution_span, node_span, read_header, trace_of

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_header_round_trips() -> None:
    found = read_header(TRACEPARENT)
    assert found == TraceContext(0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331, True)
    assert found.header() == TRACEPARENT
    unsampled = read_header(TRACEPARENT[:-2] + "00")
    assert unsampled is not None
    assert not unsampled.sampled


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00",
        TRACEPARENT[:-1],
        TRACEPARENT + "-more",
        TRACEPARENT.replace("00-0", "ff-0", 1),
        "00-" + "0" * 32 + TRACEPARENT[35:],
        TRACEPARENT[:36] + "0" * 16 + "-01",
        TRACEPARENT.replace("a", "g"),
        "x" * 10_000,
    ],
)
def test_invalid_header_is_ignored(text: str) -> None:
    assert read_header(text) is None
    assert trace_of("x1", text) == trace_of("x1", "")


def test_header_of_newer_version_may_be_longer() -> None:
    assert read_header("01" + TRACEPARENT[2:] + "-more") == read_header(TRACEPARENT)


def test_ids_are_deterministic_and_distinct() -> None:
    ids = [
        execution_span("x1"),
        execution_span("x2"),
        node_span("x1", "a@/"),
        node_span("x2", "a@/"),
        node_span("x1", "a@/s:1"),
        node_span("x1", "a@/", "attempt", "1"),
    ]
    assert len(set(ids)) == len(ids)
    assert node_span("x1", "a@/") == ids[2]
    assert trace_of("x1", "").trace == trace_of("x1", "").trace != trace_of("x2", "").trace


def test_sampling_follows_share_and_header() -> None:
    sampled = sum(trace_of(f"x{number}", "", 0.25).sampled for number in range(2_000))
    assert 400 < sampled < 600
    assert trace_of("x1", TRACEPARENT, 0.0).sampled
    assert not trace_of("x1", "", 0.0).sampled


@given(st.lists(st.integers(-5, 2**60)))
def test_histogram_counts_every_value_once(durations: list[int]) -> None:
    histogram = Histogram()
    for each in durations:
        histogram.add(each)
    assert histogram.count == len(durations)
    assert histogram.total == sum(max(each, 0) for each in durations)
    for edge, count in histogram.buckets():
        assert count == sum(max(each, 0) < round(edge * 1e9) for each in durations)
