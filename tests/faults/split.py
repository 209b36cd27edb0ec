"""D: split and aggregator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from tests.faults.change import adjust, edit, replace, skip
from tests.faults.fault import REPEAT_FINISHED_NODE, RUN_FINISHED_TOKEN, Fault, fault
from tests.faults.routing import DEAD_END_COMPLETES, change_dead_ends

_set = msgspec.structs.replace


def _mix_up_outer_items(original: Any) -> Any:
    """Read what belongs to any outer item from the first of them."""

    def item_entry(plan: Any, aggregator: Any, path: tuple[int, ...], item: int, results: Any) -> Any:
        first = tuple(0 if at % 2 else each for at, each in enumerate(path))
        return original(plan, aggregator, first, item, results)

    return item_entry


def _run_ended_item(verdict: str, _: Any, state: Any, token: Any, now: int) -> str:
    """Let the tokens of an item run that has ended."""
    return "run" if verdict != "void" and token.path not in state.scopes else verdict


def reopen_ended_item(original: Any) -> Any:
    """Apply what is decided about an item that has ended."""

    def apply(plan: Any, state: Any, decision: Any) -> Any:
        from rune.core.execution.state import Scope
        from rune.core.execution.transition import Transition

        if not decision.path or decision.path in state.scopes:
            return original(plan, state, decision)
        act = Transition(plan, state, decision.at)
        act.perform(Scope(decision.path, 0), decision.effects)
        return act.applied

    return apply


def _drop_gathers(effects: list[Any]) -> list[Any]:
    return [each for each in effects if type(each).__name__ != "CollectItem"]


def _turn_into_text(entries: Any, *_: Any) -> Iterator[Any]:
    for failed, value in entries:
        yield failed, value if failed or value is None else str(value)


def _spread_forks(entries: Any, *_: Any) -> Iterator[Any]:
    """Yield an entry per path of an item."""
    for failed, value in entries:
        forks = isinstance(value, dict) and all(isinstance(each, dict) for each in value.values())
        yield from ((failed, each) for each in (value.values() if forks and not failed else (value,)))


def _ignore_empty_list(original: Any) -> Any:
    def _open_aggregator(act: Any, scope: Any, node: Any, fan: Any) -> None:
        if fan.count:
            original(act, scope, node, fan)

    return _open_aggregator


def _halt_by_default(node: Any, *_: Any) -> Any:
    return _set(node, policy="halt") if node.node.error is None else node


def _write_into_row(original: Any) -> Any:
    """Keep a value in its row, however large it is."""

    async def written(data: Any, *arguments: Any) -> Any:
        from rune.core.limits import LIMITS

        return await original(data, *arguments, _set(LIMITS, inline_bytes=1 << 40))

    return written


def _refill_when_empty(original: Any) -> Any:
    """Start further items only when none is left in the window."""

    def fill(act: Any, scope: Any, split: int) -> None:
        if not scope.fans[split].in_flight:
            original(act, scope, split)

    return fill


TABLE: dict[str, Fault] = {
    "d1": fault(
        "test_split.py::test_h_d1_inner_splits_of_outer_items_are_separate[embedded]",
        replace("rune.core.execution.joins:item_entry", _mix_up_outer_items),
    ),
    "d2": fault(
        "test_split.py::test_h_d2_lineage_ends_at_aggregator[embedded]",
        edit(
            "rune.core.execution.transition:Transition._collect_item",
            ("self._open_aggregator(enclosing, node, fan)", "self._open_aggregator(scope, node, fan)"),
        ),
        skip("rune.core.execution.transition:_release"),
    ),
    "d3": fault(
        "test_split.py::test_h_d3_redelivered_item_is_counted_once",
        adjust("rune.core.execution.control:claim_verdict", _run_ended_item),
        edit(
            "rune.adapters.sqlite.state:SqliteState._claim",
            (
                "running.state.scopes[token.path].live.get(token.node)",
                "running.state.scopes[token.path].live.get(token.node) "
                "if token.path in running.state.scopes else None",
            ),
        ),
        replace("rune.core.execution.transition:apply", reopen_ended_item),
        edit(
            "rune.core.execution.transition:Transition._collect_item",
            (
                "item * edges + self._plan.gather_position[effect.edge]",
                "min(fan.resolved, len(fan.marks) - 1)",
            ),
        ),
    ),
    "d4": fault(
        "test_split.py::test_h_d4_redelivered_split_fans_out_once",
        RUN_FINISHED_TOKEN,
        REPEAT_FINISHED_NODE,
        adjust("rune.core.execution.transition:_is_cancelled_by_rule", lambda _, node, *__: node.fans_out),
    ),
    "d5": fault(
        "test_split.py::test_h_d5_failed_and_dead_end_items_are_counted[embedded]",
        replace("rune.core.execution.routing:propagate_dead_edges", change_dead_ends(_drop_gathers)),
    ),
    "d6": fault("test_split.py::test_h_d6_order_of_arrival_does_not_matter[embedded]", DEAD_END_COMPLETES),
    "d7": fault(
        "test_split.py::test_h_d7_forking_item_is_one_element[embedded]",
        adjust("rune.runtime.value_reader:ValueReader.entries", _spread_forks),
    ),
    "d8": fault(
        "test_split.py::test_h_d8_two_aggregators_are_separate[embedded]",
        edit(
            "rune.core.execution.transition:Transition._collect_item",
            ("enclosing.fans[split]", "enclosing.fans[min(enclosing.fans)]"),
        ),
    ),
    "d9": fault(
        "test_split.py::test_h_d9_elements_keep_their_types[embedded]",
        adjust("rune.runtime.value_reader:ValueReader.entries", _turn_into_text),
    ),
    "d10": fault(
        "test_split.py::test_h_d10_element_is_output_of_last_node[embedded]",
        edit("rune.runtime.value_reader:ValueReader.entries", ("len(entry.payloads) > 1", "entry.payloads")),
    ),
    "d11": fault(
        "test_split.py::test_h_d11_item_values_are_not_visible_after_aggregator[embedded]",
        edit("rune.runtime.queries.history:History.context", ("not path", "True")),
    ),
    "d12": fault(
        "test_split.py::test_h_d12_empty_split_skips_body_and_collects_nothing[embedded]",
        replace("rune.core.execution.transition:Transition._open_aggregator", _ignore_empty_list),
    ),
    "d13": fault(
        "test_split.py::test_h_d13_items_may_take_days[embedded]",
        adjust("rune.core.plan.graph:_sleeps_upstream", lambda found, *_: [False] * len(found)),
    ),
    "d15": fault(
        "test_split.py::test_h_d15_empty_list_stays_a_list[embedded]",
        adjust("rune.nodes.control.aggregator:run", lambda output, _: _set(output, value=output.value or {})),
    ),
    "d17": fault(
        "test_split.py::test_h_d17_failing_item_does_not_stop_others[embedded]",
        adjust("rune.core.plan.compiler:_node_plan", _halt_by_default),
    ),
    "d18": fault(
        "test_split.py::test_h_d18_explain_shows_split_progress",
        adjust(
            "rune.core.execution.explain:_explain_fans",
            lambda found, *_: [_set(each, done=None) for each in found],
        ),
    ),
    "d20": fault(
        "test_split.py::test_h_d20_rows_do_not_grow_with_item_count",
        replace("rune.runtime.execution_data:ExecutionData.store_output", _write_into_row),
    ),
    "d21": fault(
        "test_split.py::test_h_d21_slow_item_blocks_only_its_slot[embedded]",
        replace("rune.core.execution.transition:Transition.start_items", _refill_when_empty),
    ),
}
