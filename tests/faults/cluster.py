"""D, E, F and I on a cluster: faults in the scripts, in the adapters, and in the rules that all backends share."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import msgspec

from tests.faults import delivery, merge, split
from tests.faults.change import Change, StaleFaultError, edit, replace, skip
from tests.faults.fault import Fault, fault, same

_D, _E, _F, _I = (f"test_hazards_cluster_{letter}.py::test_h_" for letter in "defi")
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)


class _EditedFolder:
    """The folder of the scripts, with another text for one of them."""

    def __init__(self, folder: Any, file: str, text: str) -> None:
        self._folder, self._file, self._text = folder, file, text

    def __truediv__(self, file: str) -> Any:
        return SimpleNamespace(read_text=lambda: self._text) if file == self._file else self._folder / file


def edit_script(name: str, old: str, new: str) -> Change:
    """Replace a fragment of one Lua script in the text that the loader reads.

    The fragment must occur once; layout and lines that are comments do not matter. The name of the library depends on
    its text, so a server that knows the unchanged one loads the changed one too.
    """
    fragment = re.compile(r"\s+".join(map(re.escape, old.split())))

    def make(folder: Any) -> Any:
        text = _COMMENT.sub("", (folder / f"{name}.lua").read_text())
        found = len(fragment.findall(text))
        if found != 1:
            raise StaleFaultError(f"{name}.lua contains {found} times: {old}")
        return _EditedFolder(folder, f"{name}.lua", fragment.sub(lambda _: new, text))

    return replace("rune.adapters.redis.client:FOLDER", make)


RUN_AGAIN = edit_script(
    "claim",
    "if not live then return act.is_done(path, node) and 'done' or 'unknown' end",
    "if not live then return 'run' end",
)
DECIDE_AGAIN = edit_script(
    "shared/decide", "if act.is_done(path, node) and (not live or kind ~= 'skip') then return true end", ""
)
COMPLETE_AGAIN = edit_script(
    "shared/decide",
    "else return false end if live and live.f == 'dispatch'",
    "end if live and live.f == 'dispatch'",
)
ARRIVE_AGAIN = edit_script(
    "shared/transition", "if act.is_done(path, node) then return end local barrier", "local barrier"
)
NO_RECOVERY = skip("rune.adapters.redis.rebuild:WipeRecovery.work")


def _report_no_progress(fan: Any) -> Any:
    return lambda fields, name, body: fan(fields, name, {**body, "r": 0})


def _recover_late(init: Any) -> Any:
    """Executions that are due at once are scheduled in the far future."""

    def changed(self: Any, client: Any, keys: Any, running: Any) -> None:
        async def running_late(after: str, limit: int) -> Any:
            return [(execution, when or 1 << 52) for execution, when in await running(after, limit)]

        init(self, client, keys, running and running_late)

    return changed


def _limit_amount(interval: Any) -> Any:
    def changed(parameters: Any) -> Any:
        return interval(msgspec.structs.replace(parameters, amount=min(parameters.amount, 100)))

    return changed


def _read_lowest_lane_first(order: Any) -> Any:
    def changed(self: Any) -> Any:
        from rune.ports.queue import LANES

        return tuple(reversed(LANES))

    return changed


def _count_recovery_as_attempt(claimed: Any) -> Any:
    def changed(self: Any, execution: str, token: Any, now: int, found: Any, run: Any) -> Any:
        claim = claimed(self, execution, token, now, found, run)
        attempt = claim.token.attempt + bool(found[5])
        return msgspec.structs.replace(claim, token=msgspec.structs.replace(claim.token, attempt=attempt))

    return changed


def _fold_no_facts(folded: Any) -> Any:
    return lambda self, known, stored, clock: folded(self, known, [], clock)


def _ignore_rows_after_recovery(claimed: Any) -> Any:
    def changed(self: Any, execution: str, token: Any, now: int, found: Any, run: Any) -> Any:
        claim = claimed(self, execution, token, now, found, run)
        return msgspec.structs.replace(claim, again=bool(found[3]) and claim.fence is not None)

    return changed


def _drop_result_without_journal(written: Any) -> Any:
    def changed(self: Any, book: Any, run: Any, facts: Any, claim: Any) -> Any:
        return written(self, book, run, facts, msgspec.structs.replace(claim, fence=None))

    return changed


def _read_state_before(apply: Any) -> Any:
    async def changed(self: Any, execution: str, decisions: Any) -> Any:
        await self._read(execution)
        return await apply(self, execution, decisions)

    return changed


def _write_payload_again(written: Any) -> Any:
    def changed(self: Any, node: int, path: Any, value: Any, payload: Any, entered: Any, *limits: Any) -> Any:
        return written(self, node, path, value, payload, None, *limits)

    return changed


TABLE: dict[str, Fault] = {
    "cluster-d1": fault(
        _D + "d1_on_a_cluster_inner_splits_of_different_items_share_nothing",
        edit_script(
            "shared/transition",
            "'k' .. name .. '|' .. math.floor(place / MARKS)",
            "'k|' .. split .. '|' .. math.floor(place / MARKS)",
        ),
    ),
    "cluster-d2": fault(
        _D + "d2_on_a_cluster_the_lineage_ends_at_the_aggregator",
        edit_script(
            "shared/transition", "act.open_aggregator(around, fixed)", "act.open_aggregator(path, fixed)"
        ),
        hangs=True,
    ),
    "cluster-d3": fault(
        _D + "d3_on_a_cluster_a_redelivered_item_is_counted_once",
        edit_script("claim", "return act.started(path) and 'done' or 'unknown' end", "return 'run' end"),
    ),
    "cluster-d4": fault(
        _D + "d4_on_a_cluster_a_redelivered_split_fans_out_once",
        RUN_AGAIN,
        DECIDE_AGAIN,
        COMPLETE_AGAIN,
    ),
    "cluster-d5": fault(
        _D + "d5_on_a_cluster_failed_and_dead_ending_items_are_counted",
        edit_script(
            "shared/transition",
            "act.collect_item(path, e[2], e[3])",
            "if e[3] == 1 then act.collect_item(path, e[2], e[3]) end",
        ),
    ),
    "cluster-d6": fault(
        _D + "d6_on_a_cluster_the_order_of_arrival_changes_nothing",
        edit_script(
            "shared/transition",
            "if fan.r == fixed.n * fixed.m then",
            "if fan.r == fixed.n * fixed.m and mark == 1 then",
        ),
    ),
    "cluster-d7": fault(
        _D + "d7_on_a_cluster_an_item_that_forks_is_one_item",
        edit_script("shared/transition", "if fan.r == fixed.n * fixed.m then", "if fan.r == fixed.n then"),
    ),
    "cluster-d8": fault(
        _D + "d8_on_a_cluster_two_aggregators_share_nothing",
        edit(
            "rune.adapters.redis.encoding:EncodedPlan.fan",
            (
                "plan.nodes[node.aggregator]",
                "plan.nodes[min(each.aggregator for each in plan.nodes if each.aggregator >= 0)]",
            ),
        ),
    ),
    "cluster-d9": same(_D + "d9_on_a_cluster_results_are_values_and_not_text", split.TABLE["d9"]),
    "cluster-d10": same(_D + "d10_on_a_cluster_an_element_is_what_the_item_gave", split.TABLE["d10"]),
    "cluster-d11": same(
        _D + "d11_on_a_cluster_nothing_of_the_items_is_seen_behind_the_aggregator", split.TABLE["d11"]
    ),
    "cluster-d12": fault(
        _D + "d12_on_a_cluster_an_empty_list_skips_the_body_and_gathers_nothing",
        edit_script("shared/transition", "elseif fixed.g >= 0 then act.open_aggregator(path, fixed)", ""),
    ),
    "cluster-d13": same(_D + "d13_on_a_cluster_items_may_take_days", split.TABLE["d13"]),
    "cluster-d15": same(_D + "d15_on_a_cluster_an_empty_list_stays_a_list", split.TABLE["d15"]),
    "cluster-d16": fault(_D + "d16_a_list_outlives_the_loss_of_its_barrier", NO_RECOVERY, hangs=True),
    "cluster-d17": same(_D + "d17_on_a_cluster_one_failing_item_stops_nobody", split.TABLE["d17"]),
    "cluster-d18": fault(
        _D + "d18_on_a_cluster_progress_is_part_of_the_explanation",
        replace("rune.adapters.redis.snapshot:_decode_fan", _report_no_progress),
    ),
    "cluster-d20": fault(
        _D + "d20_on_a_cluster_nothing_grows_with_the_number_of_items",
        edit_script("shared/transition", "MARKS = 128, 10, 3000, 512", "MARKS = 128, 10, 3000, 1000000"),
    ),
    "cluster-d21": fault(
        _D + "d21_on_a_cluster_a_slow_item_holds_up_only_its_place",
        edit_script(
            "shared/transition",
            "if fan.x < fan.n then act.start_items(around, split) end",
            "if fan.x < fan.n and fan.i == 0 then act.start_items(around, split) end",
        ),
    ),
    "cluster-e1": fault(
        _E + "e1_on_a_cluster_a_merge_behind_an_untaken_branch_does_not_wait",
        edit_script(
            "shared/transition",
            "if act.is_done(path, node) then return end local barrier",
            "if act.is_done(path, node) or not e[10] then return end local barrier",
        ),
    ),
    "cluster-e2": fault(
        _E + "e2_on_a_cluster_two_edges_of_one_source_are_two_parties",
        edit_script(
            "shared/transition",
            "local arrival = 'a' .. name .. '|' .. e[3]",
            "local arrival = 'a' .. name .. '|' .. e[5]",
        ),
    ),
    "cluster-e3": same(
        _E + "e3_on_a_cluster_the_timeout_of_a_race_counts_from_its_scope_and_fires", merge.TABLE["e3"]
    ),
    "cluster-e4": fault(
        _E + "e4_on_a_cluster_an_arrival_after_the_timeout_brings_nothing_back",
        ARRIVE_AGAIN,
        edit_script("shared/decide", "act.drop_barrier(path, node)", ""),
        hangs=True,
    ),
    "cluster-e5": fault(
        _E + "e5_a_join_outlives_the_loss_of_what_it_has_sent",
        replace("rune.adapters.redis.rebuild:WipeRecovery.__init__", _recover_late),
        hangs=True,
    ),
    "cluster-e6": fault(
        _E + "e6_on_a_cluster_a_merge_inside_a_split_keeps_its_items_apart",
        edit_script(
            "shared/transition",
            "local node, name = e[2], path .. '|' .. text(e[2])",
            "local node, name = e[2], '|' .. text(e[2])",
        ),
    ),
    "cluster-e7": same(_E + "e7_on_a_cluster_a_wait_before_a_merge_is_known_by_name", merge.TABLE["e7"]),
    "cluster-e8": fault(
        _E + "e8_on_a_cluster_of_conflicting_keys_the_later_edge_wins_whoever_comes_first",
        edit_script(
            "shared/transition",
            "if cache[field] then found[#found + 1] = cache[field] end end return found",
            "if cache[field] then found[#found + 1] = cache[field] end end "
            "table.sort(found, function(a, b) return a[6] < b[6] end) return found",
        ),
    ),
    "cluster-e9": same(_E + "e9_on_a_cluster_the_output_of_a_merge_is_seen_behind_it", merge.TABLE["e9"]),
    "cluster-e10": same(
        _E + "e10_on_a_cluster_waiting_and_untaken_branches_are_not_shown_as_done", merge.TABLE["e10"]
    ),
    "cluster-e11": fault(
        _E + "e11_on_a_cluster_a_race_is_won_once_however_late_the_loser_comes",
        ARRIVE_AGAIN,
        edit_script("shared/transition", "barrier.o = true", ""),
        hangs=True,
    ),
    "cluster-e12": fault(
        _E + "e12_on_a_cluster_cancelled_losers_make_no_effects",
        edit_script(
            "claim", "return runs and act.is_pointless(node, path) and 'cancelled' or 'run'", "return 'run'"
        ),
    ),
    "cluster-f1": fault(
        _F + "f1_on_a_cluster_a_timer_survives_the_processes",
        edit_script("shared/store", "redis.call('ZADD', KEYS[4], whole(wakes - (meta.o or 0)), ARGV[3])", ""),
        hangs=True,
    ),
    "cluster-f3": fault(
        _F + "f3_on_a_cluster_timers_have_names_and_a_wait_resumes_once",
        edit_script("claim", "if live.w or (live.t or 1) ~=", "if (live.t or 1) ~="),
    ),
    "cluster-f4": fault(
        _F + "f4_on_a_cluster_waits_that_end_a_split_complete_once",
        edit_script(
            "shared/transition",
            "if scope.c == 0 then act.close(path, scope)",
            "if scope.c == 0 then act.finish(COMPLETED) act.close(path, scope)",
        ),
    ),
    "cluster-f5": fault(
        _F + "f5_on_a_cluster_an_ended_execution_has_no_timers",
        edit_script("end", "redis.call('ZREM', KEYS[4], ARGV[3])", ""),
    ),
    "cluster-f6": fault(
        _F + "f6_on_a_cluster_timers_outlive_a_redis_that_keeps_nothing", NO_RECOVERY, hangs=True
    ),
    "cluster-f6-own": fault(
        _F + "f6_on_a_cluster_nor_does_a_clock_of_its_own_stand_still",
        edit("rune.bootstrap.cluster:_engine", ("None if each.id in own else each.due", "each.due")),
        hangs=True,
    ),
    "cluster-f8": same(_F + "f8_on_a_cluster_fractions_of_a_unit_count", delivery.TABLE["f8-fractions"]),
    "cluster-f8-far": fault(
        _F + "f8_on_a_cluster_an_amount_beyond_all_dates_fails_its_node",
        replace("rune.nodes.control.wait:_interval", _limit_amount),
    ),
    "cluster-f9": fault(
        _F + "f9_on_a_cluster_more_timers_than_a_batch_all_fire",
        edit_script(
            "fire",
            "local fired = {}",
            "local fired = {} redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)",
        ),
        hangs=True,
    ),
    "cluster-f10": fault(
        _F + "f10_on_a_cluster_what_a_wait_wakes_is_sent_in_one_act",
        edit_script(
            "shared/store",
            "if is_open(each) then if sends then",
            "if is_open(each) and each == tokens[1] then if sends then",
        ),
        hangs=True,
    ),
    "cluster-f11": fault(
        _F + "f11_on_a_cluster_many_due_timers_do_not_starve_fresh_work",
        replace("rune.adapters.redis.queue:RedisQueue._order", _read_lowest_lane_first),
    ),
    "cluster-i9": fault(
        _I + "i9_a_result_that_comes_again_is_one_arrival",
        DECIDE_AGAIN,
        COMPLETE_AGAIN,
        edit_script("shared/transition", "if barrier and store.get(arrival) then return end", ""),
    ),
    "cluster-i10": fault(
        _I + "i10_recovery_uses_up_no_retries",
        replace("rune.adapters.redis.state:RedisState._decode_claim", _count_recovery_as_attempt),
    ),
    "cluster-i11": fault(
        _I + "i11_what_has_a_row_is_not_done_again_after_a_loss",
        replace("rune.adapters.redis.rebuild:StateRebuilder._fold", _fold_no_facts),
        replace("rune.adapters.redis.state:RedisState._decode_claim", _ignore_rows_after_recovery),
    ),
    "cluster-i12": fault(
        _I + "i12_the_work_of_a_dead_worker_is_taken_over",
        edit_script("sweep", "store.send(path, node, live)", ""),
        hangs=True,
    ),
    "cluster-i15": fault(
        _I + "i15_an_older_state_does_not_take_back_what_is_known",
        edit_script(
            "shared/store",
            "if not meta or meta.i ~= ARGV[1] then return false end",
            "if not meta then return false end",
        ),
    ),
    "cluster-i16": fault(
        _I + "i16_two_engines_with_the_same_message_run_it_once",
        edit_script(
            "claim", "if claim and claim.u and claim.u > now then return 'held', false, true end", ""
        ),
    ),
    "cluster-i17": fault(
        _I + "i17_a_message_may_be_there_before_the_state",
        skip("rune.adapters.redis.rebuild:StateRebuilder.load"),
        hangs=True,
    ),
    "cluster-i18": fault(
        _I + "i18_a_result_waits_for_a_journal_that_is_away",
        replace("rune.runtime.worker.executor:Executor._record_with_retry", _drop_result_without_journal),
    ),
    "cluster-i19": same(_I + "i19_a_wrong_type_is_its_node_s_failure", delivery.TABLE["c6"]),
    "cluster-i20": fault(
        _I + "i20_one_slot_is_enough",
        replace("rune.adapters.redis.queue:RedisQueue._want", lambda want: lambda self: want(self) - 1),
        hangs=True,
    ),
    "cluster-i21": fault(
        _I + "i21_cost_grows_with_the_width_and_not_with_its_square",
        replace("rune.adapters.redis.state:RedisState.apply", _read_state_before),
    ),
    "cluster-i21-diamonds": fault(
        _I + "i21_payloads_do_not_double_from_diamond_to_diamond",
        replace("rune.runtime.values:ExecutionData.store_output", _write_payload_again),
    ),
}
