"""What an error of the driver means: the store is away, the outcome is unknown, or what was asked is refused.

The statements, each in a file of its own.

The database: a pool of connections that recovers by itself, and one place where errors become ours.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import cache
from importlib.resources import files
from typing import Any, TypeAlias, TypeVar
from urllib.parse import urlsplit

import asyncpg  # type: ignore[import-untyped]

from rune.errors import RuneError
from rune.ports.journal import NewerFormatError, StoreUnavailableError

LOST = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # how the driver puts it that the server hung up while nobody was asking
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.ReadOnlySQLTransactionError,
    OSError,
)
"""The connection is gone, or leads to a server that will not do: another connection may do better."""

PASSING = (
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.LockNotAvailableError,
)
"""Nothing is wrong with what was asked; asked again, or in smaller pieces, it goes through."""

UNAVAILABLE = (
    asyncpg.InsufficientResourcesError,
    asyncpg.OperatorInterventionError,
    asyncpg.PostgresSystemError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InsufficientPrivilegeError,
    asyncpg.InvalidCatalogNameError,
    asyncio.TimeoutError,
)
"""The server answers and cannot: disk full, shutting down, too slow, or it does not know us, or not well enough: no
execution must end because rights were not given yet."""

Driver = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    asyncio.TimeoutError,
)
"""Everything that the driver raises."""


class DatabaseRefusedError(RuneError):
    """The database will not take what was asked, however often: a row that is too long, text that it cannot hold."""

    code = "STORE_REFUSED"


class TooManyConnectionsError(StoreUnavailableError):
    """The server has no room for so many locks at once; fewer may do."""


def is_lost(error: BaseException) -> bool:
    """Whether another connection may do better. A value that cannot be encoded is no matter of the connection."""
    if isinstance(error, ssl.SSLCertVerificationError):  # a ValueError, but of whoever set the server up
        return True
    return isinstance(error, LOST) and not isinstance(error, asyncpg.DataError | ValueError)


def map_error(error: BaseException, where: str) -> RuneError:
    """The same in the words of the ports."""
    text = str(error).strip().partition("\n")[0] or type(error).__name__
    if isinstance(error, ssl.SSLCertVerificationError):
        text = (
            f"the certificate of PostgreSQL is not trusted: {error.verify_message};"
            " name its authority with ?sslrootcert=FILE"
        )
    if isinstance(error, asyncpg.OutOfMemoryError):
        return TooManyConnectionsError(f"{where}: {text}")
    if is_lost(error) or isinstance(error, (*PASSING, *UNAVAILABLE)):
        return StoreUnavailableError(f"{where}: {text}")
    return DatabaseRefusedError(f"{where}: {text}")


@cache
def query(name: str) -> str:
    """The statement of this name, without the remarks at its head."""
    lines = files(__package__).joinpath("queries", f"{name}.sql").read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.startswith("--"))


@cache
def migrations() -> tuple[tuple[str, str], ...]:
    """The steps of the schema in their order: name and text. Step i leads from version i to version i + 1."""
    folder = files(__package__).joinpath("migrations")
    names = sorted(each.name for each in folder.iterdir() if each.name.endswith(".sql"))
    return tuple((name, folder.joinpath(name).read_text(encoding="utf-8")) for name in names)


T = TypeVar("T")
Row: TypeAlias = Any
Connection: TypeAlias = Any
RETRY_TIMEOUT_S = 2.0
"""How long a statement that may be sent twice is sent again before the store counts as away, in seconds."""

STATEMENT_TIMEOUT_S = 30.0
"""How long the server may take for one statement, in seconds."""

SESSION = {
    "application_name": "rune",
    "jit": "off",
    # A plan is kept for as long as its connection; it must not rest on how few rows there were when it was made.
    "enable_seqscan": "off",
    # Whoever vanishes without a word lets go of what it has locked.
    "idle_in_transaction_session_timeout": "30s",
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}

_FIRST_PAUSE, _LAST_PAUSE = 0.02, 0.4
_CLOSE_TIMEOUT_S = 10.0


class Database:
    """Hands out connections. Nothing is connected before it is needed, and a connection that is lost is replaced."""

    def __init__(
        self,
        dsn: str,
        *,
        size: int = 8,
        read_only: bool = False,
        patience: float = RETRY_TIMEOUT_S,
        longest: float = STATEMENT_TIMEOUT_S,
    ) -> None:
        self.where = place(dsn)
        self.patience = patience
        self._dsn = dsn
        self._size = size
        self._read_only = read_only
        self._longest = longest
        self._pool: Any = None
        self._pinned: ContextVar[Connection | None] = ContextVar("pinned", default=None)

    async def open(self) -> None:
        """Begin. Refused where the schema is not the one that this program knows."""
        await self.connect()
        try:
            await self._check()
        except BaseException:
            await self.close()
            raise

    async def connect(self) -> None:
        """Begin with whatever is there."""
        settings = dict(SESSION)
        if self._read_only:
            settings["default_transaction_read_only"] = "on"
        self._pool = await asyncpg.create_pool(
            self._dsn,
            min_size=0,
            max_size=self._size,
            command_timeout=self._longest,
            timeout=self._longest,
            server_settings=settings,
            init=_prepare,
            reset=_reset_session,
        )

    async def _check(self) -> None:
        known = len(migrations())
        version = 0
        (found,) = await self.fetch(query("migration_known"))
        if found["known"]:
            ((version,),) = await self.fetch(query("migration_last"))
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
        """The rows of one statement, which is one transaction: durable when this returns.

        A connection that is lost leaves open whether it was done. So the statement must be one that does no harm twice:
        it is sent once more, and its second answer tells.
        """

        async def ask(connection: Connection) -> Sequence[Row]:
            rows: Sequence[Row] = await connection.fetch(statement, *values)
            return rows

        return await self._persisting(ask)

    async def _persisting(self, ask: Callable[[Connection], Awaitable[T]]) -> T:
        """Ask over one connection after the other, until one answers or patience is over."""
        gives_up = time.monotonic() + self.patience
        pause = 0.0
        while True:
            try:
                async with self._lent() as connection:
                    return await ask(connection)
            except Driver as error:
                passing = is_lost(error) or isinstance(error, PASSING)
                if not passing or self._forbidden(error) or time.monotonic() + pause > gives_up:
                    raise map_error(error, self.where) from error
                await asyncio.sleep(pause)
                pause = min(_LAST_PAUSE, pause * 2 or _FIRST_PAUSE)

    @property
    def in_snapshot(self) -> bool:
        """Whether this task reads as of one moment."""
        return self._pinned.get() is not None

    async def version(self) -> int:
        """A number that differs when somebody has written since."""
        (row,) = await self.fetch(query("change"))
        return int(row["written"])

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[None]:
        """While the block runs, what this task reads does not change."""
        async with (
            self._lent() as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            before = self._pinned.set(connection)
            try:
                yield
            finally:
                self._pinned.reset(before)

    @asynccontextmanager
    async def _lent(self) -> AsyncIterator[Connection]:
        if self._pool is None:
            raise StoreUnavailableError(f"{self.where} was closed")
        pinned = self._pinned.get()
        if pinned is not None:
            yield pinned
            return
        async with self._pool.acquire() as connection:
            try:
                yield connection
            except Driver as error:
                if is_lost(error):
                    connection.terminate()  # it may still be open, to a server that is none of ours any more
                raise

    def _forbidden(self, error: BaseException) -> bool:
        """Whether we ourselves said that nothing is to be written."""
        return self._read_only and isinstance(error, asyncpg.ReadOnlySQLTransactionError)

    async def row(self, statement: str, *values: Any) -> Row | None:
        """The first row, or None."""
        rows = await self.fetch(statement, *values)
        return rows[0] if rows else None

    async def once(self, statement: str, *values: Any) -> Row | None:
        """The first row of a statement whose second answer would not be true: a lost connection is a store that is
        away, and it stays open whether it was done."""
        async with self.transaction() as connection:
            return await connection.fetchrow(statement, *values)

    async def look(self, statement: str, *values: Any) -> Sequence[Row]:
        """The rows of a question. Nothing is there under a name that the database cannot spell."""
        if all(quote_identifier(each) for each in values if isinstance(each, str)):
            return await self.fetch(statement, *values)
        return []

    async def find(self, statement: str, *values: Any) -> Row | None:
        """The first row of a question, or None."""
        rows = await self.look(statement, *values)
        return rows[0] if rows else None

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """A connection inside of a transaction, which is durable when the block is left."""
        await self._persisting(
            _setup_session
        )  # a connection that was lost while nobody asked is replaced before it matters
        try:
            async with self._lent() as connection, connection.transaction():
                yield connection
        except Driver as error:
            raise map_error(error, self.where) from error

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection outside of any transaction."""
        try:
            async with self._lent() as connection:
                yield connection
        except Driver as error:
            raise map_error(error, self.where) from error

    async def close(self) -> None:
        """Let go. Whoever has a statement under way is waited for."""
        pool, self._pool = self._pool, None
        if pool is None:
            return
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await pool.close()
        except (TimeoutError, *Driver):  # a server that does not answer is not waited for
            pool.terminate()


async def _prepare(connection: Connection) -> None:
    """What was acknowledged has to be on disk, whatever the defaults of the server say."""
    await connection.execute(query("durable"))


async def _setup_session(connection: Connection) -> None:
    await connection.execute("SELECT 1")


async def _reset_session(connection: Connection) -> None:
    """Connections are given back as they were taken: resetting each would cost a round trip."""


def quote_identifier(text: str) -> bool:
    """Whether the database has a way to write this."""
    if text.isascii():
        return "\0" not in text
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


def place(dsn: str) -> str:
    """Where a database is, without what must not be shown."""
    parts = urlsplit(dsn)
    if parts.scheme not in {"postgres", "postgresql"}:
        return "the database"
    return f"postgresql://{parts.netloc.rpartition('@')[2]}{parts.path}"
