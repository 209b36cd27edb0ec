"""Why an execution is where it is."""

from __future__ import annotations

from rune.core.execution.control import end_execution
from rune.core.execution.explain import Waiting, explain
from rune.core.execution.fact import ExecutionEnded
from tests.unit.core.plans import NOW, Life, choose, gather, merge, most, node, plan, race, split


def told(life: Life, name: str) -> Waiting:
    node, _, lineage = name.partition("@")
    (found,) = [
        each for each in explain(life.plan, life.state) if (each.node, each.lineage) == (node, lineage or "/")
    ]
    return found


def test_a_token_under_way() -> None:
    life = Life(plan("start -> a"))

    assert explain(life.plan, life.state) == [Waiting("a", "/", "is queued or running")]


def test_a_wait_says_when() -> None:
    life = Life(plan("start -> w", w=node("wait", {"amount": 1})))
    life.sleep("w", NOW + 1_000)

    assert told(life, "w") == Waiting("w", "/", "waits for its timer", due=NOW + 1_000)


def test_a_signal_has_a_name() -> None:
    life = Life(plan("start -> w", w=node("wait", {"resume": "signal"})))
    life.sleep("w", signal="approved")

    assert told(life, "w") == Waiting("w", "/", "waits for signal `approved`")


def test_a_retry_has_a_number() -> None:
    life = Life(plan("start -> x", x=node(retry={"max_attempts": 3, "initial_delay": 2, "jitter": False})))
    life.fail("x")

    assert told(life, "x") == Waiting("x", "/", "waits for its retry (attempt 2)", due=NOW + 2_000)


def test_a_pause_parks() -> None:
    life = Life(plan("start -> a -> b"))
    life.pause()
    life.ok("a")

    assert told(life, "b").reason == "parked by a pause"


def test_a_dispatch() -> None:
    life = Life(plan("start -> s -> x", s=split()))
    life.auto = False
    life.fan("s", 999)

    assert told(life, "s").reason == "has more items to start"
    assert told(life, "x@/s:7").reason == "is queued or running"


def test_a_join_says_who_is_there_who_is_dead_who_is_missing_and_until_when() -> None:
    chains = "start -> i -true-> a -> m, i -false-> x, start -> b -> m, start -> c -> m"
    life = Life(plan(chains, i=choose(), m=merge()))
    life.ok("i", outlet="false")
    life.now += 1_000
    life.ok("b")

    assert told(life, "m") == Waiting(
        "m",
        "/",
        "waits for all of its 3 edges",
        arrived=("b-m",),
        skipped=("a-m",),
        missing=("c-m",),
        due=NOW + 300_000,
    )


def test_a_join_without_a_timeout_is_never_due() -> None:
    life = Life(plan("start -> a -> j, start -> b -> j"))
    life.ok("a")

    assert told(life, "j").due is None


def test_a_quorum_waits_for_enough() -> None:
    life = Life(plan("start -> a -> m, start -> b -> m, start -> c -> m", m=most(2)))
    life.ok("a")

    assert told(life, "m").reason == "waits for enough of its 3 edges"


def test_a_race_with_a_timeout_counts_from_its_scope() -> None:
    chains = "start -> i -true-> a -> m, i -false-> x, start -> b -> m"
    life = Life(plan(chains, i=choose(), m=race({"timeout": 9})))
    life.ok("i", outlet="false")

    assert told(life, "m").due == NOW + 9_000


def test_a_pause_moves_what_is_due() -> None:
    life = Life(plan("start -> a -> m, start -> b -> m", m=merge()))
    life.ok("a")
    life.pause()
    life.now += 5_000
    life.resume()

    assert told(life, "m").due == NOW + 305_000


def test_an_opened_join_is_a_token() -> None:
    life = Life(plan("start -> a -> m, start -> b -> m", m=race()))
    life.ok("a")

    assert [each.reason for each in explain(life.plan, life.state) if each.node == "m"] == [
        "is queued or running"
    ]


def test_an_aggregator_says_how_far_it_is() -> None:
    life = Life(plan("start -> s -> x -> g, s -> y -> g", s=split(), g=gather()))
    life.fan("s", 3)
    assert told(life, "g") == Waiting("g", "/", "collects the items of `s`", done=0, total=3)
    life.ok("x@/s:0", "y@/s:0", "x@/s:1")
    assert told(life, "g") == Waiting(
        "g", "/", "collects the items of `s`", done=1, total=3, due=NOW + 300_000
    )
    life.ok("y@/s:1", "x@/s:2", "y@/s:2")

    assert told(life, "g").reason == "is queued or running"
    life.ok("g")
    assert explain(life.plan, life.state) == []


def test_a_fan_out_without_an_aggregator_is_only_its_items() -> None:
    life = Life(plan("start -> s -> x", s=split()))
    life.fan("s", 2)

    assert [(each.node, each.lineage) for each in explain(life.plan, life.state)] == [
        ("x", "/s:0"),
        ("x", "/s:1"),
    ]


def test_inner_joins_name_their_item() -> None:
    life = Life(
        plan(
            "start -> s -> t -> x -> m, t -> y -> m, m -> h -> g",
            s=split(),
            t=split(),
            m=merge(),
            h=gather(),
            g=gather(),
        )
    )
    life.fan("s", 1)
    life.fan("t@/s:0", 11)
    life.ok("x@/s:0/t:10")

    assert told(life, "m@/s:0/t:10").missing == ("y-m",)


def test_an_ended_execution_waits_for_nothing() -> None:
    life = Life(plan("start -> a"))
    end_execution(life.state, ExecutionEnded(NOW, "cancelled"))

    assert explain(life.plan, life.state) == []
