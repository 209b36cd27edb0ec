"""The owner of the file, held by a lock of the operating system that dies with the process.

The door of the owner: a Unix socket beside the file, behind which it does what others ask.

Callers: processes that do not own the file and ask whoever does.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import random
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from rune.codec.rpc import (
    HEADER,
    ErrorReply,
    InvalidFrameError,
    Reply,
    RpcMethod,
    RpcMethods,
    body_size,
    error_reply,
    frame,
    read_reply,
    read_request,
)
from rune.errors import RuneError
from rune.ports.journal import ExecutionEndedError, StoreUnavailableError
from rune.ports.processes import IDEMPOTENT_METHODS, FileInUseError, NoOwnerError, OwnerLostError

NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "afs", "ceph", "glusterfs", "lustre"}
)


def file_system(path: Path, mounts: str = "/proc/self/mounts") -> str:
    """The type of the file system that holds a path; empty where the system does not tell."""
    try:
        lines = Path(mounts).read_text().splitlines()
    except OSError:
        return ""
    target = str(path.resolve())
    best, kind = "", ""
    for line in lines:
        _, point, found, *_ = line.split(" ")
        inside = target == point or target.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, found
    return kind


@contextmanager
def _reachable(database: Path) -> Iterator[None]:
    """A folder that cannot be made or written to is an outage, told by its name."""
    try:
        yield
    except (FileExistsError, NotADirectoryError) as error:
        raise StoreUnavailableError(f"cannot open {database}: {error.filename} is no folder") from error
    except OSError as error:
        raise StoreUnavailableError(
            f"cannot open {database}: {(error.strerror or str(error)).lower()}"
        ) from error


class Lock:
    """Exclusive while the block runs."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._path = database.with_suffix(database.suffix + ".lock")
        self._handle = -1

    def __enter__(self) -> Lock:
        with _reachable(self._database):
            self._database.parent.mkdir(parents=True, exist_ok=True)
        kind = file_system(self._database.parent)
        if kind in NETWORK:
            raise StoreUnavailableError(
                f"{self._database} is on a network file system ({kind}), where its locks cannot be trusted"
            )
        with _reachable(self._database):
            self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(self._handle, 20).decode(errors="replace").strip()
            os.close(self._handle)
            told = f" ({owner})" if owner.isdecimal() else ""
            raise FileInUseError(f"{self._database} is in use by another process{told}") from None
        os.ftruncate(self._handle, 0)
        os.write(self._handle, f"{os.getpid()}\n".encode())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._handle)


log = logging.getLogger("rune.door")

MAX_PATH_BYTES = 100  # bytes of a socket's address; the system takes 107
LARGE_FRAME_BYTES = (
    1024 * 1024
)  # one frame above this size is received at a time: many at once must not fill the memory
MAX_CONNECTIONS = 500  # connections
STALL_TIMEOUT_S = 30.0  # s that the rest of a frame may take, or the reading of an answer
CLOSING_TURNS = 4  # turns of the loop until who stood before the door is in
CLOSE_TIMEOUT_S = 5.0  # s that requests get when the owner leaves


def socket_of(database: Path) -> Path:
    """Where the owner of a file listens."""
    return database.with_suffix(".sock")


@contextmanager
def address(path: Path) -> Iterator[str]:
    """A name of the socket that is short enough for the system, however deep its folder is."""
    if len(os.fsencode(path)) <= MAX_PATH_BYTES:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


async def receive(reader: asyncio.StreamReader, large: asyncio.Lock | None = None) -> bytes | None:
    """The body of the next frame; None where the other side has said all. It may begin late, but not dawdle."""
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
    """Open while the block runs. Only the owner of the file opens one, so what is in its place is left over."""

    def __init__(self, path: Path, verbs: RpcMethods, services: object) -> None:
        self._path = path
        self._verbs = verbs
        self._services = services
        self._server: asyncio.Server | None = None
        self._named = ExitStack()
        self._talks: set[asyncio.Task[Any]] = set()
        self._large = asyncio.Lock()
        self._shutting = False
        self._busy = 0
        self._quiet = asyncio.Event()

    async def __aenter__(self) -> OwnerServer:
        try:
            # The name stays good for as long as the socket has it: newer Pythons look it up again at the end.
            name = self._named.enter_context(address(self._path))
            self._server = await asyncio.start_unix_server(self._serve_connection, sock=self._listening(name))
        except OSError as error:
            # Some file systems know no sockets. Executions run all the same; others have to wait.
            log.warning("no other process can reach this one: %s: %s", self._path, error.strerror or error)
        return self

    def _listening(self, name: str) -> socket.socket:
        self._path.unlink(missing_ok=True)
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            made.bind(name)
            self._path.chmod(0o600)  # nobody can connect before it listens
            made.listen(MAX_CONNECTIONS)
        except OSError:
            made.close()
            raise
        made.setblocking(False)
        return made

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Whoever has not been answered by the end asks the next owner."""
        with self._named:
            if self._server is not None:
                await self._close(self._server)

    async def _close(self, server: asyncio.Server) -> None:
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
        self._shutting = True
        for _ in range(
            CLOSING_TURNS
        ):  # nobody new finds the door; the server must not close on who is half inside
            await asyncio.sleep(0)
        server.close()
        if self._busy:
            self._quiet.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await self._quiet.wait()
        talks = list(self._talks)
        for each in talks:
            each.cancel()
        await asyncio.gather(*talks, return_exceptions=True)

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        me = asyncio.current_task()
        assert me is not None
        if self._shutting:  # let in just before the door was closed, and too late to be asked what it wants
            writer.close()
            return
        self._talks.add(me)
        try:
            if len(self._talks) > MAX_CONNECTIONS:
                crowded = ErrorReply(
                    "StoreUnavailableError",
                    "STORE_AWAY",
                    f"more than {MAX_CONNECTIONS} processes ask at once",
                )
                await _send(writer, crowded)
                return
            while (body := await receive(reader, self._large)) is not None:
                await self._serve(body, writer)
        except InvalidFrameError as bad:
            with suppress(OSError, TimeoutError):
                await _send(writer, error_reply(bad))
        except (OSError, EOFError, TimeoutError):
            pass  # who went, or dawdled, is not waited for
        except asyncio.CancelledError:
            pass  # the owner leaves
        finally:
            self._talks.discard(me)
            writer.close()

    async def _serve(self, body: bytes, writer: asyncio.StreamWriter) -> None:
        self._busy += 1
        try:
            await _send(writer, await self._reply(body))
        finally:
            self._busy -= 1
            if self._busy == 0:
                self._quiet.set()

    async def _reply(self, body: bytes) -> Reply:
        """Whatever happens is an answer: what one client sends must not end the owner."""
        try:
            request = read_request(body)
            verb = self._verbs[request.verb]
            return verb.answer(await bound_method(self._services, verb.name)(**verb.arguments(request)))
        except RuneError as error:
            return error_reply(error)
        except Exception as error:
            log.exception("a request failed")
            return ErrorReply("RuneError", "INTERNAL", f"the owner stumbled: {type(error).__name__}: {error}")


def bound_method(services: Any, name: str) -> Callable[..., Awaitable[Any]]:
    """Return the method that `service.method` names."""
    service, _, method = name.partition(".")
    found: Callable[..., Awaitable[Any]] = getattr(getattr(services, service), method)
    return found


async def _send(writer: asyncio.StreamWriter, reply: Reply) -> None:
    try:
        data = frame(reply)
    except InvalidFrameError as too_large:
        data = frame(error_reply(too_large))
    writer.write(data)
    async with asyncio.timeout(STALL_TIMEOUT_S):
        await writer.drain()


CONNECT_TIMEOUT_S = 10.0  # s until somebody must be found who answers
REPLY_TIMEOUT_S = 60.0  # s that an answer may take
SLOW_METHOD_TIMEOUTS_S = {"executions.delete_ended": 3600.0}  # s, of verbs that go through the whole file
MIN_BACKOFF_S, MAX_BACKOFF_S = 0.005, 0.05  # s between two tries


async def backoff_delay() -> None:
    """Before the next try; not the same for everybody, or all would try at once again."""
    await asyncio.sleep(random.uniform(MIN_BACKOFF_S, MAX_BACKOFF_S))


class OwnerConnection:
    """A connection to the owner, which may go at any moment."""

    def __init__(self, verbs: RpcMethods, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._verbs = verbs
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, path: Path, verbs: RpcMethods) -> OwnerConnection:
        """Find the owner, if it listens."""
        try:
            with address(path) as name:
                reader, writer = await asyncio.open_unix_connection(name)
        except OSError as error:
            raise NoOwnerError(
                f"nobody listens at {path}: {(error.strerror or str(error)).lower()}"
            ) from error
        return cls(verbs, reader, writer)

    async def ask(self, verb: RpcMethod, arguments: dict[str, Any]) -> Any:
        """Have the owner do something."""
        data = frame(verb.request(arguments))
        patience = SLOW_METHOD_TIMEOUTS_S.get(verb.name, REPLY_TIMEOUT_S)
        try:
            self._writer.write(data)
            async with asyncio.timeout(patience):
                await self._writer.drain()
                body = await receive(self._reader)
        except TimeoutError:
            raise StoreUnavailableError(
                f"the process that owns the file has not answered within {patience:.0f} s"
            ) from None
        except (OSError, EOFError) as error:
            raise OwnerLostError("the owner of the file went before it answered") from error
        if body is None:
            raise OwnerLostError("the owner of the file went before it answered")
        return verb.value(read_reply(body))

    async def gone(self) -> None:
        """Until the owner goes. Nothing may be asked meanwhile."""
        with suppress(OSError):
            await self._reader.read(1)

    def close(self) -> None:
        self._writer.close()


class OwnerClient:
    """The verbs, wherever they are done: by the owner, or here where nobody is and this process becomes it.

    Each call tries one and the other in turn, for the owner may be just starting or just leaving. What may have been
    done when a connection broke is asked for again under the same mark, so it is done once.
    """

    def __init__(
        self,
        path: Path,
        verbs: RpcMethods,
        own: Callable[[], AbstractAsyncContextManager[Any]],
        make_up: Callable[[], str],
    ) -> None:
        self._path = path
        self._verbs = verbs
        self._own = own
        self._make_up = make_up
        self._stack = AsyncExitStack()
        self._line: OwnerConnection | None = None
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
        """Whether this process became the owner."""
        return self._services is not None

    async def call(self, verb: RpcMethod, arguments: dict[str, Any]) -> Any:
        """Call a method of a service, here or in the owner."""
        mark = IDEMPOTENT_METHODS.get(verb.name)
        if mark is not None and arguments.get(mark) is None and verb.takes(mark):
            arguments[mark] = self._make_up()
        deadline = asyncio.get_running_loop().time() + CONNECT_TIMEOUT_S
        lost = False
        while True:
            try:
                if self._services is not None:
                    return await bound_method(self._services, verb.name)(**arguments)
                return await self._ask(verb, arguments)
            except NoOwnerError as nobody:
                missing: StoreUnavailableError = nobody
            except OwnerLostError as gone:
                missing, lost = gone, True
                deadline = asyncio.get_running_loop().time() + CONNECT_TIMEOUT_S
            except ExecutionEndedError as ended:
                if lost and verb.name == "executions.cancel":
                    return ended.end.status  # most likely by the one who could not say so any more
                raise
            if await self._become_owner():
                continue
            if asyncio.get_running_loop().time() > deadline:
                raise StoreUnavailableError(f"a process owns the file and does not answer: {missing.message}")
            await backoff_delay()

    async def _ask(self, verb: RpcMethod, arguments: dict[str, Any]) -> Any:
        try:
            if self._line is None:
                self._line = await OwnerConnection.open(self._path, self._verbs)
            return await self._line.ask(verb, arguments)
        except (StoreUnavailableError, InvalidFrameError):
            self._disconnect()
            raise

    async def _become_owner(self) -> bool:
        try:
            self._services = await self._stack.enter_async_context(self._own())
        except FileInUseError:
            return False
        return True

    def _disconnect(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None
