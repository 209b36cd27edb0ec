"""C, D and F where a server stands between the processes."""

from __future__ import annotations

from tests.hazards.reds.patch import Red, red

_RABBIT = "test_hazards_rabbitmq.py::test_h_"
_REDIS = "test_hazards_redis.py::test_h_"
_QUEUE = "adapters/rabbitmq/queue.py"
_LUA = "adapters/redis/scripts/store.lua"

TABLE: dict[str, Red] = {
    "c1": red(
        _RABBIT + "c1_a_token_is_sent_when_the_broker_says_so",
        (
            "adapters/rabbitmq/publisher.py",
            "                await channel.publish_all(messages)\n                return\n",
            "                for each in messages:\n                    channel.post(*each)\n                return\n",
        ),
    ),
    "c2": red(
        _RABBIT + "c2_what_cannot_be_routed_is_not_taken_for_sent",
        ("adapters/rabbitmq/channel.py", "routing_key, mandatory=True)", "routing_key, mandatory=False)"),
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
    "f6": red(
        _REDIS + "f6_a_timer_outlives_a_redis_that_keeps_nothing",
        ("adapters/redis/state.py", "        await self._recovery.work()\n", ""),
    ),
}
