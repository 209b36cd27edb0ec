"""C and F: delivery, waits and timers."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.faults.change import adjust, edit, replace, skip
from tests.faults.fault import NO_ENGINE_RETRY, RUN_FINISHED_TOKEN, Fault, fault


def _drop_hopeless(_: Any) -> Any:
    """Drop a message that cannot be handled instead of ending its execution."""

    async def _give_up(worker: Any, delivery: Any, _failure: Any) -> None:
        await worker._queue.ack(delivery)

    return _give_up


def _reraise(_: Any) -> Any:
    def failure_of(error: BaseException) -> Any:
        raise error

    return failure_of


def _use_one_slot(original: Any) -> Any:
    async def run(worker: Any) -> None:
        worker._slots = 1
        await original(worker)

    return run


def _raise_unknown_execution(original: Any) -> Any:
    """Let the error about an unknown execution out as it is, so that the message is tried again."""

    async def _book(attempt: Any, delivery: Any) -> Any:
        await attempt._data_cache.get(delivery.execution)
        return await original(attempt, delivery)

    return _book


UNKNOWN_IS_TRIED_AGAIN = replace(
    "rune.runtime.worker.executor:Executor._load_execution", _raise_unknown_execution
)
"""A message of an unknown execution counts as an error of the engine."""


def _count_nothing(original: Any) -> Any:
    async def count(*given: Any) -> int:
        await original(*given)
        return 1

    return count


def _arm_nothing(applied: Any, *_: Any) -> Any:
    applied.armed = []
    return applied


def _complete_with_item(_: Any, act: Any, scope: Any, **_options: Any) -> None:
    """Complete the execution with the first item that ends."""
    from rune.core.execution.decision import FinishExecution

    if scope.path and scope.path not in act.state.scopes:
        act.finish(FinishExecution("completed"))


def _ignore_end(original: Any) -> Any:
    """Judge a token as if its execution had not ended."""

    def touch(plan: Any, state: Any, token: Any, now: int) -> Any:
        before = state.ended, state.finish
        state.ended, state.finish = False, None
        try:
            return original(plan, state, token, now)
        finally:
            state.ended, state.finish = before

    return touch


def _cut_fractions(original: Any) -> Any:
    def _interval(parameters: Any) -> Any:
        return original(msgspec.structs.replace(parameters, amount=int(parameters.amount)))

    return _interval


def _ignore_limit(original: Any) -> Any:
    """Do not wait at all where the wait would be too long."""

    def run(call: Any) -> Any:
        from rune.core.execution.outcome import Suspend
        from rune.errors import NodeFailure

        try:
            return original(call)
        except NodeFailure as error:
            if error.code != "LIMIT_EXCEEDED":
                raise
            return Suspend(until=call.now)

    return run


def _lose_timers_behind_batch(original: Any) -> Any:
    async def due(state: Any, limit: int) -> Any:
        found = await original(state, limit)
        while len(found) >= limit and state._timers.ring(state._clock.now()) is not None:
            pass
        return found

    return due


def _take_all_due_timers(original: Any) -> Any:
    """Take all due timers in one batch."""

    async def due_timers(state: Any, limit: int) -> Any:
        return await original(state, 1_000_000)

    return due_timers


TABLE: dict[str, Fault] = {
    "c3": fault(
        "test_delivery.py::test_h_c3_unhandled_message_fails_its_execution",
        replace("rune.runtime.worker.worker:Worker._fail_execution", _drop_hopeless),
        hangs=True,
    ),
    "c4": fault(
        "test_delivery.py::test_h_c4_failed_message_is_redelivered_with_growing_delay",
        replace("rune.adapters.sqlite.state:SqliteState._count_engine_error", lambda _: lambda *_: 1),
        hangs=True,
    ),
    "c5": fault(
        "test_delivery.py::test_h_c5_non_json_output_fails_node_once[embedded]",
        replace(
            "rune.nodes.base:_check_number",
            lambda original: lambda value, kind: None if kind is float else original(value, kind),
        ),
    ),
    "c6": fault(
        "test_delivery.py::test_h_c6_expression_error_fails_only_its_node[embedded]",
        replace("rune.runtime.worker.node_runner:failure_of", _reraise),
        NO_ENGINE_RETRY,
    ),
    "c7": fault(
        "test_delivery.py::test_h_c7_stopping_engine_fails_no_node[embedded]",
        skip("rune.runtime.worker.worker:Worker.drain"),
    ),
    "c7-sigterm": fault(
        "test_http.py::test_h_c7_sigterm_during_request_fails_no_node",
        skip("rune.nodes.registry:_ends_task", result=False),
    ),
    "c8": fault("test_delivery.py::test_h_c8_redelivered_message_runs_nothing_again", RUN_FINISHED_TOKEN),
    "c10": fault(
        "test_delivery.py::test_h_c10_slow_node_occupies_one_slot",
        replace("rune.runtime.worker.worker:Worker.run", _use_one_slot),
        hangs=True,
    ),
    "c12": fault(
        "test_delivery.py::test_h_c12_token_contains_neither_definition_nor_context",
        edit(
            "rune.runtime.worker.executor:Executor._apply_and_send",
            (
                "run.remaining(applied.emitted)",
                "[replace(each, signal=str(data.start)) for each in run.remaining(applied.emitted)]",
            ),
        ),
    ),
    "c14": fault(
        "test_delivery.py::test_h_c14_events_are_numbered_in_journal_order",
        replace(
            "rune.runtime.queries.history:History.event",
            lambda original: lambda history, _, stored: original(history, stored.fact.at, stored),
        ),
    ),
    "c15": fault(
        "test_delivery.py::test_h_c15_message_of_unknown_execution_is_dropped_after_last_try",
        UNKNOWN_IS_TRIED_AGAIN,
        replace("rune.runtime.worker.worker:Worker._count_engine_error", _count_nothing),
    ),
    "f1": fault(
        "test_timers.py::test_h_f1_timer_survives_process",
        adjust("rune.core.execution.fold:_Fold.run", _arm_nothing),
        hangs=True,
    ),
    "f3": fault(
        "test_timers.py::test_h_f3_timer_id_is_stable_and_wait_resumes_once",
        edit(
            "rune.runtime.worker.node_runner:NodeRunner._resolve",
            ('call.timer_id = f"wait:{name}"', 'call.timer_id = f"wait:{id(call)}"'),
        ),
    ),
    "f4": fault(
        "test_timers.py::test_h_f4_waits_at_end_of_split_complete_once[embedded]",
        adjust("rune.core.execution.transition:Transition.propagate_counts", _complete_with_item),
    ),
    "f5": fault(
        "test_timers.py::test_h_f5_timer_of_ended_execution_does_nothing",
        replace("rune.core.execution.control:claim_verdict", _ignore_end),
        skip("rune.adapters.sqlite.state:SqliteState.end"),
    ),
    "f8-fractions": fault(
        "test_timers.py::test_h_f8_fractions_of_unit_count[embedded]",
        replace("rune.nodes.control.wait:_interval", _cut_fractions),
    ),
    "f8-overflow": fault(
        "test_timers.py::test_h_f8_amount_beyond_all_dates_fails_node[embedded]",
        replace("rune.nodes.control.wait:run", _ignore_limit),
    ),
    "f9": fault(
        "test_timers.py::test_h_f9_more_timers_than_batch_all_fire",
        replace("rune.adapters.sqlite.state:SqliteState.due_timers", _lose_timers_behind_batch),
    ),
    "f11": fault(
        "test_timers.py::test_h_f11_due_timers_do_not_starve_new_work",
        replace("rune.adapters.sqlite.state:SqliteState.due_timers", _take_all_due_timers),
        replace("rune.ports.queue:lanes_at", lambda _: lambda turn: (2, 1, 0)),
    ),
}
