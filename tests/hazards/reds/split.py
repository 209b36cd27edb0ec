"""D: split and aggregator."""

from __future__ import annotations

from tests.hazards.reds.patch import NO_DEDUPE, RUNS_THE_DONE, Red, red
from tests.hazards.reds.routing import DEAD_END_COMPLETES

_D = "test_hazards_d.py::test_h_"

TABLE: dict[str, Red] = {
    "d1": red(
        _D + "d1_inner_splits_of_different_items_share_nothing",
        (
            "core/gather.py",
            "scope = (*path, aggregator.split_of, item)",
            "scope = (*[0 if at % 2 else each for at, each in enumerate(path)], aggregator.split_of, item)",
        ),
    ),
    "d2": red(
        _D + "d2_the_lineage_ends_at_the_aggregator",
        (
            "core/transition.py",
            "self._open_aggregator(around, node, fan)",
            "self._open_aggregator(scope, node, fan)",
        ),
        ("core/apply.py", "    if node.joins_items:\n", "    if False:\n"),
    ),
    "d3": red(
        _D + "d3_a_redelivered_item_is_counted_once",
        ("core/control.py", 'return "done" if started(state, token.path) else "unknown"', 'return "run"'),
        (
            "adapters/embedded/state.py",
            "live = running.state.scopes[token.path].live.get(token.node)",
            "there = running.state.scopes.get(token.path)\n"
            "        live = there.live.get(token.node) if there else None",
        ),
        (
            "core/apply.py",
            "    if scope is None:\n",
            "    if scope is None and decision.path:\n"
            "        act.perform(Scope(decision.path, 0), decision.effects)\n        return act.applied\n"
            "    if scope is None:\n",
        ),
        (
            "core/transition.py",
            "place = item * edges + self._plan",
            "place = min(fan.resolved, len(fan.marks) - 1) + 0 * self._plan",
        ),
    ),
    "d4": red(
        _D + "d4_a_redelivered_split_fans_out_once",
        RUNS_THE_DONE,
        NO_DEDUPE,
        ("core/apply.py", "if not _gives_up(node, scope, fact) and", "if not node.fans_out and"),
    ),
    "d5": red(
        _D + "d5_failed_and_dead_ending_items_are_counted",
        ("core/routing.py", "effects.append(Gather(edge, FAILED if cause else DEAD))", "pass"),
    ),
    "d6": red(_D + "d6_the_order_of_arrival_changes_nothing", DEAD_END_COMPLETES),
    "d7": red(
        _D + "d7_an_item_that_forks_is_one_item",
        (
            "core/values.py",
            "yield False, {self._plan.ids[source]: self.value(ref) for source, ref in entry.payloads}",
            "yield from [(False, self.value(ref)) for _, ref in entry.payloads]",
        ),
    ),
    "d8": red(
        _D + "d8_two_aggregators_share_nothing",
        (
            "core/transition.py",
            "        fan = around.fans[split]\n        node = self._plan.nodes[self._plan.nodes[split]",
            "        fan = around.fans[min(around.fans)]\n        node = self._plan.nodes[self._plan.nodes[split]",
        ),
    ),
    "d9": red(
        _D + "d9_results_are_values_and_not_text",
        (
            "core/values.py",
            "yield False, self.value(entry.payloads[0][1])",
            "yield False, str(self.value(entry.payloads[0][1]))",
        ),
    ),
    "d10": red(
        _D + "d10_an_element_is_what_the_item_gave",
        ("core/values.py", "elif len(entry.payloads) > 1:", "elif entry.payloads:"),
    ),
    "d11": red(
        _D + "d11_nothing_of_the_items_is_seen_behind_the_aggregator",
        ("runtime/history.py", "if not path and result.status in", "if result.status in"),
    ),
    "d12": red(
        _D + "d12_an_empty_list_skips_the_body_and_gathers_nothing",
        (
            "core/transition.py",
            "        if effect.count == 0:\n            if node.aggregator >= 0:",
            "        if effect.count == 0:\n            if False:",
        ),
    ),
    "d13": red(
        _D + "d13_items_may_take_days",
        ("core/traits.py", 'rule.opens == "any" or sleeps[i] else', 'rule.opens == "any" else'),
    ),
    "d15": red(
        _D + "d15_an_empty_list_stays_a_list",
        ("nodes/control/aggregator.py", "return Output(gathered)", "return Output(gathered or {})"),
    ),
    "d17": red(
        _D + "d17_one_failing_item_stops_nobody",
        ("core/compile.py", '("halt" if split is None else "collect")', '"halt"'),
    ),
    "d18": red(
        _D + "d18_progress_is_part_of_the_explanation",
        ("core/explain.py", "done=fan.resolved // len(node.in_edges)", "done=None"),
    ),
    "d20": red(
        _D + "d20_no_row_grows_with_the_number_of_items",
        (
            "runtime/book.py",
            "data = encode_value(value)\n        if len(data) <= limits.inline_bytes:",
            "data = encode_value(value)\n        if True:",
        ),
    ),
    "d21": red(
        _D + "d21_a_slow_item_holds_up_only_its_place",
        (
            "core/transition.py",
            "if refill and fan.next < fan.count:",
            "if refill and fan.next < fan.count and not fan.in_flight:",
        ),
    ),
}
