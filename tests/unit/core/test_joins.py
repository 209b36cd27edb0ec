"""When a join opens, and with what."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rune.core.execution.decision import FinishExecution
from rune.core.execution.joins import join_verdict
from rune.core.execution.token import Ref, TokenPurpose
from rune.core.node_type import Join
from tests.unit.core.plans import Life, choose, edge_names, merge, most, node, plan, race

THREE = "start -> a -> m, start -> b -> m, start -> c -> m, m -> z"


@pytest.mark.parametrize(
    ("opens", "parties", "live", "arrived", "fate"),
    [
        ("all", 2, 1, 1, None),
        ("all", 2, 1, 2, TokenPurpose.RUN),
        ("all", 2, 2, 2, TokenPurpose.RUN),
        ("all", 2, 0, 1, None),
        ("all", 2, 0, 2, TokenPurpose.SKIP),
        ("any", 3, 1, 1, TokenPurpose.RUN),
        ("any", 3, 0, 2, None),
        ("any", 3, 0, 3, TokenPurpose.SKIP),
        (2, 3, 1, 1, None),
        (2, 3, 2, 2, TokenPurpose.RUN),
        (2, 3, 1, 2, None),
        (2, 3, 1, 3, TokenPurpose.UNREACHABLE),
        (3, 3, 1, 2, TokenPurpose.UNREACHABLE),
        (3, 3, 0, 2, None),
        (3, 3, 0, 3, TokenPurpose.SKIP),
    ],
)
def test_verdicts(opens: Join, parties: int, live: int, arrived: int, fate: TokenPurpose | None) -> None:
    assert join_verdict(opens, parties, live, arrived) is fate


@given(st.integers(1, 6), st.data())
def test_every_join_is_decided_when_its_last_edge_is(parties: int, data: st.DataObject) -> None:
    opens = data.draw(st.sampled_from(["all", "any", *range(1, parties + 1)]))
    resolved = data.draw(st.lists(st.booleans(), min_size=parties, max_size=parties))

    verdicts = [join_verdict(opens, parties, sum(resolved[:k]), k) for k in range(1, parties + 1)]

    decided = [each for each in verdicts if each is not None]
    assert decided
    assert (decided[0] is TokenPurpose.SKIP) == (not any(resolved))


@pytest.mark.parametrize("order", list(permutations("abc")))
def test_all_opens_once_with_every_payload_in_edge_order(order: tuple[str, ...]) -> None:
    life = Life(plan(THREE, m=merge()))

    for name in order:
        assert life.queue == {f"{each}@/" for each in order[order.index(name) :]}
        life.ok(name)

    token = life.token("m")
    assert edge_names(life.plan, [each.edge for each in token.arrived]) == ["a-m", "b-m", "c-m"]
    assert [each.payload for each in token.arrived] == [
        Ref("result", life.plan.index[each]) for each in "abc"
    ]
    assert life.waiting == [("m@/", 1, 3), ("m@/", 2, 3)]


@pytest.mark.parametrize("order", list(permutations("abc")))
def test_any_opens_at_the_first_and_ignores_the_rest(order: tuple[str, ...]) -> None:
    life = Life(plan(THREE, m=race()))

    life.ok(order[0])
    assert edge_names(life.plan, [each.edge for each in life.token("m").arrived]) == [f"{order[0]}-m"]
    life.ok(order[1])
    life.ok("m")
    life.ok(order[2])

    assert life.queue == {"z@/"}
    assert life.finish is None
    life.ok("z")
    assert life.finish == FinishExecution("completed")


def test_a_join_waits_for_losers_before_the_execution_ends() -> None:
    life = Life(plan("start -> a -> m, start -> b -> m", m=race()))

    life.ok("a", "m")
    assert life.finish is None
    life.ok("b")

    assert life.finish == FinishExecution("completed")


@pytest.mark.parametrize("order", list(permutations("abc")))
def test_at_least_opens_at_the_kth_with_those_in_edge_order(order: tuple[str, ...]) -> None:
    life = Life(plan(THREE, m=most(2)))

    life.ok(order[0])
    assert "m@/" not in life.queue
    life.ok(order[1])

    assert edge_names(life.plan, [each.edge for each in life.token("m").arrived]) == sorted(
        f"{each}-m" for each in order[:2]
    )


CHOICES = "start -> i -true-> a -> m, i -false-> x, start -> j -true-> b -> m, j -false-> y, start -> c -> m"


@pytest.mark.parametrize(
    ("taken", "end"),
    [
        (("true", "true"), "runs"),
        (("true", "false"), "runs"),
        (("false", "false"), "fails"),
    ],
)
def test_at_least_fails_as_soon_as_too_few_can_come(taken: tuple[str, str], end: str) -> None:
    life = Life(plan(CHOICES, i=choose(), j=choose(), m=most(2)))

    life.ok("c")
    life.ok("i", outlet=taken[0])
    life.ok("j", outlet=taken[1])
    if end == "runs":
        life.ok("a")

    if taken == ("true", "false"):
        assert "m@/" in life.queue
    if end == "fails":
        assert life.finish is not None
        assert life.finish.status == "halted"
        assert life.finish.error is not None
        assert life.finish.error.code == "UNREACHABLE"


def test_unreachable_follows_the_policy_of_the_join() -> None:
    life = Life(plan(CHOICES + ", m -> z", i=choose(), j=choose(), m=most(2, error="ignore")))

    life.ok("i", outlet="false")
    life.ok("j", outlet="false")
    assert life.finish is None
    life.ok("c")

    assert "z@/" in life.queue
    assert life.result("m").failure is not None
    assert [each.payload for each in life.result("m").arrived] == [Ref("result", life.plan.index["c"])]


@pytest.mark.parametrize("kind", [merge(), race(), most(2), node()])
def test_all_dead_means_skipped_whatever_the_kind(kind: dict[str, object]) -> None:
    chains = "start -> i -true-> a, i -false-> x -> m, start -> j -true-> b, j -false-> y -> m, m -> z"
    life = Life(plan(chains, i=choose(), j=choose(), m=kind))

    life.ok("i", outlet="true")
    life.ok("j", outlet="true")
    life.ok("a", "b")

    assert {"m@/", "z@/"} <= set(life.skipped)
    assert life.finish == FinishExecution("completed")


def test_any_node_may_race() -> None:
    life = Life(plan("start -> a -> m, start -> b -> m", m=node(join="any")))

    life.ok("b")

    assert life.token("m").payload == Ref("result", life.plan.index["b"])


def test_two_edges_with_the_same_ends_are_two_parties() -> None:
    life = Life(plan("start -> a -> m, a -> m", m=merge()))

    life.ok("a")

    assert edge_names(life.plan, [each.edge for each in life.token("m").arrived]) == ["a-m", "a-m-2"]


@pytest.mark.parametrize(
    ("chains", "kinds", "payload"),
    [
        ("start -> a -> m, start -> b -> m", {}, "entered"),
        ("start -> a -> m, a -> m", {}, "result"),
    ],
)
def test_the_payload_of_a_plain_join(chains: str, kinds: dict[str, dict[str, object]], payload: str) -> None:
    life = Life(plan(chains, **kinds))

    life.ok("a")
    if "b@/" in life.queue:
        life.ok("b")

    assert life.token("m").payload.kind == payload


def test_one_live_payload_enters_a_join_as_it_is() -> None:
    life = Life(plan("start -> i -true-> a -> m, i -false-> b -> m", i=choose()))

    life.ok("i", outlet="false")
    life.ok("b")

    assert life.token("m").payload == Ref("result", life.plan.index["b"])


def test_a_join_that_runs_hears_the_first_error_of_its_live_edges() -> None:
    chains = "start -> a -> m, start -> b -> m, start -> c -> m"
    life = Life(plan(chains, b=node(error="ignore"), c=node(error="ignore")))

    life.fail("c", "b")
    life.ok("a")

    assert life.token("m").error == Ref("result", life.plan.index["b"])
