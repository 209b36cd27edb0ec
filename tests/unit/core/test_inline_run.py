"""A run in place: how far it goes, and what is left to send."""

from __future__ import annotations

import pytest

from rune.core.execution.decision import Decision
from rune.core.execution.inline_run import MAX_INLINE_RESULTS, InlineRun
from rune.core.execution.outcome import Error, Failure, FanOut, Outcome, Output, Suspend
from rune.core.execution.step import step
from rune.core.execution.token import Token
from rune.core.execution.transition import apply
from tests.unit.core.plans import NOW, Life, choose, merge, most, node, plan, race, split


def go(
    life: Life,
    first: str,
    outcomes: dict[str, Outcome] | None = None,
    *,
    in_place: bool = True,
    bound: int = MAX_INLINE_RESULTS,
) -> tuple[list[str], list[str]]:
    """Run in place from a token; answers what ran, and what is left to send after the commit."""
    run = InlineRun(life.plan, life.token(first), in_place=in_place, bound=bound)
    ran: list[str] = []
    while (token := run.next()) is not None:
        name = life.plan.ids[token.node]
        ran.append(name)
        run.add(step(life.plan, token, (outcomes or {}).get(name, Output()), NOW))
    emitted: list[Token] = []
    for decision in run.decisions:
        emitted += apply(life.plan, life.state, decision).emitted
    return ran, sorted(life.name(*each.key) for each in run.remaining(emitted))


def test_pure_nodes_follow_without_a_hop() -> None:
    assert go(Life(plan("start -> a -> b -> c")), "a") == (["a", "b", "c"], [])


def test_an_effect_always_travels() -> None:
    life = Life(plan("start -> a -> b -> c, a -> d", b="act"))

    assert go(life, "a") == (["a", "d"], ["b@/"])


def test_an_effectful_node_may_begin_a_run() -> None:
    assert go(Life(plan("start -> a -> b", a="act")), "a") == (["a", "b"], [])


def test_a_node_of_another_queue_travels() -> None:
    gpu = node(queue="gpu")

    assert go(Life(plan("start -> a -> b -> c", b=gpu)), "a") == (["a"], ["b@/"])
    assert go(Life(plan("start -> a -> b -> c", a=gpu, b=gpu)), "a") == (["a", "b"], ["c@/"])


def test_a_join_of_another_queue_travels() -> None:
    gpu = merge(queue="gpu")

    assert go(Life(plan("start -> a -> b -> m, a -> c -> m", m=gpu)), "a") == (["a", "b", "c"], ["m@/"])


def test_a_node_that_is_not_deterministic_travels() -> None:
    stamp = node("edit", {"mode": "keep_only", "assignments": [{"name": "k", "value": "{{ now() }}"}]})

    assert go(Life(plan("start -> a -> b", b=stamp)), "a") == (["a"], ["b@/"])


@pytest.mark.parametrize("outcome", [Suspend(NOW + 5), FanOut(2), Failure(Error("E", "no"))])
def test_a_run_ends_where_nothing_pure_follows(outcome: Outcome) -> None:
    life = Life(plan("start -> a -> s -> x", s=split()))

    ran, left = go(life, "a", {"s": outcome})

    assert ran == ["a", "s"]
    assert left == (["x@/s:0", "x@/s:1"] if isinstance(outcome, FanOut) else [])


def test_a_join_whose_parties_all_resolve_inside_runs_in_place() -> None:
    life = Life(plan("start -> a -> b -> m, a -> c -> m, m -> z", m=merge()))

    assert go(life, "a") == (["a", "b", "c", "m", "z"], [])


def test_a_dead_party_inside_counts() -> None:
    life = Life(plan("start -> i -true-> a -> m, i -false-> b -> m, m -> z", i=choose()))

    assert go(life, "i", {"i": Output({}, "false")}) == (["i", "b", "m", "z"], [])


def test_a_join_that_waits_for_others_is_left_to_the_state() -> None:
    life = Life(plan("start -> a -> m, start -> b -> m, m -> z", m=merge()))
    assert go(life, "a") == (["a"], [])

    assert go(life, "b") == (["b"], ["m@/"])


@pytest.mark.parametrize("kind", [race(), most(2), merge(parameters={"cancel_losers": True}), node("act")])
def test_races_effects_and_cancelling_joins_are_left_to_the_state(kind: dict[str, object]) -> None:
    life = Life(plan("start -> a -> b -> m, a -> c -> m, m -> z", m=kind))

    assert go(life, "a") == (["a", "b", "c"], ["m@/"])


def test_a_join_all_of_whose_parties_died_inside_is_no_run() -> None:
    life = Life(
        plan(
            "start -> a -> i -true-> x, i -false-> b -> m, a -> k -true-> y, k -false-> c -> m",
            i=choose(),
            k=choose(),
        )
    )

    ran, left = go(life, "a", {"i": Output({}, "true"), "k": Output({}, "true")})

    assert ran == ["a", "i", "k", "x", "y"]
    assert left == ["m@/"]


def test_a_halt_stops_the_run_at_once() -> None:
    life = Life(plan("start -> a -> b, a -> c, a -> d"))

    assert go(life, "a", {"b": Failure(Error("E", "no"))}) == (["a", "b"], ["c@/", "d@/"])


def test_off_means_one_node_one_message() -> None:
    assert go(Life(plan("start -> a -> b")), "a", in_place=False) == (["a"], ["b@/"])


def test_a_run_has_a_bound() -> None:
    life = Life(plan("start -> " + " -> ".join(f"n{i}" for i in range(MAX_INLINE_RESULTS + 3))))

    ran, left = go(life, "n0")

    assert len(ran) == MAX_INLINE_RESULTS
    assert left == [f"n{MAX_INLINE_RESULTS}@/"]


def test_a_bound_may_be_smaller() -> None:
    assert go(Life(plan("start -> a -> b -> c")), "a", bound=2) == (["a", "b"], ["c@/"])


def test_the_result_is_the_same_as_hop_by_hop() -> None:
    p = plan("start -> a -> b -> m, a -> c -> m, m -> z", m=merge())
    together, apart = Life(p), Life(p)
    go(together, "a")
    for name in ("a", "b", "c", "m", "z"):
        apart.ok(name)

    assert together.state == apart.state


def test_what_is_left_leaves_out_what_was_decided() -> None:
    life = Life(plan("start -> a -> b"))
    run = InlineRun(life.plan, life.token("a"))
    run.add(Decision(1, (), NOW, None))

    assert run.remaining([Token(1), Token(2)]) == [Token(2)]
