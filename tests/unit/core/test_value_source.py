"""From references to values, and what the expressions of a token see."""

from __future__ import annotations

import pytest

from rune.core.execution.fact import NodeResult
from rune.core.execution.scope import ValueSource, failure_value
from rune.core.execution.token import START, Ref, Token
from tests.unit.core.plans import NOW, Life, choose, gather, merge, node, plan, race, split, switch

BROKEN = {"code": "BROKEN", "message": "x failed", "details": {"why": 7}}


def test_the_start_payload_enters_and_stays_in_sight() -> None:
    life = Life(plan("start -> a -> b"))
    life.ok("a", value={"k": 1})

    sight = life.sight("b", {"t": "in"})

    assert (sight["$json"], sight["$trigger"], sight["$input"], sight["$start"]) == (
        {"k": 1},
        {"t": "in"},
        {"t": "in"},
        {"t": "in"},
    )
    assert sight["$a"] == {"k": 1}


def test_what_a_token_sees_besides_values() -> None:
    sight = Life(plan("start -> a")).sight("a", None)

    assert (sight["@now"], sight["@seed"], sight["$execution"]) == (NOW / 1000, "seed", {"id": "x"})


@pytest.mark.parametrize("root", ["$nobody", "$item", "$index", "$error", "$b"])
def test_what_is_not_there_is_missing(root: str) -> None:
    sight = Life(plan("start -> a -> b")).sight("a")

    with pytest.raises(KeyError):
        sight[root]


@pytest.mark.parametrize(
    ("kind", "outlet", "label"),
    [
        (choose(), "true", "-true->"),
        (switch(), "case_1", "-case_1->"),
        (node("wait", {"amount": 1}), None, "->"),
        (node("log", {"message": "x"}), None, "->"),
        (node("noop"), None, "->"),
    ],
)
def test_what_only_routes_or_delays_passes_on_what_entered(
    kind: dict[str, object], outlet: str | None, label: str
) -> None:
    life = Life(plan(f"start -> a -> r {label} b", r=kind))
    life.ok("a", value={"k": 1})
    life.ok("r", value={"own": True}, outlet=outlet)

    sight = life.sight("b")

    assert sight["$json"] == {"k": 1}
    assert sight["$r"] == {"own": True}


def test_a_wait_for_a_signal_brings_its_own() -> None:
    life = Life(plan("start -> a -> w -> b", w=node("wait", {"resume": "signal"})))
    life.ok("a", value=1)
    life.ok("w", value={"signal": 1})

    assert life.sight("b")["$json"] == {"signal": 1}


def test_a_handled_failure_is_output_payload_and_error() -> None:
    life = Life(plan("start -> x -> y -> z", x=node(error="ignore"), y=node("noop")))
    life.fail("x", why=7)
    assert life.sight("y")["$json"] == {"error": BROKEN}
    life.ok("y")

    sight = life.sight("z")

    assert (sight["$json"], sight["$x"], sight["$error"]) == ({"error": BROKEN}, {"error": BROKEN}, BROKEN)


def test_the_latest_failure_on_the_path_is_the_one() -> None:
    life = Life(plan("start -> x -> y -> z", x=node(error="ignore"), y=node(error="ignore")))
    life.fail("x")
    life.fail("y", code="LATER")

    assert life.sight("z")["$error"]["code"] == "LATER"


def test_several_payloads_meet_as_an_object() -> None:
    life = Life(plan("start -> a -> j, start -> b -> j, b -> j, j -> z"))
    life.ok("b", value=2)
    life.ok("a", value=1)
    assert life.sight("j")["$json"] == {"a": 1, "b": 2}
    assert life.values().arrivals(life.token("j")) == [("a", 1), ("b", 2), ("b", 2)]
    life.ok("j", value=3)

    assert life.sight("z")["$json"] == 3


def test_what_met_at_a_join_that_only_passes_it_on_is_found_behind_it() -> None:
    life = Life(
        plan("start -> a -> j, start -> b -> j, j -> z -> y", j=node("noop"), z=node("log", {"message": "x"}))
    )
    life.ok("a", value=1)
    life.ok("b", value=2)
    life.ok("j", value={"own": 1})
    assert life.sight("z")["$json"] == {"a": 1, "b": 2}
    life.ok("z")

    assert life.sight("y")["$json"] == {"a": 1, "b": 2}


def test_a_merge_takes_arrivals_in_edge_order() -> None:
    life = Life(plan("start -> a -> m, start -> b -> m", m=merge()))
    life.ok("b", value=2)
    life.ok("a", value=1)

    assert life.values().arrivals(life.token("m")) == [("a", 1), ("b", 2)]


def test_items_and_indices_shadow_those_around() -> None:
    life = Life(plan("start -> s -> t -> x -> h -> y -> g", s=split(), t=split(), h=gather(), g=gather()))
    life.fan("s", 2)
    assert (life.sight("t@/s:1")["$item"], life.sight("t@/s:1")["$index"]) == (1, 1)
    life.fan("t@/s:1", 3)

    sight = life.sight("x@/s:1/t:2")

    assert (sight["$item"], sight["$index"], sight["$json"], sight["$s"]) == (2, 2, 2, [0, 1])


def test_behind_the_aggregator_the_payload_is_its_list_and_the_item_is_gone() -> None:
    life = Life(plan("start -> s -> x -> g -> z", s=split(), g=gather()))
    life.fan("s", 1)
    life.ok("x@/s:0")
    token = life.token("g")
    assert life.values({"xs": [0]}).value(token.payload, token) == {"xs": [0]}
    life.ok("g", value=[5])

    sight = life.sight("z")

    assert sight["$json"] == [5]
    with pytest.raises(KeyError):
        sight["$item"]
    with pytest.raises(KeyError):
        sight["$x"]


def test_the_entries_of_an_aggregator_in_index_order() -> None:
    chains = "start -> s -> i -true-> x -> g, i -true-> y -> g, i -false-> o"
    life = Life(plan(chains, s=split(), i=choose(), g=gather()))
    life.fan("s", 4)
    for item, outlet in ((3, "true"), (2, "false"), (1, "true"), (0, "true")):
        life.ok(f"i@/s:{item}", outlet=outlet)
    life.ok("o@/s:2")
    life.ok("x@/s:3", "y@/s:0", value="v")
    life.fail("y@/s:3", code="Y3")
    life.ok("x@/s:1", value="x1")
    life.ok("y@/s:1", value="y1")
    life.cancel("x@/s:0")

    entries = list(life.values().entries(life.token("g")))

    assert entries == [
        (False, "v"),
        (False, {"x": "x1", "y": "y1"}),
        (False, None),
        (True, {"error": {"code": "Y3", "message": "y@/s:3 failed", "details": {}}}),
    ]


def test_a_loser_is_not_in_sight() -> None:
    life = Life(plan("start -> a -> m, start -> b -> m, m -> z", m=race()))
    life.ok("b", "a", "m", value=1)

    sight = life.sight("z")

    assert sight["$b"] == 1
    assert sight["$m"] == 1
    with pytest.raises(KeyError):
        sight["$a"]


def test_a_node_called_like_a_root_does_not_hide_it() -> None:
    life = Life(plan("start -> a -> m, start -> b -> m, m -> z", m=race()))
    life.ok("a", "m", value=1)

    assert (life.sight("z", 5)["$trigger"], life.sight("z")["$json"]) == (5, 1)


@pytest.mark.parametrize(
    "ref", [Ref("result", 1), Ref("item", 1, (1, 0)), Ref("entered", 1), Ref("result", 2, (9, 9))]
)
def test_a_reference_to_nothing_is_a_missing_key(ref: Ref) -> None:
    with pytest.raises(KeyError):
        Life(plan("start -> a -> b")).values().value(ref)


def test_the_value_of_a_cancelled_node_is_missing() -> None:
    life = Life(plan("start -> a -> b"))
    life.cancel("a")

    with pytest.raises(KeyError):
        life.values().value(Ref("result", 1))


def test_values_are_decoded_when_they_are_touched_and_only_then() -> None:
    life = Life(plan("start -> a -> b"))
    life.ok("a", value="[1]")
    decoded: list[str] = []

    def decode(value: str) -> str:
        decoded.append(value)
        return value

    values = ValueSource(life.plan, None, life.lookup, {}, decode)
    sight = values.scope(life.token("b"), 0.0, "seed")
    assert decoded == []
    assert sight["$json"] == sight["$json"] == "[1]"

    assert decoded == ["[1]"]


def test_a_failure_without_an_error_still_reads_as_one() -> None:
    assert failure_value(NodeResult(1, (), NOW, "failed")) == {"error": {}}


def test_start_is_start_whoever_asks() -> None:
    assert Life(plan("start -> a")).values("in").value(START, Token(1)) == "in"
