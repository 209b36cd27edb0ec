"""Reasons why an execution waits."""

from __future__ import annotations

import pytest

from rune.core.execution.control import end_execution
from rune.core.execution.explain import ActiveRuns, RunningAttempt, explain
from rune.core.execution.fact import ExecutionEnded
from rune.core.execution.reasons import Waiting
from tests.support.plans import (
    NOW,
    ExecutionDriver,
    aggregator,
    conditional,
    merge,
    node,
    plan,
    quorum,
    race,
    split,
)


def explain_token(execution: ExecutionDriver, name: str) -> Waiting:
    node, _, lineage = name.partition("@")
    (found,) = [
        each
        for each in explain(execution.plan, execution.state)
        if (each.node, each.lineage) == (node, lineage or "/")
    ]
    return found


def test_emitted_token_is_queued_or_running() -> None:
    execution = ExecutionDriver(plan("start -> a"))

    assert explain(execution.plan, execution.state) == [Waiting("a", "/", "is queued or running")]


def test_running_token_names_worker_duration_and_attempt() -> None:
    execution = ExecutionDriver(plan("start -> a"))
    token = execution.plan.index["a"]
    active = ActiveRuns({(token, ()): RunningAttempt("w1", NOW, 2, "40%")}, NOW + 3_200)

    assert explain(execution.plan, execution.state, active) == [
        Waiting(
            "a",
            "/",
            "is running on worker w1 for 3.2 s (attempt 2): 40%",
            worker="w1",
            since=NOW,
            attempt=2,
            progress="40%",
        )
    ]


@pytest.mark.parametrize(
    ("queues", "reason"),
    [
        ({"default"}, "is queued"),
        ({"gpu"}, "is queued: no worker serves the queue `default`"),
        (set(), "is queued: no worker serves the queue `default`"),
    ],
)
def test_queued_token_names_a_queue_without_worker(queues: set[str], reason: str) -> None:
    execution = ExecutionDriver(plan("start -> a"))

    (waiting,) = explain(execution.plan, execution.state, ActiveRuns({}, NOW, queues=frozenset(queues)))

    assert waiting.reason == reason


@pytest.mark.parametrize(
    ("complete", "reason"),
    [(True, "is queued"), (False, "is queued, or runs on a worker that did not answer")],
)
def test_token_that_no_worker_runs_is_queued(complete: bool, reason: str) -> None:
    execution = ExecutionDriver(plan("start -> a"))
    active = ActiveRuns({}, NOW, complete)

    assert explain(execution.plan, execution.state, active) == [Waiting("a", "/", reason)]


def test_timed_wait_has_due_time() -> None:
    execution = ExecutionDriver(plan("start -> w", w=node("wait", {"amount": 1})))
    execution.suspend("w", NOW + 1_000)

    assert explain_token(execution, "w") == Waiting("w", "/", "waits for its timer", due=NOW + 1_000)


def test_signal_wait_names_signal() -> None:
    execution = ExecutionDriver(plan("start -> w", w=node("wait", {"resume": "signal"})))
    execution.suspend("w", signal="approved")

    assert explain_token(execution, "w") == Waiting("w", "/", "waits for signal `approved`")


def test_retry_wait_names_attempt_and_due_time() -> None:
    execution = ExecutionDriver(
        plan("start -> x", x=node(retry={"max_attempts": 3, "initial_delay": 2, "jitter": False}))
    )
    execution.fail("x")

    assert explain_token(execution, "x") == Waiting(
        "x", "/", "waits for its retry (attempt 2)", due=NOW + 2_000
    )


def test_paused_token_is_parked() -> None:
    execution = ExecutionDriver(plan("start -> a -> b"))
    execution.pause()
    execution.ok("a")

    assert explain_token(execution, "b").reason == "parked by a pause"


def test_split_with_unstarted_items_is_listed() -> None:
    execution = ExecutionDriver(plan("start -> s -> x", s=split()))
    execution.auto_decide = False
    execution.fan_out("s", 999)

    assert explain_token(execution, "s").reason == "has more items to start"
    assert explain_token(execution, "x@/s:7").reason == "is queued or running"


def test_join_lists_arrived_skipped_and_missing_edges_and_due_time() -> None:
    chains = "start -> i -true-> a -> m, i -false-> x, start -> b -> m, start -> c -> m"
    execution = ExecutionDriver(plan(chains, i=conditional(), m=merge()))
    execution.ok("i", outlet="false")
    execution.now += 1_000
    execution.ok("b")

    assert explain_token(execution, "m") == Waiting(
        "m",
        "/",
        "waits for all of its 3 edges",
        arrived=("b-m",),
        skipped=("a-m",),
        missing=("c-m",),
        due=NOW + 300_000,
    )


def test_join_without_timeout_has_no_due_time() -> None:
    execution = ExecutionDriver(plan("start -> a -> j, start -> b -> j"))
    execution.ok("a")

    assert explain_token(execution, "j").due is None


def test_quorum_reason_names_edge_count() -> None:
    execution = ExecutionDriver(plan("start -> a -> m, start -> b -> m, start -> c -> m", m=quorum(2)))
    execution.ok("a")

    assert explain_token(execution, "m").reason == "waits for enough of its 3 edges"


def test_race_timeout_counts_from_scope_start() -> None:
    chains = "start -> i -true-> a -> m, i -false-> x, start -> b -> m"
    execution = ExecutionDriver(plan(chains, i=conditional(), m=race({"timeout": 9})))
    execution.ok("i", outlet="false")

    assert explain_token(execution, "m").due == NOW + 9_000


def test_pause_shifts_due_time() -> None:
    execution = ExecutionDriver(plan("start -> a -> m, start -> b -> m", m=merge()))
    execution.ok("a")
    execution.pause()
    execution.now += 5_000
    execution.resume()

    assert explain_token(execution, "m").due == NOW + 305_000


def test_opened_join_is_queued_or_running() -> None:
    execution = ExecutionDriver(plan("start -> a -> m, start -> b -> m", m=race()))
    execution.ok("a")

    assert [each.reason for each in explain(execution.plan, execution.state) if each.node == "m"] == [
        "is queued or running"
    ]


def test_aggregator_shows_progress_and_due_time() -> None:
    execution = ExecutionDriver(plan("start -> s -> x -> g, s -> y -> g", s=split(), g=aggregator()))
    execution.fan_out("s", 3)
    assert explain_token(execution, "g") == Waiting("g", "/", "collects the items of `s`", done=0, total=3)
    execution.ok("x@/s:0", "y@/s:0", "x@/s:1")
    assert explain_token(execution, "g") == Waiting(
        "g", "/", "collects the items of `s`", done=1, total=3, due=NOW + 300_000
    )
    execution.ok("y@/s:1", "x@/s:2", "y@/s:2")

    assert explain_token(execution, "g").reason == "is queued or running"
    execution.ok("g")
    assert explain(execution.plan, execution.state) == []


def test_fan_out_without_aggregator_lists_only_items() -> None:
    execution = ExecutionDriver(plan("start -> s -> x", s=split()))
    execution.fan_out("s", 2)

    assert [(each.node, each.lineage) for each in explain(execution.plan, execution.state)] == [
        ("x", "/s:0"),
        ("x", "/s:1"),
    ]


def test_join_inside_item_has_lineage() -> None:
    execution = ExecutionDriver(
        plan(
            "start -> s -> t -> x -> m, t -> y -> m, m -> h -> g",
            s=split(),
            t=split(),
            m=merge(),
            h=aggregator(),
            g=aggregator(),
        )
    )
    execution.fan_out("s", 1)
    execution.fan_out("t@/s:0", 11)
    execution.ok("x@/s:0/t:10")

    assert explain_token(execution, "m@/s:0/t:10").missing == ("y-m",)


def test_ended_execution_has_no_waits() -> None:
    execution = ExecutionDriver(plan("start -> a"))
    end_execution(execution.state, ExecutionEnded(NOW, "cancelled"))

    assert explain(execution.plan, execution.state) == []
