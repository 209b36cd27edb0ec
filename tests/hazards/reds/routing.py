"""A and B: routing, errors, completion."""

from __future__ import annotations

from tests.hazards.reds.patch import FOLD_BEARS_IT, NO_DEDUPE, Red, red

_A = "test_hazards_a.py::test_h_"
_B = "test_hazards_b.py::test_h_"

DEAD_END_COMPLETES = (
    "core/routing.py",
    "effects.append(Gather(edge, FAILED if cause else DEAD))",
    'effects.append(Finish("completed"))',
)

TABLE: dict[str, Red] = {
    "a1": red(
        _A + "a1_every_out_edge_of_a_trigger_starts",
        ("core/apply.py", "payload=START)).effects)", "payload=START)).effects[:1])"),
    ),
    "a2": red(
        _A + "a2_an_ignored_failure_at_a_leaf_completes",
        ("core/routing.py", 'if node.policy == "halt":', 'if node.policy == "halt" or not node.out:'),
    ),
    "a3": red(
        _A + "a3_successors_learn_what_failed",
        (
            "core/routing.py",
            "Routes(alive, dead, itself, itself, None)",
            "Routes(alive, dead, itself, None, None)",
        ),
    ),
    "a4": red(
        _A + "a4_error_edge_is_not_followed_on_success",
        ("core/compile.py", "normal = (success, errors)", "normal = (out, ())"),
    ),
    "a5": red(
        _A + "a5_a_halt_stops_siblings_and_stays",
        ("core/routing.py", "fact, (finish,))", "fact, ())"),
    ),
    "a6": red(
        _A + "a6_a_cycle_is_refused",
        ("core/graph.py", "if len(graph.order) == len(graph.ids):", "if graph.order:"),
    ),
    "a7": red(
        _A + "a7_two_nodes_of_one_id_are_refused",
        (
            "core/checks/identity.py",
            "first.setdefault(each, place) != place",
            "not first.setdefault(each, place)",
        ),
    ),
    "a8": red(
        _A + "a8_the_tail_of_a_diamond_runs_once",
        ("core/routing.py", "elif target.is_join:", "elif False:"),
        NO_DEDUPE,
        FOLD_BEARS_IT,
    ),
    "a9": red(
        _A + "a9_what_the_engine_detects_is_failed_and_what_a_node_does_is_halted",
        ("core/routing.py", "fact.failure is not None and fact.failure.engine", "fact.failure is not None"),
    ),
    "a10": red(
        _A + "a10_a_halted_run_has_its_true_duration",
        (
            "runtime/endings.py",
            "End(now, finish.status",
            "End((await self._books.book(execution)).accepted.at, finish.status",
        ),
    ),
    "a11": red(
        _A + "a11_a_failed_item_is_the_item_s_alone",
        ("runtime/history.py", "lineage=self.lineage(result.path)", "lineage=()"),
    ),
    "b1": red(
        _B + "b1_one_completion_whatever_the_shape",
        (
            "runtime/attempt.py",
            "        if applied.finish is not None:\n            await self._endings.finish(execution, applied.finish,",
            "        if applied.finish is not None or not book.plan.nodes[run.decisions[-1].node].out:\n"
            '            await self._endings.finish(execution, applied.finish or Finish("completed"),',
        ),
    ),
    "b2": red(
        _B + "b2_completed_means_that_no_branch_runs",
        ("core/transition.py", "if scope.count == 0 and not", "if scope.active == 0 and not"),
    ),
    "b3": red(
        _B + "b3_the_final_context_holds_every_branch",
        (
            "runtime/history.py",
            "if not path and result.status in",
            "if result is [*self._results.values()][-1] and result.status in",
        ),
    ),
    "b4": red(_B + "b4_a_dead_end_inside_a_split_completes_nothing", DEAD_END_COMPLETES),
    "b5": red(
        _B + "b5_waiting_at_a_join_is_told_apart_from_dead",
        (
            "core/explain.py",
            "missing=tuple(name for e, name in names.items() if e not in barrier.arrivals)",
            "missing=()",
        ),
    ),
}
