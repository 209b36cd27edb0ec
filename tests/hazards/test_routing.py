"""Hazards A: routing and errors."""

from __future__ import annotations

import pytest

from rune.errors import InvalidDocumentError
from tests.support.backends import Backend, backends
from tests.support.workflows import (
    edit,
    fail,
    node_entry,
    node_status,
    of_type,
    recording_registry,
    split,
    success_count,
    wait,
    workflow,
)

pytestmark = backends("embedded")


def test_h_a1_trigger_starts_every_out_edge(backend: Backend) -> None:
    # fault: a1: `begin` performs only the first effect of a trigger
    result = backend.run(workflow("start>a start>b", a=edit(x=1), b=edit(x=2)))
    assert (node_status(result, "a"), node_status(result, "b")) == ("success", "success")


def test_h_a2_ignored_failure_at_leaf_completes(backend: Backend) -> None:
    # fault: a2: a failure at a leaf halts whatever the policy
    result = backend.run(workflow("start>a", a={**fail(), "error": "ignore"}))
    assert (result["status"], node_status(result, "a")) == ("completed", "failed")


@pytest.mark.parametrize("policy", ["ignore", "branch"])
def test_h_a3_successor_can_read_the_error(policy: str, backend: Backend) -> None:
    # fault: a3: an edge out of a failed node carries no error reference
    edge = "a>b" if policy == "ignore" else "a!b"
    out = of_type("output", value="{{ [$error.code, $json.error.code, $a.error.message] }}")
    result = backend.run(workflow(f"start>a {edge}", a={**fail(), "error": policy}, b=out))
    assert result["output"] == ["BROKEN", "BROKEN", "failed on purpose"]


def test_h_a4_error_edge_is_not_followed_on_success(backend: Backend) -> None:
    # fault: a4: a success takes all out-edges
    document = workflow("start>a a>b a!c", a={**edit(x=1), "error": "branch"}, b=edit(x=2), c=edit(x=3))
    result = backend.run(document)
    assert (node_status(result, "b"), node_status(result, "c")) == ("success", "skipped")


def test_h_a5_halt_stops_siblings_and_is_final(backend: Backend) -> None:
    # fault: a5: a failure under `halt` ends its own branch and nothing else
    calls: list[str] = []
    document = workflow("start>w start>a w>c", a=fail(), w=wait(1), c=of_type("t.call"))
    result = backend.run(document, registry=recording_registry(calls))
    assert (result["status"], calls) == ("halted", [])
    assert result["error"]["code"] == "BROKEN"


def test_h_a6_cycle_is_rejected(backend: Backend) -> None:
    # fault: a6: Kahn's count of sorted nodes is not compared
    with pytest.raises(InvalidDocumentError, match="cycle"):
        backend.run(workflow("start>a a>b b>a", a=edit(x=1), b=edit(x=2)))


def test_h_a7_duplicate_node_id_is_rejected(backend: Backend) -> None:
    # fault: a7: ids are put into a dict without a check
    document = workflow("start>a", a=edit(x=1))
    document["nodes"].append(document["nodes"][1])
    with pytest.raises(InvalidDocumentError):
        backend.run(document)


def test_h_a8_tail_of_diamond_runs_once(backend: Backend) -> None:
    # fault: a8: a node with several in-edges is emitted once per arrival, and finished nodes run again
    calls: list[str] = []
    document = workflow(
        "start>a start>b a>c b>c c>d", a=edit(x=1), b=edit(x=2), c=edit(x=3), d=of_type("t.call")
    )
    result = backend.run(document, registry=recording_registry(calls))
    assert (success_count(result, "c"), calls) == (1, ["d@/"])


def test_h_a9_engine_error_is_failed_and_node_error_is_halted(backend: Backend) -> None:
    # fault: a9: every failure that ends an execution counts as the engine's
    assert backend.run(workflow("start>a", a=fail()))["status"] == "halted"
    result = backend.run(workflow("start>w", {"timeout": 60}, w=wait(1)))
    assert (result["status"], result["error"]["code"]) == ("failed", "TIMEOUT")


def test_h_a10_halted_run_has_true_duration(backend: Backend) -> None:
    # fault: a10: the terminal row takes its time from the start
    result = backend.run(workflow("start>w w>a", w=wait(1), a=fail()))
    assert result["status"] == "halted"
    assert 3_600_000 <= result["total_duration_ms"] < 3_700_000


def test_h_a11_failed_item_is_reported_for_that_item_only(backend: Backend) -> None:
    # fault: a11: the results of items are shown without their path
    body = of_type("conditional", expression="$item == 1")
    document = workflow(
        "start>s s>i i>f:true i>g:false f>g", s=split(), i=body, f=fail(), g=of_type("aggregator")
    )
    result = backend.run(document, {"items": [0, 1, 2]})
    assert result["status"] == "completed"
    assert node_status(result, "f", 1) == "failed"
    assert [node_status(result, "f", item) for item in (0, 2)] == ["skipped", "skipped"]
    assert node_entry(result, "g")["output"][1]["error"]["code"] == "BROKEN"
