"""Inline runs: which nodes run in the same process, and which tokens are left to send."""

from __future__ import annotations

from typing import Any

import pytest

from rune.core.execution.decision import Decision
from rune.core.execution.inline_run import MAX_INLINE_RESULTS, InlineRun, only_successor, pure_items
from rune.core.execution.outcome import Error, Failure, FanOut, Outcome, Output, Suspend
from rune.core.execution.step import step
from rune.core.execution.token import Token
from rune.core.execution.transition import apply
from tests.support.plans import NOW, ExecutionDriver, conditional, merge, node, plan, quorum, race, split


def run_inline(
    execution: ExecutionDriver,
    first: str,
    outcomes: dict[str, Outcome] | None = None,
    *,
    in_place: bool = True,
    bound: int = MAX_INLINE_RESULTS,
) -> tuple[list[str], list[str]]:
    """Run inline from a token; return the nodes that ran and the tokens left to send after the commit."""
    run = InlineRun(execution.plan, execution.token(first), in_place=in_place, bound=bound)
    ran: list[str] = []
    while (token := run.next()) is not None:
        name = execution.plan.ids[token.node]
        ran.append(name)
        run.add(step(execution.plan, token, (outcomes or {}).get(name, Output()), NOW))
    emitted: list[Token] = []
    for decision in run.decisions:
        emitted += apply(execution.plan, execution.state, decision).emitted
    return ran, sorted(execution.name(*each.key) for each in run.remaining(emitted))


def test_pure_nodes_run_inline() -> None:
    assert run_inline(ExecutionDriver(plan("start -> a -> b -> c")), "a") == (["a", "b", "c"], [])


def test_effectful_node_is_sent() -> None:
    execution = ExecutionDriver(plan("start -> a -> b -> c, a -> d", b="act"))

    assert run_inline(execution, "a") == (["a", "d"], ["b@/"])


def test_effectful_node_may_start_a_run() -> None:
    assert run_inline(ExecutionDriver(plan("start -> a -> b", a="act")), "a") == (["a", "b"], [])


def test_node_of_another_queue_is_sent() -> None:
    gpu = node(queue="gpu")

    assert run_inline(ExecutionDriver(plan("start -> a -> b -> c", b=gpu)), "a") == (["a"], ["b@/"])
    assert run_inline(ExecutionDriver(plan("start -> a -> b -> c", a=gpu, b=gpu)), "a") == (
        ["a", "b"],
        ["c@/"],
    )


def test_join_of_another_queue_is_sent() -> None:
    gpu = merge(queue="gpu")

    assert run_inline(ExecutionDriver(plan("start -> a -> b -> m, a -> c -> m", m=gpu)), "a") == (
        ["a", "b", "c"],
        ["m@/"],
    )


def test_nondeterministic_node_is_sent() -> None:
    clock_reader = node("edit", {"mode": "keep_only", "assignments": [{"name": "k", "value": "{{ now() }}"}]})

    assert run_inline(ExecutionDriver(plan("start -> a -> b", b=clock_reader)), "a") == (["a"], ["b@/"])


@pytest.mark.parametrize("outcome", [Suspend(NOW + 5), FanOut(2), Failure(Error("E", "no"))])
def test_run_ends_at_suspension_fan_out_or_failure(outcome: Outcome) -> None:
    execution = ExecutionDriver(plan("start -> a -> s -> x", s=split()))

    ran, left = run_inline(execution, "a", {"s": outcome})

    assert ran == ["a", "s"]
    assert left == (["x@/s:0", "x@/s:1"] if isinstance(outcome, FanOut) else [])


def test_join_with_all_edges_inside_run_runs_inline() -> None:
    execution = ExecutionDriver(plan("start -> a -> b -> m, a -> c -> m, m -> z", m=merge()))

    assert run_inline(execution, "a") == (["a", "b", "c", "m", "z"], [])


def test_dead_edge_inside_run_counts_for_join() -> None:
    execution = ExecutionDriver(plan("start -> i -true-> a -> m, i -false-> b -> m, m -> z", i=conditional()))

    assert run_inline(execution, "i", {"i": Output({}, "false")}) == (["i", "b", "m", "z"], [])


def test_join_waiting_for_other_tokens_is_not_run_inline() -> None:
    execution = ExecutionDriver(plan("start -> a -> m, start -> b -> m, m -> z", m=merge()))
    assert run_inline(execution, "a") == (["a"], [])

    assert run_inline(execution, "b") == (["b"], ["m@/"])


@pytest.mark.parametrize("kind", [race(), quorum(2), merge(parameters={"cancel_losers": True}), node("act")])
def test_races_and_effectful_joins_are_not_run_inline(kind: dict[str, object]) -> None:
    execution = ExecutionDriver(plan("start -> a -> b -> m, a -> c -> m, m -> z", m=kind))

    assert run_inline(execution, "a") == (["a", "b", "c"], ["m@/"])


def test_join_with_all_edges_dead_is_not_run_inline() -> None:
    execution = ExecutionDriver(
        plan(
            "start -> a -> i -true-> x, i -false-> b -> m, a -> k -true-> y, k -false-> c -> m",
            i=conditional(),
            k=conditional(),
        )
    )

    ran, left = run_inline(execution, "a", {"i": Output({}, "true"), "k": Output({}, "true")})

    assert ran == ["a", "i", "k", "x", "y"]
    assert left == ["m@/"]


def test_halt_stops_the_run() -> None:
    execution = ExecutionDriver(plan("start -> a -> b, a -> c, a -> d"))

    assert run_inline(execution, "a", {"b": Failure(Error("E", "no"))}) == (["a", "b"], ["c@/", "d@/"])


def test_run_without_in_place_runs_one_node() -> None:
    assert run_inline(ExecutionDriver(plan("start -> a -> b")), "a", in_place=False) == (["a"], ["b@/"])


def test_run_is_bounded_by_max_inline_results() -> None:
    execution = ExecutionDriver(
        plan("start -> " + " -> ".join(f"n{i}" for i in range(MAX_INLINE_RESULTS + 3)))
    )

    ran, left = run_inline(execution, "n0")

    assert len(ran) == MAX_INLINE_RESULTS
    assert left == [f"n{MAX_INLINE_RESULTS}@/"]


def test_run_stops_at_given_bound() -> None:
    assert run_inline(ExecutionDriver(plan("start -> a -> b -> c")), "a", bound=2) == (["a", "b"], ["c@/"])


def test_inline_run_gives_same_state_as_single_steps() -> None:
    p = plan("start -> a -> b -> m, a -> c -> m, m -> z", m=merge())
    inline, stepwise = ExecutionDriver(p), ExecutionDriver(p)
    run_inline(inline, "a")
    for name in ("a", "b", "c", "m", "z"):
        stepwise.ok(name)

    assert inline.state == stepwise.state


def test_remaining_leaves_out_decided_tokens() -> None:
    execution = ExecutionDriver(plan("start -> a -> b"))
    run = InlineRun(execution.plan, execution.token("a"))
    run.add(Decision(1, (), NOW, None))

    assert run.remaining([Token(1), Token(2)]) == [Token(2)]


@pytest.mark.parametrize(
    ("graph", "outcomes", "found"),
    [
        ("start -> a -> b", {}, "b"),
        ("start -> a -> p -> b", {}, "b"),
        ("start -> a", {}, None),
        ("start -> a -> b, a -> c", {}, None),
        ("start -> a -> b, a -> p", {}, "b"),
        ("start -> a -> m, start -> d -> m, m -> b", {}, None),
        ("start -> a -> s -> b", {"s": FanOut(1)}, None),
        ("start -> a -> b", {"a": Suspend(NOW + 5)}, None),
        ("start -> a -> b", {"a": Failure(Error("E", "no"))}, None),
    ],
)
def test_only_successor_is_the_node_behind_a_linear_run(
    graph: str, outcomes: dict[str, Outcome], found: str | None
) -> None:
    kinds: dict[str, Any] = {"b": "act", "c": "act", "m": merge(), "s": split()}
    used = {name: kind for name, kind in kinds.items() if f" {name}" in graph}
    execution = ExecutionDriver(plan(graph, **used))
    run = InlineRun(execution.plan, execution.token("a"))
    while (token := run.next()) is not None:
        run.add(step(execution.plan, token, outcomes.get(execution.plan.ids[token.node], Output()), NOW))
    node = only_successor(run.decisions)
    assert (None if node is None else execution.plan.ids[node]) == found


def test_skipped_branch_does_not_hide_the_only_successor() -> None:
    execution = ExecutionDriver(plan("start -> i -true-> b, i -false-> c", i=conditional(), b="act", c="act"))
    run = InlineRun(execution.plan, execution.token("i"))
    run.add(step(execution.plan, execution.token("i"), Output({}, "true"), NOW))
    assert only_successor(run.decisions) == execution.plan.index["b"]


def _pure_items(shape: str, **nodes: Any) -> list[str]:
    compiled = plan(shape, **nodes)
    return sorted(compiled.ids[each] for each in pure_items(compiled))


def test_nodes_of_a_pure_body_are_pure_items() -> None:
    assert _pure_items("start -> s -> a -> b -> g -> z", s=split(), g="aggregator") == ["a", "b"]


def test_nodes_before_an_effect_are_not_pure_items() -> None:
    assert _pure_items("start -> s -> a -> b -> c -> g", s=split(), b="act", g="aggregator") == ["c"]


def test_body_without_aggregator_has_pure_items() -> None:
    assert _pure_items("start -> s -> a -> b", s=split()) == ["a", "b"]


def test_nodes_before_another_queue_are_not_pure_items() -> None:
    gpu = node(queue="gpu")

    assert _pure_items("start -> s -> a -> b -> g", s=split(), b=gpu, g="aggregator") == ["b"]


def test_items_with_items_of_their_own_are_not_pure_items() -> None:
    shape = "start -> s -> a -> t -> b -> h -> c -> g"

    assert _pure_items(shape, s=split(), t=split(), h="aggregator", g="aggregator") == ["b", "c"]


def test_suspending_node_is_not_a_pure_item() -> None:
    assert _pure_items("start -> s -> a -> w -> b -> g", s=split(), w="wait", g="aggregator") == ["b"]
