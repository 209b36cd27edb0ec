"""The progress display of `rune run`."""

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
from rune.core.execution.decision import Decision, SkipNode
from rune.core.execution.fact import AttemptFailed, Fact, NodeResult, NodeSuspended
from rune.core.execution.outcome import Error
from rune.core.execution.step import decision_for_fact
from rune.core.execution.token import Token
from rune.core.plan.compiler import compile_definition
from rune.core.plan.model import Plan
from rune.nodes.registry import standard_catalogue
from tests.support.documents import document, edit, node, verdict

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
            edit("inner", 1),
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
def counter(plan: Plan) -> ProgressCounter:
    counter = ProgressCounter("x")
    counter.begin(plan, "x")
    return counter


def lines(counter: ProgressCounter) -> dict[str, NodeProgress]:
    return {each.node: each for each in counter.lines()}


def test_items_are_counted_per_status(counter: ProgressCounter, plan: Plan) -> None:
    counter.applied("x", [decision_for_fact(plan, NodeResult(1, (), 5, "ok", items=4))])
    counter.applied(
        "x",
        [
            decision_for_fact(plan, NodeResult(2, (1, 0), 6, "ok")),
            decision_for_fact(plan, NodeResult(2, (1, 1), 6, "failed", failure=NO)),
        ],
    )
    counter.claimed("x", Token(2, (1, 2)))
    counter.applied("another", [decision_for_fact(plan, NodeResult(2, (1, 3), 6, "ok"))])

    found = lines(counter)
    assert (found["parts"].done, found["parts"].total, found["parts"].lost) == (2, 4, 1)
    assert (found["inner"].success, found["inner"].failed, found["inner"].running) == (1, 1, 1)
    assert state_of(found["inner"], 0) == "1 running, 1 failed"
    assert state_of(found["parts"], 0) == "1 item failed"


@pytest.fixture
def branching() -> Plan:
    raw = document(
        [
            node("start", "input"),
            node("parts", "split", {"input_array": "$trigger"}),
            node("pick", "conditional", {"expression": "$item > 1"}),
            edit("inner", 1),
            node("all", "aggregator"),
        ],
        "start>parts",
        "parts>pick",
        "pick>inner:true",
        "inner>all",
    )
    found = verdict(raw)
    assert found.definition is not None
    return compile_definition(found.definition, standard_catalogue())


def test_run_that_is_observed_twice_is_counted_once(branching: Plan) -> None:
    # A process that resumes an execution reads its results from the journal and applies some of them again.
    counter = ProgressCounter("x")
    counter.begin(branching, "x")
    facts = [
        NodeResult(1, (), 5, "ok", items=2),
        NodeResult(2, (1, 0), 6, "ok", outlet="true"),
        NodeResult(3, (1, 0), 7, "failed", failure=NO),
        NodeResult(2, (1, 1), 6, "ok", outlet="false"),
    ]
    for each in (*facts, *facts):
        counter.add(each)
    counter.claimed("x", Token(3, (1, 0)))

    found = lines(counter)
    assert (found["parts"].done, found["parts"].total, found["parts"].lost) == (2, 2, 1)
    assert (found["inner"].failed, found["inner"].skipped, found["inner"].running) == (1, 1, 0)


def test_facts_in_another_order_are_counted_alike(branching: Plan) -> None:
    facts: list[Fact] = [
        AttemptFailed(2, (1, 0), 6, 1, NO),
        NodeSuspended(2, (1, 0), 7, attempt=2, due=90),
        NodeResult(2, (1, 0), 8, "ok", outlet="false", attempt=2),
        AttemptFailed(2, (1, 1), 6, 1, NO),
        NodeSuspended(2, (1, 1), 7, attempt=2, due=90),
        NodeResult(1, (), 5, "ok", items=2),
    ]
    counted = []
    for order in (facts, facts[::-1]):
        counter = ProgressCounter("x")
        counter.begin(branching, "x")
        for each in order:
            counter.add(each)
        counted.append(lines(counter))

    assert counted[0] == counted[1]
    assert (counted[0]["pick"].success, counted[0]["pick"].waiting) == (1, 1)
    assert (counted[0]["parts"].done, counted[0]["inner"].skipped) == (1, 1)


def test_skipped_inner_node_completes_item(branching: Plan) -> None:
    counter = ProgressCounter("x")
    counter.begin(branching, "x")
    split = NodeResult(1, (), 5, "ok", items=2)
    picked = NodeResult(2, (1, 0), 6, "ok", outlet="false")
    counter.applied("x", [decision_for_fact(branching, each) for each in (split, picked)])
    counter.applied("x", [Decision(1, (), 6, None)])

    assert (lines(counter)["parts"].done, lines(counter)["parts"].skipped) == (1, 0)


def test_empty_split_counts_no_items(counter: ProgressCounter) -> None:
    counter.applied("x", [Decision(1, (), 5, NodeResult(1, (), 5, "ok", items=0), (SkipNode(2),))])

    assert (lines(counter)["inner"].skipped, lines(counter)["parts"].done) == (0, 0)


def test_wait_and_retry_show_countdown(counter: ProgressCounter, plan: Plan) -> None:
    counter.applied("x", [decision_for_fact(plan, NodeSuspended(4, (), 1_000, due=61_000))])
    assert state_of(lines(counter)["nap"], 31_000) == "waiting, in 30.0 s"

    counter.claimed("x", Token(4))
    assert lines(counter)["nap"].status == "running"

    counter.applied("x", [decision_for_fact(plan, AttemptFailed(4, (), 61_000, 1, NO))])
    assert state_of(lines(counter)["nap"], 62_000) == "attempt 2 in 4.0 s"

    counter.applied("x", [decision_for_fact(plan, NodeResult(4, (), 70_000, "ok"))])
    assert (lines(counter)["nap"].status, lines(counter)["nap"].due) == ("success", None)


def test_decisions_before_begin_are_counted(plan: Plan) -> None:
    counter = ProgressCounter("x")
    counter.applied("x", [decision_for_fact(plan, NodeResult(1, (), 5, "ok", items=4))])
    counter.begin(plan, "x")

    assert lines(counter)["parts"].total == 4


def test_limited_rows_prefer_running_nodes() -> None:
    ended = [NodeProgress(f"e{i}", False, success=1) for i in range(9)]
    pending = [NodeProgress(f"p{i}", False) for i in range(9)]
    moving = NodeProgress("m", False, running=1)

    assert [each.node for each in worth_showing([*pending, moving, *ended], 3)] == ["m", "e0", "e1"]


def test_live_progress_draws_on_terminal(
    counter: ProgressCounter, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    counter.applied(
        "x",
        [
            decision_for_fact(plan, NodeResult(1, (), 5, "ok", items=4)),
            decision_for_fact(plan, NodeResult(2, (1, 0), 6, "ok")),
        ],
    )

    live = LiveProgress(counter)
    live.refresh()
    live.close()

    assert "1/4" in screen.getvalue()
    assert "pending" in screen.getvalue()
    assert live.pause >= 0.2


def test_plain_progress_prints_line_only_on_change(
    counter: ProgressCounter, plan: Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    counter.applied(
        "x",
        [
            decision_for_fact(plan, NodeResult(1, (), 5, "ok", items=4)),
            decision_for_fact(plan, NodeResult(2, (1, 0), 6, "ok")),
        ],
    )

    shown = PlainProgress(counter)
    shown.refresh()
    shown.refresh()

    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "parts 1/4" in err
