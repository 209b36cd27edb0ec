"""Hazards A: routing and errors."""

from __future__ import annotations

import pytest

from rune.errors import InvalidDocumentError
from tests.hazards.building import (
    counting,
    entry,
    fails,
    kind,
    ran,
    runs,
    sets,
    splits,
    status,
    waits,
    workflow,
)

ANY = kind("merge", wait_mode="wait_for_any")


def test_h_a1_every_out_edge_of_a_trigger_starts() -> None:
    # fault: a1: `begin` performs only the first effect of a trigger
    told = ran(workflow("start>a start>b", a=sets(x=1), b=sets(x=2)))
    assert (status(told, "a"), status(told, "b")) == ("success", "success")


def test_h_a2_an_ignored_failure_at_a_leaf_completes() -> None:
    # fault: a2: a failure at a leaf halts whatever the policy
    told = ran(workflow("start>a", a={**fails(), "error": "ignore"}))
    assert (told["status"], status(told, "a")) == ("completed", "failed")


@pytest.mark.parametrize("policy", ["ignore", "branch"])
def test_h_a3_successors_learn_what_failed(policy: str) -> None:
    # fault: a3: an edge out of a failed node carries no error reference
    edge = "a>b" if policy == "ignore" else "a!b"
    out = kind("output", value="{{ [$error.code, $json.error.code, $a.error.message] }}")
    told = ran(workflow(f"start>a {edge}", a={**fails(), "error": policy}, b=out))
    assert told["output"] == ["BROKEN", "BROKEN", "told to"]


def test_h_a4_error_edge_is_not_followed_on_success() -> None:
    # fault: a4: a success takes all out-edges
    told = ran(workflow("start>a a>b a!c", a={**sets(x=1), "error": "branch"}, b=sets(x=2), c=sets(x=3)))
    assert (status(told, "b"), status(told, "c")) == ("success", "skipped")


def test_h_a5_a_halt_stops_siblings_and_stays() -> None:
    # fault: a5: a failure under `halt` ends its own branch and nothing else
    calls: list[str] = []
    document = workflow("start>w start>a w>c", a=fails(), w=waits(1), c=kind("t.call"))
    told = ran(document, registry=counting(calls))
    assert (told["status"], calls) == ("halted", [])
    assert told["error"]["code"] == "BROKEN"


def test_h_a6_a_cycle_is_refused() -> None:
    # fault: a6: Kahn's count of sorted nodes is not compared
    with pytest.raises(InvalidDocumentError, match="cycle"):
        ran(workflow("start>a a>b b>a", a=sets(x=1), b=sets(x=2)))


def test_h_a7_two_nodes_of_one_id_are_refused() -> None:
    # fault: a7: ids go into a dict without a look
    document = workflow("start>a", a=sets(x=1))
    document["nodes"].append(document["nodes"][1])
    with pytest.raises(InvalidDocumentError):
        ran(document)


def test_h_a8_the_tail_of_a_diamond_runs_once() -> None:
    # fault: a8: a node with several in-edges is emitted once per arrival, and what is done is done again
    calls: list[str] = []
    document = workflow(
        "start>a start>b a>c b>c c>d", a=sets(x=1), b=sets(x=2), c=sets(x=3), d=kind("t.call")
    )
    told = ran(document, registry=counting(calls))
    assert (runs(told, "c"), calls) == (1, ["d@/"])


def test_h_a9_what_the_engine_detects_is_failed_and_what_a_node_does_is_halted() -> None:
    # fault: a9: every failure that ends an execution counts as the engine's
    assert ran(workflow("start>a", a=fails()))["status"] == "halted"
    slow = workflow("start>w", {"timeout": 60}, w=waits(1))
    told = ran(slow)
    assert (told["status"], told["error"]["code"]) == ("failed", "TIMEOUT")


def test_h_a10_a_halted_run_has_its_true_duration() -> None:
    # fault: a10: the terminal row takes its time from the start
    told = ran(workflow("start>w w>a", w=waits(1), a=fails()))
    assert told["status"] == "halted"
    assert 3_600_000 <= told["total_duration_ms"] < 3_700_000


def test_h_a11_a_failed_item_is_the_item_s_alone() -> None:
    # fault: a11: the results of items are shown without their path
    body = kind("conditional", expression="$item == 1")
    document = workflow(
        "start>s s>i i>f:true i>g:false f>g", s=splits(), i=body, f=fails(), g=kind("aggregator")
    )
    told = ran(document, {"items": [0, 1, 2]})
    assert told["status"] == "completed"
    assert status(told, "f", 1) == "failed"
    assert [status(told, "f", item) for item in (0, 2)] == ["skipped", "skipped"]
    assert entry(told, "g")["output"][1]["error"]["code"] == "BROKEN"
