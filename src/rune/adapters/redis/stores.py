"""Opens state, queue, notifier and process registry on one Redis server, and checks that it is suitable: at start, in
detail for `rune doctor`, and with the ACL rules of Rune's users.

Functions run with the privileges of their caller, so the ACL lists the commands of the Lua functions too. Workers,
schedulers and API processes call the same functions: each role has its own user and password, with equal privileges.
Only the owner may load functions: one that a worker loads would run with the privileges of any other caller.
Missing privileges are found by trying each command on a key that does not exist, in a way that changes nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from rune.adapters.redis.client import (
    UNKNOWN,
    Argument,
    Client,
    MissingFunctionsError,
    RedisError,
    StateIdentity,
    info,
    run_number_keys,
)
from rune.adapters.redis.cluster import open_client
from rune.adapters.redis.encoding import PARTITIONS, FindExecution, KeySpace, Plans, encode_path, find_none
from rune.adapters.redis.processes import (
    RedisKeepalive,
    RedisLiveChannel,
    RedisNotifier,
    RedisProcessRegistry,
    RedisSearchTimes,
    SubscriberClient,
    decode_ended,
)
from rune.adapters.redis.queue import IDLE_S, QueueDepthReader, RedisQueue
from rune.adapters.redis.state import RedisState, SendConfirmations
from rune.adapters.redis.streams import Streams, StreamSender
from rune.adapters.redis.wipe_recovery import RunningExecutions
from rune.core.definition.model import DEFAULT_QUEUE
from rune.core.execution.token import Path
from rune.errors import RuneError
from rune.ports.clock import Clock
from rune.ports.journal import Journal, StoreDamagedError, StoreUnavailableError
from rune.ports.processes import Keepalive
from rune.ports.queue import Route, SentCallback, default_route, ignore_sent

log = logging.getLogger("rune.redis")

MIN_SERVER_VERSION = (7, 0)
PROBES: tuple[tuple[str | int, ...], ...] = (
    ("HSET", "KEY:h", "a", "1"),
    ("HGETALL", "KEY:h"),
    ("ZADD", "KEY:z", "1", "a"),
    ("ZRANGE", "KEY:z", "0", "1", "BYSCORE"),
    ("XGROUP", "CREATE", "KEY:s", "g", "0", "MKSTREAM"),
    ("XADD", "KEY:s", "*", "a", "1"),
    ("XREADGROUP", "GROUP", "g", "c", "COUNT", "1", "STREAMS", "KEY:s", ">"),
    ("XAUTOCLAIM", "KEY:s", "g", "c", "0", "0"),
    ("XPENDING", "KEY:s", "g"),
    ("DEL", "KEY:h", "KEY:z", "KEY:s"),
)


PROBE_ID = "doctor"

ROLES = ("worker", "scheduler", "api")
OWNER = "owner"
"""Role of `rune migrate`, which loads the functions and reads and writes no key."""
WATCHER = "watcher"
"""Role for autoscalers and exporters, which read queue depths and change nothing."""

CONNECTION = ("auth", "select", "ping", "info", "time", "client|id", "client|unblock")
FUNCTIONS = ("fcall", "function|list")
NOTIFICATIONS = ("publish", "subscribe")
KEYS = ("del", "exists", "pexpire", "rename", "scan", "get", "set", "unlink")
HASHES = ("hdel", "hget", "hgetall", "hkeys", "hmget", "hscan", "hset", "hsetnx", "hvals")
SORTED = ("zadd", "zcount", "zrange", "zrangebylex", "zrangebyscore", "zrem", "zscore")
STREAMS = (
    "xack",
    "xadd",
    "xautoclaim",
    "xclaim",
    "xdel",
    "xgroup|create",
    "xgroup|delconsumer",
    "xinfo|consumers",
    "xinfo|groups",
    "xlen",
    "xpending",
    "xrange",
    "xreadgroup",
)
COMMANDS = (*CONNECTION, *FUNCTIONS, *NOTIFICATIONS, *KEYS, *HASHES, *SORTED, *STREAMS)
CLUSTER_COMMANDS = ("asking", "cluster|slots")
"""What each user needs beside its commands on a Redis Cluster."""

OWNER_COMMANDS = ("auth", "select", "ping", "info", "function|list", "function|load")
WATCHER_COMMANDS = (
    "auth",
    "hello",
    "select",
    "ping",
    "info",
    "client|setname",
    "xinfo|groups",
    "xlen",
    "xpending",
)


class UnsuitableServerError(RuneError):
    """The server must not be used with its current version, role or configuration."""

    code = "REDIS_UNFIT"


async def check(client: Client, keys: KeySpace) -> None:
    """Raise if a server is unsuitable, and store the number of partitions."""
    for server in await client.servers():
        await _check_server(server, clustered=client.clustered)
    await _check_rights(client, keys)
    await _check_partitions(client, keys)


async def note_persistence(client: Client) -> None:
    """Log if a server has no append-only file."""
    for server in await client.servers():
        if (await _describe(server)).get("aof_enabled", "0") == "0":
            log.warning(
                "Redis has no append-only file: after a restart every execution is rebuilt from the journal"
            )
            return


async def stored_identity(client: Client, keys: KeySpace) -> StateIdentity:
    """Return the cluster whose state a server has; unknown if it has none, or if the user may read no key."""
    number = f"{keys.prefix}:{{p00}}:incarnation" if client.clustered else keys.run_number
    _, *names = run_number_keys(number)
    try:
        found: list[bytes | None] = [await client.call("GET", each) for each in names]
    except RedisError as error:
        if error.code != "NOPERM":
            raise
        return UNKNOWN
    stored, database = ((each or b"").decode() for each in found)
    journal, _, partitions = stored.partition(" ")
    return StateIdentity(journal, partitions, database)


async def _check_server(client: Client, *, clustered: bool) -> None:
    """Raise if the server is unsuitable."""
    server = await _describe(client)
    version = tuple(int(part) for part in server["redis_version"].split(".")[:2])
    if version < MIN_SERVER_VERSION:
        raise UnsuitableServerError(f"Redis {server['redis_version']} is too old: Rune needs 7.0 or newer")
    problem = _topology_problem(server, clustered=clustered)
    if problem:
        raise UnsuitableServerError(problem)
    policy = server.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise UnsuitableServerError(
            f"maxmemory-policy is `{policy}`: set it to noeviction, or Redis silently evicts state"
        )


async def _describe(client: Client) -> dict[str, str]:
    server: dict[str, str] = {}
    for section in ("server", "memory", "persistence", "replication"):
        server |= info(await client.call("INFO", section))
    return server


async def _check_rights(client: Client, keys: KeySpace) -> None:
    # A random key, because other processes may start at the same time.
    key = f"{keys.prefix}:{{p00}}:probe:{secrets.token_hex(4)}"
    for probe in PROBES:
        try:
            await client.call(*(str(part).replace("KEY", key) for part in probe))
        except RedisError as error:
            if error.code != "NOPERM":
                raise
            raise UnsuitableServerError(f"the Redis user may not run {probe[0]}: {error.message}") from error


async def _check_partitions(client: Client, keys: KeySpace) -> None:
    """Raise if the server uses another number of partitions, which would assign executions to other keys."""
    await client.call("HSETNX", keys.settings, "partitions", keys.partitions)
    stored = int(await client.call("HGET", keys.settings, "partitions"))
    if stored != keys.partitions:
        raise UnsuitableServerError(f"Redis holds {stored} partitions, this process uses {keys.partitions}")


def _probes(key: str) -> dict[str, tuple[Argument, ...]]:
    group = (key, PROBE_ID)
    return {
        "fcall": ("rune_doctor_asks", 0),
        "function list": ("LIBRARYNAME", PROBE_ID),
        "publish": (key, ""),
        "del": (key,),
        "exists": (key,),
        "pexpire": (key, 1),
        "rename": (key, key),
        "scan": (0, "MATCH", key, "COUNT", 1),
        "get": (key,),
        "set": (key, "", "XX"),
        "unlink": (key,),
        "hdel": (key, "f"),
        "hget": (key, "f"),
        "hgetall": (key,),
        "hkeys": (key,),
        "hmget": (key, "f"),
        "hscan": (key, 0),
        "hvals": (key,),
        "zadd": (key, "XX", 1, "m"),
        "zcount": (key, 0, 0),
        "zrange": (key, 0, 0),
        "zrangebylex": (key, "-", "+"),
        "zrangebyscore": (key, 0, 0),
        "zrem": (key, "m"),
        "zscore": (key, "m"),
        "xack": (*group, "1-1"),
        "xadd": (key, "NOMKSTREAM", "*", "f", "v"),
        "xautoclaim": (*group, PROBE_ID, 1, "0"),
        "xclaim": (*group, PROBE_ID, 1, "1-1"),
        "xdel": (key, "1-1"),
        "xgroup create": (*group, "$"),
        "xgroup delconsumer": (*group, PROBE_ID),
        "xinfo groups": (key,),
        "xlen": (key,),
        "xpending": group,
        "xrange": (key, "-", "+"),
        "xreadgroup": ("GROUP", PROBE_ID, PROBE_ID, "STREAMS", key, ">"),
    }


async def missing_rights(client: Client, keys: KeySpace) -> tuple[str, ...]:
    """Return the commands that the user of the connection may not run on Rune's keys."""
    probes = _probes(f"{keys.prefix}:{PROBE_ID}")
    calls = (client.call(*name.upper().split(), *arguments) for name, arguments in probes.items())
    replies = await asyncio.gather(*calls, return_exceptions=True)
    for each in replies:
        if isinstance(each, BaseException) and not isinstance(each, RedisError):
            raise each
    return tuple(
        name
        for name, each in zip(probes, replies, strict=True)
        if isinstance(each, RedisError) and _is_forbidden(each)
    )


async def may_load_functions(client: Client) -> bool:
    """Return whether the user of the connection is that of the owner. An empty library is refused without a change."""
    try:
        await client.call("FUNCTION", "LOAD", "")
    except RedisError as error:
        return not _is_forbidden(error)
    return True


def _is_forbidden(error: RedisError) -> bool:
    return error.code == "NOPERM" or error.message.startswith("NOPERM")


async def inspect(client: Client) -> dict[str, Any]:
    """Return facts about the server, by the field names of the inspection. Of a Redis Cluster: the sum or the worst of
    its servers."""
    found = [await _describe(each) for each in await client.servers()]
    policies = [each.get("maxmemory_policy", "noeviction") for each in found]
    limits = [int(each.get("maxmemory", 0)) for each in found]
    problems = [_topology_problem(each, clustered=client.clustered) for each in found]
    return {
        "redis": found[0]["redis_version"],
        "aof": all(each.get("aof_enabled", "0") != "0" for each in found),
        "policy": next((each for each in policies if each != "noeviction"), "noeviction"),
        "memory": sum(int(each.get("used_memory", 0)) for each in found),
        "memory_limit": sum(limits) if all(limits) else 0,
        "state_trouble": next(filter(None, problems), ""),
    }


def _topology_problem(server: dict[str, str], *, clustered: bool) -> str:
    if server.get("role", "master") != "master":
        return "the server is a replica and accepts no writes"
    mode = server.get("redis_mode", "standalone")
    if mode == "cluster" and not clustered:
        return "the server belongs to a Redis Cluster: name several of its hosts, or add `?cluster=true`"
    if mode not in ("standalone", "cluster"):
        return f"the server runs as `{mode}`: Rune needs one server, with or without replicas, or a Redis Cluster"
    return ""


def rules(prefix: str, *, clustered: bool = False) -> str:
    """Return the ACL rules of workers, schedulers and API processes."""
    return f"~{prefix}:* &{prefix}:* {_grants(COMMANDS, clustered)}"


def watcher_rules(prefix: str, *, clustered: bool = False) -> str:
    """Return the ACL rules of the watcher role."""
    return f"%R~{prefix}:* {_grants(WATCHER_COMMANDS, clustered)}"


def owner_rules(*, clustered: bool = False) -> str:
    """Return the ACL rules of the owner role."""
    return _grants(OWNER_COMMANDS, clustered)


def _grants(commands: Sequence[str], clustered: bool) -> str:
    return " ".join(f"+{each}" for each in (*commands, *(CLUSTER_COMMANDS if clustered else ())))


def acl_file(prefix: str, passwords: Mapping[str, str], *, clustered: bool = False) -> str:
    """Return a file that Redis loads with `aclfile`: one user for each role with a password. Connections without a
    login can run no command."""
    lines = ["user default off resetkeys resetchannels -@all"]
    for role, password in passwords.items():
        digest = hashlib.sha256(password.encode()).hexdigest()
        special = {
            WATCHER: watcher_rules(prefix, clustered=clustered),
            OWNER: owner_rules(clustered=clustered),
        }
        granted = special.get(role) or rules(prefix, clustered=clustered)
        lines.append(f"user {user_name(prefix, role)} on #{digest} resetkeys resetchannels -@all {granted}")
    return "\n".join(lines) + "\n"


def user_name(prefix: str, role: str) -> str:
    return f"{prefix}-{role}"


class RedisStores:
    """The connections of one process and the stores over them."""

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "rune",
        partitions: int | None = None,
        journal: str = "",
        database: str = "",
        looking: bool = False,
    ) -> None:
        """A server that has the state of another `journal`, of another `database` with it, or another number of
        partitions, is refused whenever a connection to it is opened; empty and None: not known here. A server without
        any state gets them, unless this process is only `looking`."""
        self.keys = KeySpace(prefix, partitions or PARTITIONS)
        self._url = url
        # Redis stores an identity only with both of its parts.
        known = "" if partitions is None or (looking and journal) else str(partitions)
        self._identity = StateIdentity(journal, known, database)
        self.client = self._open_client()
        self._blocking = Client(url, deadline=None)
        self._queues: list[RedisQueue] = []
        self._states: list[RedisState] = []
        self.notifier = RedisNotifier()
        self.processes = RedisProcessRegistry(self.client, self.keys)
        self.live = RedisLiveChannel(url, self.client, prefix)

    def _open_client(self) -> Client:
        return open_client(self._url, run_number_key=self.keys.run_number, identity=self._identity)

    def confirmations(self) -> SendConfirmations:
        """Return what takes the tokens that a queue has sent, for the queue and the state."""
        return SendConfirmations(self.client, self.keys, None)

    def queue(
        self,
        consumer: str,
        queues: Sequence[str] = (DEFAULT_QUEUE,),
        *,
        route: Route = default_route,
        idle: float = IDLE_S,
        on_sent: SentCallback = ignore_sent,
        renews: bool = True,
    ) -> RedisQueue:
        """Return the queue of a consumer. It reads nothing before the first `receive`."""
        streams = Streams(self.client, self.keys, consumer, queues)
        depths = QueueDepthReader(self.client, self.keys, queues)
        queue = RedisQueue(
            self.client,
            self._blocking,
            streams,
            route=route,
            idle=idle,
            depths=depths,
            on_sent=on_sent,
            renews=renews,
        )
        self._queues.append(queue)
        return queue

    def state(
        self,
        journal: Journal,
        plans: Plans,
        *,
        queue: RedisQueue | None = None,
        running_executions: RunningExecutions | None = None,
        confirmations: SendConfirmations | None = None,
        find: FindExecution = find_none,
    ) -> RedisState:
        """Return the state. With a queue on the same server it sends tokens and deletes entries atomically with its
        own changes. The queue reports what it has sent to `confirmations`. `find` returns executions that the process
        has loaded already."""
        sender = None if queue is None else StreamSender(self.keys, queue)
        state = RedisState(
            self.client,
            self.keys,
            journal,
            plans,
            running_executions=running_executions,
            sender=sender,
            confirmations=confirmations,
            find=find,
        )
        self._states.append(state)
        return state

    @asynccontextmanager
    async def keepalive(
        self, consumer: str, queues: Sequence[str] = (DEFAULT_QUEUE,), queue: RedisQueue | None = None
    ) -> AsyncIterator[Keepalive]:
        """Open a connection that renews what this process holds, in the event loop of the caller. With a queue, its
        entries are renewed too."""
        client = self._open_client()
        try:
            if queue is None:
                yield RedisKeepalive(client, self.keys)
            else:
                streams = Streams(client, self.keys, consumer, queues)
                yield RedisKeepalive(client, self.keys, streams, queue.held_entries)
        finally:
            await client.close()

    async def connect(self) -> None:
        """Connect to each server and call a function there; see `Client.server_run`."""
        for part in range(self.keys.partitions if self.client.clustered else 1):
            await self.client.server_run(self.keys.due(part))

    async def release(self, execution: str, node: int, path: Path) -> None:
        """Stop the sweeper from resending a token whose execution ended before the token was applied."""
        held = self.keys.held(self.keys.partition(execution))
        await self.client.call("ZREM", held, f"{execution}|{node}|{encode_path(path)}")

    def search_times(self) -> RedisSearchTimes:
        """Return since when the schedulers search for tokens in the lanes of a broker."""
        return RedisSearchTimes(self.client, self.keys)

    async def _check(self, *, required: bool) -> None:
        try:
            await check(self.client, self.keys)
        except (StoreDamagedError, MissingFunctionsError):
            raise
        except StoreUnavailableError as away:
            if required:
                raise
            log.info("begun without Redis: %s", away.message)

    def _on_ended(self, messages: Sequence[str]) -> None:
        ended = [decode_ended(each) for each in messages]
        for state in self._states:
            state.forget([execution for execution, _ in ended])
        self.notifier.on_notification(ended)

    @asynccontextmanager
    async def running(self, clock: Clock, *, required: bool = True) -> AsyncIterator[None]:
        """Check the server, wake the clock when an earlier timer is set, and close all connections at the end. If it is
        not `required`, a server that is away is no error: it is checked by the first connection to it."""
        prefix = self.keys.prefix
        locate = self.client.url_of if self.client.clustered else None
        channels = (
            SubscriberClient(self._url, f"{prefix}:nearer", lambda _: clock.wake(), locate=locate),
            SubscriberClient(
                self._url,
                f"{prefix}:ended",
                self._on_ended,
                on_subscribed=self.notifier.on_subscribed,
                locate=locate,
            ),
        )
        try:
            await self._check(required=required)
            subscriptions = [asyncio.create_task(each.run()) for each in channels]
            try:
                yield
            finally:
                for each in subscriptions:
                    each.cancel()
                await asyncio.gather(*subscriptions, return_exceptions=True)
        finally:
            for queue in self._queues:
                await queue.close()
            for state in self._states:
                await state.close()
            for client in (*channels, self.client, self._blocking):
                await client.close()
