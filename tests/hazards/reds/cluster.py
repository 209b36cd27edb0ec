"""D, E, F and I on a cluster: what goes wrong in the scripts, the adapters, or the rules that all backends share."""

from __future__ import annotations

from tests.hazards.reds import delivery, merge, split
from tests.hazards.reds.patch import Red, red, same

_D, _E, _F, _I = (f"test_hazards_cluster_{letter}.py::test_h_" for letter in "defi")
_SCRIPTS = "adapters/redis/scripts"
_TRANSITION = f"{_SCRIPTS}/transition.lua"
_STATE = "adapters/redis/state.py"


RUNS_AGAIN = (
    f"{_SCRIPTS}/claim.lua",
    "if not live then return act.is_done(path, node) and 'done' or 'unknown' end",
    "if not live then return 'run' end",
)
DECIDES_AGAIN = (
    f"{_SCRIPTS}/deciding.lua",
    "  if act.is_done(path, node) and (not live or kind ~= 'skip') then return true end\n",
    "",
)
COMPLETES_AGAIN = (
    f"{_SCRIPTS}/deciding.lua",
    "  else\n    return false\n  end\n  if live and live.f == 'dispatch'",
    "  end\n  if live and live.f == 'dispatch'",
)
ARRIVES_AGAIN = (
    _TRANSITION,
    "  if act.is_done(path, node) then return end\n  local barrier",
    "  local barrier",
)
NOBODY_RECOVERS = (_STATE, "        await self._recovery.work()\n", "")

TABLE: dict[str, Red] = {
    "cluster-d1": red(
        _D + "d1_on_a_cluster_inner_splits_of_different_items_share_nothing",
        (
            _TRANSITION,
            "'k' .. name .. '|' .. math.floor(place / MARKS)",
            "'k|' .. split .. '|' .. math.floor(place / MARKS)",
        ),
    ),
    "cluster-d2": red(
        _D + "d2_on_a_cluster_the_lineage_ends_at_the_aggregator",
        (
            _TRANSITION,
            "    act.open_aggregator(around, fixed)\n",
            "    act.open_aggregator(path, fixed)\n",
        ),
        hangs=True,
    ),
    "cluster-d3": red(
        _D + "d3_on_a_cluster_a_redelivered_item_is_counted_once",
        (f"{_SCRIPTS}/claim.lua", "return act.started(path) and 'done' or 'unknown' end", "return 'run' end"),
    ),
    "cluster-d4": red(
        _D + "d4_on_a_cluster_a_redelivered_split_fans_out_once",
        RUNS_AGAIN,
        DECIDES_AGAIN,
        COMPLETES_AGAIN,
    ),
    "cluster-d5": red(
        _D + "d5_on_a_cluster_failed_and_dead_ending_items_are_counted",
        (
            _TRANSITION,
            "      act.gather(path, e[2], e[3])\n",
            "      if e[3] == 1 then act.gather(path, e[2], e[3]) end\n",
        ),
    ),
    "cluster-d6": red(
        _D + "d6_on_a_cluster_the_order_of_arrival_changes_nothing",
        (
            _TRANSITION,
            "  if fan.r == fixed.n * fixed.m then\n    act.open",
            "  if fan.r == fixed.n * fixed.m and mark == 1 then\n    act.open",
        ),
    ),
    "cluster-d7": red(
        _D + "d7_on_a_cluster_an_item_that_forks_is_one_item",
        (
            _TRANSITION,
            "  if fan.r == fixed.n * fixed.m then\n    act.open",
            "  if fan.r == fixed.n then\n    act.open",
        ),
    ),
    "cluster-d8": red(
        _D + "d8_on_a_cluster_two_aggregators_share_nothing",
        (
            "adapters/redis/instructions.py",
            "join = plan.nodes[node.aggregator]",
            "join = plan.nodes[min(each.aggregator for each in plan.nodes if each.aggregator >= 0)]",
        ),
    ),
    "cluster-d9": same(_D + "d9_on_a_cluster_results_are_values_and_not_text", split.TABLE["d9"]),
    "cluster-d10": same(_D + "d10_on_a_cluster_an_element_is_what_the_item_gave", split.TABLE["d10"]),
    "cluster-d11": same(
        _D + "d11_on_a_cluster_nothing_of_the_items_is_seen_behind_the_aggregator", split.TABLE["d11"]
    ),
    "cluster-d12": red(
        _D + "d12_on_a_cluster_an_empty_list_skips_the_body_and_gathers_nothing",
        (
            _TRANSITION,
            "  elseif fixed.g >= 0 then\n    act.open_aggregator(path, fixed)\n",
            "",
        ),
    ),
    "cluster-d13": same(_D + "d13_on_a_cluster_items_may_take_days", split.TABLE["d13"]),
    "cluster-d15": same(_D + "d15_on_a_cluster_an_empty_list_stays_a_list", split.TABLE["d15"]),
    "cluster-d16": red(_D + "d16_a_list_outlives_the_loss_of_its_barrier", NOBODY_RECOVERS, hangs=True),
    "cluster-d17": same(_D + "d17_on_a_cluster_one_failing_item_stops_nobody", split.TABLE["d17"]),
    "cluster-d18": red(
        _D + "d18_on_a_cluster_progress_is_part_of_the_explanation",
        ("adapters/redis/reading.py", '        body.get("r", 0),\n', "        0,\n"),
    ),
    "cluster-d20": red(
        _D + "d20_on_a_cluster_nothing_grows_with_the_number_of_items",
        (_TRANSITION, "MARKS = 128, 10, 3000, 512", "MARKS = 128, 10, 3000, 1000000"),
    ),
    "cluster-d21": red(
        _D + "d21_on_a_cluster_a_slow_item_holds_up_only_its_place",
        (
            _TRANSITION,
            "    if fan.x < fan.n then act.fill(around, split) end\n",
            "    if fan.x < fan.n and fan.i == 0 then act.fill(around, split) end\n",
        ),
    ),
    "cluster-e1": red(
        _E + "e1_on_a_cluster_a_merge_behind_an_untaken_branch_does_not_wait",
        (
            _TRANSITION,
            "  if act.is_done(path, node) then return end\n  local barrier",
            "  if act.is_done(path, node) or not e[10] then return end\n  local barrier",
        ),
    ),
    "cluster-e2": red(
        _E + "e2_on_a_cluster_two_edges_of_one_source_are_two_parties",
        (
            _TRANSITION,
            "local arrival = 'a' .. name .. '|' .. e[3]",
            "local arrival = 'a' .. name .. '|' .. e[5]",
        ),
    ),
    "cluster-e3": same(
        _E + "e3_on_a_cluster_the_timeout_of_a_race_counts_from_its_scope_and_fires", merge.TABLE["e3"]
    ),
    "cluster-e4": red(
        _E + "e4_on_a_cluster_an_arrival_after_the_timeout_brings_nothing_back",
        ARRIVES_AGAIN,
        (f"{_SCRIPTS}/deciding.lua", "  act.drop_barrier(path, node)\n", ""),
        hangs=True,
    ),
    "cluster-e5": red(
        _E + "e5_a_join_outlives_the_loss_of_what_it_has_sent",
        (
            "adapters/redis/recovery.py",
            "extend((when or 0, execution))",
            "extend((when or 1 << 52, execution))",
        ),
        hangs=True,
    ),
    "cluster-e6": red(
        _E + "e6_on_a_cluster_a_merge_inside_a_split_keeps_its_items_apart",
        (
            _TRANSITION,
            "local node, name = e[2], path .. '|' .. text(e[2])",
            "local node, name = e[2], '|' .. text(e[2])",
        ),
    ),
    "cluster-e7": same(_E + "e7_on_a_cluster_a_wait_before_a_merge_is_known_by_name", merge.TABLE["e7"]),
    "cluster-e8": red(
        _E + "e8_on_a_cluster_of_conflicting_keys_the_later_edge_wins_whoever_comes_first",
        (
            _TRANSITION,
            "    if cache[field] then found[#found + 1] = cache[field] end\n  end\n  return found\n",
            "    if cache[field] then found[#found + 1] = cache[field] end\n"
            "  end\n  table.sort(found, function(a, b) return a[6] < b[6] end)\n  return found\n",
        ),
    ),
    "cluster-e9": same(_E + "e9_on_a_cluster_the_output_of_a_merge_is_seen_behind_it", merge.TABLE["e9"]),
    "cluster-e10": same(
        _E + "e10_on_a_cluster_waiting_and_untaken_branches_are_not_shown_as_done", merge.TABLE["e10"]
    ),
    "cluster-e11": red(
        _E + "e11_on_a_cluster_a_race_is_won_once_however_late_the_loser_comes",
        ARRIVES_AGAIN,
        (_TRANSITION, "  barrier.o = true\n", ""),
        hangs=True,
    ),
    "cluster-e12": red(
        _E + "e12_on_a_cluster_cancelled_losers_make_no_effects",
        (
            f"{_SCRIPTS}/claim.lua",
            "  return runs and act.is_pointless(node, path) and 'cancelled' or 'run'\n",
            "  return 'run'\n",
        ),
    ),
    "cluster-f1": red(
        _F + "f1_on_a_cluster_a_timer_survives_the_processes",
        (
            f"{_SCRIPTS}/store.lua",
            "      redis.call('ZADD', KEYS[4], whole(wakes - (meta.o or 0)), ARGV[3])\n",
            "",
        ),
        hangs=True,
    ),
    "cluster-f3": red(
        _F + "f3_on_a_cluster_timers_have_names_and_a_wait_resumes_once",
        (f"{_SCRIPTS}/claim.lua", "  if live.w or (live.t or 1) ~=", "  if (live.t or 1) ~="),
    ),
    "cluster-f4": red(
        _F + "f4_on_a_cluster_waits_that_end_a_split_complete_once",
        (
            _TRANSITION,
            "  if scope.c == 0 then\n    act.close(path, scope)",
            "  if scope.c == 0 then\n    act.finish(COMPLETED)\n    act.close(path, scope)",
        ),
    ),
    "cluster-f5": red(
        _F + "f5_on_a_cluster_an_ended_execution_has_no_timers",
        (f"{_SCRIPTS}/end.lua", "  redis.call('ZREM', KEYS[4], ARGV[3])\n", ""),
    ),
    "cluster-f6": red(
        _F + "f6_on_a_cluster_timers_outlive_a_redis_that_keeps_nothing", NOBODY_RECOVERS, hangs=True
    ),
    "cluster-f6-own": red(
        _F + "f6_on_a_cluster_nor_does_a_clock_of_its_own_stand_still",
        ("compose/cluster.py", "(each.id, None if each.id in own else each.due)", "(each.id, each.due)"),
        hangs=True,
    ),
    "cluster-f8": same(_F + "f8_on_a_cluster_fractions_of_a_unit_count", delivery.TABLE["f8-fractions"]),
    "cluster-f8-far": red(
        _F + "f8_on_a_cluster_an_amount_beyond_all_dates_fails_its_node",
        ("nodes/control/wait.py", "min(parameters.amount, 2 * _CENTURY)", "min(parameters.amount, 100)"),
    ),
    "cluster-f9": red(
        _F + "f9_on_a_cluster_more_timers_than_a_batch_all_fire",
        (
            f"{_SCRIPTS}/fire.lua",
            "  local fired = {}\n",
            "  local fired = {}\n  redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)\n",
        ),
        hangs=True,
    ),
    "cluster-f10": red(
        _F + "f10_on_a_cluster_what_a_wait_wakes_is_sent_in_one_act",
        (
            f"{_SCRIPTS}/store.lua",
            "    if is_open(each) then\n      if sends then\n",
            "    if is_open(each) and each == tokens[1] then\n      if sends then\n",
        ),
        hangs=True,
    ),
    "cluster-f11": red(
        _F + "f11_on_a_cluster_many_due_timers_do_not_starve_fresh_work",
        (
            "adapters/redis/queue.py",
            "return tuple(LANES[lane] for lane in lanes_at(self._turn))",
            "return tuple(reversed(LANES))",
        ),
    ),
    "cluster-i9": red(
        _I + "i9_a_result_that_comes_again_is_one_arrival",
        DECIDES_AGAIN,
        COMPLETES_AGAIN,
        (_TRANSITION, "  if barrier and store.get(arrival) then return end\n", ""),
    ),
    "cluster-i10": red(
        _I + "i10_recovery_uses_up_no_retries",
        (
            _STATE,
            "        mine = token_in(sent) if sent else token\n",
            "        mine = token_in(sent) if sent else token\n"
            "        mine = msgspec.structs.replace(mine, attempt=mine.attempt + bool(read_back))\n",
        ),
    ),
    "cluster-i11": red(
        _I + "i11_what_has_a_row_is_not_done_again_after_a_loss",
        (
            "adapters/redis/folding.py",
            "facts = [Start(accepted.at), *(each.fact for each in stored)]",
            "facts = [Start(accepted.at)]",
        ),
        (_STATE, "again = (again or read_back) and fence is not None", "again = again and fence is not None"),
    ),
    "cluster-i12": red(
        _I + "i12_the_work_of_a_dead_worker_is_taken_over",
        (f"{_SCRIPTS}/sweep.lua", "        store.send(path, node, live)\n", ""),
        hangs=True,
    ),
    "cluster-i15": red(
        _I + "i15_an_older_state_does_not_take_back_what_is_known",
        (
            f"{_SCRIPTS}/store.lua",
            "  if not meta or meta.i ~= ARGV[1] then return false end\n",
            "  if not meta then return false end\n",
        ),
    ),
    "cluster-i16": red(
        _I + "i16_two_engines_with_the_same_message_run_it_once",
        (
            f"{_SCRIPTS}/claim.lua",
            "  if claim and claim.u and claim.u > now then return 'held', false, true end\n",
            "",
        ),
    ),
    "cluster-i17": red(
        _I + "i17_a_message_may_be_there_before_the_state",
        (
            "adapters/redis/folding.py",
            '        execution = known.accepted.id\n        me = f"',
            '        return None\n        execution = known.accepted.id\n        me = f"',
        ),
        hangs=True,
    ),
    "cluster-i18": red(
        _I + "i18_a_result_waits_for_a_journal_that_is_away",
        (
            "runtime/attempt.py",
            "                if claim.fence is None:\n                    raise\n                log.warning",
            "                raise\n                log.warning",
        ),
    ),
    "cluster-i19": same(_I + "i19_a_wrong_type_is_its_node_s_failure", delivery.TABLE["c6"]),
    "cluster-i20": red(
        _I + "i20_one_slot_is_enough",
        (
            "adapters/redis/queue.py",
            "return len(self._waiting) - len(self._buffer)",
            "return len(self._waiting) - len(self._buffer) - 1",
        ),
        hangs=True,
    ),
    "cluster-i21": red(
        _I + "i21_cost_grows_with_the_width_and_not_with_its_square",
        (
            _STATE,
            "        certain = None if entry is None",
            "        await self._read(execution)\n        certain = None if entry is None",
        ),
    ),
    "cluster-i21-diamonds": red(
        _I + "i21_payloads_do_not_double_from_diamond_to_diamond",
        ("runtime/book.py", "            return Same(payload)\n", "            pass\n"),
    ),
}
