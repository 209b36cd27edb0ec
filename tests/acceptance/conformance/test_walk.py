"""The walk itself: steps that could not go wrong would show nothing."""

from __future__ import annotations

import asyncio
import pathlib
from typing import Any

import pytest

from tests.acceptance.conformance.actor import Refusal
from tests.acceptance.conformance.case import Case
from tests.acceptance.conformance.service_actor import open_actor
from tests.acceptance.conformance.slowing import in_time
from tests.acceptance.conformance.stubs import Surroundings
from tests.acceptance.conformance.walk import Late, Walk

ASKS = {
    "id": "asks",
    "nodes": [
        {"id": "start", "type": "input"},
        {"id": "ask", "type": "wait", "parameters": {"resume": "signal"}},
    ],
    "edges": [{"src": "start", "dst": "ask"}],
}
START: dict[str, Any] = {"start": None}
HEARD: list[dict[str, Any]] = [START, {"await": {"waiting": "ask"}}, {"signal": "ask"}]


def _walk(home: pathlib.Path, *steps: dict[str, Any]) -> None:
    case = Case("c", "", (), document=ASKS, steps=steps, timeout_s=0.2)

    async def go() -> None:
        async with open_actor(home, durability="relaxed", grace=0.1) as actor:
            await Walk(case, actor, Surroundings(case)).to_end()

    asyncio.run(go())


@pytest.mark.parametrize(
    ("steps", "complaint"),
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
        ([*HEARD, {"expect": {"status": "cancelled"}}], "status 'completed'"),
        ([*HEARD, {"expect": {"events": {"execution.signalled": 2}}}], "the events are"),
        ([*HEARD, {"expect": {"retry_of": "it"}}], "retry_of is None"),
        ([START, {"expect": {"status": "paused"}}], "status 'running'"),
        ([START, {"expect": {"status": "completed", "now": True}}], "'running'"),
    ],
)
def test_a_step_that_does_not_hold_is_told(
    steps: list[dict[str, Any]], complaint: str, tmp_path: pathlib.Path
) -> None:
    with pytest.raises(AssertionError, match=complaint):
        _walk(tmp_path, *steps)


def test_steps_that_hold_are_not(tmp_path: pathlib.Path) -> None:
    _walk(tmp_path, *HEARD, {"expect": {"status": "completed", "output": {"ask": None}, "<never>": 1}})


def test_a_refusal_carries_its_code() -> None:
    assert str(Refusal("ENDED", "it is over")) == "ENDED: it is over"


def test_a_step_that_came_too_late_shows_nothing(tmp_path: pathlib.Path) -> None:
    with pytest.raises(Late):
        _walk(tmp_path, START, {"pause": None, "answers": False, "within": 0})
    with pytest.raises(AssertionError, match="answered True"):
        _walk(tmp_path, START, {"pause": None, "answers": False, "within": 600})


def test_a_case_that_came_too_late_is_walked_again_slower() -> None:
    case = Case("c", "", (), steps=(START, {"await": "ended", "within": 0.5}), timeout_s=60)
    walked: list[tuple[str, Any]] = []

    async def walk(paced: Case) -> None:
        walked.append((paced.name, paced.steps[1]["within"]))
        if len(walked) < 3:
            raise Late("a busy machine")

    asyncio.run(in_time(case, walk))
    assert walked == [("c", 0.5), ("c-4", 2.0), ("c-16", 8.0)]


def test_a_case_that_is_never_in_time_fails() -> None:
    async def walk(paced: Case) -> None:
        raise Late("always")

    with pytest.raises(AssertionError, match="at every pace"):
        asyncio.run(in_time(Case("c", "", ()), walk))
