"""Values of references, and the scope in which the expressions of a token are evaluated."""

from __future__ import annotations

import pytest

from rune.core.execution.fact import NodeResult
from rune.core.execution.scope import ValueSource, failure_value
from rune.core.execution.token import START, Ref, Token
from tests.support.plans import (
    NOW,
    ExecutionDriver,
    aggregator,
    conditional,
    merge,
    node,
    plan,
    race,
    split,
    switch,
)

BROKEN = {"code": "BROKEN", "message": "x failed", "details": {"why": 7}}


def test_start_payload_is_visible_in_later_nodes() -> None:
    execution = ExecutionDriver(plan("start -> a -> b"))
    execution.ok("a", value={"k": 1})

    scope = execution.expression_scope("b", {"t": "in"})

    assert (scope["$json"], scope["$trigger"], scope["$input"], scope["$start"]) == (
        {"k": 1},
        {"t": "in"},
        {"t": "in"},
        {"t": "in"},
    )
    assert scope["$a"] == {"k": 1}


def test_scope_holds_time_seed_path_and_execution() -> None:
    scope = ExecutionDriver(plan("start -> a")).expression_scope("a", None)

    assert (scope["@now"], scope["@seed"], scope["@path"]) == (NOW / 1000, "x/seed", "/")
    assert scope["$execution"] == {"id": "x"}


@pytest.mark.parametrize("root", ["$unknown", "$item", "$index", "$error", "$b"])
def test_unknown_root_raises_key_error(root: str) -> None:
    scope = ExecutionDriver(plan("start -> a -> b")).expression_scope("a")

    with pytest.raises(KeyError):
        scope[root]


@pytest.mark.parametrize(
    ("kind", "outlet", "label"),
    [
        (conditional(), "true", "-true->"),
        (switch(), "case_1", "-case_1->"),
        (node("wait", {"amount": 1}), None, "->"),
        (node("log", {"message": "x"}), None, "->"),
        (node("noop"), None, "->"),
    ],
)
def test_pass_through_node_forwards_its_payload(
    kind: dict[str, object], outlet: str | None, label: str
) -> None:
    execution = ExecutionDriver(plan(f"start -> a -> r {label} b", r=kind))
    execution.ok("a", value={"k": 1})
    execution.ok("r", value={"own": True}, outlet=outlet)

    scope = execution.expression_scope("b")

    assert scope["$json"] == {"k": 1}
    assert scope["$r"] == {"own": True}


def test_signal_wait_replaces_payload() -> None:
    execution = ExecutionDriver(plan("start -> a -> w -> b", w=node("wait", {"resume": "signal"})))
    execution.ok("a", value=1)
    execution.ok("w", value={"signal": 1})

    assert execution.expression_scope("b")["$json"] == {"signal": 1}


def test_ignored_failure_is_output_payload_and_error() -> None:
    execution = ExecutionDriver(plan("start -> x -> y -> z", x=node(error="ignore"), y=node("noop")))
    execution.fail("x", why=7)
    assert execution.expression_scope("y")["$json"] == {"error": BROKEN}
    execution.ok("y")

    scope = execution.expression_scope("z")

    assert (scope["$json"], scope["$x"], scope["$error"]) == ({"error": BROKEN}, {"error": BROKEN}, BROKEN)


def test_error_is_latest_failure_on_path() -> None:
    execution = ExecutionDriver(plan("start -> x -> y -> z", x=node(error="ignore"), y=node(error="ignore")))
    execution.fail("x")
    execution.fail("y", code="LATER")

    assert execution.expression_scope("z")["$error"]["code"] == "LATER"


def test_join_payload_is_object_by_predecessor() -> None:
    execution = ExecutionDriver(plan("start -> a -> j, start -> b -> j, b -> j, j -> z"))
    execution.ok("b", value=2)
    execution.ok("a", value=1)
    assert execution.expression_scope("j")["$json"] == {"a": 1, "b": 2}
    assert execution.values().arrivals(execution.token("j")) == [("a", 1), ("b", 2), ("b", 2)]
    execution.ok("j", value=3)

    assert execution.expression_scope("z")["$json"] == 3


def test_pass_through_join_forwards_joined_payload() -> None:
    execution = ExecutionDriver(
        plan("start -> a -> j, start -> b -> j, j -> z -> y", j=node("noop"), z=node("log", {"message": "x"}))
    )
    execution.ok("a", value=1)
    execution.ok("b", value=2)
    execution.ok("j", value={"own": 1})
    assert execution.expression_scope("z")["$json"] == {"a": 1, "b": 2}
    execution.ok("z")

    assert execution.expression_scope("y")["$json"] == {"a": 1, "b": 2}


def test_merge_arrivals_are_in_edge_order() -> None:
    execution = ExecutionDriver(plan("start -> a -> m, start -> b -> m", m=merge()))
    execution.ok("b", value=2)
    execution.ok("a", value=1)

    assert execution.values().arrivals(execution.token("m")) == [("a", 1), ("b", 2)]


def test_inner_item_and_index_shadow_outer() -> None:
    execution = ExecutionDriver(
        plan("start -> s -> t -> x -> h -> y -> g", s=split(), t=split(), h=aggregator(), g=aggregator())
    )
    execution.fan_out("s", 2)
    assert (
        execution.expression_scope("t@/s:1")["$item"],
        execution.expression_scope("t@/s:1")["$index"],
    ) == (1, 1)
    execution.fan_out("t@/s:1", 3)

    scope = execution.expression_scope("x@/s:1/t:2")

    assert (scope["$item"], scope["$index"], scope["$json"], scope["$s"]) == (2, 2, 2, [0, 1])


def test_item_is_not_visible_after_aggregator() -> None:
    execution = ExecutionDriver(plan("start -> s -> x -> g -> z", s=split(), g=aggregator()))
    execution.fan_out("s", 1)
    execution.ok("x@/s:0")
    token = execution.token("g")
    assert execution.values({"xs": [0]}).value(token.payload, token) == {"xs": [0]}
    execution.ok("g", value=[5])

    scope = execution.expression_scope("z")

    assert scope["$json"] == [5]
    with pytest.raises(KeyError):
        scope["$item"]
    with pytest.raises(KeyError):
        scope["$x"]


def test_aggregator_entries_are_in_index_order() -> None:
    chains = "start -> s -> i -true-> x -> g, i -true-> y -> g, i -false-> o"
    execution = ExecutionDriver(plan(chains, s=split(), i=conditional(), g=aggregator()))
    execution.fan_out("s", 4)
    for item, outlet in ((3, "true"), (2, "false"), (1, "true"), (0, "true")):
        execution.ok(f"i@/s:{item}", outlet=outlet)
    execution.ok("o@/s:2")
    execution.ok("x@/s:3", "y@/s:0", value="v")
    execution.fail("y@/s:3", code="Y3")
    execution.ok("x@/s:1", value="x1")
    execution.ok("y@/s:1", value="y1")
    execution.cancel("x@/s:0")

    entries = list(execution.values().entries(execution.token("g")))

    assert entries == [
        (False, "v"),
        (False, {"x": "x1", "y": "y1"}),
        (False, None),
        (True, {"error": {"code": "Y3", "message": "y@/s:3 failed", "details": {}}}),
    ]


def test_race_loser_raises_key_error() -> None:
    execution = ExecutionDriver(plan("start -> a -> m, start -> b -> m, m -> z", m=race()))
    execution.ok("b", "a", "m", value=1)

    scope = execution.expression_scope("z")

    assert scope["$b"] == 1
    assert scope["$m"] == 1
    with pytest.raises(KeyError):
        scope["$a"]


def test_trigger_and_json_are_visible_after_race() -> None:
    execution = ExecutionDriver(plan("start -> a -> m, start -> b -> m, m -> z", m=race()))
    execution.ok("a", "m", value=1)

    assert (execution.expression_scope("z", 5)["$trigger"], execution.expression_scope("z")["$json"]) == (
        5,
        1,
    )


@pytest.mark.parametrize(
    "ref", [Ref("result", 1), Ref("item", 1, (1, 0)), Ref("entered", 1), Ref("result", 2, (9, 9))]
)
def test_value_of_dangling_reference_raises_key_error(ref: Ref) -> None:
    with pytest.raises(KeyError):
        ExecutionDriver(plan("start -> a -> b")).values().value(ref)


def test_value_of_cancelled_node_raises_key_error() -> None:
    execution = ExecutionDriver(plan("start -> a -> b"))
    execution.cancel("a")

    with pytest.raises(KeyError):
        execution.values().value(Ref("result", 1))


def test_values_are_decoded_once_on_access() -> None:
    execution = ExecutionDriver(plan("start -> a -> b"))
    execution.ok("a", value="[1]")
    decoded: list[str] = []

    def decode(value: str) -> str:
        decoded.append(value)
        return value

    values = ValueSource(execution.plan, None, execution.lookup, {}, decode)
    scope = values.scope(execution.token("b"), 0.0, "seed")
    assert decoded == []
    assert scope["$json"] == scope["$json"] == "[1]"

    assert decoded == ["[1]"]


def test_failure_value_without_error_is_empty_object() -> None:
    assert failure_value(NodeResult(1, (), NOW, "failed")) == {"error": {}}


def test_value_of_start_reference_is_start_payload() -> None:
    assert ExecutionDriver(plan("start -> a")).values("in").value(START, Token(1)) == "in"
