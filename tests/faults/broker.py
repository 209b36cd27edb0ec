"""Faults of hazards C, D and F in RabbitMQ and Redis."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec

from tests.faults import delivery
from tests.faults.change import Change, edit, replace, skip
from tests.faults.cluster import NO_RECOVERY, RUN_AGAIN, edit_script
from tests.faults.fault import Fault, fault, same


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


def _drop_dead_letter(dead_letter: Any) -> Any:
    async def changed(self: Any, held: Any, code: str, message: str) -> None:
        held.channel.ack(held.message.tag)

    return changed


def _acknowledge_given_up(put_aside: Any) -> Any:
    async def changed(self: Any, given_up: Any, code: str, message: str) -> None:
        await self._queue.ack(given_up)

    return changed


def _ignore_unknown_node(load: Any) -> Any:
    def changed(self: Any, delivery: Any) -> Any:
        token = msgspec.structs.replace(delivery.token, node=0)
        return load(self, msgspec.structs.replace(delivery, token=token))

    return changed


def _write_in_full(init: Any) -> Any:
    def changed(self: Any, settings: Any, *others: Any) -> None:
        init(self, msgspec.structs.replace(settings, wire_inline=True), *others)

    return changed


def _separate_keys(of: Any) -> Any:
    """Give the keys of an execution a tag of their own."""

    def changed(self: Any, execution: str) -> Any:
        found = of(self, execution)
        return found._make(each.replace(found.fields, f"{self.prefix}:x:{{{execution}}}") for each in found)

    return changed


TABLE: dict[str, Fault] = {
    "c1": fault(
        "test_rabbitmq_queue.py::test_h_c1_unconfirmed_send_fails",
        replace("rune.adapters.rabbitmq.publisher:Publisher._in_turn", _post_unconfirmed),
    ),
    "c2": fault(
        "test_rabbitmq_queue.py::test_h_c2_unroutable_send_fails",
        replace("rune.adapters.rabbitmq.amqp.frames:publish_command", _accept_unroutable),
    ),
    "c9": fault(
        "test_rabbitmq_queue.py::test_h_c9_long_running_token_is_not_redelivered",
        skip("rune.adapters.rabbitmq.queue:RabbitQueue._release"),
    ),
    "c11": fault(
        "test_rabbitmq_queue.py::test_h_c11_short_delay_is_not_blocked_by_long_one",
        _change_delay(lambda delay: math.inf if delay > 0 else delay),
    ),
    "c13": fault(
        "test_rabbitmq_queue.py::test_h_c13_work_queues_have_no_time_to_live",
        _change_work_queues(lambda arguments: {**arguments, "x-message-ttl": 86_400_000}),
    ),
    "c3-rabbitmq": fault(
        "test_rabbitmq_queue.py::test_h_c3_unreadable_message_is_dead_lettered",
        replace("rune.adapters.rabbitmq.queue:RabbitQueue._dead_letter_message", _drop_dead_letter),
    ),
    "c3-givenup": fault(
        "test_delivery.py::test_h_c3_message_given_up_by_engine_is_dead_lettered",
        replace("rune.runtime.worker.worker:Worker._dead_letter", _acknowledge_given_up),
    ),
    "c3-node": fault(
        "test_delivery.py::test_h_c3_message_for_unknown_node_does_not_end_execution",
        replace("rune.runtime.worker.executor:Executor._load_execution", _ignore_unknown_node),
    ),
    "c3-rejected": fault(
        "test_rabbitmq_queue.py::test_h_c3_rejected_message_is_dead_lettered",
        _change_work_queues(
            lambda arguments: {
                name: value for name, value in arguments.items() if name != "x-dead-letter-exchange"
            }
        ),
    ),
    "c4-rabbitmq": fault(
        "test_rabbitmq_queue.py::test_h_c4_delayed_message_is_not_redelivered_at_once",
        _change_delay(lambda delay: 0.0),
    ),
    "c5-rabbitmq": same(
        "test_delivery.py::test_h_c5_non_json_output_fails_node_once[rabbitmq]", delivery.TABLE["c5"]
    ),
    "c6-rabbitmq": same(
        "test_delivery.py::test_h_c6_expression_error_fails_only_its_node[rabbitmq]", delivery.TABLE["c6"]
    ),
    "c7-rabbitmq": same(
        "test_delivery.py::test_h_c7_stopping_engine_fails_no_node[rabbitmq]", delivery.TABLE["c7"]
    ),
    "c8-rabbitmq": fault(
        "test_delivery.py::test_h_c8_message_redelivered_by_broker_runs_nothing_again", RUN_AGAIN
    ),
    "c10-rabbitmq": fault(
        "test_rabbitmq_queue.py::test_h_c10_prefetched_messages_of_busy_worker_go_to_idle_one",
        skip("rune.adapters.rabbitmq.consumer:Consumer._relieve"),
    ),
    "c12-rabbitmq": fault(
        "test_delivery.py::test_h_c12_messages_do_not_grow_along_chain",
        replace("rune.bootstrap.rabbitmq:RabbitComponents.__init__", _write_in_full),
    ),
    "c14-rabbitmq": fault(
        "test_delivery.py::test_h_c14_statuses_are_published_in_order",
        edit(
            "rune.adapters.rabbitmq.publisher:RabbitEventPublisher.publish_status",
            ("self._pending or not self._post(body)", "True"),
        ),
        edit(
            "rune.adapters.rabbitmq.publisher:RabbitEventPublisher._catch_up",
            ("self._pending[0]", "self._pending[-1]"),
            ("self._pending.popleft()", "self._pending.pop()"),
        ),
    ),
    "c15-rabbitmq": fault(
        "test_delivery.py::test_h_c15_message_of_unknown_execution_is_dead_lettered",
        delivery.UNKNOWN_IS_TRIED_AGAIN,
    ),
    "d14": fault(
        "test_redis_state.py::test_h_d14_failed_script_changes_nothing",
        edit_script(
            "shared/store",
            "cache[field] = value",
            "cache[field] = value redis.call('HSET', KEYS[1], field, cmsgpack.pack(value))",
        ),
    ),
    "d19": fault(
        "test_redis_state.py::test_h_d19_keys_of_execution_share_hash_tag",
        replace("rune.adapters.redis.encoding:KeySpace._of", _separate_keys),
    ),
    "f2": fault(
        "test_redis_state.py::test_h_f2_unsent_token_of_timer_is_sent_again",
        edit_script("shared/store", "elseif each[TOKEN.fate] ~= 'expire' then", "elseif false then"),
    ),
    "f6": fault(
        "test_redis_state.py::test_h_f6_timer_survives_restart_of_redis_without_persistence", NO_RECOVERY
    ),
}
