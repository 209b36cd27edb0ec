"""Connection pool for PostgreSQL, with retries, batches, error mapping and access to the SQL files.

Lost connections are replaced and retried for a bounded time. Every error of the driver becomes one of the errors of the
ports: the store is unavailable (retry later) or the statement is rejected (retrying cannot help).
"""

from __future__ import annotations

import asyncio
import secrets
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import cache
from importlib.resources import files
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar
from urllib.parse import urlsplit

import asyncpg  # type: ignore[import-untyped]

from rune.batcher import Batcher
from rune.codec.facts import decode_fact, encode_path
from rune.codec.records import HEAD_BYTES
from rune.core.execution.fact import NodeResult
from rune.core.execution.token import Path
from rune.errors import RuneError
from rune.ports.journal import NewerFormatError, StoreUnavailableError

T = TypeVar("T")
Row: TypeAlias = Any
Connection: TypeAlias = Any

RETRY_TIMEOUT_S = 2.0
"""How long an idempotent statement is retried before the store counts as unavailable."""

WRITE_PROBE_PERIOD_S = 30.0
"""How often the readiness probe of a process stores a row, which is rolled back."""

STATEMENT_TIMEOUT_S = 30.0
"""How long the server may take for one statement."""

_MIN_RETRY_DELAY_S, _MAX_RETRY_DELAY_S = 0.02, 0.4
_CLOSE_TIMEOUT_S = 10.0
_QUERY_NAME = "-- name: "

SESSION_SETTINGS = {
    "application_name": "rune",
    "jit": "off",
    # Plans are cached per connection and must not depend on how few rows a table had when the plan was made.
    "enable_seqscan": "off",
    # A client that disappears without closing its connection must not keep its locks.
    "idle_in_transaction_session_timeout": "30s",
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}

CONNECTION_LOST_ERRORS = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    # The driver raises this when the server closed an idle connection.
    asyncpg.InternalClientError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.ReadOnlySQLTransactionError,
    OSError,
)
"""The connection is lost or the server rejects all work on it; another connection may succeed."""

TRANSIENT_ERRORS = (
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.LockNotAvailableError,
)
"""The statement is valid and succeeds when it is retried, possibly in smaller batches."""

UNAVAILABLE_ERRORS = (
    asyncpg.InsufficientResourcesError,
    asyncpg.OperatorInterventionError,
    asyncpg.PostgresSystemError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InsufficientPrivilegeError,
    asyncpg.InvalidCatalogNameError,
    asyncio.TimeoutError,
)
"""The server cannot serve the statement now: disk full, shutting down, too slow, or the login or its privileges are
missing. Missing privileges count as unavailable so that no execution fails because they were not granted yet."""

DRIVER_ERRORS = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    asyncio.TimeoutError,
)
"""Every error that the driver raises."""

READ_LANES = 2
MAX_REQUESTS = 128
MAX_KEYS = 2_000

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")
A = TypeVar("A")


class DatabaseRefusedError(RuneError):
    """The database rejects a statement for good: a row that is too long, text that it cannot store."""

    code = "STORE_REFUSED"


class OutOfLocksError(StoreUnavailableError):
    """The server's lock table is full; a smaller batch may fit."""


def is_lost(error: BaseException) -> bool:
    """Return whether another connection may succeed. A value that cannot be encoded fails on every connection."""
    # A ValueError by class, but the certificate of the server may be replaced.
    if isinstance(error, ssl.SSLCertVerificationError):
        return True
    return isinstance(error, CONNECTION_LOST_ERRORS) and not isinstance(error, asyncpg.DataError | ValueError)


def map_error(error: BaseException, where: str) -> RuneError:
    """Return the error of the ports for an error of the driver."""
    text = str(error).strip().partition("\n")[0] or type(error).__name__
    if isinstance(error, ssl.SSLCertVerificationError):
        text = (
            f"the certificate of PostgreSQL is not trusted: {error.verify_message};"
            " name its authority with ?sslrootcert=FILE"
        )
    elif is_lost(error) and isinstance(error, asyncpg.InterfaceError | asyncpg.InternalClientError):
        # The driver names its own methods and states.
        text = "the connection was lost"
    if isinstance(error, asyncpg.OutOfMemoryError):
        return OutOfLocksError(f"{where}: {text}")
    if is_lost(error) or isinstance(error, (*TRANSIENT_ERRORS, *UNAVAILABLE_ERRORS)):
        return StoreUnavailableError(f"{where}: {text}")
    return DatabaseRefusedError(f"{where}: {text}")


def query(name: str) -> str:
    """Return the statement of this name without its comment lines."""
    return queries()[name]


@cache
def queries() -> dict[str, str]:
    """Return all statements of `queries/*.sql` by name. Each begins with a line `-- name: …`. HEAD_BYTES stands for the
    number of this name."""
    found: dict[str, str] = {}
    for file in files(__package__).joinpath("queries").iterdir():
        if file.name.endswith(".sql"):
            _, *sections = f"\n{file.read_text(encoding='utf-8')}".replace(
                "HEAD_BYTES", str(HEAD_BYTES)
            ).split(f"\n{_QUERY_NAME}")
            for section in sections:
                name, *lines = section.splitlines()
                if name in found:
                    raise ValueError(f"query `{name}` is defined twice")
                found[name] = "\n".join(line for line in lines if line and not line.startswith("--"))
    return found


@cache
def migrations() -> tuple[tuple[str, str], ...]:
    """Return name and text of the schema migrations in order. Step i leads from version i to version i + 1."""
    folder = files(__package__).joinpath("migrations")
    names = sorted(each.name for each in folder.iterdir() if each.name.endswith(".sql"))
    return tuple((name, folder.joinpath(name).read_text(encoding="utf-8")) for name in names)


class Snapshot(NamedTuple):
    """A connection with an open transaction. It takes one statement at a time: tasks that read together take turns."""

    connection: Connection
    turn: asyncio.Lock


class Database:
    """A pool that connects on first use and replaces lost connections."""

    def __init__(
        self,
        dsn: str,
        *,
        size: int = 8,
        read_only: bool = False,
        retry_timeout: float = RETRY_TIMEOUT_S,
        statement_timeout: float = STATEMENT_TIMEOUT_S,
    ) -> None:
        self.where = redacted_url(dsn)
        self._retry_timeout = retry_timeout
        self._dsn = dsn
        self._size = size
        self._read_only = read_only
        self._statement_timeout = statement_timeout
        self._pool: Any = None
        self._stored_at = -WRITE_PROBE_PERIOD_S
        self._pinned: ContextVar[Snapshot | None] = ContextVar("pinned", default=None)

    async def open(self) -> None:
        """Connect and raise unless the schema version is the one that this program uses."""
        await self.connect()
        try:
            await self._check_schema()
        except BaseException:
            await self.close()
            raise

    async def connect(self) -> None:
        """Open the pool without checking the schema."""
        settings = dict(SESSION_SETTINGS)
        if self._read_only:
            settings["default_transaction_read_only"] = "on"
        self._pool = await asyncpg.create_pool(
            self._dsn,
            min_size=0,
            max_size=self._size,
            command_timeout=self._statement_timeout,
            timeout=self._statement_timeout,
            server_settings=settings,
            init=_require_durable_commits,
            reset=_keep_session,
        )

    async def _check_schema(self) -> None:
        known = len(migrations())
        version = 0
        (found,) = await self.fetch(query("migration_table_exists"))
        if found["known"]:
            ((version,),) = await self.fetch(query("migration_version"))
        if version > known:
            raise NewerFormatError(
                f"{self.where} has schema version {version}, this Rune knows up to {known}"
            )
        if version == 0:
            raise StoreUnavailableError(f"{self.where} holds no executions yet", code="EMPTY_STORE")
        if version < known:
            raise StoreUnavailableError(
                f"{self.where} has schema version {version}, this Rune needs {known}: migrate it first",
                code="NEEDS_MIGRATION",
            )

    async def fetch(self, statement: str, *values: Any) -> Sequence[Row]:
        """Return the rows of one statement, which is one transaction: durable when this returns.

        After a lost connection it is unknown whether the statement was committed. The statement must therefore be
        idempotent: it is sent again, and the second reply counts.
        """

        async def run(connection: Connection) -> Sequence[Row]:
            rows: Sequence[Row] = await connection.fetch(statement, *values)
            return rows

        return await self._with_retry(run)

    async def fetch_planned(self, statement: str, *values: Any) -> Sequence[Row]:
        """Return the rows of a query that the server plans for its values. `fetch` uses a plan for any values after a
        few calls, which is right for statements that look up keys, and wrong for a range whose length it guesses."""

        async def run(connection: Connection) -> Sequence[Row]:
            async with connection.transaction():
                await connection.execute("SET LOCAL plan_cache_mode = force_custom_plan")
                rows: Sequence[Row] = await connection.fetch(statement, *values)
            return rows

        return await self._with_retry(run)

    async def _with_retry(self, run: Callable[[Connection], Awaitable[T]]) -> T:
        """Run on one connection after the other until one succeeds or the retry timeout has passed."""
        deadline = time.monotonic() + self._retry_timeout
        delay = 0.0
        while True:
            try:
                async with self._acquire() as connection:
                    return await run(connection)
            except DRIVER_ERRORS as error:
                retryable = is_lost(error) or isinstance(error, TRANSIENT_ERRORS)
                if not retryable or self._is_forbidden_write(error) or time.monotonic() + delay > deadline:
                    raise map_error(error, self.where) from error
                await asyncio.sleep(delay)
                delay = min(_MAX_RETRY_DELAY_S, delay * 2 or _MIN_RETRY_DELAY_S)

    @property
    def in_snapshot(self) -> bool:
        """Whether this task reads from one snapshot."""
        return self._pinned.get() is not None

    async def version(self) -> int:
        """Return a number that changes with every write to the database."""
        (row,) = await self.fetch(query("write_position"))
        return int(row["written"])

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[None]:
        """Let this task, and the tasks it starts, read from one snapshot while the block runs."""
        if self.in_snapshot:
            yield
            return
        async with (
            self._acquire() as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            before = self._pinned.set(Snapshot(connection, asyncio.Lock()))
            try:
                yield
            finally:
                self._pinned.reset(before)

    @asynccontextmanager
    async def _acquire(self) -> AsyncIterator[Connection]:
        if self._pool is None:
            raise StoreUnavailableError(f"{self.where} was closed")
        pinned = self._pinned.get()
        if pinned is not None:
            async with pinned.turn:
                yield pinned.connection
            return
        async with self._pool.acquire() as connection:
            try:
                yield connection
            except DRIVER_ERRORS as error:
                if is_lost(error):
                    # The socket may still be open to a server that no longer accepts writes, after a failover.
                    connection.terminate()
                raise

    def _is_forbidden_write(self, error: BaseException) -> bool:
        """Return whether the write was rejected because this pool was opened read-only."""
        return self._read_only and isinstance(error, asyncpg.ReadOnlySQLTransactionError)

    async def check_writable(self) -> None:
        """Raise StoreUnavailableError if the database is read-only or its disk is full. The first is checked each time;
        for the second a row is stored and rolled back, at most once in WRITE_PROBE_PERIOD_S while that succeeds."""
        await self.fetch(query("write_check"))
        if time.monotonic() - self._stored_at < WRITE_PROBE_PERIOD_S:
            return
        await self._with_retry(_store_and_roll_back)
        self._stored_at = time.monotonic()

    async def row(self, statement: str, *values: Any) -> Row | None:
        """Return the first row, or None."""
        rows = await self.fetch(statement, *values)
        return rows[0] if rows else None

    async def once(self, statement: str, *values: Any) -> Row | None:
        """Return the first row of a statement that is not idempotent. It is never sent twice: after a lost connection
        the store counts as unavailable and it is unknown whether the statement was committed."""
        async with self.transaction() as connection:
            return await connection.fetchrow(statement, *values)

    async def find_all(self, statement: str, *values: Any) -> Sequence[Row]:
        """Return the rows of a query, and none if a value is text that the database cannot store."""
        if all(is_storable(each) for each in values if isinstance(each, str)):
            return await self.fetch(statement, *values)
        return []

    async def find(self, statement: str, *values: Any) -> Row | None:
        """Return the first row of a query, or None."""
        rows = await self.find_all(statement, *values)
        return rows[0] if rows else None

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """Yield a connection in a transaction, which is durable when the block ends."""
        # Replace a connection that was lost while idle before the transaction depends on it.
        await self._with_retry(_ping)
        try:
            async with self._acquire() as connection, connection.transaction():
                yield connection
        except DRIVER_ERRORS as error:
            raise map_error(error, self.where) from error

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Yield a connection outside any transaction."""
        try:
            async with self._acquire() as connection:
                yield connection
        except DRIVER_ERRORS as error:
            raise map_error(error, self.where) from error

    async def close(self) -> None:
        """Close the pool after running statements have finished."""
        pool, self._pool = self._pool, None
        if pool is None:
            return
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await pool.close()
        except (TimeoutError, *DRIVER_ERRORS):
            pool.terminate()


async def _require_durable_commits(connection: Connection) -> None:
    """Let commits wait for the disk, whatever the default of the server is."""
    await connection.execute(query("require_durable_commits"))


async def _store_and_roll_back(connection: Connection) -> None:
    transaction = connection.transaction()
    await transaction.start()
    try:
        # A key of its own: equal keys of two processes would wait for each other.
        await connection.execute(query("write_probe"), f"probe/{secrets.token_hex(8)}")
    finally:
        await transaction.rollback()


async def _ping(connection: Connection) -> None:
    await connection.execute("SELECT 1")


async def _keep_session(connection: Connection) -> None:
    """Skip the reset of a released connection: no statement changes its session and a reset costs a round trip."""


def is_storable(text: str) -> bool:
    """Return whether the database can store this text: valid Unicode without NUL."""
    if text.isascii():
        return "\0" not in text
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


def redacted_url(dsn: str) -> str:
    """Return the address of a database without user and password."""
    parts = urlsplit(dsn)
    if parts.scheme not in {"postgres", "postgresql"}:
        return "the database"
    return f"postgresql://{parts.netloc.rpartition('@')[2]}{parts.path}"


def splitting(
    write: Callable[[Sequence[R]], Awaitable[Sequence[A | BaseException]]],
) -> Callable[[Sequence[R]], Awaitable[list[A | BaseException]]]:
    """Return a write that splits a batch in halves if it fails and writes them again, so that one invalid request does
    not fail the others. An unavailable store fails all."""

    async def write_or_split(requests: Sequence[R]) -> list[A | BaseException]:
        try:
            return list(await write(requests))
        except Exception as error:
            if isinstance(error, StoreUnavailableError) and not isinstance(error, OutOfLocksError):
                return [StoreUnavailableError(error.message, code=error.code) for _ in requests]
            if len(requests) == 1:
                return [error]
        middle = len(requests) // 2
        return [*await write_or_split(requests[:middle]), *await write_or_split(requests[middle:])]

    return write_or_split


class Lookup(Generic[K, V]):
    """Looks up many keys in one query. `fetch` returns one value per key, in the order of the keys."""

    def __init__(
        self,
        database: Database,
        fetch: Callable[[Sequence[K]], Awaitable[Sequence[V]]],
        most: int = MAX_REQUESTS,
    ) -> None:
        self._database = database
        self._fetch = fetch
        self._batches: Batcher[K, V] = Batcher(splitting(fetch), max_requests=most, lanes=READ_LANES + 1)

    async def of(self, key: K) -> V:
        # A snapshot belongs to one task: its reads cannot be batched with those of others.
        if self._database.in_snapshot:
            return (await self._fetch([key]))[0]
        return await self._batches.call(key)


ResultRequest = tuple[str, Sequence[tuple[int, Path]]]
"""An execution and some of its tokens."""


def result_batch() -> Callable[[ResultRequest], bool]:
    """Return the admission rule of a batch: at most MAX_KEYS results."""
    count = 0

    def admits(request: ResultRequest) -> bool:
        nonlocal count
        size = len(request[1])
        if count and count + size > MAX_KEYS:
            return False
        count += size
        return True

    return admits


class ResultReader:
    """Reads results of tokens in batches."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._batches: Batcher[ResultRequest, list[NodeResult | None]] = Batcher(
            splitting(self._fetch_batch),
            max_requests=MAX_REQUESTS,
            lanes=READ_LANES,
            new_batch=result_batch,
        )
        self._statement = query("results")

    async def results(self, execution: str, keys: Sequence[tuple[int, Path]]) -> list[NodeResult | None]:
        """Return the results of these tokens in the order of the keys."""
        return await self._batches.submit((execution, keys))

    async def _fetch_batch(self, group: Sequence[ResultRequest]) -> list[list[NodeResult | None]]:
        ids = [execution for execution, keys in group for _ in keys]
        nodes = [node for _, keys in group for node, _ in keys]
        paths = [encode_path(path) for _, keys in group for _, path in keys]
        bodies: list[NodeResult | None] = [None] * len(ids)
        for place, body in await self._database.fetch(self._statement, ids, nodes, paths):
            fact = decode_fact(body)
            bodies[place - 1] = fact if isinstance(fact, NodeResult) else None
        results: list[list[NodeResult | None]] = []
        start = 0
        for _, keys in group:
            results.append(bodies[start : start + len(keys)])
            start += len(keys)
        return results
