"""The step runner fails on every step that does not have the expected result."""

from __future__ import annotations

import asyncio
import pathlib
from typing import Any

import pytest

from tests.acceptance.conformance.actor import RejectedError
from tests.acceptance.conformance.case import Case
from tests.acceptance.conformance.service_actor import open_actor
from tests.acceptance.conformance.step_runner import LateError, StepRunner
from tests.acceptance.conformance.stubs import StubServers
from tests.acceptance.conformance.time_scaling import run_in_time

WAITS = {
    "id": "waits",
    "nodes": [
        {"id": "start", "type": "input"},
        {"id": "ask", "type": "wait", "parameters": {"resume": "signal"}},
    ],
    "edges": [{"src": "start", "dst": "ask"}],
}
START: dict[str, Any] = {"start": None}
SIGNALLED: list[dict[str, Any]] = [START, {"await": {"waiting": "ask"}}, {"signal": "ask"}]


def _run(home: pathlib.Path, *steps: dict[str, Any]) -> None:
    case = Case("c", "", (), document=WAITS, steps=steps, timeout_s=0.2)

    async def go() -> None:
        async with open_actor(home, durability="relaxed", grace=0.1) as actor:
            await StepRunner(case, actor, StubServers(case)).run()

    asyncio.run(go())


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([START, {"signal": "ask", "refused": "ENDED"}], "was not refused"),
        ([{"signal": "ask", "as": "nobody", "refused": "ENDED"}], "was refused otherwise"),
        ([{"signal": "ask", "as": "nobody"}], "UNKNOWN_EXECUTION"),
        ([{"cancel": None, "as": "x", "refused": "UNKNOWN_EXECUTION", "says": ["y"]}], "does not say"),
        ([START, {"pause": None, "answers": False}], "answered True"),
        ([START, {"await": "ended"}], "in vain"),
        ([START, {"await": {"waiting": "other"}}], "in vain"),
        ([START, {"await": {"events": {"execution.paused": 1}}}], "in vain"),
        ([START, {"await": {"calls": "/never"}}], "in vain"),
        ([START, {"find": {"workflow": "other"}, "as": "o"}], "in vain"),
        ([START, {"start": None, "as": "b", "same": "it"}], "another one"),
        ([*SIGNALLED, {"expect": {"status": "cancelled"}}], "status 'completed'"),
        ([*SIGNALLED, {"expect": {"events": {"execution.signalled": 2}}}], "the events are"),
        ([*SIGNALLED, {"expect": {"retry_of": "it"}}], "retry_of is None"),
        ([START, {"expect": {"status": "paused"}}], "status 'running'"),
        ([START, {"expect": {"status": "completed", "now": True}}], "'running'"),
    ],
)
def test_unmet_step_fails(steps: list[dict[str, Any]], message: str, tmp_path: pathlib.Path) -> None:
    with pytest.raises(AssertionError, match=message):
        _run(tmp_path, *steps)


def test_met_steps_pass(tmp_path: pathlib.Path) -> None:
    _run(tmp_path, *SIGNALLED, {"expect": {"status": "completed", "output": {"ask": None}, "<never>": 1}})


def test_rejection_message_contains_code() -> None:
    assert str(RejectedError("ENDED", "it is over")) == "ENDED: it is over"


def test_late_step_raises_late(tmp_path: pathlib.Path) -> None:
    with pytest.raises(LateError):
        _run(tmp_path, START, {"pause": None, "answers": False, "within": 0})
    with pytest.raises(AssertionError, match="answered True"):
        _run(tmp_path, START, {"pause": None, "answers": False, "within": 600})


def test_late_case_is_repeated_slower() -> None:
    case = Case("c", "", (), steps=(START, {"await": "ended", "within": 0.5}), timeout_s=60)
    runs: list[tuple[str, Any]] = []

    async def run(scaled: Case) -> None:
        runs.append((scaled.name, scaled.steps[1]["within"]))
        if len(runs) < 3:
            raise LateError("a busy machine")

    asyncio.run(run_in_time(case, run))
    assert runs == [("c", 0.5), ("c-4", 2.0), ("c-16", 8.0)]


def test_case_late_at_every_factor_fails() -> None:
    async def run(scaled: Case) -> None:
        raise LateError("always")

    with pytest.raises(AssertionError, match="at every factor"):
        asyncio.run(run_in_time(Case("c", "", ()), run))
