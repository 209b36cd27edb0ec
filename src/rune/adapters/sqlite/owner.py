"""Ownership of the database file: the lock, and the calls that other processes send to the owner process.

The owner holds a lock of the operating system, which ends with the process, and listens on a Unix socket beside the
file. Other processes send their calls there, or become the owner if there is none.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import random
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from rune.adapters.private_files import make_private_folder
from rune.codec.rpc import (
    HEADER,
    ErrorReply,
    InvalidFrameError,
    Reply,
    Request,
    RpcMethod,
    RpcMethods,
    body_size,
    bound_method,
    error_reply,
    frame,
    read_reply,
    read_request,
)
from rune.errors import RuneError
from rune.ports.journal import ExecutionEndedError, StoreUnavailableError
from rune.ports.processes import (
    IDEMPOTENT_METHODS,
    WAITING_METHODS,
    FileInUseError,
    NoOwnerError,
    OwnerLostError,
)

log = logging.getLogger("rune.owner")

NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "afs", "ceph", "glusterfs", "lustre"}
)
DATA_FOLDER = ".rune"
"""The default name of the home folder, which no other program uses."""

MAX_PATH_BYTES = 100
"""Longest socket address that is used directly; the system limit is 107."""

LARGE_FRAME_BYTES = 1024 * 1024
"""Larger frames are received one at a time, to limit the memory that they use."""

MAX_CONNECTIONS = 500
STALL_TIMEOUT_S = 30.0
"""How long the rest of a frame may take to arrive, and a reply to be read."""

CLOSING_TURNS = 4
"""Turns of the event loop until a connection that was accepted before the shutdown has its task."""

CLOSE_TIMEOUT_S = 5.0
"""How long calls in progress may take when the owner shuts down."""

CONNECT_TIMEOUT_S = 10.0
"""How long a client tries to reach an owner, or to become it."""

REPLY_TIMEOUT_S = 60.0
SLOW_METHOD_TIMEOUTS_S = {"executions.delete_ended": 3600.0, "bulk.finish": 3600.0}
"""Reply timeouts of methods that process many executions."""

MIN_BACKOFF_S, MAX_BACKOFF_S = 0.005, 0.05


def file_system(path: Path, mounts: str = "/proc/self/mounts") -> str:
    """Return the type of the file system of a path; empty if it is unknown."""
    try:
        lines = Path(mounts).read_text().splitlines()
    except OSError:
        return ""
    target = os.path.realpath(path)
    best, kind = "", ""
    for line in lines:
        _, point, found, *_ = line.split(" ")
        inside = target == point or target.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, found
    return kind


@contextmanager
def _folder_errors(database: Path) -> Iterator[None]:
    """Translate errors of a folder that cannot be created or written to StoreUnavailableError."""
    try:
        yield
    except (FileExistsError, NotADirectoryError) as error:
        raise StoreUnavailableError(f"cannot open {database}: {error.filename} is not a folder") from error
    except OSError as error:
        raise StoreUnavailableError(
            f"cannot open {database}: {(error.strerror or str(error)).lower()}"
        ) from error


def make_data_folder(database: Path) -> None:
    """Create the folder of a database file, or restrict an existing one that holds nothing but the data of Rune."""
    folder = database.parent
    own_names = (f"{database.stem}.", f".{database.name}-", "secret.key", ".secret.key.", ".rune-")
    make_private_folder(folder, lambda name: folder.name == DATA_FOLDER or name.startswith(own_names))


class Lock:
    """Context in which this process owns the database file; FileInUseError if another process owns it."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._path = database.with_suffix(database.suffix + ".lock")
        self._handle = -1

    def __enter__(self) -> Lock:
        with _folder_errors(self._database):
            make_data_folder(self._database)
        kind = file_system(self._database.parent)
        if kind in NETWORK_FILE_SYSTEMS:
            raise StoreUnavailableError(
                f"{self._database} is on a network file system ({kind}), whose locks are not reliable"
            )
        with _folder_errors(self._database):
            self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(self._handle, 20).decode(errors="replace").strip()
            os.close(self._handle)
            pid = f" ({owner})" if owner.isdecimal() else ""
            raise FileInUseError(f"{self._database} is in use by another process{pid}") from None
        os.ftruncate(self._handle, 0)
        os.write(self._handle, f"{os.getpid()}\n".encode())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._handle)


def socket_of(database: Path) -> Path:
    """Return the path of the owner's socket."""
    return database.with_suffix(".sock")


@contextmanager
def address(path: Path) -> Iterator[str]:
    """Yield an address of the socket that is short enough for the system, however long its path is."""
    if len(os.fsencode(path)) <= MAX_PATH_BYTES:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


async def receive(reader: asyncio.StreamReader, large: asyncio.Lock | None = None) -> bytes | None:
    """Return the body of the next frame; None if the connection was closed. A started frame must arrive in time.

    `large` serialises the reception of large frames.
    """
    first = await reader.read(1)
    if not first:
        return None
    async with asyncio.timeout(STALL_TIMEOUT_S):
        size = body_size(first + await reader.readexactly(HEADER.size - 1))
        if size <= LARGE_FRAME_BYTES or large is None:
            return await reader.readexactly(size)
    async with large, asyncio.timeout(STALL_TIMEOUT_S):
        return await reader.readexactly(size)


class OwnerServer:
    """Listens on the owner's socket while the block runs, and calls methods of `services` for other processes.

    Only the owner of the file opens one, so an existing socket is stale.
    """

    def __init__(self, path: Path, methods: RpcMethods, services: object) -> None:
        self._path = path
        self._methods = methods
        self._services = services
        self._server: asyncio.Server | None = None
        self._socket_name = ExitStack()
        self._connections: set[asyncio.Task[Any]] = set()
        self._large = asyncio.Lock()
        self._closing = False
        self._calls = 0
        self._idle = asyncio.Event()

    async def __aenter__(self) -> OwnerServer:
        try:
            # The address must stay valid while the socket is open: newer Python versions use it when they close it.
            name = self._socket_name.enter_context(address(self._path))
            self._server = await asyncio.start_unix_server(self._serve_connection, sock=self._listen(name))
        except OSError as error:
            # Some file systems do not support sockets. Executions run; only calls of other processes fail.
            log.warning("other processes cannot connect: %s: %s", self._path, error.strerror or error)
        return self

    def _listen(self, name: str) -> socket.socket:
        self._path.unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listening.bind(name)
            self._path.chmod(0o600)  # before listen: until then no process can connect
            listening.listen(MAX_CONNECTIONS)
        except OSError:
            listening.close()
            raise
        listening.setblocking(False)
        return listening

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the socket. Clients without a reply repeat their calls to the next owner."""
        with self._socket_name:
            if self._server is not None:
                await self._close(self._server)

    async def _close(self, server: asyncio.Server) -> None:
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
        self._closing = True
        # The socket file is gone, so no new client connects. Connections that were just accepted get their tasks first:
        # `server.close` would leave them open without one.
        for _ in range(CLOSING_TURNS):
            await asyncio.sleep(0)
        server.close()
        if self._calls:
            self._idle.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await self._idle.wait()
        connections = list(self._connections)
        for each in connections:
            each.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self._closing:  # accepted during the shutdown
            writer.close()
            return
        self._connections.add(task)
        try:
            if len(self._connections) > MAX_CONNECTIONS:
                rejection = ErrorReply(
                    "StoreUnavailableError", "STORE_AWAY", f"more than {MAX_CONNECTIONS} connections at once"
                )
                await _send(writer, rejection)
                return
            while (body := await receive(reader, self._large)) is not None:
                await self._serve(body, reader, writer)
        except InvalidFrameError as bad:
            with suppress(OSError, TimeoutError):
                await _send(writer, error_reply(bad))
        except (OSError, EOFError, TimeoutError):
            pass  # the client has disconnected or stalled
        except asyncio.CancelledError:
            pass  # the owner shuts down
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve(self, body: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = read_request(body)
        except RuneError as error:
            await _send(writer, error_reply(error))
            return
        if request.verb in WAITING_METHODS:
            await _send(writer, await self._reply_while_connected(request, reader))
            return
        self._calls += 1
        try:
            await _send(writer, await self._reply(request))
        finally:
            self._calls -= 1
            if self._calls == 0:
                self._idle.set()

    async def _reply_while_connected(self, request: Request, reader: asyncio.StreamReader) -> Reply:
        """Carry out a call that may take any time, until the client disconnects (EOFError).

        A client sends nothing before it has the reply, so that anything to read ends the connection.
        """
        reply = asyncio.ensure_future(self._reply(request))
        disconnected = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait({reply, disconnected}, return_when=asyncio.FIRST_COMPLETED)
            if not reply.done():
                raise EOFError
            return reply.result()
        finally:
            for each in (reply, disconnected):
                each.cancel()
            await asyncio.gather(reply, disconnected, return_exceptions=True)

    async def _reply(self, request: Request) -> Reply:
        """Carry out a call. Every failure becomes a reply: a request of one client must not stop the owner."""
        try:
            method = self._methods[request.verb]
            return method.answer(await bound_method(self._services, method.name)(**method.arguments(request)))
        except RuneError as error:
            return error_reply(error)
        except Exception as error:
            log.exception("a request failed")
            return ErrorReply(
                "RuneError",
                "INTERNAL",
                f"internal error of the owner process: {type(error).__name__}: {error}",
            )


async def _send(writer: asyncio.StreamWriter, reply: Reply) -> None:
    try:
        data = frame(reply)
    except InvalidFrameError as too_large:
        data = frame(error_reply(too_large))
    writer.write(data)
    async with asyncio.timeout(STALL_TIMEOUT_S):
        await writer.drain()


async def backoff_delay() -> None:
    """Sleep before the next try, for a random time, so that clients do not retry in step."""
    await asyncio.sleep(random.uniform(MIN_BACKOFF_S, MAX_BACKOFF_S))


class OwnerConnection:
    """A connection to the owner process. The methods of the owner can be called on it."""

    def __init__(
        self, methods: RpcMethods, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._methods = methods
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, path: Path, methods: RpcMethods) -> OwnerConnection:
        """Connect to the owner; NoOwnerError if no process listens."""
        try:
            with address(path) as name:
                reader, writer = await asyncio.open_unix_connection(name)
        except OSError as error:
            raise NoOwnerError(
                f"no process listens at {path}: {(error.strerror or str(error)).lower()}"
            ) from error
        return cls(methods, reader, writer)

    async def call(self, method: RpcMethod, arguments: dict[str, Any]) -> Any:
        """Call a method of the owner and return its result."""
        data = frame(method.request(arguments))
        timeout = SLOW_METHOD_TIMEOUTS_S.get(method.name, REPLY_TIMEOUT_S)
        # Of a method that waits, only the rest of a reply that has begun has to arrive in time.
        waits = method.name in WAITING_METHODS
        try:
            self._writer.write(data)
            async with asyncio.timeout(None if waits else timeout):
                await self._writer.drain()
                body = await receive(self._reader)
        except TimeoutError:
            raise StoreUnavailableError(
                f"the process that owns the file did not reply within {STALL_TIMEOUT_S if waits else timeout:.0f} s"
            ) from None
        except (OSError, EOFError) as error:
            raise OwnerLostError("the owner of the file disconnected before it replied") from error
        if body is None:
            raise OwnerLostError("the owner of the file disconnected before it replied")
        return method.value(read_reply(body))

    def close(self) -> None:
        self._writer.close()


class OwnerClient:
    """Calls methods of the owner process, or becomes the owner if there is none.

    A call tries both in turn, because the owner may be starting or shutting down. When a connection breaks, the call is
    repeated with the same idempotency key, so that it takes effect once.
    """

    def __init__(
        self,
        path: Path,
        methods: RpcMethods,
        open_services: Callable[[], AbstractAsyncContextManager[Any]],
        new_key: Callable[[], str],
    ) -> None:
        self._path = path
        self._methods = methods
        self._open_services = open_services
        self._new_key = new_key
        self._stack = AsyncExitStack()
        self._connection: OwnerConnection | None = None
        self._services: Any = None

    async def __aenter__(self) -> OwnerClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._disconnect()
        await self._stack.aclose()

    @property
    def owns(self) -> bool:
        """Whether this process has become the owner."""
        return self._services is not None

    async def call(self, method: RpcMethod, arguments: dict[str, Any]) -> Any:
        """Call a method of a service, in the owner process or in this one."""
        key = IDEMPOTENT_METHODS.get(method.name)
        if key is not None and arguments.get(key) is None and method.has_parameter(key):
            arguments[key] = self._new_key()
        deadline = asyncio.get_running_loop().time() + CONNECT_TIMEOUT_S
        lost = False
        while True:
            try:
                if self._services is not None:
                    return await bound_method(self._services, method.name)(**arguments)
                return await self._call_owner(method, arguments)
            except NoOwnerError as no_owner:
                error: StoreUnavailableError = no_owner
            except OwnerLostError as owner_lost:
                error, lost = owner_lost, True
                deadline = asyncio.get_running_loop().time() + CONNECT_TIMEOUT_S
            except ExecutionEndedError as ended:
                if lost and method.name == "executions.cancel":
                    return ended.end.status  # most likely cancelled by the call whose reply was lost
                raise
            if await self._become_owner():
                continue
            if asyncio.get_running_loop().time() > deadline:
                raise StoreUnavailableError(f"a process owns the file and does not reply: {error.message}")
            await backoff_delay()

    async def _call_owner(self, method: RpcMethod, arguments: dict[str, Any]) -> Any:
        try:
            if self._connection is None:
                self._connection = await OwnerConnection.open(self._path, self._methods)
            return await self._connection.call(method, arguments)
        except (StoreUnavailableError, InvalidFrameError):
            self._disconnect()
            raise

    async def _become_owner(self) -> bool:
        try:
            self._services = await self._stack.enter_async_context(self._open_services())
        except FileInUseError:
            return False
        return True

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
