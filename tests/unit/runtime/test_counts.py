"""All displays count alike: the history, the graph, the roll-ups, `rune watch`, the progress of `rune run` and, with
what it is sent, the store of the web interface. Held after each event of random executions, which retry, wait, race,
pause, rerun, are cancelled and fail."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rune.cli.progress import ProgressCounter
from rune.core.execution.fact import (
    AttemptFailed,
    EffectStarted,
    ExecutionEnded,
    Fact,
    NodeResult,
    NodeSuspended,
)
from rune.core.execution.outcome import Error
from rune.core.plan.model import Plan
from rune.ports.journal import StoredFact
from rune.ports.processes import RunningNode
from rune.ports.queries import Event
from rune.runtime.queries.counts import Counts, named
from rune.runtime.queries.overview import Overview
from rune.server.views.graphs import graph_view, rollups_of
from tests.support.counted_executions import (
    BROWSER_MESSAGES,
    Expected,
    Recorded,
    encoded_browser_messages,
    expected_counts,
    recorded_executions,
)
from tests.support.plans import aggregator, conditional, node, plan, race, split

ENDED = ("success", "failed", "skipped", "cancelled")
MAX_LOOKS = 25


def moments(recorded: Recorded) -> set[int]:
    """After which facts the counts are compared: all of a short execution, some of a long one, and the last ones."""
    size = len(recorded.facts)
    return {*range(0, size, max(1, size // MAX_LOOKS)), *range(max(0, size - 3), size)}


def graph_counts(overview: Overview) -> Expected:
    graph = graph_view(overview)
    counts = {
        name: Counter({each.state: 1} if each.counts is None else each.counts)
        for name, each in graph.nodes.items()
        if each.counts is not None or overview.plan.nodes[overview.plan.index[name]].depth == 0
    }
    nodes = {
        name: Counter({status: counts.get(name, Counter())[status] for status in ENDED})
        for name in overview.plan.ids
    }
    return Expected(
        {name: +each for name, each in nodes.items()},
        sum(each.failed_items for each in graph.splits.values()),
    )


def progress_counts(counter: ProgressCounter) -> dict[str, Counter[str]]:
    return {
        each.node: +Counter({status: getattr(each, status) for status in ENDED}) for each in counter.lines()
    }


def watched(events: list[Event], triggers: int) -> Counter[str]:
    """What the events that `rune watch` prints tell of ended runs. Skips are no events."""
    kinds = Counter(each.kind.removeprefix("node.") for each in events if "late" not in each.details)
    kinds["success"] += triggers
    kinds["cancelled"] += sum(each.details.get("cancelled_count", 0) for each in events)
    return +Counter({status: kinds[status] for status in ("success", "failed", "cancelled")})


@pytest.mark.parametrize(
    "seed", [6, 15, 33, 68, 69, 84, 93, 98, 105, 119, 236, 244, 291, 301, 415, 591, 25103]
)
def test_counts_agree_where_they_once_did_not(seed: int) -> None:
    check(seed, Random(seed))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.randoms(use_true_random=False))
def test_counts_agree_after_each_event_of_random_executions(seed: int, rng: Random) -> None:
    check(seed, rng)


def check(seed: int, rng: Random) -> None:
    for recorded in recorded_executions(seed):
        looks = moments(recorded)
        history, followed = recorded.history(), recorded.history()
        overview, counter = Overview(recorded.plan, 0), ProgressCounter("x")
        counter.begin(recorded.plan, "x")
        events: list[Event] = []
        late = False
        for at, stored in enumerate(recorded.facts):
            history.add([stored])
            overview.add(stored)
            events.append(followed.follow(stored))
            late = late or stored.late
            if not stored.late:
                counter.add(stored.fact)
            if at not in looks:
                continue
            expected = expected_counts(history)
            assert graph_counts(overview) == expected, (seed, at)
            if (
                not late
            ):  # what begins to show after the end is in the history, not in what followed until the end
                assert progress_counts(counter) == expected.nodes, (seed, at)
                assert watched(events, len(recorded.plan.triggers)) == told(expected), (seed, at)
            check_splits(overview)
        if recorded.facts:
            check_any_order(recorded, rng)


def told(expected: Expected) -> Counter[str]:
    total: Counter[str] = sum(expected.nodes.values(), Counter())
    return +Counter({status: total[status] for status in ("success", "failed", "cancelled")})


def check_splits(overview: Overview) -> None:
    """The roll-ups are the counts of the graph, and the counts of a node in a split add up to its items."""
    graph = graph_view(overview)
    rollups = {each.split_node_id: each for each in rollups_of(overview, (), 0)}
    for name, each in rollups.items():
        shown = graph.splits[name]
        assert (each.items, each.done, each.failed_items, each.counts) == (
            shown.items,
            shown.done,
            shown.failed_items,
            shown.counts,
        )
        assert sum(each.counts.values()) == each.items
        assert each.done <= each.items
        for inner, counts in each.nodes.items():
            assert counts == graph.nodes[inner].counts
            assert sum(counts.values()) == each.items
        assert each.ended == sum(
            many for counts in each.nodes.values() for status, many in counts.items() if status in ENDED
        )
    assert all(not each.items for name, each in graph.splits.items() if name not in rollups)


def check_any_order(recorded: Recorded, rng: Random) -> None:
    """The counts do not depend on the order of the facts, on repetitions, or on being looked at in between."""
    size = rng.randint(1, len(recorded.facts))
    facts = recorded.facts[:size]
    ordered, shuffled = Overview(recorded.plan, 0), Overview(recorded.plan, 0)
    for each in facts:
        ordered.add(each)
    for each in rng.sample(facts, size) + facts[: size // 2]:
        shuffled.add(each)
        if rng.random() < 0.1:
            graph_view(shuffled)
    splits = [(Counts(each).split(split)) for each in (ordered, shuffled) for split in ordered.splits()]
    half = len(splits) // 2
    assert splits[:half] == splits[half:]
    assert Counts(ordered).root() == Counts(shuffled).root()
    assert (ordered.paused, ordered.end) == (shuffled.paused, shuffled.end)


FAILED = Error("NO", "no")


def shown(p: Plan, *facts: Fact) -> dict[str, str]:
    """The states of the nodes in the graph after these facts."""
    overview = Overview(p, 0)
    for number, fact in enumerate(facts, start=1):
        overview.add(StoredFact(number, fact))
    return {name: each.state for name, each in graph_view(overview).nodes.items()}


def test_node_after_a_halt_is_not_shown_as_skipped() -> None:
    p = plan("start -> a -> b")
    failed = NodeResult(p.index["a"], (), 5, "failed", failure=FAILED)

    assert shown(p, failed)["b"] == "pending"
    assert shown(p, failed, ExecutionEnded(6, "halted"))["b"] == "not_reached"


def test_loser_of_a_race_is_shown_as_cancelled_once_that_is_recorded() -> None:
    p = plan("start -> a -> m, start -> b -> m", m=race({"cancel_losers": True}))
    a, b, m = (p.index[name] for name in "abm")
    won = (NodeResult(a, (), 5, "ok"), NodeResult(m, (), 6, "ok"))

    assert shown(p, *won)["b"] == "queued"
    assert shown(p, *won, NodeResult(b, (), 7, "ok"))["b"] == "success"
    assert shown(p, *won, NodeResult(b, (), 7, "cancelled"))["b"] == "cancelled"


def test_aggregator_of_a_failed_split_is_skipped() -> None:
    p = plan("start -> s -> a -> g, s -!-> b", s=split(error="branch"), g=aggregator())

    states = shown(p, NodeResult(p.index["s"], (), 5, "failed", failure=FAILED))

    assert (states["g"], states["a"], states["b"]) == ("skipped", "skipped", "queued")


def test_rollup_counts_skipped_nodes() -> None:
    p = plan("start -> s -> i -true-> a -> g, i -false-> b -> g", s=split(), i=conditional(), g=aggregator())
    overview = Overview(p, 0)
    s, i = p.index["s"], p.index["i"]
    overview.add_fact(NodeResult(s, (), 5, "ok", items=2))
    overview.add_fact(NodeResult(i, (s, 0), 6, "ok", outlet="true"))

    (rollup,) = rollups_of(overview, (), 0)

    assert rollup.nodes["b"] == {"pending": 1, "skipped": 1}
    assert rollup.ended == 2


def test_item_is_done_when_nothing_in_it_is_open() -> None:
    p = plan("start -> s -> a -> g, s -> b -> g", s=split(), g=aggregator())
    overview = Overview(p, 0)
    s, a, b = (p.index[name] for name in "sab")
    for number, fact in enumerate(
        (NodeResult(s, (), 5, "ok", items=2), NodeResult(a, (s, 0), 6, "failed", failure=FAILED)), start=1
    ):
        overview.add(StoredFact(number, fact))
    counts = Counts(overview).split(s)
    assert (counts.items, counts.done, counts.failed_items) == (2, 0, 1)
    assert named(counts.states) == {"pending": 1, "failed": 1}

    overview.add(StoredFact(3, NodeResult(b, (s, 0), 7, "ok")))

    assert Counts(overview).split(s).done == 1


def test_handled_failure_makes_no_failed_item() -> None:
    p = plan(
        "start -> s -> a -> g, a -!-> b -> g",
        s=split(),
        g=aggregator(),
        a=node(error={"type": "branch", "error_edge": "a-b"}),
    )
    overview = Overview(p, 0)
    s, a, b = (p.index[name] for name in "sab")
    facts = (
        NodeResult(s, (), 5, "ok", items=1),
        NodeResult(a, (s, 0), 6, "failed", failure=FAILED),
        NodeResult(b, (s, 0), 7, "ok"),
    )
    for number, fact in enumerate(facts, start=1):
        overview.add(StoredFact(number, fact))

    counts = Counts(overview).split(s)

    assert named(counts.states) == {"failed": 1}
    assert (counts.done, counts.failed_items) == (1, 0)


def test_run_that_a_worker_reports_is_counted_once() -> None:
    p = plan("start -> s -> a -> g", s=split(), g=aggregator())
    overview = Overview(p, 0)
    s, a = p.index["s"], p.index["a"]
    overview.add(StoredFact(1, NodeResult(s, (), 5, "ok", items=4)))
    overview.add(StoredFact(2, NodeSuspended(a, (s, 0), 6, due=50)))
    overview.add(StoredFact(3, NodeResult(a, (s, 1), 6, "ok")))
    resumed, ended, begun = (RunningNode(a, (s, item), 1, 50) for item in range(3))
    stale = RunningNode(a, (s, 0), 1, 4)

    assert named(Counts(overview, running=[stale]).split(s).nodes[a]) == {
        "pending": 2,
        "waiting": 1,
        "success": 1,
    }

    counts = Counts(overview, running=[resumed, ended, begun, begun]).split(s)

    assert named(counts.nodes[a]) == {"pending": 1, "running": 2, "success": 1}
    assert named(counts.states) == {"pending": 1, "running": 2, "success": 1}


def test_items_of_many_shapes_are_counted_after_each_fact() -> None:
    p = plan("start -> s -> i -true-> a -> g, i -false-> b -> g", s=split(), i=conditional(), g=aggregator())
    overview = Overview(p, 0)
    s, i, a = p.index["s"], p.index["i"], p.index["a"]
    overview.add(StoredFact(1, NodeResult(s, (), 5, "ok", items=5_000)))
    assert Counts(overview).split(s).done == 0
    for item in range(5_000):
        outlet = "false" if item % 5 else "true"
        overview.add(StoredFact(2 + item, NodeResult(i, (s, item), 6, "ok", outlet=outlet)))
        if item % 999 == 0:
            counts = Counts(overview).split(s)
            assert counts.nodes[i].total() == counts.items == 5_000
            assert sum(counts.nodes[a][each] for each in counts.nodes[a]) == 5_000
    again = Overview(p, 0)
    again.add_fact(NodeResult(s, (), 5, "ok", items=5_000))
    for item in range(5_000):
        again.add_fact(NodeResult(i, (s, item), 6, "ok", outlet="false" if item % 5 else "true"))
    assert Counts(again).split(s) == Counts(overview).split(s)


@pytest.mark.parametrize(
    "late",
    [
        AttemptFailed(1, (), 9, 1, FAILED),
        EffectStarted(1, (), 9, 1),
        NodeResult(1, (), 9, "ok"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_fact_after_the_end_shows_that_its_node_was_cancelled(
    late: AttemptFailed | EffectStarted | NodeResult,
) -> None:
    p = plan("start -> a -> b")
    overview = Overview(p, 0)
    overview.add(StoredFact(1, ExecutionEnded(8, "cancelled")))
    assert graph_view(overview).nodes["a"].state == "not_reached"

    overview.add(StoredFact(2, late, late=True))

    assert graph_view(overview).nodes["a"].state == "cancelled"
    assert graph_view(overview).nodes["b"].state == "not_reached"


def test_messages_of_the_store_of_the_web_interface_are_current() -> None:
    """Made by `python -m tests.support.counted_executions`; `make ui-test` applies them to the store."""
    assert BROWSER_MESSAGES.read_bytes() == encoded_browser_messages()
