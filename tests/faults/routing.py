"""A and B: routing, errors, completion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from tests.faults.change import adjust, replace, skip
from tests.faults.fault import REPEAT_FINISHED_NODE, TOLERATE_DUPLICATE_IN_FOLD, Fault, fault

_set = msgspec.structs.replace


def change_dead_ends(change: Callable[[list[Any]], list[Any]]) -> Callable[[Any], Any]:
    """Wrap `propagate_dead_edges`: change the effects that it adds."""

    def make(original: Any) -> Any:
        def changed(plan: Any, effects: list[Any], edges: Any, error: Any) -> None:
            added: list[Any] = []
            original(plan, added, edges, error)
            effects += change(added)

        return changed

    return make


def _complete_at_dead_end(effects: list[Any]) -> list[Any]:
    from rune.core.execution.decision import FinishExecution

    return [
        FinishExecution("completed") if type(each).__name__ == "CollectItem" else each for each in effects
    ]


DEAD_END_COMPLETES = replace(
    "rune.core.execution.routing:propagate_dead_edges", change_dead_ends(_complete_at_dead_end)
)
"""A dead edge into an aggregator ends the execution."""


def _emit_at_joins(effects: list[Any], plan: Any, *_: Any) -> list[Any]:
    """Give a join a token for each arrival."""
    from rune.core.execution.decision import EmitToken

    return [
        EmitToken(plan.dst[each.edge], each.payload, each.error)
        if type(each).__name__ == "ArriveAtJoin"
        else each
        for each in effects
    ]


def _drop_finish(decision: Any, *_: Any) -> Any:
    return _set(
        decision, effects=tuple(each for each in decision.effects if type(each).__name__ != "FinishExecution")
    )


def _blame_engine(decision: Any, *_: Any) -> Any:
    """Take every failure for one that the engine detected."""
    effects = tuple(
        _set(each, status="failed")
        if type(each).__name__ == "FinishExecution" and each.error is not None
        else each
        for each in decision.effects
    )
    return _set(decision, effects=effects)


def _end_at_start(original: Any) -> Any:
    async def finish(endings: Any, execution: str, finish: Any, now: int) -> Any:
        began = (await endings._data_cache.get(execution)).accepted.at
        return await original(endings, execution, finish, began)

    return finish


def _complete_at_leaf(original: Any) -> Any:
    """End the execution as soon as one node without successors has run."""

    async def _follow(attempt: Any, data: Any, run: Any, decisions: Any, successor: Any = None) -> Any:
        from rune.core.execution.decision import FinishExecution

        kept = await original(attempt, data, run, decisions, successor)
        last = decisions[-1]
        if not data.plan.nodes[last.node].out:
            await attempt._finisher.finish(data.accepted.id, FinishExecution("completed"), last.at)
        return kept

    return _follow


def _finish_when_idle(_: Any, act: Any, scope: Any, *, refill: bool = True) -> None:
    """Complete when nothing runs, although something may wait."""
    reached = refill or not scope.path
    if reached and not act.state.folding and act.state.root.active == 0:
        act.finish(act._final_status())


def _keep_last_result(original: Any) -> Any:
    async def context(history: Any) -> Any:
        results = history._results
        history._results = dict([*results.items()][-1:])
        try:
            return await original(history)
        finally:
            history._results = results

    return context


TABLE: dict[str, Fault] = {
    "a1": fault(
        "test_routing.py::test_h_a1_trigger_starts_every_out_edge",
        adjust(
            "rune.core.execution.transition:decision_for_fact",
            lambda found, *_: _set(found, effects=found.effects[:1]),
        ),
    ),
    "a2": fault(
        "test_routing.py::test_h_a2_ignored_failure_at_leaf_completes",
        adjust(
            "rune.core.plan.compiler:_node_plan",
            lambda node, *_: node if node.out else _set(node, policy="halt"),
        ),
    ),
    "a3": fault(
        "test_routing.py::test_h_a3_successor_can_read_the_error",
        adjust(
            "rune.core.execution.routing:routes",
            lambda found, _, fact: _set(found, error=None) if fact.status == "failed" else found,
        ),
    ),
    "a4": fault(
        "test_routing.py::test_h_a4_error_edge_is_not_followed_on_success",
        replace(
            "rune.core.plan.compiler:_outlets",
            lambda original: (
                lambda definition, node, type, out, _: original(definition, node, type, out, (out, ()))
            ),
        ),
    ),
    "a5": fault(
        "test_routing.py::test_h_a5_halt_stops_siblings_and_is_final",
        adjust("rune.core.execution.step:decision_for_fact", _drop_finish),
    ),
    "a6": fault(
        "test_routing.py::test_h_a6_cycle_is_rejected",
        adjust("rune.core.plan.graph:find_cycle", lambda cycle, graph: () if graph.order else cycle),
    ),
    "a7": fault(
        "test_routing.py::test_h_a7_duplicate_node_id_is_rejected",
        skip("rune.core.validation.checks:_check_unique"),
    ),
    "a8": fault(
        "test_routing.py::test_h_a8_tail_of_diamond_runs_once",
        adjust("rune.core.execution.routing:activate_edges", _emit_at_joins),
        REPEAT_FINISHED_NODE,
        TOLERATE_DUPLICATE_IN_FOLD,
    ),
    "a9": fault(
        "test_routing.py::test_h_a9_engine_error_is_failed_and_node_error_is_halted",
        adjust("rune.core.execution.step:decision_for_fact", _blame_engine),
    ),
    "a10": fault(
        "test_routing.py::test_h_a10_halted_run_has_true_duration",
        replace("rune.runtime.lifecycle.finisher:Finisher.finish", _end_at_start),
    ),
    "a11": fault(
        "test_routing.py::test_h_a11_failed_item_is_reported_for_that_item_only",
        adjust("rune.runtime.queries.history:History.node_run", lambda run, *_: _set(run, lineage=())),
    ),
    "b1": fault(
        "test_completion.py::test_h_b1_execution_completes_once",
        replace("rune.runtime.worker.executor:Executor._apply_and_send", _complete_at_leaf),
    ),
    "b2": fault(
        "test_completion.py::test_h_b2_execution_does_not_complete_while_branch_runs",
        adjust("rune.core.execution.transition:Transition.propagate_counts", _finish_when_idle),
    ),
    "b3": fault(
        "test_completion.py::test_h_b3_final_context_holds_every_branch",
        replace("rune.runtime.queries.history:History.context", _keep_last_result),
    ),
    "b4": fault(
        "test_completion.py::test_h_b4_dead_end_inside_split_does_not_complete_execution", DEAD_END_COMPLETES
    ),
    "b5": fault(
        "test_completion.py::test_h_b5_explain_lists_missing_arrivals_of_join",
        adjust(
            "rune.core.execution.explain:_explain_joins",
            lambda found, *_: [_set(each, missing=()) for each in found],
        ),
    ),
}
