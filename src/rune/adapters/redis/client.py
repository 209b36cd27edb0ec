"""Redis client that pipelines the commands of one event loop turn and calls the Lua functions of `scripts/`.

The Lua files are loaded as one function library per prefix of keys, which the server compiles once; EVALSHA would
define all functions again with every call, a third of its time. The text contains the prefix, and function names end in
a hash of the text, so that releases and prefixes can run side by side. `rune migrate` loads the library; other
processes do so only on a server without any of their prefix, and if their user may. TLS options of a `rediss://` URL:
`ssl_ca_certs`, `ssl_certfile`, `ssl_keyfile`, `ssl_cert_reqs` (`required`, `none`), `ssl_check_hostname` (`true`,
`false`). Without `ssl_ca_certs` the system's authorities are trusted.

Every function call carries a deadline by the clock of the server. A call that is held up on its way changes nothing any
more: its caller has given up, other processes have gone on, and the marks that would tell it so may be gone.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, cast
from urllib.parse import SplitResult, parse_qs, parse_qsl, unquote, urlsplit

import hiredis

from rune.adapters.redis.constants import lua_constants, with_positions
from rune.errors import RuneError
from rune.ports.journal import StoreDamagedError, StoreUnavailableError

REPLY_TIMEOUT_S = 10.0
"""A connection without any reply for this long is given up."""

MAX_LATE_CALLS = 3
"""How often a call is sent while the server refuses it as late although it is not: the clock of the server was set."""

MAX_LATE_S = 1.0
"""A check that runs later than this was held up by the event loop itself, and says nothing about the server."""

DEFAULT_PORT = 6379
UNAVAILABLE_CODES = (
    "LOADING",
    "READONLY",
    "MASTERDOWN",
    "BUSY",
    "OOM",
    "CLUSTERDOWN",
    "MISCONF",
    "NOREPLICAS",
    "TRYAGAIN",
    "NOAUTH",
    "WRONGPASS",
    "UNBLOCKED",
)
REDIRECTION_CODES = ("MOVED", "ASK")
REFUSAL_CODES = ("TRYAGAIN", "CLUSTERDOWN")
TLS_CHOICES = {"ssl_cert_reqs": ("required", "none"), "ssl_check_hostname": ("true", "false")}
TLS_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")

FOLDER = Path(__file__).parent / "scripts"
SHARED = tuple(f"shared/{name}" for name in ("store", "transition", "waits", "decide", "timers", "lease"))
VERBS = (
    "advance",
    "apply",
    "dead_letter",
    "claim",
    "control",
    "delay",
    "end",
    "fire",
    "fold",
    "forget",
    "install",
    "release",
    "renew",
    "retry",
    "sent",
    "server_run",
    "signal",
    "sweep",
)
QUEUE_VERBS = {"dead_letter", "delay", "forget"}
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)
_REGISTER = """
redis.register_function('{verb}_{sha}', function(keys, arguments)
  return store.begin(keys, arguments) or verbs['{verb}']()
end)
"""


SHA_LENGTH = 12
"""Characters of a hash in names."""

Argument = str | bytes | int


class StateIdentity(NamedTuple):
    """The cluster that a process belongs to: the id of its journal, its number of partitions, and the database that has
    the journal, which a copy of it is not; empty: unknown."""

    journal: str = ""
    partitions: str = ""
    database: str = ""


UNKNOWN = StateIdentity()


class InvalidAddressError(RuneError):
    """A Redis URL that cannot be used."""

    code = "BAD_ADDRESS"


class RedisError(RuneError):
    """The server rejects a command."""

    code = "REDIS"


class RedirectionError(RedisError):
    """The key belongs to another server of a Redis Cluster. The command was not executed."""

    def __init__(self, text: str) -> None:
        code, slot, address = text.split(" ")[:3]
        super().__init__(
            f"the server belongs to a Redis Cluster ({text}): add `?cluster=true` to its address", code=code
        )
        host, _, port = address.rpartition(":")
        self.slot = int(slot)
        self.address = (host.strip("[]"), int(port))


class RefusalError(StoreUnavailableError):
    """A Redis Cluster does not serve a slot at the moment. The command was not executed."""


class LateCommandError(StoreUnavailableError):
    """A function call reached the server after its deadline. It was not executed."""

    def __init__(self, text: str) -> None:
        super().__init__("Redis received a command too late to execute it")
        self.now = int(text.split(" ")[1])
        """The time of the server, in ms since the epoch."""


class MissingFunctionsError(StoreUnavailableError):
    """The server lacks the functions of this version, and this process does not load them."""

    code = "FUNCTIONS_MISSING"


class _ServerError(Exception):
    """An error reply, as the parser creates it."""


class _ConnectionBrokenError(Exception):
    """The server sent bytes that are not the Redis protocol."""


def tls_context(url: SplitResult) -> ssl.SSLContext | None:
    """Return the TLS settings of a URL, None for an unencrypted connection."""
    if url.scheme != "rediss":
        return None
    options = _tls_options(url.query)
    try:
        context = ssl.create_default_context(cafile=options.get("ssl_ca_certs") or None)
        if options.get("ssl_certfile"):
            context.load_cert_chain(options["ssl_certfile"], options.get("ssl_keyfile") or None)
    except OSError as error:
        raise InvalidAddressError(f"{redacted_url(url)}: the certificates cannot be read: {error}") from None
    unchecked = options.get("ssl_cert_reqs") == "none"
    if unchecked or options.get("ssl_check_hostname") == "false":
        context.check_hostname = False
    if unchecked:
        context.verify_mode = ssl.CERT_NONE
    return context


def _tls_options(query: str) -> dict[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name, value in options.items():
        if name not in TLS_FILES and name not in TLS_CHOICES:
            raise InvalidAddressError(f"`{name}` is no option of a `rediss://` address")
        if name in TLS_CHOICES and value not in TLS_CHOICES[name]:
            raise InvalidAddressError(f"{name}={value}: {' or '.join(TLS_CHOICES[name])}")
    return options


def redacted_url(url: SplitResult) -> str:
    """Return the address of a server without user and password."""
    if url.scheme == "unix":
        return f"unix://{url.path}"
    return f"{url.scheme}://{url.netloc.rpartition('@')[2]}"


def connection_error(url: SplitResult, error: BaseException) -> str:
    """Return why a server cannot be reached and, for an untrusted certificate, what to change."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"{redacted_url(url)}: the certificate of Redis is not trusted: {error.verify_message};"
            " name its authority with ?ssl_ca_certs=FILE"
        )
    if isinstance(error, ssl.SSLError):
        return f"{redacted_url(url)}: no TLS with Redis: {error.reason or error}"
    why = str(error) or f"{redacted_url(url)} does not answer within {REPLY_TIMEOUT_S:g} s"
    return f"Redis cannot be reached: {why}"


class Library:
    """The functions of this version for the keys of one prefix."""

    def __init__(self, prefix: str) -> None:
        verbs = (f"queue/{verb}" if verb in QUEUE_VERBS else verb for verb in VERBS)
        parts = [(FOLDER / f"{name}.lua").read_text() for name in (*SHARED, *verbs)]
        text = lua_constants(prefix) + with_positions(_COMMENT.sub("", "\n".join(parts)))
        sha = hashlib.sha256(text.encode()).hexdigest()[:SHA_LENGTH]
        registered = "".join(_REGISTER.format(verb=verb, sha=sha) for verb in VERBS)
        self.versions = "rune_" + re.sub(r"[^A-Za-z0-9]", "_", prefix)
        """The name of the libraries of all versions, without the hash."""
        self.name = f"{self.versions}_{sha}"
        self.text = f"#!lua name={self.name}\n{text}{registered}".encode()
        self._functions = {verb: f"{verb}_{sha}" for verb in VERBS}

    def function(self, verb: str) -> str:
        """Return the name of a verb's function on the server."""
        return self._functions[verb]


@cache
def library(prefix: str) -> Library:
    return Library(prefix)


class Connection(asyncio.Protocol):
    """One connection. Replies arrive in the order of the commands."""

    def __init__(self, deadline: float | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(protocolError=_ConnectionBrokenError, replyError=_ServerError)
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._out: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._deadline = deadline
        self._watchdog: asyncio.TimerHandle | None = None
        self._replies = 0
        self.server = ""
        """Run id of the server."""
        self.run_number = 0
        """The run of the server as a number that grows from run to run."""
        self._ahead = 0.0
        """By how many ms the clock of the server is ahead of the monotonic clock, at least."""
        self.ready = False
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Transports of other event loops do not inherit from asyncio.Transport.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        try:
            while (reply := self._reader.gets()) is not False:
                self._replies += 1
                future = self._waiting.popleft()
                if future.done():
                    continue
                if isinstance(reply, _ServerError):
                    error = _error(str(reply))
                    if isinstance(error, LateCommandError):
                        self._set_clock(error.now)
                    future.set_exception(error)
                else:
                    future.set_result(reply)
        except (_ConnectionBrokenError, IndexError):
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        if self._watchdog is not None:
            self._watchdog.cancel()
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_exception(
                    StoreUnavailableError(f"the connection to Redis was lost: {exc or 'closed'}")
                )

    async def read_clock(self) -> None:
        """Read the time of the server, from which deadlines are computed."""
        seconds, micros = await self.send("TIME")
        self._set_clock(int(seconds) * 1000 + int(micros) // 1000)

    def _set_clock(self, now: int) -> None:
        # The answer took time, so that the server's clock is further ahead: deadlines are rather too early.
        self._ahead = now - time.monotonic() * 1000

    def server_time(self, moment: float) -> int:
        """Return a moment of the monotonic clock by the clock of the server, in ms since the epoch."""
        return round(moment * 1000 + self._ahead)

    def send(self, *parts: Argument) -> asyncio.Future[Any]:
        """Queue a command; all commands of one event loop turn are written together."""
        future: asyncio.Future[Any] = self._loop.create_future()
        if self.lost:
            future.set_exception(StoreUnavailableError("the connection to Redis was lost"))
            return future
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(hiredis.pack_command(parts))  # type: ignore[arg-type]  # its stub takes one part
        self._waiting.append(future)
        if self._watchdog is None and self._deadline is not None:
            self._check_replies(-1)
        return future

    def _flush(self) -> None:
        if self._transport is not None and not self.lost:
            self._transport.write(b"".join(self._out))
        self._out.clear()

    def _check_replies(self, replies: int, due: float = math.inf) -> None:
        """Abort the connection if a whole deadline passed without any reply while commands wait for one."""
        assert self._deadline is not None
        if not self._waiting or self.lost:
            self._watchdog = None
            return
        late = self._loop.time() - due > MAX_LATE_S
        if replies == self._replies and not late:
            self.abort()
            return
        # After a blocked event loop the replies may be there, but not read yet.
        delay = MAX_LATE_S if late else self._deadline
        due = self._loop.time() + delay
        self._watchdog = self._loop.call_later(delay, self._check_replies, self._replies, due)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def _error(text: str) -> RuneError:
    code = text.partition(" ")[0]
    if code in REDIRECTION_CODES:
        return RedirectionError(text)
    if code in REFUSAL_CODES:
        return RefusalError(f"Redis: {text}")
    if code == "LATE":
        return LateCommandError(text)
    if code == "OTHER":
        return other_cluster(*text.split(" ")[1:3])
    if code == "COPY":
        return other_database()
    return (
        StoreUnavailableError(f"Redis: {text}") if code in UNAVAILABLE_CODES else RedisError(text, code=code)
    )


class SharedAttempts:
    """Attempts to reach a server, one at a time. A caller that waited while an attempt failed gets the error of that
    attempt: if each made its own, the last of many would wait for the timeouts of all."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._failures = 0
        self._error = RuneError("")

    @asynccontextmanager
    async def attempt(self) -> AsyncIterator[None]:
        """Run the block as the only attempt."""
        failures = self._failures
        async with self._lock:
            if self._failures != failures:
                raise self._error
            try:
                yield
            except RuneError as error:
                self._failures += 1
                self._error = error
                raise


class Client:
    """Commands to one server. Connects on first use and reconnects after a lost connection."""

    clustered = False
    """Whether keys are on several servers, so that one command takes keys of one hash tag only."""

    def __init__(
        self,
        url: str,
        *,
        deadline: float | None = REPLY_TIMEOUT_S,
        run_number_key: str = "",
        identity: StateIdentity = UNKNOWN,
    ) -> None:
        """With a `run_number_key` the client calls functions; each connection is refused by the state of a cluster
        other than that of the `identity`."""
        self._url = urlsplit(url)
        self._deadline = deadline
        self._patience = REPLY_TIMEOUT_S if deadline is None else deadline
        """How long (s) the caller of a function waits for its reply; afterwards the function must do nothing."""
        self._run_number_key = run_number_key
        self._library = library(run_number_key.rpartition(":")[0])
        self._identity = identity
        self._connection: Connection | None = None
        self._attempts = SharedAttempts()
        self._closed = False

    async def call(self, *parts: Argument) -> Any:
        connection = self._connection
        if connection is None or connection.lost:
            connection = await self._connected()
        return await connection.send(*parts)

    async def run(
        self, verb: str, keys: Sequence[str], *arguments: Argument, since: float | None = None
    ) -> Any:
        """Call a verb's function. Its first argument is the run id of the server behind this very connection, its last
        one the deadline, after which it does nothing: the caller's patience after `since` (monotonic), or after now."""
        until = (time.monotonic() if since is None else since) + self._patience
        for _ in range(MAX_LATE_CALLS - 1):
            try:
                return await self._run(verb, keys, arguments, until)
            except LateCommandError:
                if time.monotonic() >= until:
                    raise
        return await self._run(verb, keys, arguments, until)

    async def _run(self, verb: str, keys: Sequence[str], arguments: Sequence[Argument], until: float) -> Any:
        connection = self._connection
        if connection is None or connection.lost:
            connection = await self._connected()
        parts = (len(keys), *keys, connection.server, *arguments, connection.server_time(until))
        return await run_on(connection, self._library, verb, *parts)

    async def server_run(self, key: str = "") -> tuple[str, int]:
        """Return the run id of the server that has a key, and its number, which grows from run to run."""
        connection = self._connection
        if connection is None or connection.lost:
            connection = await self._connected()
        return connection.server, connection.run_number

    async def url_of(self, key: str) -> str:
        """Return the URL of the server that has a key or a channel."""
        return self._url.geturl()

    async def servers(self) -> Sequence[Client]:
        """Return a client for each server that has keys."""
        return (self,)

    async def gather(self, *calls: Awaitable[Any]) -> list[Any]:
        """Return the replies of calls to all partitions. Of several servers, those that are unavailable are left out
        unless all are."""
        return await asyncio.gather(*calls)

    async def _connected(self) -> Connection:
        async with self._attempts.attempt():
            connection = self._connection
            if connection is not None and not connection.lost:
                return connection
            connection = None
            if self._closed:
                raise StoreUnavailableError("the connection to Redis is closed")
            try:
                async with asyncio.timeout(REPLY_TIMEOUT_S):
                    connection = await self._open()
                    await self._prepare(connection)
            except (OSError, TimeoutError) as error:
                raise StoreUnavailableError(connection_error(self._url, error)) from error
            finally:
                if connection is not None and not connection.ready:
                    connection.abort()
            self._connection = connection
            return connection

    def _protocol(self) -> Connection:
        return Connection(self._deadline)

    async def _open(self) -> Connection:
        loop = asyncio.get_running_loop()
        url = self._url
        if url.scheme == "unix":
            _, connection = await loop.create_unix_connection(self._protocol, url.path)
            return connection
        secure = tls_context(url)
        host, port = url.hostname or "localhost", url.port or DEFAULT_PORT
        _, connection = await loop.create_connection(self._protocol, host, port, ssl=secure)
        return connection

    async def _prepare(self, connection: Connection) -> None:
        await self._authenticate(connection)
        if self._run_number_key:
            await connection.read_clock()
            await check_functions(connection, self._library)
            connection.server = run = await server_run(connection)
            until = connection.server_time(time.monotonic() + self._patience)
            keys = run_number_keys(self._run_number_key)
            parts = (len(keys), *keys, run, *self._identity, until)
            connection.run_number = int(await run_on(connection, self._library, "server_run", *parts))
        connection.ready = True

    async def _authenticate(self, connection: Connection) -> None:
        url = self._url
        if url.password is not None:
            user = [unquote(url.username)] if url.username else []
            await connection.send("AUTH", *user, unquote(url.password))
        number = url.path.strip("/") if url.scheme != "unix" else parse_qs(url.query).get("db", [""])[0]
        if number:
            await connection.send("SELECT", number)

    async def close(self) -> None:
        self._closed = True
        if self._connection is not None:
            self._connection.abort()
            await asyncio.sleep(0)


def run_number_keys(key: str) -> tuple[str, str, str]:
    """Return the keys of the function `server_run`."""
    head = key.rpartition(":")[0]
    return key, f"{head}:journal", f"{head}:database"


def other_cluster(journal: str, partitions: str) -> StoreDamagedError:
    """Return the error for a server that has the state of another cluster."""
    return StoreDamagedError(
        f"Redis holds the state of the journal {journal} in {partitions} partitions, and this process has another"
        " database or RUNE_PARTITIONS: each cluster needs a RUNE_PREFIX of its own",
        code="REDIS_UNFIT",
    )


def other_database() -> StoreDamagedError:
    """Return the error for a server that has the state of another copy of the database."""
    return StoreDamagedError(
        "Redis holds the state of another copy of this database: give this copy a RUNE_PREFIX or a Redis of its own; if"
        " it replaces the other one, empty Redis (FLUSHALL), which is rebuilt",
        code="REDIS_UNFIT",
    )


def check_identity(stored: StateIdentity, journal: str, database: str) -> None:
    """Raise if the state of a server is that of another journal, or of another copy of the same one."""
    if stored.journal not in ("", journal):
        raise other_cluster(stored.journal, stored.partitions)
    if stored.database and database not in ("", stored.database):
        raise other_database()


async def run_on(connection: Connection, functions: Library, verb: str, *parts: Argument) -> Any:
    """Call a verb's function. A server without any functions of this prefix gets them first."""
    try:
        return await connection.send("FCALL", functions.function(verb), *parts)
    except RedisError as error:
        if "Function not found" not in error.message:
            raise
    await set_up(connection, functions)
    return await connection.send("FCALL", functions.function(verb), *parts)


async def check_functions(connection: Connection, functions: Library) -> None:
    """Raise MissingFunctionsError if somebody has changed the functions: Redis cannot limit a user that may load
    functions to those of its prefix."""
    found = await connection.send("FUNCTION", "LIST", "LIBRARYNAME", functions.name, "WITHCODE")
    if any(_fields(each)[b"library_code"] != functions.text for each in found):
        raise MissingFunctionsError(
            f"the functions {functions.name} in Redis were changed: run `rune migrate` as the owner of the stores"
        )


async def set_up(connection: Connection, functions: Library) -> None:
    """Load the functions into a server that has none of the prefix, as the schema is created in an empty database.
    Beside those of another version only `rune migrate` loads them."""
    found: list[str] = []
    try:
        found = await _libraries(connection.send, functions)
        if not found:
            await connection.send("FUNCTION", "LOAD", functions.text)
            return
    except RedisError as error:
        if "already exists" in error.message:
            return
        if error.code != "NOPERM":
            raise
    if functions.name not in found:  # otherwise another process has just loaded them
        has = "has the functions of another version" if found else "lacks the functions"
        raise MissingFunctionsError(f"Redis {has} of Rune: run `rune migrate` as the owner of the stores")


async def load_functions(client: Client, functions: Library) -> bool:
    """Load functions into each server and return whether they were missing in one. An existing library is replaced: a
    user that could load functions may have changed it."""
    missing = False
    try:
        for server in await client.servers():
            missing |= functions.name not in await _libraries(server.call, functions)
            await server.call("FUNCTION", "LOAD", "REPLACE", functions.text)
    except RedisError as error:
        if error.code != "NOPERM":
            raise
        raise MissingFunctionsError(
            "this user of Redis may not load functions: run `rune migrate` with the user of the owner"
        ) from error
    return missing


async def _libraries(send: Callable[..., Awaitable[Any]], functions: Library) -> list[str]:
    """Return the names of the libraries of a prefix on the server, of any version. Earlier versions named theirs
    without the prefix."""
    named: list[list[Any]] = []
    for head in (functions.versions, "rune"):
        named += await send("FUNCTION", "LIST", "LIBRARYNAME", f"{head}_{'[0-9a-f]' * SHA_LENGTH}")
    return [_fields(each)[b"library_name"].decode() for each in named]


def _fields(reply: Sequence[Any]) -> dict[bytes, Any]:
    return dict(zip(reply[::2], reply[1::2], strict=True))


async def server_run(connection: Connection) -> str:
    """Return the run id of the server."""
    reply: bytes = await connection.send("INFO", "server")
    return info(reply)["run_id"]


def info(reply: bytes) -> dict[str, str]:
    """Return the fields of an INFO reply."""
    pairs = (line.partition(":") for line in reply.decode().splitlines() if ":" in line)
    return {name: value for name, _, value in pairs}
