"""The RPC server of the file owner and its clients, in one process with test services."""

from __future__ import annotations

import asyncio
import pathlib
import socket
import stat
import struct
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from rune.adapters.sqlite.owner import OwnerClient, OwnerConnection, OwnerServer, address, socket_of
from rune.codec import rpc as wire
from rune.codec.rpc import (
    HEADER,
    VERSION,
    Call,
    FrameTooLargeError,
    InvalidFrameError,
    InvalidRequestError,
    RpcMethods,
    ServiceProxy,
    remote,
)
from rune.core.definition.problems import Problem
from rune.core.execution.fact import ExecutionEnded
from rune.errors import InvalidDocumentError, LimitExceededError, RuneError
from rune.ports.journal import ExecutionEndedError, IdempotencyConflictError, StoreUnavailableError
from rune.ports.processes import (
    IDEMPOTENT_METHODS,
    WAITING_METHODS,
    FileInUseError,
    NoOwnerError,
    OwnerLostError,
)
from rune.runtime.components import RPC_METHODS

ERRORS: dict[str, RuneError] = {
    "conflict": IdempotencyConflictError("used before"),
    "ended": ExecutionEndedError(ExecutionEnded(5, "cancelled")),
    "invalid": InvalidDocumentError((Problem("nodes[0]", "UNKNOWN_TYPE", "no such type"),)),
    "limit": LimitExceededError("labels", 3, 4),
    "own": RuneError("a custom error", code="OWN"),
}


class Reply(msgspec.Struct, frozen=True):
    """A typed result."""

    key: str
    size: int
    again: bool = False


class Executions:
    """The test service. A key that was used before returns the same result."""

    def __init__(self) -> None:
        self.known: dict[str, Reply] = {}
        self.calls: list[str] = []
        self.closed = False
        self.calls_after_close = 0
        self.waits, self.left = asyncio.Event(), asyncio.Event()
        self.ends: dict[str, asyncio.Future[ExecutionEnded]] = {}

    async def signal(
        self, execution: str, name: str, value: bytes = b"null", *, key: str | None = None
    ) -> Reply:
        self.calls.append(name)
        assert key is not None
        known = self.known.get(key)
        self.known[key] = known or Reply(key, len(value))
        return msgspec.structs.replace(self.known[key], again=known is not None)

    async def cancel(self, execution: str, reason: str = "") -> str:
        self.calls_after_close += self.closed
        if execution in ERRORS:
            raise ERRORS[execution]
        if execution == "odd":
            raise ZeroDivisionError("a mistake of the engine")
        return reason.upper()

    async def wait_for_end(self, execution: str) -> ExecutionEnded:
        self.waits.set()
        try:
            return await self.ends.setdefault(execution, asyncio.get_running_loop().create_future())
        finally:
            self.waits.clear()
            self.left.set()

    async def secret(self) -> str:
        raise AssertionError("not an RPC method")


class FakeServices:
    """The services of the owner."""

    executions: Executions

    def __init__(self, executions: Executions | None = None) -> None:
        self.executions = executions or Executions()


class ExecutionsProxy(ServiceProxy):
    signal = remote(Executions.signal)
    cancel = remote(Executions.cancel)
    wait_for_end = remote(Executions.wait_for_end)


def proxy(call: Call) -> Any:
    return ExecutionsProxy("executions", METHODS, call)


def run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await work

    asyncio.run(bounded())


METHODS = RpcMethods(FakeServices, RPC_METHODS)


@pytest.fixture
def socket_path(tmp_path: pathlib.Path) -> pathlib.Path:
    return socket_of(tmp_path / "rune.db")


def test_results_and_errors_keep_their_types(socket_path: pathlib.Path) -> None:
    async def work() -> None:
        async with OwnerServer(socket_path, METHODS, FakeServices()):
            connection = await OwnerConnection.open(socket_path, METHODS)
            assert await proxy(connection.call).signal("x", "go", b"12345", key="k") == Reply("k", 5)
            assert await proxy(connection.call).cancel("x", reason="because") == "BECAUSE"
            for name, error in ERRORS.items():
                with pytest.raises(type(error)) as caught:
                    await proxy(connection.call).cancel(name)
                assert type(caught.value) is type(error)
                assert (caught.value.code, caught.value.message, str(caught.value)) == (
                    error.code,
                    error.message,
                    str(error),
                )
                assert vars(caught.value) == {**vars(error), "message": error.message, "code": error.code}
            with pytest.raises(RuneError, match="ZeroDivisionError"):
                await proxy(connection.call).cancel("odd")
            assert await proxy(connection.call).cancel("x", "still there") == "STILL THERE"
            connection.close()

    run(work())


def test_only_offered_methods_can_be_called(socket_path: pathlib.Path) -> None:
    async def work() -> None:
        async with OwnerServer(socket_path, METHODS, FakeServices()):
            connection = await OwnerConnection.open(socket_path, METHODS)
            with pytest.raises(AttributeError):
                _ = proxy(connection.call).secret
            assert "executions.pause" not in METHODS, "this service has no such method"
            for method in ("executions.secret", "executions.pause", "executions.__init__", "executions", ""):
                with pytest.raises(InvalidRequestError, match="unknown method"):
                    await raw_call(connection, method, {})
            for arguments in (
                {},
                {"execution": 5, "name": "n"},
                {"execution": "x", "name": "n", "z": 1},
                [1],
            ):
                with pytest.raises(InvalidRequestError, match="signal"):
                    await raw_call(connection, "executions.signal", arguments)
            connection.close()

    run(work())


async def raw_call(connection: OwnerConnection, method: str, arguments: Any) -> Any:
    """Send a request that OwnerConnection would not send, and raise its error."""
    request = wire.Request(method, msgspec.Raw(msgspec.msgpack.encode(arguments)))
    connection._writer.write(wire.frame(request))
    header = await connection._reader.readexactly(HEADER.size)
    reply = wire.read_reply(await connection._reader.readexactly(wire.body_size(header)))
    assert isinstance(reply, wire.ErrorReply)
    raise wire.decode_error(reply)


DEEP = b"\x91" * 200_000 + b"\xc0"
MALFORMED = {
    "words": b"GET / HTTP/1.1\r\nHost: rune\r\n\r\n",
    "nothing": b"",
    "half a header": b"\x01\x00",
    "another version": struct.pack(">BI", 99, 3) + b"abc",
    "too large": struct.pack(">BI", VERSION, wire.MAX_FRAME + 1),
    "half a body": struct.pack(">BI", VERSION, 1000) + b"abc",
    "an empty body": struct.pack(">BI", VERSION, 0),
    "no msgpack": struct.pack(">BI", VERSION, 3) + b"\xc1\xc1\xc1",
    "no request": struct.pack(">BI", VERSION, 1) + b"\x05",
    "deep": struct.pack(">BI", VERSION, len(DEEP)) + DEEP,
    "deep arguments": wire.frame(wire.Request("executions.cancel", msgspec.Raw(b"\x81\xa6reason" + DEEP))),
    "zeros": b"\0" * 100_000,
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_request_does_not_affect_server(name: str, socket_path: pathlib.Path) -> None:
    async def work() -> None:
        async with OwnerServer(socket_path, METHODS, FakeServices()):
            reader, writer = await asyncio.open_unix_connection(str(socket_path))
            writer.write(MALFORMED[name])
            writer.write_eof()
            data = await reader.read()
            writer.close()
            if data:
                reply = wire.read_reply(data[HEADER.size :])
                assert isinstance(reply, wire.ErrorReply)
                assert reply.code in {"BAD_FRAME", "BAD_REQUEST", "FRAME_TOO_LARGE"}
            connection = await OwnerConnection.open(socket_path, METHODS)
            assert await proxy(connection.call).cancel("x", "fine") == "FINE"
            connection.close()

    run(work())


def test_frame_above_limit_is_rejected_before_sending(
    socket_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        async with OwnerServer(socket_path, METHODS, FakeServices()):
            connection = await OwnerConnection.open(socket_path, METHODS)
            assert (
                await proxy(connection.call).signal("x", "n", b"x" * 5_000_000, key="k")
            ).size == 5_000_000
            monkeypatch.setattr(wire, "MAX_FRAME", 1_000_000)
            with pytest.raises(FrameTooLargeError, match="1,000,000"):
                await proxy(connection.call).signal("x", "n", b"x" * 2_000_000, key="k")
            with pytest.raises(FrameTooLargeError):
                await proxy(connection.call).cancel("x", "y" * 1_000_000)
            assert await proxy(connection.call).cancel("x", "z") == "Z"
            connection.close()

    run(work())


def test_server_replaces_stale_socket_in_long_path(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / ("d" * 100) / ("e" * 100)
    folder.mkdir(parents=True)
    socket_path = socket_of(folder / "rune.db")
    stale = socket.socket(socket.AF_UNIX)
    with address(socket_path) as name:
        stale.bind(name)
    stale.close()

    async def work() -> None:
        with pytest.raises(NoOwnerError, match="refused"):
            await OwnerConnection.open(socket_path, METHODS)
        async with OwnerServer(socket_path, METHODS, FakeServices()):
            assert stat.S_IMODE(socket_path.stat().st_mode) == 0o600
            connection = await OwnerConnection.open(socket_path, METHODS)
            assert await proxy(connection.call).cancel("x", "deep") == "DEEP"
        with pytest.raises(OwnerLostError):
            await proxy(connection.call).cancel("x")
        connection.close()
        assert not socket_path.exists()
        with pytest.raises(NoOwnerError, match="no such file"):
            await OwnerConnection.open(socket_path, METHODS)

    run(work())


def test_server_without_socket_keeps_running(tmp_path: pathlib.Path) -> None:
    async def work() -> None:
        async with OwnerServer(tmp_path / "missing" / "rune.sock", METHODS, FakeServices()):
            pass

    run(work())


class Ownership:
    """Lets this process become the owner if `free`, and counts its attempts."""

    def __init__(self, services: FakeServices) -> None:
        self.services = services
        self.free = False
        self.tries = 0
        self.tried_thrice = asyncio.Event()

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[FakeServices]:
        self.tries += 1
        if self.tries == 3:
            self.tried_thrice.set()
        if not self.free:
            raise FileInUseError("in use")
        yield self.services


def test_client_waits_for_starting_owner(socket_path: pathlib.Path) -> None:
    async def work() -> None:
        ownership = Ownership(FakeServices())
        async with OwnerClient(socket_path, METHODS, ownership, lambda: "made-up") as client:
            reply = asyncio.ensure_future(proxy(client.call).signal("x", "n"))
            await ownership.tried_thrice.wait()
            async with OwnerServer(socket_path, METHODS, ownership.services):
                assert await reply == Reply("made-up", 4)
            assert not client.owns

    run(work())


def test_client_becomes_owner_if_there_is_none(socket_path: pathlib.Path) -> None:
    async def work() -> None:
        ownership = Ownership(FakeServices())
        ownership.free = True
        async with OwnerClient(socket_path, METHODS, ownership, lambda: "made-up") as client:
            assert await proxy(client.call).signal("x", "n") == Reply("made-up", 4)
            assert await proxy(client.call).cancel("x", "a") == "A"
            with pytest.raises(AttributeError):
                _ = proxy(client.call).secret
            assert client.owns
        assert ownership.tries == 1

    run(work())


def test_client_retries_lost_call_under_same_key(socket_path: pathlib.Path) -> None:
    """The owner exits after it has stored the signal and before it replies."""

    async def work() -> None:
        ownership = Ownership(FakeServices())
        keys = iter(("first", "second"))

        async def exit_before_reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            size = wire.body_size(await reader.readexactly(HEADER.size))
            request = wire.read_request(await reader.readexactly(size))
            await ownership.services.executions.signal(**METHODS["executions.signal"].arguments(request))
            ownership.free = True
            writer.close()

        server = await asyncio.start_unix_server(exit_before_reply, str(socket_path))
        async with OwnerClient(socket_path, METHODS, ownership, lambda: next(keys)) as client:
            reply = await proxy(client.call).signal("x", "n")
            server.close()
        assert reply == Reply("first", 4, again=True)
        assert ownership.services.executions.calls == ["n", "n"]
        assert set(ownership.services.executions.known) == {"first"}

    run(work())


def test_unresponsive_owner_raises_store_unavailable(
    socket_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rune.adapters.sqlite.owner.CONNECT_TIMEOUT_S", 0.05)

    async def work() -> None:
        async with OwnerClient(socket_path, METHODS, Ownership(FakeServices()), lambda: "m") as client:
            with pytest.raises(StoreUnavailableError, match="does not reply"):
                await proxy(client.call).cancel("x")

    run(work())


def test_closing_server_replies_to_pending_calls(socket_path: pathlib.Path) -> None:
    async def work() -> None:
        started, finish = asyncio.Event(), asyncio.Event()

        class Slow(Executions):
            async def cancel(self, execution: str, reason: str = "") -> str:
                started.set()
                await finish.wait()
                return "done"

        server = OwnerServer(socket_path, METHODS, FakeServices(Slow()))
        async with server:
            connection = await OwnerConnection.open(socket_path, METHODS)
            pending = asyncio.ensure_future(proxy(connection.call).cancel("x"))
            await started.wait()
            asyncio.get_running_loop().call_soon(finish.set)
        assert await pending == "done"
        connection.close()

    run(work())


async def begin_wait(services: FakeServices, connection: OwnerConnection) -> asyncio.Future[ExecutionEnded]:
    """Call `wait_for_end` and return its result once the owner waits."""
    pending: asyncio.Future[ExecutionEnded]
    pending = asyncio.ensure_future(proxy(connection.call).wait_for_end("x"))
    await services.executions.waits.wait()
    return pending


def test_call_that_waits_is_answered_by_what_it_waits_for(
    socket_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rune.adapters.sqlite.owner.REPLY_TIMEOUT_S", 0.0)

    async def work() -> None:
        services = FakeServices()
        async with OwnerServer(socket_path, METHODS, services):
            connection = await OwnerConnection.open(socket_path, METHODS)
            for at in (1, 2):
                pending = await begin_wait(services, connection)
                services.executions.ends.pop("x").set_result(ExecutionEnded(at, "completed"))
                assert await pending == ExecutionEnded(at, "completed")
            connection.close()

    run(work())


def test_closing_server_does_not_wait_for_calls_that_wait(
    socket_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rune.adapters.sqlite.owner.CLOSE_TIMEOUT_S", 3600.0)

    async def work() -> None:
        services = FakeServices()
        async with OwnerServer(socket_path, METHODS, services):
            connection = await OwnerConnection.open(socket_path, METHODS)
            pending = await begin_wait(services, connection)
        with pytest.raises(OwnerLostError):
            await pending
        assert services.executions.left.is_set()
        connection.close()

    run(work())


def test_call_that_waits_ends_when_its_client_disconnects(socket_path: pathlib.Path) -> None:
    async def work() -> None:
        services = FakeServices()
        async with OwnerServer(socket_path, METHODS, services):
            connection = await OwnerConnection.open(socket_path, METHODS)
            pending = await begin_wait(services, connection)
            pending.cancel()
            connection.close()
            await services.executions.left.wait()

    run(work())


def test_malformed_reply_raises_invalid_frame(socket_path: pathlib.Path) -> None:
    async def work() -> None:
        async def reply_garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        server = await asyncio.start_unix_server(reply_garbage, str(socket_path))
        connection = await OwnerConnection.open(socket_path, METHODS)
        with pytest.raises(InvalidFrameError, match="version 72"):
            await proxy(connection.call).cancel("x")
        connection.close()
        server.close()

    run(work())


def test_methods_with_own_rules_are_rpc_methods() -> None:
    assert set(IDEMPOTENT_METHODS) | WAITING_METHODS <= set(RPC_METHODS)


@pytest.mark.parametrize("iterations", range(8))
def test_connection_during_close_is_not_served(socket_path: pathlib.Path, iterations: int) -> None:
    """Several iterations of the event loop lie between accepting a connection and serving it; close at each of them."""

    async def iterate() -> None:
        next_iteration: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(next_iteration.set_result, None)
        await next_iteration

    async def work() -> None:
        services = FakeServices()
        method = METHODS["executions.cancel"]
        request = wire.frame(method.request(method.bind("odd")))
        with socket.socket(socket.AF_UNIX) as client:
            async with OwnerServer(socket_path, METHODS, services):
                client.connect(str(socket_path))
                client.sendall(request)
                for _ in range(iterations):
                    await iterate()
            services.executions.closed = True
            for _ in range(20):
                await iterate()
            assert not services.executions.calls_after_close, "a call was served after close"

    run(work())
