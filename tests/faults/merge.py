"""E: merge."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.faults.change import adjust, edit, replace, skip
from tests.faults.fault import REPEAT_FINISHED_NODE, TOLERATE_DUPLICATE_IN_FOLD, Fault, fault
from tests.faults.routing import change_dead_ends

_set = msgspec.structs.replace

_FORGET_FINISHED = ("node.index in scope.done", "False")
"""In `_arrive`: a join that is finished begins to wait again."""


def _drop_arrivals(effects: list[Any]) -> list[Any]:
    return [each for each in effects if type(each).__name__ != "ArriveAtJoin"]


def _count_sources(token: Any, plan: Any, *_: Any) -> Any:
    """Keep one edge of each source."""
    return _set(token, arrived=tuple({plan.src[each.edge]: each for each in token.arrived}.values()))


def _order_by_arrival(original: Any) -> Any:
    def opened_token(plan: Any, node: Any, barrier: Any, *rest: Any) -> Any:
        return original(plan, _set(node, in_edges=tuple(barrier.arrivals)), barrier, *rest)

    return opened_token


def _hide_merges(found: Any, plan: Any, _: Any, root: str) -> Any:
    index = plan.index.get(root[1:])
    return None if index is not None and plan.nodes[index].merges else found


def _show_skipped_as_done(runs: Any, *_: Any) -> Any:
    return [_set(each, status="success") if each.status == "skipped" else each for each in runs]


TABLE: dict[str, Fault] = {
    "e1": fault(
        "test_merge.py::test_h_e1_merge_does_not_wait_for_untaken_branch[embedded]",
        replace("rune.core.execution.routing:propagate_dead_edges", change_dead_ends(_drop_arrivals)),
    ),
    "e2": fault(
        "test_merge.py::test_h_e2_two_edges_of_one_source_are_two_arrivals[embedded]",
        adjust("rune.core.execution.joins:opened_token", _count_sources),
    ),
    "e3": fault(
        "test_merge.py::test_h_e3_race_timeout_starts_with_scope[embedded]",
        adjust(
            "rune.core.plan.compiler:_timeout_from", lambda found, *_: "first" if found == "scope" else found
        ),
    ),
    "e4": fault(
        "test_merge.py::test_h_e4_arrival_after_timeout_has_no_effect[embedded]",
        edit("rune.core.execution.transition:Transition._arrive", _FORGET_FINISHED),
        edit("rune.core.execution.transition:_complete", ("scope.barriers.pop(decision.node, None)", "")),
        REPEAT_FINISHED_NODE,
    ),
    "e6": fault(
        "test_merge.py::test_h_e6_merge_inside_split_keeps_items_apart[embedded]",
        edit(
            "rune.core.execution.transition:Transition._arrive",
            ("scope.barriers.get(node.index)", "self.state.root.barriers.get(node.index)"),
            (
                "barrier = scope.barriers[node.index] = Barrier()",
                "barrier = self.state.root.barriers[node.index] = Barrier()",
            ),
        ),
    ),
    "e7": fault(
        "test_merge.py::test_h_e7_wait_before_merge_keeps_its_name[embedded]",
        edit(
            "rune.core.execution.scope:ValueSource._join",
            ("self._plan.src[each.edge]", "each.payload.node"),
        ),
    ),
    "e8": fault(
        "test_merge.py::test_h_e8_later_edge_wins_conflict_in_any_order[embedded]",
        replace("rune.core.execution.joins:opened_token", _order_by_arrival),
    ),
    "e9": fault(
        "test_merge.py::test_h_e9_merge_output_is_visible_downstream[embedded]",
        adjust("rune.core.execution.scope:reference", _hide_merges),
    ),
    "e10": fault(
        "test_merge.py::test_h_e10_waiting_and_untaken_branches_are_not_shown_as_done",
        adjust("rune.runtime.queries.history:History.node_runs", _show_skipped_as_done),
    ),
    "e11": fault(
        "test_merge.py::test_h_e11_late_loser_does_not_win_race_again[embedded]",
        edit(
            "rune.core.execution.transition:Transition._arrive",
            _FORGET_FINISHED,
            ("barrier.opened = True", "del scope.barriers[node.index]"),
        ),
        REPEAT_FINISHED_NODE,
        TOLERATE_DUPLICATE_IN_FOLD,
    ),
    "e12": fault(
        "test_merge.py::test_h_e12_cancelled_losers_have_no_effects[embedded]",
        skip("rune.core.execution.control:in_cancelled_region", result=False),
    ),
}
