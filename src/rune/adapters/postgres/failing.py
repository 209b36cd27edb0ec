"""What an error of the driver means: the store is away, the outcome is unknown, or what was asked is refused."""

from __future__ import annotations

import asyncio
import ssl

import asyncpg  # type: ignore[import-untyped]

from rune.errors import RuneError
from rune.ports.journal import StoreAway

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

UNABLE = (
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


class Refused(RuneError):
    """The database will not take what was asked, however often: a row that is too long, text that it cannot hold."""

    code = "STORE_REFUSED"


class Crowded(StoreAway):
    """The server has no room for so many locks at once; fewer may do."""


def is_lost(error: BaseException) -> bool:
    """Whether another connection may do better. A value that cannot be encoded is no matter of the connection."""
    if isinstance(error, ssl.SSLCertVerificationError):  # a ValueError, but of whoever set the server up
        return True
    return isinstance(error, LOST) and not isinstance(error, asyncpg.DataError | ValueError)


def told(error: BaseException, where: str) -> RuneError:
    """The same in the words of the ports."""
    text = str(error).strip().partition("\n")[0] or type(error).__name__
    if isinstance(error, ssl.SSLCertVerificationError):
        text = (
            f"the certificate of PostgreSQL is not trusted: {error.verify_message};"
            " name its authority with ?sslrootcert=FILE"
        )
    if isinstance(error, asyncpg.OutOfMemoryError):
        return Crowded(f"{where}: {text}")
    if is_lost(error) or isinstance(error, (*PASSING, *UNABLE)):
        return StoreAway(f"{where}: {text}")
    return Refused(f"{where}: {text}")
