"""TLS: what an address of Redis says about certificates.

`rediss://user:password@host:port/0?option=value`, every part percent-encoded. Options, as clients of Redis name them:
`ssl_ca_certs`, `ssl_certfile`, `ssl_keyfile`, `ssl_cert_reqs` (`required` or `none`), `ssl_check_hostname` (`true` or
`false`). Without `ssl_ca_certs` the authorities of the system are trusted.

The scripts: one file per verb and a few that they share, loaded into the server as one library.

A library is compiled once, while a script that is sent by its hash defines all of its functions anew at every call: for
these verbs that is a third of the time. Its names carry a hash of its text, so two versions can be side by side.

A lean client: calls made in one turn of the loop travel together, replies are parsed in bulk.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import ssl
from collections import deque
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast
from urllib.parse import SplitResult, parse_qs, parse_qsl, unquote, urlsplit

import hiredis

from rune.errors import RuneError
from rune.ports.journal import StoreUnavailableError

CHOICES = {"ssl_cert_reqs": ("required", "none"), "ssl_check_hostname": ("true", "false")}
FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")


class InvalidAddressError(RuneError):
    """An address that cannot be used."""

    code = "BAD_ADDRESS"


def context(url: SplitResult) -> ssl.SSLContext | None:
    """How the connection is encrypted; None if it is not."""
    if url.scheme != "rediss":
        return None
    given = _options(url.query)
    try:
        made = ssl.create_default_context(cafile=given.get("ssl_ca_certs") or None)
        if given.get("ssl_certfile"):
            made.load_cert_chain(given["ssl_certfile"], given.get("ssl_keyfile") or None)
    except OSError as error:
        raise InvalidAddressError(f"{place(url)}: the certificates cannot be read: {error}") from None
    unchecked = given.get("ssl_cert_reqs") == "none"
    if unchecked or given.get("ssl_check_hostname") == "false":
        made.check_hostname = False
    if unchecked:
        made.verify_mode = ssl.CERT_NONE
    return made


def _options(query: str) -> dict[str, str]:
    given = dict(parse_qsl(query, keep_blank_values=True))
    for name, value in given.items():
        if name not in FILES and name not in CHOICES:
            raise InvalidAddressError(f"`{name}` is no option of a `rediss://` address")
        if name in CHOICES and value not in CHOICES[name]:
            raise InvalidAddressError(f"{name}={value}: {' or '.join(CHOICES[name])}")
    return given


def place(url: SplitResult) -> str:
    """Where a server is, without what must not be shown."""
    if url.scheme == "unix":
        return f"unix://{url.path}"
    return f"{url.scheme}://{url.netloc.rpartition('@')[2]}"


def trouble(url: SplitResult, error: BaseException) -> str:
    """Why a server cannot be reached, in words that say what to change."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"{place(url)}: the certificate of Redis is not trusted: {error.verify_message};"
            " name its authority with ?ssl_ca_certs=FILE"
        )
    if isinstance(error, ssl.SSLError):
        return f"{place(url)}: no TLS with Redis: {error.reason or error}"
    return f"Redis cannot be reached: {error}"


FOLDER = Path(__file__).parent / "scripts"
SHARED = ("store", "transition", "waiting", "deciding", "timers", "holding")
VERBS = (
    "apply",
    "claim",
    "control",
    "end",
    "fire",
    "fold",
    "forget",
    "incarnation",
    "install",
    "later",
    "renew",
    "signal",
    "sweep",
    "yield",
)
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)
_REGISTER = """
redis.register_function('{verb}_{sha}', function(keys, arguments)
  store.begin(keys, arguments)
  return verbs['{verb}']()
end)
"""


@cache
def library() -> tuple[str, bytes]:
    """The hash of the library, and its text as the server loads it."""
    parts = [(FOLDER / f"{name}.lua").read_text() for name in (*SHARED, *VERBS)]
    text = _COMMENT.sub("", "\n".join(parts))
    sha = hashlib.sha256(text.encode()).hexdigest()[:12]
    registered = "".join(_REGISTER.format(verb=verb, sha=sha) for verb in VERBS)
    return sha, f"#!lua name=rune_{sha}\n{text}{registered}".encode()


@cache
def function(verb: str) -> str:
    """The name of a verb's function in the server."""
    return f"{verb}_{library()[0]}"


TIMEOUT_S = 10.0  # s: a server that answers nothing for so long is away
PORT = 6379
UNAVAILABLE = (
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
)

Argument = str | bytes | int


class RedisError(RuneError):
    """The server refuses a command."""

    code = "REDIS"


class _ServerError(Exception):
    """An error reply, as the parser makes it."""


class _ConnectionBrokenError(Exception):
    """What comes from the other side is not the protocol."""


class Connection(asyncio.Protocol):
    """One connection; every call waits for its place in the replies."""

    def __init__(self, deadline: float | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(protocolError=_ConnectionBrokenError, replyError=_ServerError)
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._out: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._deadline = deadline
        self._watch: asyncio.TimerHandle | None = None
        self._answered = 0
        self.server = ""  # which run of the server this is
        self.incarnation = 0  # the same as a number, which grows
        self.greeted = False
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # those of other loops are no subclass of it

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        try:
            while (reply := self._reader.gets()) is not False:
                self._answered += 1
                future = self._waiting.popleft()
                if future.done():
                    continue
                if isinstance(reply, _ServerError):
                    future.set_exception(_error(str(reply)))
                else:
                    future.set_result(reply)
        except (_ConnectionBrokenError, IndexError):
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        if self._watch is not None:
            self._watch.cancel()
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_exception(StoreUnavailableError(f"Redis went away: {exc or 'closed'}"))

    def send(self, *parts: Argument) -> asyncio.Future[Any]:
        """Queue a command; it goes out with all others of this turn."""
        future: asyncio.Future[Any] = self._loop.create_future()
        if self.lost:
            future.set_exception(StoreUnavailableError("Redis went away"))
            return future
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(hiredis.pack_command(parts))  # type: ignore[arg-type]  # its stub takes one part
        self._waiting.append(future)
        if self._watch is None and self._deadline is not None:
            self._look_again(-1)
        return future

    def _flush(self) -> None:
        if self._transport is not None and not self.lost:
            self._transport.write(b"".join(self._out))
        self._out.clear()

    def _look_again(self, answered: int) -> None:
        """Give the connection up if a whole deadline has passed without an answer to anybody who waits."""
        if not self._waiting or self.lost:
            self._watch = None
        elif answered == self._answered:
            self.abort()
        else:
            assert self._deadline is not None
            self._watch = self._loop.call_later(self._deadline, self._look_again, self._answered)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def _error(text: str) -> RuneError:
    word = text.partition(" ")[0]
    return StoreUnavailableError(f"Redis: {text}") if word in UNAVAILABLE else RedisError(text, code=word)


class Client:
    """Calls to one server. It connects when it is first needed, and again when the connection was lost."""

    def __init__(self, url: str, *, deadline: float | None = TIMEOUT_S, incarnation_key: str = "") -> None:
        self._url = urlsplit(url)
        self._deadline = deadline
        self._incarnation_key = incarnation_key
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()
        self._closed = False

    async def call(self, *parts: Argument) -> Any:
        connection = self._connection
        if connection is None or connection.lost:
            connection = await self._connected()
        return await connection.send(*parts)

    async def run(self, verb: str, keys: Sequence[str], *arguments: Argument) -> Any:
        """Run a script; its first argument is the run of the server behind this very connection."""
        connection = self._connection
        if connection is None or connection.lost:
            connection = await self._connected()
        given = (len(keys), *keys, connection.server, *arguments)
        try:
            return await connection.send("FCALL", function(verb), *given)
        except RedisError as error:
            if "Function not found" not in error.message:
                raise
        return await run_on(connection, verb, *given)

    async def incarnation(self) -> tuple[str, int]:
        """Which run of the server answers now: what it calls itself, and a number that grows from run to run."""
        connection = self._connection
        if connection is None or connection.lost:
            connection = await self._connected()
        return connection.server, connection.incarnation

    async def _connected(self) -> Connection:
        async with self._connecting:
            connection = self._connection
            if connection is not None and not connection.lost:
                return connection
            connection = None
            if self._closed:
                raise StoreUnavailableError("the connection to Redis is closed")
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    connection = await self._open()
                    await self._greet(connection)
            except (OSError, TimeoutError) as error:
                raise StoreUnavailableError(trouble(self._url, error)) from error
            finally:
                if connection is not None and not connection.greeted:
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
        secure = context(url)
        host, port = url.hostname or "localhost", url.port or PORT
        _, connection = await loop.create_connection(self._protocol, host, port, ssl=secure)
        return connection

    async def _greet(self, connection: Connection) -> None:
        url = self._url
        if url.password is not None:
            user = [unquote(url.username)] if url.username else []
            await connection.send("AUTH", *user, unquote(url.password))
        number = url.path.strip("/") if url.scheme != "unix" else parse_qs(url.query).get("db", [""])[0]
        if number:
            await connection.send("SELECT", number)
        if self._incarnation_key:
            connection.server = run = await server_run(connection)
            connection.incarnation = int(
                await run_on(connection, "incarnation", 1, self._incarnation_key, run)
            )
        connection.greeted = True

    async def close(self) -> None:
        self._closed = True
        if self._connection is not None:
            self._connection.abort()
            await asyncio.sleep(0)


async def run_on(connection: Connection, verb: str, *given: Argument) -> Any:
    """Call a verb's function; a server that does not have the library is given it."""
    try:
        return await connection.send("FCALL", function(verb), *given)
    except RedisError as error:
        if "Function not found" not in error.message:
            raise
    await connection.send("FUNCTION", "LOAD", "REPLACE", library()[1])
    return await connection.send("FCALL", function(verb), *given)


async def server_run(connection: Connection) -> str:
    """What the server calls this run of itself."""
    told: bytes = await connection.send("INFO", "server")
    return info(told)["run_id"]


def info(told: bytes) -> dict[str, str]:
    """The lines of an INFO reply."""
    pairs = (line.partition(":") for line in told.decode().splitlines() if ":" in line)
    return {name: value for name, _, value in pairs}
