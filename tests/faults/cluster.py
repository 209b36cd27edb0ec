"""Faults of hazards D, E, F and I on Redis: in the scripts, in the adapters, and in the shared rules."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import msgspec

from tests.faults import delivery, merge, nodes, split
from tests.faults.change import Change, StaleFaultError, edit, replace, skip
from tests.faults.fault import Fault, fault, same

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
NO_RECOVERY = skip("rune.adapters.redis.wipe_recovery:WipeRecovery.work")


def _report_no_progress(fan: Any) -> Any:
    return lambda fields, name, body: fan(fields, name, {**body, "r": 0})


def _recover_late(due_times: Any) -> Any:
    """Executions that are due at once are scheduled in the far future."""

    async def changed(self: Any, rows: Any) -> Any:
        return [(execution, when or 1 << 52) for execution, when in await due_times(self, rows)]

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
    def changed(self: Any, data: Any, run: Any, facts: Any, claim: Any, **options: Any) -> Any:
        return written(self, data, run, facts, msgspec.structs.replace(claim, fence=None), **options)

    return changed


def _read_state_before(apply: Any) -> Any:
    async def changed(self: Any, execution: str, *decisions: Any) -> Any:
        await self._read(execution)
        return await apply(self, execution, *decisions)

    return changed


def _write_payload_again(written: Any) -> Any:
    def changed(self: Any, node: int, path: Any, value: Any, payload: Any, entered: Any, *limits: Any) -> Any:
        return written(self, node, path, value, payload, None, *limits)

    return changed


TABLE: dict[str, Fault] = {
    "d1-redis": fault(
        "test_split.py::test_h_d1_inner_splits_of_outer_items_are_separate[redis]",
        edit_script(
            "shared/transition",
            "'k' .. name .. '|' .. math.floor(place / MARKS)",
            "'k|' .. split .. '|' .. math.floor(place / MARKS)",
        ),
    ),
    "d2-redis": fault(
        "test_split.py::test_h_d2_lineage_ends_at_aggregator[redis]",
        edit_script(
            "shared/transition",
            "act.open_aggregator(around, fixed, fan)",
            "act.open_aggregator(path, fixed, fan)",
        ),
        hangs=True,
    ),
    "d3-redis": fault(
        "test_split.py::test_h_d3_item_redelivered_in_cluster_is_counted_once",
        edit_script("claim", "return act.started(path) and 'done' or 'unknown' end", "return 'run' end"),
    ),
    "d4-redis": fault(
        "test_split.py::test_h_d4_split_redelivered_in_cluster_fans_out_once",
        RUN_AGAIN,
        DECIDE_AGAIN,
        COMPLETE_AGAIN,
    ),
    "d5-redis": fault(
        "test_split.py::test_h_d5_failed_and_dead_end_items_are_counted[redis]",
        edit_script(
            "shared/transition",
            "act.collect_item(path, e[GATHER.position], e[GATHER.mark])",
            "if e[GATHER.mark] == 1 then act.collect_item(path, e[GATHER.position], e[GATHER.mark]) end",
        ),
    ),
    "d6-redis": fault(
        "test_split.py::test_h_d6_order_of_arrival_does_not_matter[redis]",
        edit_script(
            "shared/transition",
            "if fan.r == fixed.n * fixed.m then",
            "if fan.r == fixed.n * fixed.m and mark == 1 then",
        ),
    ),
    "d7-redis": fault(
        "test_split.py::test_h_d7_forking_item_is_one_element[redis]",
        edit_script("shared/transition", "if fan.r == fixed.n * fixed.m then", "if fan.r == fixed.n then"),
    ),
    "d8-redis": fault(
        "test_split.py::test_h_d8_two_aggregators_are_separate[redis]",
        edit(
            "rune.adapters.redis.encoding:EncodedPlan.fan",
            (
                "plan.nodes[node.aggregator]",
                "plan.nodes[min(each.aggregator for each in plan.nodes if each.aggregator >= 0)]",
            ),
        ),
    ),
    "d9-redis": same("test_split.py::test_h_d9_elements_keep_their_types[redis]", split.TABLE["d9"]),
    "d10-redis": same("test_split.py::test_h_d10_element_is_output_of_last_node[redis]", split.TABLE["d10"]),
    "d11-redis": same(
        "test_split.py::test_h_d11_item_values_are_not_visible_after_aggregator[redis]", split.TABLE["d11"]
    ),
    "d12-redis": fault(
        "test_split.py::test_h_d12_empty_split_skips_body_and_collects_nothing[redis]",
        edit_script(
            "shared/transition", "elseif fixed.g >= 0 then act.open_aggregator(path, fixed, fan)", ""
        ),
    ),
    "d13-redis": same("test_split.py::test_h_d13_items_may_take_days[redis]", split.TABLE["d13"]),
    "d15-redis": same("test_split.py::test_h_d15_empty_list_stays_a_list[redis]", split.TABLE["d15"]),
    "d16": fault("test_split.py::test_h_d16_collected_items_survive_loss_of_redis", NO_RECOVERY, hangs=True),
    "d17-redis": same(
        "test_split.py::test_h_d17_failing_item_does_not_stop_others[redis]", split.TABLE["d17"]
    ),
    "d18-redis": fault(
        "test_split.py::test_h_d18_explain_in_cluster_shows_split_progress",
        replace("rune.adapters.redis.snapshot:_decode_fan", _report_no_progress),
    ),
    "d20-redis": fault(
        "test_split.py::test_h_d20_redis_fields_do_not_grow_with_item_count",
        edit_script("shared/transition", "MARKS = 128, 10, 3000, 512", "MARKS = 128, 10, 3000, 1000000"),
    ),
    "d21-redis": fault(
        "test_split.py::test_h_d21_slow_item_blocks_only_its_slot[redis]",
        edit_script(
            "shared/transition",
            "if fan.x < fan.n then act.start_items(around, split) end",
            "if fan.x < fan.n and fan.i == 0 then act.start_items(around, split) end",
        ),
    ),
    "e1-redis": fault(
        "test_merge.py::test_h_e1_merge_does_not_wait_for_untaken_branch[redis]",
        edit_script(
            "shared/transition",
            "if act.is_done(path, node) then return end local barrier",
            "if act.is_done(path, node) or not e[10] then return end local barrier",
        ),
    ),
    "e2-redis": fault(
        "test_merge.py::test_h_e2_two_edges_of_one_source_are_two_arrivals[redis]",
        edit_script(
            "shared/transition",
            "local arrival = 'a' .. name .. '|' .. e[ARRIVE.place]",
            "local arrival = 'a' .. name .. '|' .. e[ARRIVE.source]",
        ),
    ),
    "e3-redis": same("test_merge.py::test_h_e3_race_timeout_starts_with_scope[redis]", merge.TABLE["e3"]),
    "e4-redis": fault(
        "test_merge.py::test_h_e4_arrival_after_timeout_has_no_effect[redis]",
        ARRIVE_AGAIN,
        edit_script("shared/decide", "act.drop_barrier(path, node)", ""),
        hangs=True,
    ),
    "e5": fault(
        "test_merge.py::test_h_e5_join_survives_loss_of_sent_tokens",
        replace("rune.adapters.redis.wipe_recovery:WipeRecovery._due_times", _recover_late),
        hangs=True,
    ),
    "e6-redis": fault(
        "test_merge.py::test_h_e6_merge_inside_split_keeps_items_apart[redis]",
        edit_script(
            "shared/transition",
            "local node, name = e[ARRIVE.node], path .. '|' .. text(e[ARRIVE.node])",
            "local node, name = e[ARRIVE.node], '|' .. text(e[ARRIVE.node])",
        ),
    ),
    "e7-redis": same("test_merge.py::test_h_e7_wait_before_merge_keeps_its_name[redis]", merge.TABLE["e7"]),
    "e8-redis": fault(
        "test_merge.py::test_h_e8_later_edge_wins_conflict_in_any_order[redis]",
        edit_script(
            "shared/transition",
            "return found, positions",
            "table.sort(found, function(a, b) return a[ARRIVAL.at] < b[ARRIVAL.at] end) return found, positions",
        ),
    ),
    "e9-redis": same("test_merge.py::test_h_e9_merge_output_is_visible_downstream[redis]", merge.TABLE["e9"]),
    "e10-redis": same(
        "test_merge.py::test_h_e10_waiting_branches_in_cluster_are_not_shown_as_done", merge.TABLE["e10"]
    ),
    "e11-redis": fault(
        "test_merge.py::test_h_e11_late_loser_does_not_win_race_again[redis]",
        ARRIVE_AGAIN,
        edit_script("shared/transition", "barrier.o = true", ""),
        hangs=True,
    ),
    "e12-redis": fault(
        "test_merge.py::test_h_e12_cancelled_losers_have_no_effects[redis]",
        edit_script(
            "claim", "return runs and act.is_pointless(node, path) and 'cancelled' or 'run'", "return 'run'"
        ),
    ),
    "f1-redis": fault(
        "test_timers.py::test_h_f1_timer_survives_processes_of_cluster",
        edit_script("shared/store", "redis.call('ZADD', KEYS[4], whole(due), ARGV[3])", ""),
        hangs=True,
    ),
    "f3-redis": fault(
        "test_timers.py::test_h_f3_redelivered_wait_resumes_once",
        edit_script("claim", "if live.w or (live.t or 1) ~=", "if (live.t or 1) ~="),
    ),
    "f4-redis": fault(
        "test_timers.py::test_h_f4_waits_at_end_of_split_complete_once[redis]",
        edit_script(
            "shared/transition",
            "if scope.c == 0 then act.close(path, scope)",
            "if scope.c == 0 then act.finish(COMPLETED) act.close(path, scope)",
        ),
    ),
    "f5-redis": fault(
        "test_timers.py::test_h_f5_ended_execution_has_no_timers",
        edit_script("end", "redis.call('ZREM', KEYS[4], ARGV[3])", ""),
    ),
    "f6-redis": fault("test_timers.py::test_h_f6_timers_survive_loss_of_redis", NO_RECOVERY, hangs=True),
    "f6-own-redis": fault(
        "test_timers.py::test_h_f6_virtual_time_continues_after_loss_of_redis",
        edit(
            "rune.adapters.redis.rebuild:StateRebuilder.due_time",
            ("accepted.fake_time or len(stored) > MAX_DUE_FACTS", "False"),
        ),
        hangs=True,
    ),
    "f7-redis": same(
        "test_credentials.py::test_h_f7_node_after_wait_uses_rotated_credential[redis]", nodes.TABLE["f7"]
    ),
    "f8-fractions-redis": same(
        "test_timers.py::test_h_f8_fractions_of_unit_count[redis]", delivery.TABLE["f8-fractions"]
    ),
    "f8-overflow-redis": fault(
        "test_timers.py::test_h_f8_amount_beyond_all_dates_fails_node[redis]",
        replace("rune.nodes.control.wait:_interval", _limit_amount),
    ),
    "f9-redis": fault(
        "test_timers.py::test_h_f9_more_timers_than_batch_all_fire_in_cluster",
        edit_script(
            "fire",
            "local fired = {}",
            "local fired = {} redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)",
        ),
        hangs=True,
    ),
    "f10": fault(
        "test_timers.py::test_h_f10_successors_of_wait_are_sent_together",
        edit_script(
            "shared/store",
            "if is_open(each) then if sends then",
            "if is_open(each) and each == tokens[1] then if sends then",
        ),
        hangs=True,
    ),
    "f11-redis": fault(
        "test_timers.py::test_h_f11_due_timers_do_not_starve_new_work_in_cluster",
        replace("rune.adapters.redis.queue:RedisQueue._order", _read_lowest_lane_first),
    ),
    "i9": fault(
        "test_recovery.py::test_h_i9_repeated_result_is_one_arrival",
        DECIDE_AGAIN,
        COMPLETE_AGAIN,
        edit_script("shared/transition", "if barrier and store.get(arrival) then return end", ""),
    ),
    "i10": fault(
        "test_recovery.py::test_h_i10_recovery_consumes_no_retries",
        replace("rune.adapters.redis.state:RedisState._decode_claim", _count_recovery_as_attempt),
    ),
    "i11": fault(
        "test_recovery.py::test_h_i11_journaled_node_is_not_run_again_after_loss",
        replace("rune.adapters.redis.rebuild:StateRebuilder._fold", _fold_no_facts),
        replace("rune.adapters.redis.state:RedisState._decode_claim", _ignore_rows_after_recovery),
    ),
    "i12": fault(
        "test_recovery.py::test_h_i12_work_of_dead_worker_is_reclaimed",
        edit_script("sweep", "store.send(path, node, live)", ""),
        hangs=True,
    ),
    "i15": fault(
        "test_recovery.py::test_h_i15_restored_older_state_does_not_revert_progress",
        edit_script(
            "shared/store",
            "if not meta or meta.i ~= ARGV[1] then return false end",
            "if not meta then return false end",
        ),
    ),
    "i16": fault(
        "test_recovery.py::test_h_i16_same_message_at_two_engines_runs_once",
        edit_script(
            "claim", "if claim and claim.u and claim.u > now then return 'held', false, true end", ""
        ),
    ),
    "i17": fault(
        "test_recovery.py::test_h_i17_message_before_state_is_handled",
        skip("rune.adapters.redis.rebuild:StateRebuilder.load"),
        hangs=True,
    ),
    "i18": fault(
        "test_recovery.py::test_h_i18_result_is_kept_until_journal_is_back",
        replace("rune.runtime.worker.executor:Executor._record_with_retry", _drop_result_without_journal),
    ),
    "i19": same("test_delivery.py::test_h_i19_wrong_type_in_template_fails_its_node", delivery.TABLE["c6"]),
    "i20": fault(
        "test_scaling.py::test_h_i20_one_slot_is_enough",
        replace("rune.adapters.redis.queue:RedisQueue._want", lambda want: lambda self: want(self) - 1),
        hangs=True,
    ),
    "i21": fault(
        "test_scaling.py::test_h_i21_cost_is_linear_in_split_width",
        replace("rune.adapters.redis.state:RedisState._apply_decisions", _read_state_before),
    ),
    "i21-diamonds": fault(
        "test_scaling.py::test_h_i21_payloads_do_not_double_per_diamond",
        replace("rune.runtime.execution_data:ExecutionData.store_output", _write_payload_again),
    ),
}

_STATE = "tests/contract/test_redis.py::TestState::test_"
_EMBEDDED_STATE = "tests/contract/test_sqlite.py::TestState::test_"
_CLAIM_SUCCESSOR = "rune.adapters.sqlite.state:SqliteState.apply_and_claim"
_KEPT = "tests/integration/cluster/test_kept_successors.py::test_"

ELSEWHERE: dict[str, Fault] = {
    "kept-lease": fault(
        _STATE + "successor_is_claimed_by_one_worker",
        edit_script("shared/lease", "u = now + LEASE, o = owner", "o = owner"),
    ),
    "kept-resend": fault(
        _STATE + "claimed_successor_of_dead_worker_is_sent_again",
        edit_script(
            "shared/lease",
            "held[act.member(path, node)] = now + LEASE - (meta.o or 0) emitted = {}",
            "emitted = {}",
        ),
    ),
    "kept-several": fault(
        _STATE + "one_of_several_successors_is_not_claimed",
        edit_script(
            "shared/lease", "if only then return false end only = emitted[i]", "only = only or emitted[i]"
        ),
    ),
    "kept-limit": fault(
        _STATE + "successor_counts_for_limit_of_parallel_nodes",
        edit_script("shared/lease", "if meta.f or meta.p or meta.m then", "if meta.f or meta.p then"),
    ),
    "kept-several-embedded": fault(
        _EMBEDDED_STATE + "one_of_several_successors_is_not_claimed",
        edit(_CLAIM_SUCCESSOR, ("len(tokens) != 1", "not tokens")),
    ),
    "kept-limit-embedded": fault(
        _EMBEDDED_STATE + "successor_counts_for_limit_of_parallel_nodes",
        edit(_CLAIM_SUCCESSOR, ("running.plan.max_parallel is not None", "False")),
    ),
    "kept-slots": fault(
        _KEPT + "successor_is_sent_while_all_slots_are_busy",
        edit("rune.runtime.worker.worker:Worker._handle", ("free and not self._stopping", "True")),
    ),
    "kept-queue": fault(
        _KEPT + "successor_of_another_queue_is_sent",
        edit(
            "rune.runtime.worker.executor:Executor._successor",
            ("return node if same_queue else None", "return node"),
        ),
    ),
    "kept-requeue": fault(
        _KEPT + "engine_error_of_kept_token_is_retried_with_its_delays",
        skip("rune.adapters.redis.queue:RedisQueue.keep", 0),
    ),
    "sent-record": fault(
        "tests/integration/cluster/test_sent_records.py::test_first_token_of_removed_execution_restores_nothing",
        edit(
            "rune.adapters.redis.rebuild:StateRebuilder._install",
            ("raise UnknownExecutionError(execution)", "pass"),
        ),
    ),
}
"""Faults of tests in other folders."""
