"""Faults of the client of a Redis Cluster; their tests are in `tests/integration/redis`."""

from __future__ import annotations

from tests.faults.change import constant, edit
from tests.faults.fault import Fault, fault

_CLIENT = "rune.adapters.redis.cluster:"
_SLOTS = "rune.adapters.redis.cluster:"
_TESTS = "tests/integration/redis/test_cluster_client.py::"
_ACCESS = "tests/integration/redis/test_cluster_access.py::test_"

ELSEWHERE: dict[str, Fault] = {
    "cluster-slot": fault(
        _TESTS + "TestRouting::test_slots_are_those_of_the_server",
        edit(_SLOTS + "key_slot", ("key[start + 1 : end] if 0 <= start < end - 1 else key", "key")),
    ),
    "cluster-servers": fault(
        _TESTS + "TestRouting::test_commands_reach_the_servers_of_their_keys",
        edit(_CLIENT + "ClusterClient.servers", ("self._map.masters", "self._map.masters[:1]")),
    ),
    "cluster-ask": fault(
        _TESTS + "TestMovedSlots::test_key_is_reached_while_its_slot_moves_and_afterwards",
        edit(_CLIENT + "ClusterClient._ask", ('connection.send("ASKING")', 'connection.send("PING")')),
    ),
    "cluster-refused": fault(
        _TESTS + "TestMovedSlots::test_command_with_parted_keys_waits_until_slot_has_moved",
        edit(_CLIENT + "ClusterClient._send", ("loop.time() > until", "True")),
    ),
    "cluster-run": fault(
        _TESTS + "TestFailover::test_promoted_replica_without_last_writes_is_rebuilt_from_the_journal",
        edit(_CLIENT + "ServerClient._prepare", ('found["master_replid"]', '"the same"')),
        edit(_CLIENT + "ClusterClient._on_checked", ('found["master_replid"] == connection.server', "True")),
    ),
    "cluster-permissions": fault(
        _TESTS + "TestRouting::test_users_of_cluster_may_ask_for_its_slots",
        constant("rune.adapters.redis.stores:CLUSTER_COMMANDS", ()),
    ),
    "cluster-login": fault(
        _ACCESS + "each_server_is_used_with_tls_and_the_login",
        edit(_SLOTS + "server_url", ('f"{login}{at}{host}:{address[1]}"', 'f"{host}:{address[1]}"')),
    ),
    "cluster-tls": fault(
        _ACCESS + "each_server_is_used_with_tls_and_the_login",
        edit(_SLOTS + "server_url", ("urlsplit(seed)", 'urlsplit(seed)._replace(query="")')),
    ),
}
