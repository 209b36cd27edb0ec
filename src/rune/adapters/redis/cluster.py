"""Client of a Redis Cluster, with the interface of `Client`: each command goes to the server that has the slot of its
key.

A redirected or refused command was not executed, so it is sent again: MOVED changes the map of slots, ASK applies to
one command, TRYAGAIN and CLUSTERDOWN are retried for a while. A lost connection fails its commands as with one server.

Where functions compare the run id of a server, those of a cluster use its replication id. A server gets a new one
whenever its data may lack writes that were acknowledged: when it starts and when it is promoted, but not when it is
demoted and promoted again as the same process, which keeps its run id. The replication id is read with every
connection and then once a second, because a demoted server does not close connections.
"""

from __future__ import annotations

import asyncio
import logging
from binascii import crc_hqx
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

from rune.adapters.redis.client import (
    DEFAULT_PORT,
    REPLY_TIMEOUT_S,
    UNKNOWN,
    Argument,
    Client,
    Connection,
    InvalidAddressError,
    LateCommandError,
    RedirectionError,
    RedisError,
    RefusalError,
    SharedAttempts,
    StateIdentity,
    check_functions,
    info,
    run_number_keys,
    set_up,
)
from rune.ports.journal import StoreUnavailableError

SLOTS = 16_384

Address = tuple[str, int]
"""Host and port of a server."""

_KEYLESS = frozenset(
    (
        "PING",
        "ECHO",
        "TIME",
        "INFO",
        "SCAN",
        "CLIENT",
        "FUNCTION",
        "CLUSTER",
        "CONFIG",
        "PUBSUB",
        "DBSIZE",
        "ACL",
    )
)
_KEY_AFTER_SUBCOMMAND = frozenset(("XGROUP", "XINFO"))


def is_cluster(url: str) -> bool:
    """Return whether a URL names a Redis Cluster: with several hosts, or with `cluster=true`."""
    parts = urlsplit(url)
    return "," in parts.netloc or dict(parse_qsl(parts.query)).get("cluster") == "true"


def seed_urls(url: str) -> list[str]:
    """Return a URL for each host of the URL of a cluster."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        raise InvalidAddressError(
            "a Redis Cluster has no `unix://` address: its servers redirect to host and port"
        )
    if parts.path.strip("/") not in ("", "0"):
        raise InvalidAddressError("a Redis Cluster has only the database 0")
    login, at, hosts = parts.netloc.rpartition("@")
    options = [
        (name, value) for name, value in parse_qsl(parts.query, keep_blank_values=True) if name != "cluster"
    ]
    found = [
        SplitResult(parts.scheme, f"{login}{at}{host}", "", urlencode(options), "").geturl()
        for host in hosts.split(",")
        if host
    ]
    for each in found:
        try:
            valid = urlsplit(each).port != 0
        except ValueError:
            valid = False
        if not valid:
            raise InvalidAddressError("a host of the Redis Cluster has an invalid port")
    if not found:
        raise InvalidAddressError("the address of a Redis Cluster names no host")
    return found


def server_url(seed: str, address: Address) -> str:
    """Return the URL of a server with the login and the TLS options of another one."""
    parts = urlsplit(seed)
    login, at, _ = parts.netloc.rpartition("@")
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    return parts._replace(netloc=f"{login}{at}{host}:{address[1]}").geturl()


def address_of(url: str) -> Address:
    parts = urlsplit(url)
    return parts.hostname or "localhost", parts.port or DEFAULT_PORT


def key_slot(key: str) -> int:
    """Return the slot of a key. If it has a hash tag, that decides."""
    start = key.find("{")
    end = key.find("}", start + 1)
    tag = key[start + 1 : end] if 0 <= start < end - 1 else key
    return crc_hqx(tag.encode(), 0) % SLOTS


def command_key(parts: Sequence[Argument]) -> str | None:
    """Return the first key of a command, None if it has none. The channel of a message counts as one: processes
    subscribe where its slot is, so that the server knows how many have received it."""
    name = str(parts[0]).upper()
    if name in _KEYLESS:
        return None
    if name == "FCALL" and int(parts[2]) == 0:
        return None
    if name == "XREADGROUP":
        key = parts[parts.index("STREAMS") + 1]
    else:
        key = parts[3 if name == "FCALL" else 2 if name in _KEY_AFTER_SUBCOMMAND else 1]
    return key.decode() if isinstance(key, bytes) else str(key)


class SlotMap:
    """Which server has which slots, as one server of the cluster described it."""

    def __init__(self, reply: Sequence[Any] = (), asked: Address = ("", 0)) -> None:
        """`reply` is that of CLUSTER SLOTS. A server without a known host is the one that was asked."""
        self._ranges: list[tuple[int, int, Address]] = []
        self._moved: dict[int, Address] = {}
        self.servers: list[Address] = []
        """All servers, masters first."""
        replicas: list[Address] = []
        for first, last, *nodes in reply:
            found = [((host or b"").decode() or asked[0], int(port)) for host, port, *_ in nodes]
            self._ranges.append((int(first), int(last), found[0]))
            replicas += found[1:]
        self.masters = list(dict.fromkeys(each for _, _, each in self._ranges))
        self.servers = list(dict.fromkeys((*self.masters, *replicas)))

    def master(self, slot: int) -> Address | None:
        moved = self._moved.get(slot)
        if moved is not None:
            return moved
        return next((address for first, last, address in self._ranges if first <= slot <= last), None)

    def move(self, slot: int, address: Address) -> None:
        """Note where a server has redirected to. This precedes the description of the other servers."""
        self._moved[slot] = address


log = logging.getLogger("rune.redis")

RETRY_TIMEOUT_S = 10.0
"""How long a command is sent again that the cluster refuses to execute."""

MIN_RETRY_DELAY_S = 0.01
MAX_RETRY_DELAY_S = 0.2
MAX_REDIRECTIONS = 5
"""Redirections of one command without a delay. Servers may disagree for a moment after a fail-over."""

MAP_PERIOD_S = 0.1
"""How often the map of slots is loaded at most while a server is unavailable."""

MAP_TIMEOUT_S = 2.0
"""How long one server may take to describe the cluster before another is asked."""

CHECK_PERIOD_S = 1.0
MAX_UNCHECKED_S = 3.0
"""No command is sent on a connection whose server was not checked for this long, for example after this process was
suspended. A server that lost writes cannot be promoted again within this time."""

_Parts = Callable[[Connection], Sequence[Argument]]


def open_client(
    url: str,
    *,
    deadline: float | None = REPLY_TIMEOUT_S,
    run_number_key: str = "",
    identity: StateIdentity = UNKNOWN,
) -> Client:
    """Return a client for one server or, if the URL names one, for a Redis Cluster."""
    kind = ClusterClient if is_cluster(url) else Client
    return kind(url, deadline=deadline, run_number_key=run_number_key, identity=identity)


class _MovedError(RefusalError):
    """A slot belongs to another server, which is known by now."""


class ServerConnection(Connection):
    """A connection to one server of a cluster."""

    address: Address = ("", 0)
    checked_at = 0.0
    """When the server was last known to be the same master, by the clock of the event loop."""


class ServerClient(Client):
    """Commands to one master of a cluster. A server that is a replica is unavailable."""

    def __init__(self, url: str, *, deadline: float | None, run_number_key: str = "") -> None:
        super().__init__(url, deadline=deadline, run_number_key=run_number_key)
        self.address = address_of(url)

    def _protocol(self) -> Connection:
        connection = ServerConnection(self._deadline)
        connection.address = self.address
        return connection

    async def _prepare(self, connection: Connection) -> None:
        assert isinstance(connection, ServerConnection)
        await self._authenticate(connection)
        found = info(await connection.send("INFO", "replication"))
        if found["role"] != "master":
            raise StoreUnavailableError(f"Redis: {self.address[0]}:{self.address[1]} is a replica")
        if self._run_number_key:
            await connection.read_clock()
            await check_functions(connection, self._library)
        connection.server = found["master_replid"]
        connection.checked_at = asyncio.get_running_loop().time()
        connection.ready = True

    @property
    def open_connection(self) -> ServerConnection | None:
        """The connection, if there is one."""
        found = self._connection
        return found if isinstance(found, ServerConnection) and not found.lost else None

    @property
    def checked_at(self) -> float:
        return self.open_connection.checked_at if self.open_connection is not None else 0.0

    async def connected(self) -> ServerConnection:
        connection = await self._connected()
        assert isinstance(connection, ServerConnection)
        return connection

    def drop_connection(self) -> None:
        """Close the connection; its commands fail."""
        connection = self.open_connection
        if connection is not None:
            connection.lost = True
            connection.abort()


class Route:
    """The connection for the keys of one hash tag, and the number of the server run as these keys know it."""

    __slots__ = ("connection", "number", "slot")

    def __init__(self, slot: int, connection: ServerConnection) -> None:
        self.slot = slot
        self.connection = connection
        self.number: int | None = None


class ClusterClient(Client):
    """Commands to the masters of a Redis Cluster, over one connection to each."""

    clustered = True

    def __init__(
        self,
        url: str,
        *,
        deadline: float | None = REPLY_TIMEOUT_S,
        run_number_key: str = "",
        identity: StateIdentity = UNKNOWN,
    ) -> None:
        self._seeds = seed_urls(url)
        super().__init__(self._seeds[0], deadline=deadline, run_number_key=run_number_key, identity=identity)
        self._servers: dict[Address, ServerClient] = {}
        self._routes: dict[str, Route] = {}
        self._route_locks: dict[str, asyncio.Lock] = {}
        self._map = SlotMap()
        self._outdated = True
        self._map_attempts = SharedAttempts()
        self._next_load = 0.0
        self._described_by = ""
        self._check_timer: asyncio.TimerHandle | None = None

    async def call(self, *parts: Argument) -> Any:
        key = command_key(parts)
        if key is None:
            return await self._call_any(parts)
        return await self._send(key, lambda _: parts)

    async def _run(self, verb: str, keys: Sequence[str], arguments: Sequence[Argument], until: float) -> Any:
        """Call a verb's function. Its first argument is the replication id of the server behind the connection."""
        head: tuple[Argument, ...] = ("FCALL", self._library.function(verb), len(keys), *keys)
        return await self._send(
            keys[0],
            lambda connection: (*head, connection.server, *arguments, connection.server_time(until)),
        )

    async def server_run(self, key: str = "") -> tuple[str, int]:
        head = _head(key)
        route = self._known_route(head) or await self._find_route(key, head)
        if route.number is None:
            keys = run_number_keys(f"{head}:incarnation")
            route.number = int(await self.run("server_run", keys, *self._identity))
        return route.connection.server, route.number

    async def servers(self) -> Sequence[Client]:
        if self._outdated:
            await self._load_map()
        return [self._server(each) for each in self._map.masters]

    async def gather(self, *calls: Awaitable[Any]) -> list[Any]:
        replies = await asyncio.gather(*calls, return_exceptions=True)
        failed: StoreUnavailableError | None = None
        found = []
        for each in replies:
            if isinstance(each, StoreUnavailableError):
                failed = each
            elif isinstance(each, BaseException):
                raise each
            else:
                found.append(each)
        if failed is not None and not found:
            raise failed
        return found

    async def url_of(self, key: str) -> str:
        """Return the URL of the server that has a key."""
        if self._outdated:
            await self._load_map()
        return server_url(self._seeds[0], self._master(key_slot(key)))

    async def call_on(self, url: str, *parts: Argument) -> Any:
        """Send a command to the server of a URL."""
        return await self._server(address_of(url)).call(*parts)

    def note(self, error: Exception) -> None:
        """Note that a server that this client named has redirected a command, or cannot be used."""
        if isinstance(error, RedirectionError) and error.code == "MOVED" and error.address[0]:
            self._map.move(error.slot, error.address)
        self._outdated = True

    async def _send(self, key: str, parts: _Parts) -> Any:
        """Send a command to the server that has a key, again as long as none has executed it."""
        loop = asyncio.get_running_loop()
        head = _head(key)
        until, delay, redirections = loop.time() + RETRY_TIMEOUT_S, MIN_RETRY_DELAY_S, 0
        while True:
            try:
                return await self._try_send(key, head, parts)
            except RefusalError as error:
                self._outdated = True
                if loop.time() > until:
                    raise
                if isinstance(error, _MovedError) and redirections < MAX_REDIRECTIONS:
                    redirections += 1
                    continue
                self._routes.pop(head, None)
            except LateCommandError:
                raise
            except StoreUnavailableError:
                self._outdated = True
                raise
            await asyncio.sleep(delay)
            delay = min(2 * delay, MAX_RETRY_DELAY_S)

    async def _try_send(self, key: str, head: str, parts: _Parts) -> Any:
        route = self._known_route(head) or await self._find_route(key, head)
        connection = route.connection
        try:
            return await connection.send(*parts(connection))
        except RedirectionError as error:
            if error.code == "ASK":
                return await self._ask(error.address[0] or connection.address[0], error.address[1], parts)
            self._on_moved(head, error, connection)
            raise _MovedError(f"Redis: the slot {error.slot} has moved") from error
        except RedisError as error:
            if "Function not found" not in error.message:
                raise
        await set_up(connection, self._library)
        return await connection.send(*parts(connection))

    async def _ask(self, host: str, port: int, parts: _Parts) -> Any:
        """Send a command to the server that a slot is being moved to."""
        connection = await self._server((host, port)).connected()
        # One after the other: the permission is for the next command of the connection.
        permitted = connection.send("ASKING")
        reply = connection.send(*parts(connection))
        await asyncio.gather(permitted, reply, return_exceptions=True)
        try:
            return reply.result()
        except RedirectionError as error:
            raise RefusalError(f"Redis: {error.message}") from error

    def _on_moved(self, head: str, error: RedirectionError, connection: ServerConnection) -> None:
        self._routes.pop(head, None)
        self._map.move(error.slot, (error.address[0] or connection.address[0], error.address[1]))
        # It may have been demoted, and be promoted again before its next command.
        connection.checked_at = float("-inf")

    def _known_route(self, head: str) -> Route | None:
        route = self._routes.get(head)
        if route is None or route.connection.lost or not _is_checked(route.connection):
            return None
        return route

    async def _find_route(self, key: str, head: str) -> Route:
        async with self._route_locks.setdefault(head, asyncio.Lock()):
            route, slot = self._routes.get(head), key_slot(key)
            if self._outdated or (route is not None and not _is_checked(route.connection)):
                await self._load_map()
            try:
                connection = await self._server(self._master(slot)).connected()
                if not _is_checked(connection):
                    await self._check(connection)
            except StoreUnavailableError:
                self._outdated = True
                raise
            route = self._routes.get(head)
            if route is None or route.connection is not connection:
                route = self._routes[head] = Route(slot, connection)
            if self._check_timer is None and not self._closed:
                self._check_timer = asyncio.get_running_loop().call_later(CHECK_PERIOD_S, self._check_servers)
            return route

    def _master(self, slot: int) -> Address:
        found = self._map.master(slot)
        if found is None:
            self._outdated = True
            raise RefusalError(f"Redis: no server of the cluster serves the slot {slot}")
        return found

    def _server(self, address: Address) -> ServerClient:
        if self._closed:
            raise StoreUnavailableError("the connection to Redis is closed")
        found = self._servers.get(address)
        if found is None:
            url = server_url(self._seeds[0], address)
            found = self._servers[address] = ServerClient(
                url, deadline=self._deadline, run_number_key=self._run_number_key
            )
        return found

    async def _call_any(self, parts: Sequence[Argument]) -> Any:
        """Send a command without a key to any master."""
        if self._outdated:
            await self._load_map()
        servers = [self._server(each) for each in self._map.masters]
        servers.sort(key=lambda each: each.checked_at, reverse=True)
        failed: StoreUnavailableError = RefusalError("Redis: no server of the cluster serves a slot")
        for each in servers:
            try:
                return await each.call(*parts)
            except StoreUnavailableError as error:
                self._outdated = True
                failed = error
        raise failed

    async def _load_map(self) -> None:
        """Ask one server after the other for the slots of all."""
        if self._closed:
            raise StoreUnavailableError("the connection to Redis is closed")
        before, loop = self._map, asyncio.get_running_loop()
        async with self._map_attempts.attempt():
            if self._map is not before or (before.masters and loop.time() < self._next_load):
                return
            self._next_load = loop.time() + MAP_PERIOD_S
            known = [server_url(self._seeds[0], each) for each in self._map.servers]
            failed: Exception | None = None
            # The server that has answered before is asked first: the first of the map may be the one that is gone.
            for url in dict.fromkeys((self._described_by, *known, *self._seeds)):
                if not url:
                    continue
                try:
                    found = await self._ask_slots(url)
                except StoreUnavailableError as error:
                    failed = error
                    continue
                if found.masters:
                    self._described_by = url
                    self._use(found)
                    return
            raise StoreUnavailableError(
                "no server of the Redis Cluster can be reached"
                + (f": {failed}" if failed is not None else "")
            )

    async def _ask_slots(self, url: str) -> SlotMap:
        client = Client(url, deadline=MAP_TIMEOUT_S)
        try:
            async with asyncio.timeout(MAP_TIMEOUT_S):
                return SlotMap(await client.call("CLUSTER", "SLOTS"), address_of(url))
        except TimeoutError:
            raise StoreUnavailableError(f"{address_of(url)[0]} does not answer") from None
        except RedisError as error:
            if "cluster support disabled" not in error.message:
                raise
            raise RedisError(
                "the server does not belong to a Redis Cluster: name it alone, without `cluster=true`"
            ) from None
        finally:
            await client.close()

    def _use(self, found: SlotMap) -> None:
        if self._map.masters and set(found.masters) != set(self._map.masters):
            log.info(
                "masters of the Redis Cluster: %s",
                ", ".join(f"{host}:{port}" for host, port in found.masters),
            )
        self._map, self._outdated = found, False
        for head, route in list(self._routes.items()):
            if found.master(route.slot) != route.connection.address:
                del self._routes[head]
        for address in self._servers.keys() - set(found.masters):
            self._servers.pop(address).drop_connection()

    def _check_servers(self) -> None:
        """Ask each connected server whether it is still the same master."""
        self._check_timer = None
        connections = [each.open_connection for each in self._servers.values()]
        for connection in connections:
            if connection is not None:
                connection.send("INFO", "replication").add_done_callback(partial(self._on_reply, connection))
        if any(connections) and not self._closed:
            self._check_timer = asyncio.get_running_loop().call_later(CHECK_PERIOD_S, self._check_servers)

    def _on_reply(self, connection: ServerConnection, reply: asyncio.Future[Any]) -> None:
        if reply.cancelled() or reply.exception() is not None:
            self._outdated = True
        else:
            self._on_checked(connection, reply.result())

    async def _check(self, connection: ServerConnection) -> None:
        """Raise unless the server behind a connection is still the same master."""
        try:
            async with asyncio.timeout(MAP_TIMEOUT_S):
                self._on_checked(connection, await connection.send("INFO", "replication"))
        except TimeoutError:
            raise StoreUnavailableError(f"Redis: {connection.address[0]} does not answer") from None
        if connection.lost:
            raise StoreUnavailableError("a server of the Redis Cluster is no longer the same master")

    def _on_checked(self, connection: ServerConnection, reply: bytes) -> None:
        found = info(reply)
        if found["role"] == "master" and found["master_replid"] == connection.server:
            connection.checked_at = asyncio.get_running_loop().time()
            return
        log.info("a server of the Redis Cluster is no longer the same master: %s:%d", *connection.address)
        self._outdated = True
        connection.lost = True
        connection.abort()
        self._routes = {
            head: each for head, each in self._routes.items() if each.connection is not connection
        }

    async def close(self) -> None:
        self._closed = True
        if self._check_timer is not None:
            self._check_timer.cancel()
        for each in self._servers.values():
            await each.close()


def _is_checked(connection: ServerConnection) -> bool:
    return connection.checked_at > asyncio.get_running_loop().time() - MAX_UNCHECKED_S


def _head(key: str) -> str:
    """Return the part of a key up to its hash tag, or a key without one as a whole."""
    return key[: key.find("}") + 1] or key
