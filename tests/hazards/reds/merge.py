"""E: merge."""

from __future__ import annotations

from tests.hazards.reds.patch import FOLD_BEARS_IT, NO_DEDUPE, Red, red

_E = "test_hazards_e.py::test_h_"
FORGETS_THE_DONE = (
    "core/transition.py",
    "        if node.index in scope.done:\n            return\n        barrier = ",
    "        barrier = ",
)

TABLE: dict[str, Red] = {
    "e1": red(
        _E + "e1_a_merge_behind_an_untaken_branch_does_not_wait",
        ("core/routing.py", "for causes in told.values():", "for causes in ():"),
    ),
    "e2": red(
        _E + "e2_two_edges_of_one_source_are_two_parties",
        (
            "core/barrier.py",
            "live = [edge for edge in seen if barrier.arrivals[edge].alive]",
            "live = [*{plan.src[edge]: edge for edge in seen if barrier.arrivals[edge].alive}.values()]",
        ),
    ),
    "e3": red(
        _E + "e3_the_timeout_of_a_race_counts_from_its_scope_and_fires",
        ("core/compile.py", '        return "scope"\n', '        return "first"\n'),
    ),
    "e4": red(
        _E + "e4_an_arrival_after_the_timeout_brings_nothing_back",
        FORGETS_THE_DONE,
        ("core/apply.py", "    scope.barriers.pop(decision.node, None)\n", ""),
        NO_DEDUPE,
    ),
    "e6": red(
        _E + "e6_a_merge_inside_a_split_keeps_its_items_apart",
        (
            "core/transition.py",
            "barrier = scope.barriers.get(node.index)",
            "barrier = self.state.root.barriers.get(node.index)",
        ),
        (
            "core/transition.py",
            "barrier = scope.barriers[node.index] = Barrier()",
            "barrier = self.state.root.barriers[node.index] = Barrier()",
        ),
    ),
    "e7": red(
        _E + "e7_a_wait_before_a_merge_is_known_by_name",
        (
            "core/values.py",
            "yield self._plan.ids[self._plan.src[each.edge]]",
            "yield self._plan.ids[each.payload.node]",
        ),
    ),
    "e8": red(
        _E + "e8_of_conflicting_keys_the_later_edge_wins_whoever_comes_first",
        (
            "core/barrier.py",
            "seen = [edge for edge in node.in_edges if edge in barrier.arrivals]",
            "seen = [*barrier.arrivals]",
        ),
    ),
    "e9": red(
        _E + "e9_the_output_of_a_merge_is_seen_behind_it",
        (
            "core/context.py",
            "return None if index is None else",
            "return None if index is None or plan.nodes[index].merges else",
        ),
    ),
    "e10": red(
        _E + "e10_waiting_and_untaken_branches_are_not_shown_as_done",
        ("runtime/history.py", 'status="skipped")', 'status="success")'),
    ),
    "e11": red(
        _E + "e11_a_race_is_won_once_however_late_the_loser_comes",
        FORGETS_THE_DONE,
        ("core/transition.py", "        barrier.opened = True\n", "        del scope.barriers[node.index]\n"),
        NO_DEDUPE,
        FOLD_BEARS_IT,
    ),
    "e12": red(
        _E + "e12_cancelled_losers_make_no_effects",
        ("core/control.py", "if runs and in_cancelled_region(", "if False and in_cancelled_region("),
    ),
}
