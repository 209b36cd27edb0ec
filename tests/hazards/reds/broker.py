"""C, D and F where a server stands between the processes."""

from __future__ import annotations

from tests.hazards.reds import delivery
from tests.hazards.reds.cluster import NOBODY_RECOVERS, RUNS_AGAIN
from tests.hazards.reds.patch import Red, red, same

_RABBIT = "test_hazards_rabbitmq.py::test_h_"
_CARRIED = "test_hazards_rabbitmq_c.py::test_h_"
_REDIS = "test_hazards_redis.py::test_h_"
_QUEUE = "adapters/rabbitmq/queue.py"
_HERALD = "adapters/rabbitmq/herald.py"
_LUA = "adapters/redis/scripts/store.lua"

TABLE: dict[str, Red] = {
    "c1": red(
        _RABBIT + "c1_a_token_is_sent_when_the_broker_says_so",
        (
            "adapters/rabbitmq/publisher.py",
            "                await self._in_turn(messages)\n                return\n",
            "                for each in messages:\n                    self.post(*each)\n                return\n",
        ),
    ),
    "c2": red(
        _RABBIT + "c2_what_cannot_be_routed_is_not_taken_for_sent",
        ("adapters/rabbitmq/channel.py", "mandatory=known is self._ways)", "mandatory=False)"),
    ),
    "c9": red(
        _RABBIT + "c9_what_runs_for_long_is_not_handed_out_again",
        (_QUEUE, "            held.early = True\n            held.channel.ack(held.message.tag)\n", ""),
    ),
    "c11": red(
        _RABBIT + "c11_a_short_delay_does_not_wait_behind_a_long_one",
        (_QUEUE, "next((each for each in DELAYS if each >= delay), DELAYS[-1])", "DELAYS[-1]"),
    ),
    "c13": red(
        _RABBIT + "c13_a_backlog_has_no_time_to_live",
        ("adapters/rabbitmq/topology.py", "work = {**kept,", 'work = {**kept, "x-message-ttl": 86_400_000,'),
    ),
    "c3-broker": red(
        _CARRIED + "c3_what_nobody_can_read_is_kept_with_its_reason",
        (_QUEUE, "self._work(self._bury(held, bad.code, bad.message))", "held.channel.ack(held.message.tag)"),
    ),
    "c3-givenup": red(
        _CARRIED + "c3_what_the_engine_gives_up_is_kept_with_its_reason",
        (
            "runtime/worker.py",
            "await self._queue.dead_letter(delivery, code, message)",
            "await self._queue.ack(delivery)",
        ),
    ),
    "c3-node": red(
        _CARRIED + "c3_a_message_for_a_node_that_is_not_there_ends_no_execution",
        ("runtime/attempt.py", "if not 0 <= token.node < len(book.plan.nodes):", "if False:"),
    ),
    "c3-rejected": red(
        _CARRIED + "c3_what_somebody_rejects_is_kept",
        (
            "adapters/rabbitmq/topology.py",
            'work = {**kept, "x-dead-letter-exchange": self.dead_exchange}',
            "work = {**kept}",
        ),
    ),
    "c4-broker": red(
        _CARRIED + "c4_what_is_to_come_later_does_not_come_at_once",
        (_QUEUE, "        if delay > 0:\n", "        if False:\n"),
    ),
    "c5-broker": same(_CARRIED + "c5_what_is_not_json_loops_through_no_queue", delivery.TABLE["c5"]),
    "c6-broker": same(_CARRIED + "c6_an_error_in_an_expression_harms_nobody_else", delivery.TABLE["c6"]),
    "c7-broker": same(_CARRIED + "c7_a_worker_that_stops_fails_no_node", delivery.TABLE["c7"]),
    "c8-broker": red(_CARRIED + "c8_a_message_that_comes_again_runs_nothing_again", RUNS_AGAIN),
    "c10-broker": red(
        _CARRIED + "c10_what_waits_behind_a_slow_call_goes_to_who_is_idle",
        (
            "adapters/rabbitmq/intake.py",
            "            self._pulling = True\n            self._wanted.set()\n",
            "            pass\n",
        ),
    ),
    "c12-broker": red(
        _CARRIED + "c12_messages_stay_small_whatever_ran_before",
        ("compose/carrying.py", "if self._settings.wire_inline:", "if True:"),
    ),
    "c14-broker": red(
        _CARRIED + "c14_statuses_come_in_the_order_in_which_things_happened",
        (_HERALD, "if self._kept or not self._post(body):", "if True:"),
        (_HERALD, "if not self._post(self._kept[0]):", "if not self._post(self._kept[-1]):"),
        (_HERALD, "            self._kept.popleft()\n", "            self._kept.pop()\n"),
    ),
    "c15-broker": red(
        _CARRIED + "c15_a_message_of_an_execution_that_is_gone_goes_too", delivery.UNKNOWN_IS_TRIED_AGAIN
    ),
    "d14": red(
        _REDIS + "d14_a_script_that_breaks_off_has_changed_nothing",
        (
            _LUA,
            "  cache[field] = value\n",
            "  cache[field] = value\n  redis.call('HSET', KEYS[1], field, cmsgpack.pack(value))\n",
        ),
    ),
    "d19": red(
        _REDIS + "d19_what_changes_together_lies_together",
        (
            "adapters/redis/keys.py",
            'mine = f"{tag}:x:{execution}"',
            'mine = f"{self.prefix}:x:{{{execution}}}"',
        ),
    ),
    "f2": red(
        _REDIS + "f2_what_a_timer_woke_and_nobody_sent_is_sent_again",
        (_LUA, "elseif each[6] ~= 'expire' then", "elseif false then"),
    ),
    "f6": red(_REDIS + "f6_a_timer_outlives_a_redis_that_keeps_nothing", NOBODY_RECOVERS),
}
