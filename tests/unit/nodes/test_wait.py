"""The `wait` node."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rune.core.execution.outcome import Suspend
from tests.unit.nodes.runner import NOW, error, output, run

CENTURY = 36_525 * 86_400_000


@pytest.mark.parametrize(
    ("parameters", "ms"),
    [
        ({}, 1_000),
        ({"amount": 2, "unit": "days"}, 172_800_000),
        ({"amount": 1, "unit": "hours"}, 3_600_000),
        ({"amount": 3, "unit": "minutes"}, 180_000),
        ({"amount": "$trigger.n"}, 40_000),
        ({"amount": 0}, 0),
    ],
)
def test_interval_starts_now(parameters: dict[str, Any], ms: int) -> None:
    assert run("wait", parameters, trigger={"n": 40}) == Suspend(until=NOW + ms)


@pytest.mark.parametrize(
    ("amount", "unit", "ms"),
    [(0.5, "seconds", 500), (1.5, "minutes", 90_000), (0.25, "days", 21_600_000), (1.1, "days", 95_040_000)],
)
def test_h_f8_fractional_amount_is_kept(amount: float, unit: str, ms: int) -> None:
    # Red if the amount is truncated to an integer.
    assert run("wait", {"amount": amount, "unit": unit}) == Suspend(until=NOW + ms)


@pytest.mark.parametrize("amount", [1e300, 10**30, 2**63, 36_526])
def test_h_f8_amount_over_century_fails(amount: float) -> None:
    # Red if the due time can overflow.
    found = error(run("wait", {"amount": "$trigger", "unit": "days"}, trigger=amount))
    assert found.code == "LIMIT_EXCEEDED"


@given(st.floats(0, 1e18), st.sampled_from(["seconds", "minutes", "hours", "days"]))
def test_h_f8_wait_is_never_shorter_than_amount(amount: float, unit: str) -> None:
    # Red if the product wraps around or is truncated.
    ms = {"seconds": 1_000, "minutes": 60_000, "hours": 3_600_000, "days": 86_400_000}[unit] * amount
    outcome = run("wait", {"amount": amount, "unit": unit})
    if isinstance(outcome, Suspend):
        assert outcome.until is not None
        assert abs(outcome.until - NOW - ms) <= 1
    else:
        assert ms > CENTURY - 1


@pytest.mark.parametrize("amount", [-1, -0.001, "5", "soon", None, True, [1]])
def test_invalid_amount_fails(amount: Any) -> None:
    found = error(run("wait", {"amount": "$trigger"}, trigger=amount))
    assert found.code == "BAD_PARAMETER"
    assert "parameters.amount" in found.message


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("2020-01-01T00:00:00Z", 1_577_836_800_000),
        ("2020-01-01T02:00:00+02:00", 1_577_836_800_000),
        ("2020-01-01T00:00:00", 1_577_836_800_000),
        ("2020-01-01", 1_577_836_800_000),
        ("2099-06-01T12:00:00.250Z", 4_083_998_400_250),
    ],
)
def test_date_sets_due_time(text: str, ms: int) -> None:
    parameters = {"resume": "date_time", "date_time": "$trigger"}
    assert run("wait", parameters, trigger=text) == Suspend(until=ms)


@pytest.mark.parametrize("text", ["tomorrow", "", "2020-13-01", "1577836800", 1_577_836_800, None])
def test_invalid_date_fails(text: Any) -> None:
    found = error(run("wait", {"resume": "date_time", "date_time": "$trigger"}, trigger=text))
    assert found.code == "BAD_PARAMETER"
    assert "parameters.date_time" in found.message


def test_date_over_century_fails() -> None:
    parameters = {"resume": "date_time", "date_time": "9999-12-31T23:59:59Z"}
    assert error(run("wait", parameters)).code == "LIMIT_EXCEEDED"


def test_resumed_wait_outputs_due_time_and_timer() -> None:
    outcome = run("wait", {"amount": 5}, resumed=True, due=NOW - 10, timer_id="wait:nap@/")
    assert output(outcome) == {"resume_at": NOW - 10, "timer_id": "wait:nap@/"}


def test_signal_name_defaults_to_node_id() -> None:
    assert run("wait", {"resume": "signal", "name": "paid"}, node="nap") == Suspend(signal="paid")
    assert run("wait", {"resume": "signal"}, node="nap") == Suspend(signal="nap")


def test_signal_payload_is_output() -> None:
    assert output(run("wait", {"resume": "signal"}, resumed=True, signal={"ok": True})) == {"ok": True}
