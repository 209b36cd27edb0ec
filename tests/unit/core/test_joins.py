"""When a join opens, and with which payloads."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rune.core.execution.decision import FinishExecution
from rune.core.execution.joins import join_verdict
from rune.core.execution.token import Ref, TokenPurpose
from rune.core.node_type import Join
from tests.support.plans import (
    ExecutionDriver,
    conditional,
    edge_names,
    merge,
    node,
    plan,
    quorum,
    race,
    split,
)

THREE = "start -> a -> m, start -> b -> m, start -> c -> m, m -> z"


@pytest.mark.parametrize(
    ("mode", "parties", "live", "arrived", "fate"),
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
def test_join_verdict(mode: Join, parties: int, live: int, arrived: int, fate: TokenPurpose | None) -> None:
    assert join_verdict(mode, parties, live, arrived) is fate


@given(st.integers(1, 6), st.data())
def test_join_is_decided_after_last_edge(parties: int, data: st.DataObject) -> None:
    mode = data.draw(st.sampled_from(["all", "any", *range(1, parties + 1)]))
    resolved = data.draw(st.lists(st.booleans(), min_size=parties, max_size=parties))

    verdicts = [join_verdict(mode, parties, sum(resolved[:k]), k) for k in range(1, parties + 1)]

    decided = [each for each in verdicts if each is not None]
    assert decided
    assert (decided[0] is TokenPurpose.SKIP) == (not any(resolved))


@pytest.mark.parametrize("order", list(permutations("abc")))
def test_token_of_join_tells_last_arrival(order: tuple[str, ...]) -> None:
    execution = ExecutionDriver(plan(THREE, m=merge()))

    for name in order:
        execution.now += 1
        execution.ok(name)

    assert execution.token("m").last == "abc".index(order[-1])
    folded, _ = execution.fold()
    assert folded.scopes[()].live[execution.plan.index["m"]].token.last == "abc".index(order[-1])


@pytest.mark.parametrize("order", [("x", "y"), ("y", "x")])
def test_token_of_aggregator_tells_last_arrival(order: tuple[str, ...]) -> None:
    execution = ExecutionDriver(plan("start -> s -> x -> g, s -> y -> g, g -> z", s=split(), g="aggregator"))
    execution.fan_out("s", 2)

    for name in order:
        for item in (1, 0):
            execution.now += 1
            execution.ok(f"{name}@/s:{item}")

    assert execution.token("g").last == ("x", "y").index(order[-1])


@pytest.mark.parametrize("order", list(permutations("abc")))
def test_all_join_opens_once_with_payloads_in_edge_order(order: tuple[str, ...]) -> None:
    execution = ExecutionDriver(plan(THREE, m=merge()))

    for name in order:
        assert execution.queue == {f"{each}@/" for each in order[order.index(name) :]}
        execution.ok(name)

    token = execution.token("m")
    assert edge_names(execution.plan, [each.edge for each in token.arrived]) == ["a-m", "b-m", "c-m"]
    assert [each.payload for each in token.arrived] == [
        Ref("result", execution.plan.index[each]) for each in "abc"
    ]
    assert execution.waiting == [("m@/", 1, 3), ("m@/", 2, 3)]


@pytest.mark.parametrize("order", list(permutations("abc")))
def test_any_join_opens_at_first_arrival_and_ignores_rest(order: tuple[str, ...]) -> None:
    execution = ExecutionDriver(plan(THREE, m=race()))

    execution.ok(order[0])
    assert edge_names(execution.plan, [each.edge for each in execution.token("m").arrived]) == [
        f"{order[0]}-m"
    ]
    execution.ok(order[1])
    execution.ok("m")
    execution.ok(order[2])

    assert execution.queue == {"z@/"}
    assert execution.finish is None
    execution.ok("z")
    assert execution.finish == FinishExecution("completed")


def test_execution_ends_only_after_race_losers() -> None:
    execution = ExecutionDriver(plan("start -> a -> m, start -> b -> m", m=race()))

    execution.ok("a", "m")
    assert execution.finish is None
    execution.ok("b")

    assert execution.finish == FinishExecution("completed")


@pytest.mark.parametrize("order", list(permutations("abc")))
def test_at_least_join_opens_at_kth_arrival_in_edge_order(order: tuple[str, ...]) -> None:
    execution = ExecutionDriver(plan(THREE, m=quorum(2)))

    execution.ok(order[0])
    assert "m@/" not in execution.queue
    execution.ok(order[1])

    assert edge_names(execution.plan, [each.edge for each in execution.token("m").arrived]) == sorted(
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
def test_at_least_join_fails_when_too_few_edges_remain(taken: tuple[str, str], end: str) -> None:
    execution = ExecutionDriver(plan(CHOICES, i=conditional(), j=conditional(), m=quorum(2)))

    execution.ok("c")
    execution.ok("i", outlet=taken[0])
    execution.ok("j", outlet=taken[1])
    if end == "runs":
        execution.ok("a")

    if taken == ("true", "false"):
        assert "m@/" in execution.queue
    if end == "fails":
        assert execution.finish is not None
        assert execution.finish.status == "halted"
        assert execution.finish.error is not None
        assert execution.finish.error.code == "UNREACHABLE"


def test_unreachable_join_follows_error_policy() -> None:
    execution = ExecutionDriver(
        plan(CHOICES + ", m -> z", i=conditional(), j=conditional(), m=quorum(2, error="ignore"))
    )

    execution.ok("i", outlet="false")
    execution.ok("j", outlet="false")
    assert execution.finish is None
    execution.ok("c")

    assert "z@/" in execution.queue
    assert execution.result("m").failure is not None
    assert [each.payload for each in execution.result("m").arrived] == [
        Ref("result", execution.plan.index["c"])
    ]


@pytest.mark.parametrize("kind", [merge(), race(), quorum(2), node()])
def test_join_with_only_dead_edges_is_skipped(kind: dict[str, object]) -> None:
    chains = "start -> i -true-> a, i -false-> x -> m, start -> j -true-> b, j -false-> y -> m, m -> z"
    execution = ExecutionDriver(plan(chains, i=conditional(), j=conditional(), m=kind))

    execution.ok("i", outlet="true")
    execution.ok("j", outlet="true")
    execution.ok("a", "b")

    assert {"m@/", "z@/"} <= set(execution.skipped)
    assert execution.finish == FinishExecution("completed")


def test_plain_node_with_join_any_races() -> None:
    execution = ExecutionDriver(plan("start -> a -> m, start -> b -> m", m=node(join="any")))

    execution.ok("b")

    assert execution.token("m").payload == Ref("result", execution.plan.index["b"])


def test_parallel_edges_arrive_separately() -> None:
    execution = ExecutionDriver(plan("start -> a -> m, a -> m", m=merge()))

    execution.ok("a")

    assert edge_names(execution.plan, [each.edge for each in execution.token("m").arrived]) == [
        "a-m",
        "a-m-2",
    ]


@pytest.mark.parametrize(
    ("chains", "kinds", "payload"),
    [
        ("start -> a -> m, start -> b -> m", {}, "entered"),
        ("start -> a -> m, a -> m", {}, "result"),
    ],
)
def test_plain_join_payload_kind(chains: str, kinds: dict[str, dict[str, object]], payload: str) -> None:
    execution = ExecutionDriver(plan(chains, **kinds))

    execution.ok("a")
    if "b@/" in execution.queue:
        execution.ok("b")

    assert execution.token("m").payload.kind == payload


def test_single_live_payload_enters_join_unchanged() -> None:
    execution = ExecutionDriver(plan("start -> i -true-> a -> m, i -false-> b -> m", i=conditional()))

    execution.ok("i", outlet="false")
    execution.ok("b")

    assert execution.token("m").payload == Ref("result", execution.plan.index["b"])


def test_join_gets_first_error_of_live_edges() -> None:
    chains = "start -> a -> m, start -> b -> m, start -> c -> m"
    execution = ExecutionDriver(plan(chains, b=node(error="ignore"), c=node(error="ignore")))

    execution.fail("c", "b")
    execution.ok("a")

    assert execution.token("m").error == Ref("result", execution.plan.index["b"])
