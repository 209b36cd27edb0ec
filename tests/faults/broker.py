"""C, D and F where a server stands between the processes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec

from tests.faults import delivery
from tests.faults.change import Change, edit, replace, skip
from tests.faults.cluster import NO_RECOVERY, RUN_AGAIN, edit_script
from tests.faults.fault import Fault, fault, same

_RABBIT = "test_hazards_rabbitmq.py::test_h_"
_CARRIED = "test_hazards_rabbitmq_c.py::test_h_"
_REDIS = "test_hazards_redis.py::test_h_"


def _post_unconfirmed(in_turn: Any) -> Any:
    async def changed(self: Any, messages: Any) -> None:
        for each in messages:
            self.post(*each)

    return changed


def _accept_unroutable(publish_command: Any) -> Any:
    return lambda *where, mandatory: publish_command(*where, mandatory=False)


def _change_delay(change: Callable[[float], float]) -> Change:
    return replace(
        "rune.adapters.rabbitmq.queue:RabbitQueue._move",
        lambda move: lambda self, held, delay: move(self, held, change(delay)),
    )


def _change_work_queues(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Change:
    """Declare the queues of work with other arguments."""

    def make(table: Any) -> Any:
        def changed(self: Any, *version: Any) -> Any:
            return tuple(
                msgspec.structs.replace(each, arguments=change(each.arguments))
                if each.exchange == self.execution
                else each
                for each in table(self, *version)
            )

        return changed

    return replace("rune.adapters.rabbitmq.topology:Topology.table", make)


def _drop_dead_letter(bury: Any) -> Any:
    async def changed(self: Any, held: Any, code: str, message: str) -> None:
        held.channel.ack(held.message.tag)

    return changed


def _acknowledge_given_up(put_aside: Any) -> Any:
    async def changed(self: Any, given_up: Any, code: str, message: str) -> None:
        await self._queue.ack(given_up)

    return changed


def _ignore_unknown_node(book: Any) -> Any:
    return lambda self, execution, token: book(self, execution, msgspec.structs.replace(token, node=0))


def _write_in_full(init: Any) -> Any:
    def changed(self: Any, settings: Any, *others: Any) -> None:
        init(self, msgspec.structs.replace(settings, wire_inline=True), *others)

    return changed


def _separate_keys(of: Any) -> Any:
    """Give the keys of an execution a tag of their own."""

    def changed(self: Any, execution: str) -> Any:
        found = of(self, execution)
        return tuple(each.replace(found[0], f"{self.prefix}:x:{{{execution}}}") for each in found)

    return changed


TABLE: dict[str, Fault] = {
    "c1": fault(
        _RABBIT + "c1_a_token_is_sent_when_the_broker_says_so",
        replace("rune.adapters.rabbitmq.publisher:Publisher._in_turn", _post_unconfirmed),
    ),
    "c2": fault(
        _RABBIT + "c2_what_cannot_be_routed_is_not_taken_for_sent",
        replace("rune.adapters.rabbitmq.amqp.frames:publish_command", _accept_unroutable),
    ),
    "c9": fault(
        _RABBIT + "c9_what_runs_for_long_is_not_handed_out_again",
        skip("rune.adapters.rabbitmq.queue:RabbitQueue._release"),
    ),
    "c11": fault(
        _RABBIT + "c11_a_short_delay_does_not_wait_behind_a_long_one",
        _change_delay(lambda delay: math.inf if delay > 0 else delay),
    ),
    "c13": fault(
        _RABBIT + "c13_a_backlog_has_no_time_to_live",
        _change_work_queues(lambda arguments: {**arguments, "x-message-ttl": 86_400_000}),
    ),
    "c3-broker": fault(
        _CARRIED + "c3_what_nobody_can_read_is_kept_with_its_reason",
        replace("rune.adapters.rabbitmq.queue:RabbitQueue._dead_letter_message", _drop_dead_letter),
    ),
    "c3-givenup": fault(
        _CARRIED + "c3_what_the_engine_gives_up_is_kept_with_its_reason",
        replace("rune.runtime.worker.worker:Worker._dead_letter", _acknowledge_given_up),
    ),
    "c3-node": fault(
        _CARRIED + "c3_a_message_for_a_node_that_is_not_there_ends_no_execution",
        replace("rune.runtime.worker.executor:Executor._load_execution", _ignore_unknown_node),
    ),
    "c3-rejected": fault(
        _CARRIED + "c3_what_somebody_rejects_is_kept",
        _change_work_queues(
            lambda arguments: {
                name: value for name, value in arguments.items() if name != "x-dead-letter-exchange"
            }
        ),
    ),
    "c4-broker": fault(
        _CARRIED + "c4_what_is_to_come_later_does_not_come_at_once", _change_delay(lambda delay: 0.0)
    ),
    "c5-broker": same(_CARRIED + "c5_what_is_not_json_loops_through_no_queue", delivery.TABLE["c5"]),
    "c6-broker": same(_CARRIED + "c6_an_error_in_an_expression_harms_nobody_else", delivery.TABLE["c6"]),
    "c7-broker": same(_CARRIED + "c7_a_worker_that_stops_fails_no_node", delivery.TABLE["c7"]),
    "c8-broker": fault(_CARRIED + "c8_a_message_that_comes_again_runs_nothing_again", RUN_AGAIN),
    "c10-broker": fault(
        _CARRIED + "c10_what_waits_behind_a_slow_call_goes_to_who_is_idle",
        skip("rune.adapters.rabbitmq.consumer:Consumer._relieve"),
    ),
    "c12-broker": fault(
        _CARRIED + "c12_messages_stay_small_whatever_ran_before",
        replace("rune.bootstrap.rabbitmq:RabbitComponents.__init__", _write_in_full),
    ),
    "c14-broker": fault(
        _CARRIED + "c14_statuses_come_in_the_order_in_which_things_happened",
        edit(
            "rune.adapters.rabbitmq.status_publisher:RabbitEventPublisher.publish_status",
            ("self._pending or not self._post(body)", "True"),
        ),
        edit(
            "rune.adapters.rabbitmq.status_publisher:RabbitEventPublisher._catch_up",
            ("self._pending[0]", "self._pending[-1]"),
            ("self._pending.popleft()", "self._pending.pop()"),
        ),
    ),
    "c15-broker": fault(
        _CARRIED + "c15_a_message_of_an_execution_that_is_gone_goes_too", delivery.UNKNOWN_IS_TRIED_AGAIN
    ),
    "d14": fault(
        _REDIS + "d14_a_script_that_breaks_off_has_changed_nothing",
        edit_script(
            "store",
            "cache[field] = value",
            "cache[field] = value redis.call('HSET', KEYS[1], field, cmsgpack.pack(value))",
        ),
    ),
    "d19": fault(
        _REDIS + "d19_what_changes_together_lies_together",
        replace("rune.adapters.redis.keys:KeySpace._of", _separate_keys),
    ),
    "f2": fault(
        _REDIS + "f2_what_a_timer_woke_and_nobody_sent_is_sent_again",
        edit_script("store", "elseif each[6] ~= 'expire' then", "elseif false then"),
    ),
    "f6": fault(_REDIS + "f6_a_timer_outlives_a_redis_that_keeps_nothing", NO_RECOVERY),
}
