"""What a run shows while it lasts."""

from __future__ import annotations

import io
import sys

import pytest

from rune.cli.progress import (
    LiveProgress,
    NodeProgress,
    PlainProgress,
    ProgressCounter,
    state_of,
    worth_showing,
)
from rune.core.execution.decision import CollectItem, Decision, SkipNode
from rune.core.execution.fact import AttemptFailed, NodeResult, NodeSuspended
from rune.core.execution.outcome import Error
from rune.core.execution.routing import decision_for_fact
from rune.core.execution.token import Token
from rune.core.plan.compiler import compile_definition
from rune.core.plan.model import Plan
from rune.nodes.registry import standard_catalogue
from tests.unit.core.documents import document, keep, node, verdict

NO = Error("NO", "no")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def plan() -> Plan:
    raw = document(
        [
            node("start", "input"),
            node("parts", "split", {"input_array": "$trigger"}),
            keep("inner", 1),
            node("all", "aggregator"),
            node(
                "nap", "wait", {"amount": 1}, retry={"max_attempts": 3, "initial_delay": 5, "jitter": False}
            ),
        ],
        "start>parts",
        "parts>inner",
        "inner>all",
        "all>nap",
    )
    found = verdict(raw)
    assert found.definition is not None
    return compile_definition(found.definition, standard_catalogue())


@pytest.fixture
def tally(plan: Plan) -> ProgressCounter:
    tally = ProgressCounter("x")
    tally.begin(plan, "x")
    return tally


def lines(tally: ProgressCounter) -> dict[str, NodeProgress]:
    return {each.node: each for each in tally.lines()}


def test_items_are_counted_not_kept(tally: ProgressCounter, plan: Plan) -> None:
    tally.applied("x", [decision_for_fact(plan, NodeResult(1, (), 5, "ok", items=4))])
    tally.applied(
        "x",
        [
            decision_for_fact(plan, NodeResult(2, (1, 0), 6, "ok")),
            decision_for_fact(plan, NodeResult(2, (1, 1), 6, "failed", failure=NO)),
        ],
    )
    tally.claimed("x", Token(2, (1, 2)))
    tally.applied("another", [decision_for_fact(plan, NodeResult(2, (1, 3), 6, "ok"))])

    found = lines(tally)
    assert (found["parts"].done, found["parts"].total, found["parts"].lost) == (2, 4, 1)
    assert (found["inner"].success, found["inner"].failed, found["inner"].running) == (1, 1, 1)
    assert state_of(found["inner"], 0) == "1 running, 1 failed"
    assert state_of(found["parts"], 0) == "1 item failed"


def test_a_node_inside_that_is_skipped_ends_its_item(tally: ProgressCounter, plan: Plan) -> None:
    tally.applied("x", [decision_for_fact(plan, NodeResult(1, (), 5, "ok", items=2))])
    tally.applied("x", [Decision(2, (1, 0), 6, None, (CollectItem(2, 2),))])
    tally.applied("x", [Decision(1, (), 6, None)])

    assert (lines(tally)["parts"].done, lines(tally)["parts"].skipped) == (1, 0)


def test_the_body_of_an_empty_split_is_no_item(tally: ProgressCounter) -> None:
    tally.applied("x", [Decision(1, (), 5, NodeResult(1, (), 5, "ok", items=0), (SkipNode(2),))])

    assert (lines(tally)["inner"].skipped, lines(tally)["parts"].done) == (0, 0)


def test_a_wait_and_a_retry_count_down(tally: ProgressCounter, plan: Plan) -> None:
    tally.applied("x", [decision_for_fact(plan, NodeSuspended(4, (), 1_000, due=61_000))])
    assert state_of(lines(tally)["nap"], 31_000) == "waiting, in 30.0 s"

    tally.claimed("x", Token(4))
    assert lines(tally)["nap"].status == "running"

    tally.applied("x", [decision_for_fact(plan, AttemptFailed(4, (), 61_000, 1, NO))])
    assert state_of(lines(tally)["nap"], 62_000) == "attempt 2 in 4.0 s"

    tally.applied("x", [decision_for_fact(plan, NodeResult(4, (), 70_000, "ok"))])
    assert (lines(tally)["nap"].status, lines(tally)["nap"].due) == ("success", None)


def test_what_happens_before_the_plan_is_known_is_not_lost(plan: Plan) -> None:
    tally = ProgressCounter("x")
    tally.applied("x", [decision_for_fact(plan, NodeResult(1, (), 5, "ok", items=4))])
    tally.begin(plan, "x")

    assert lines(tally)["parts"].total == 4


def test_few_rows_show_what_moves() -> None:
    ended = [NodeProgress(f"e{i}", False, success=1) for i in range(9)]
    pending = [NodeProgress(f"p{i}", False) for i in range(9)]
    moving = NodeProgress("m", False, running=1)

    assert [each.node for each in worth_showing([*pending, moving, *ended], 3)] == ["m", "e0", "e1"]


def test_a_terminal_gets_a_picture_and_is_left_clean(
    tally: ProgressCounter, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    tally.applied(
        "x",
        [
            decision_for_fact(plan, NodeResult(1, (), 5, "ok", items=4)),
            decision_for_fact(plan, NodeResult(2, (1, 0), 6, "ok")),
        ],
    )

    picture = LiveProgress(tally)
    picture.refresh()
    picture.close()

    assert "1/4" in screen.getvalue()
    assert "pending" in screen.getvalue()
    assert picture.pause >= 0.2


def test_a_log_gets_a_line_only_when_something_changed(
    tally: ProgressCounter, plan: Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    tally.applied(
        "x",
        [
            decision_for_fact(plan, NodeResult(1, (), 5, "ok", items=4)),
            decision_for_fact(plan, NodeResult(2, (1, 0), 6, "ok")),
        ],
    )

    shown = PlainProgress(tally)
    shown.refresh()
    shown.refresh()

    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "parts 1/4" in err
