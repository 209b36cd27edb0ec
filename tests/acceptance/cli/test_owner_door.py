"""The door of the owner and those who call, in one process with services of their own."""

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
)
from rune.core.definition.problems import Problem
from rune.core.execution.fact import ExecutionEnded
from rune.errors import InvalidDocumentError, LimitExceededError, RuneError
from rune.ports.journal import ExecutionEndedError, IdempotencyConflictError, StoreUnavailableError
from rune.ports.processes import IDEMPOTENT_METHODS, RPC_METHODS, FileInUseError, NoOwnerError, OwnerLostError

ERRORS: dict[str, RuneError] = {
    "conflict": IdempotencyConflictError("used before"),
    "ended": ExecutionEndedError(ExecutionEnded(5, "cancelled")),
    "invalid": InvalidDocumentError((Problem("nodes[0]", "UNKNOWN_TYPE", "no such type"),)),
    "limit": LimitExceededError("labels", 3, 4),
    "own": RuneError("something of one's own", code="OWN"),
}


class Said(msgspec.Struct, frozen=True):
    """An answer with a type."""

    key: str
    size: int
    again: bool = False


class Executions:
    """The service of this test. Under a key that was used before it returns the same result."""

    def __init__(self) -> None:
        self.known: dict[str, Said] = {}
        self.calls: list[str] = []
        self.closed = False
        self.behind = 0

    async def signal(
        self, execution: str, name: str, value: bytes = b"null", *, key: str | None = None
    ) -> Said:
        self.calls.append(name)
        assert key is not None
        known = self.known.get(key)
        self.known[key] = known or Said(key, len(value))
        return msgspec.structs.replace(self.known[key], again=known is not None)

    async def cancel(self, execution: str, reason: str = "") -> str:
        self.behind += self.closed
        if execution in ERRORS:
            raise ERRORS[execution]
        if execution == "odd":
            raise ZeroDivisionError("a mistake of the engine")
        return reason.upper()

    async def secret(self) -> str:
        raise AssertionError("nobody may reach this")


class Offered:
    """The services of this test's owner."""

    executions: Executions

    def __init__(self, executions: Executions | None = None) -> None:
        self.executions = executions or Executions()


def proxy(call: Call) -> Any:
    return ServiceProxy("executions", VERBS_HERE, call)


def run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await work

    asyncio.run(bounded())


VERBS_HERE = RpcMethods(Offered, RPC_METHODS)


@pytest.fixture
def place(tmp_path: pathlib.Path) -> pathlib.Path:
    return socket_of(tmp_path / "rune.db")


def test_answers_and_errors_arrive_as_what_they_were(place: pathlib.Path) -> None:
    async def work() -> None:
        async with OwnerServer(place, VERBS_HERE, Offered()):
            line = await OwnerConnection.open(place, VERBS_HERE)
            assert await proxy(line.call).signal("x", "go", b"12345", key="k") == Said("k", 5)
            assert await proxy(line.call).cancel("x", reason="because") == "BECAUSE"
            for name, error in ERRORS.items():
                with pytest.raises(type(error)) as caught:
                    await proxy(line.call).cancel(name)
                assert type(caught.value) is type(error)
                assert (caught.value.code, caught.value.message, str(caught.value)) == (
                    error.code,
                    error.message,
                    str(error),
                )
                assert vars(caught.value) == {**vars(error), "message": error.message, "code": error.code}
            with pytest.raises(RuneError, match="ZeroDivisionError"):
                await proxy(line.call).cancel("odd")
            assert await proxy(line.call).cancel("x", "still there") == "STILL THERE"
            line.close()

    run(work())


def test_only_offered_methods_can_be_called(place: pathlib.Path) -> None:
    async def work() -> None:
        async with OwnerServer(place, VERBS_HERE, Offered()):
            line = await OwnerConnection.open(place, VERBS_HERE)
            with pytest.raises(AttributeError):
                _ = proxy(line.call).secret
            assert "executions.pause" not in VERBS_HERE, "this service has no such method"
            for verb in ("executions.secret", "executions.pause", "executions.__init__", "executions", ""):
                with pytest.raises(InvalidRequestError, match="unknown method"):
                    await asked(line, verb, {})
            for arguments in (
                {},
                {"execution": 5, "name": "n"},
                {"execution": "x", "name": "n", "z": 1},
                [1],
            ):
                with pytest.raises(InvalidRequestError, match="signal"):
                    await asked(line, "executions.signal", arguments)
            line.close()

    run(work())


async def asked(line: OwnerConnection, verb: str, arguments: Any) -> Any:
    """A request that no caller of ours would make."""
    made = wire.Request(verb, msgspec.Raw(msgspec.msgpack.encode(arguments)))
    line._writer.write(wire.frame(made))
    header = await line._reader.readexactly(HEADER.size)
    reply = wire.read_reply(await line._reader.readexactly(wire.body_size(header)))
    assert isinstance(reply, wire.ErrorReply)
    raise wire.decode_error(reply)


DEEP = b"\x91" * 200_000 + b"\xc0"
HOSTILE = {
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


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_request_harms_nobody(name: str, place: pathlib.Path) -> None:
    async def work() -> None:
        async with OwnerServer(place, VERBS_HERE, Offered()):
            reader, writer = await asyncio.open_unix_connection(str(place))
            writer.write(HOSTILE[name])
            writer.write_eof()
            told = await reader.read()
            writer.close()
            if told:
                reply = wire.read_reply(told[HEADER.size :])
                assert isinstance(reply, wire.ErrorReply)
                assert reply.code in {"BAD_FRAME", "BAD_REQUEST", "FRAME_TOO_LARGE"}
            line = await OwnerConnection.open(place, VERBS_HERE)
            assert await proxy(line.call).cancel("x", "fine") == "FINE"
            line.close()

    run(work())


def test_a_large_payload_passes_and_a_larger_one_is_refused_before_it_is_sent(
    place: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        async with OwnerServer(place, VERBS_HERE, Offered()):
            line = await OwnerConnection.open(place, VERBS_HERE)
            assert (await proxy(line.call).signal("x", "n", b"x" * 5_000_000, key="k")).size == 5_000_000
            monkeypatch.setattr(wire, "MAX_FRAME", 1_000_000)
            with pytest.raises(FrameTooLargeError, match="1,000,000"):
                await proxy(line.call).signal("x", "n", b"x" * 2_000_000, key="k")
            with pytest.raises(FrameTooLargeError):
                await proxy(line.call).cancel("x", "y" * 1_000_000)
            assert await proxy(line.call).cancel("x", "z") == "Z"
            line.close()

    run(work())


def test_a_deep_folder_and_what_a_killed_owner_left(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / ("d" * 100) / ("e" * 100)
    folder.mkdir(parents=True)
    place = socket_of(folder / "rune.db")
    left = socket.socket(socket.AF_UNIX)
    with address(place) as name:
        left.bind(name)
    left.close()

    async def work() -> None:
        with pytest.raises(NoOwnerError, match="refused"):
            await OwnerConnection.open(place, VERBS_HERE)
        async with OwnerServer(place, VERBS_HERE, Offered()):
            assert stat.S_IMODE(place.stat().st_mode) == 0o600
            line = await OwnerConnection.open(place, VERBS_HERE)
            assert await proxy(line.call).cancel("x", "deep") == "DEEP"
            waiting = asyncio.ensure_future(line.gone())
        await waiting
        with pytest.raises(OwnerLostError):
            await proxy(line.call).cancel("x")
        line.close()
        assert not place.exists()
        with pytest.raises(NoOwnerError, match="no such file"):
            await OwnerConnection.open(place, VERBS_HERE)

    run(work())


def test_where_no_socket_can_be_made_the_owner_works_on(tmp_path: pathlib.Path) -> None:
    async def work() -> None:
        async with OwnerServer(tmp_path / "missing" / "rune.sock", VERBS_HERE, Offered()):
            pass

    run(work())


class Owning:
    """Whether this process may own, and how often it tried."""

    def __init__(self, services: Offered) -> None:
        self.services = services
        self.free = False
        self.tries = 0
        self.tried_thrice = asyncio.Event()

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[Offered]:
        self.tries += 1
        if self.tries == 3:
            self.tried_thrice.set()
        if not self.free:
            raise FileInUseError("in use")
        yield self.services


def test_a_caller_waits_for_an_owner_that_is_just_starting(place: pathlib.Path) -> None:
    async def work() -> None:
        owning = Owning(Offered())
        async with OwnerClient(place, VERBS_HERE, owning, lambda: "made-up") as caller:
            heard = asyncio.ensure_future(proxy(caller.call).signal("x", "n"))
            await owning.tried_thrice.wait()
            async with OwnerServer(place, VERBS_HERE, owning.services):
                assert await heard == Said("made-up", 4)
            assert not caller.owns

    run(work())


def test_a_caller_becomes_the_owner_where_there_is_none(place: pathlib.Path) -> None:
    async def work() -> None:
        owning = Owning(Offered())
        owning.free = True
        async with OwnerClient(place, VERBS_HERE, owning, lambda: "made-up") as caller:
            assert await proxy(caller.call).signal("x", "n") == Said("made-up", 4)
            assert await proxy(caller.call).cancel("x", "a") == "A"
            with pytest.raises(AttributeError):
                _ = proxy(caller.call).secret
            assert caller.owns
        assert owning.tries == 1

    run(work())


def test_what_may_have_been_done_is_asked_for_again_under_the_same_mark(place: pathlib.Path) -> None:
    """An owner that dies after it has written and before it has answered."""

    async def work() -> None:
        owning = Owning(Offered())
        marks = iter(("first", "second"))

        async def dies(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            size = wire.body_size(await reader.readexactly(HEADER.size))
            request = wire.read_request(await reader.readexactly(size))
            await owning.services.executions.signal(**VERBS_HERE["executions.signal"].arguments(request))
            owning.free = True
            writer.close()

        server = await asyncio.start_unix_server(dies, str(place))
        async with OwnerClient(place, VERBS_HERE, owning, lambda: next(marks)) as caller:
            said = await proxy(caller.call).signal("x", "n")
            server.close()
        assert said == Said("first", 4, again=True)
        assert owning.services.executions.calls == ["n", "n"]
        assert set(owning.services.executions.known) == {"first"}

    run(work())


def test_an_owner_that_never_answers_is_named_at_last(
    place: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rune.adapters.sqlite.owner.CONNECT_TIMEOUT_S", 0.05)

    async def work() -> None:
        async with OwnerClient(place, VERBS_HERE, Owning(Offered()), lambda: "m") as caller:
            with pytest.raises(StoreUnavailableError, match="does not reply"):
                await proxy(caller.call).cancel("x")

    run(work())


def test_an_owner_that_leaves_answers_first(place: pathlib.Path) -> None:
    async def work() -> None:
        began, may_end = asyncio.Event(), asyncio.Event()

        class Slow(Executions):
            async def cancel(self, execution: str, reason: str = "") -> str:
                began.set()
                await may_end.wait()
                return "done"

        door = OwnerServer(place, VERBS_HERE, Offered(Slow()))
        async with door:
            line = await OwnerConnection.open(place, VERBS_HERE)
            asked = asyncio.ensure_future(proxy(line.call).cancel("x"))
            await began.wait()
            asyncio.get_running_loop().call_soon(may_end.set)
        assert await asked == "done"
        line.close()

    run(work())


def test_garbage_as_an_answer_is_an_error(place: pathlib.Path) -> None:
    async def work() -> None:
        async def rude(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        server = await asyncio.start_unix_server(rude, str(place))
        line = await OwnerConnection.open(place, VERBS_HERE)
        with pytest.raises(InvalidFrameError, match="version 72"):
            await proxy(line.call).cancel("x")
        line.close()
        server.close()

    run(work())


def test_every_verb_that_starts_or_tells_something_has_a_mark() -> None:
    assert set(IDEMPOTENT_METHODS) <= set(RPC_METHODS)


@pytest.mark.parametrize("turns", range(8))
def test_who_comes_in_while_the_door_is_closed_is_not_served_behind_it(
    place: pathlib.Path, turns: int
) -> None:
    """Between being let in and being heard lie several turns of the loop: at each of them the door may close."""

    async def turn() -> None:
        made: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(made.set_result, None)
        await made

    async def work() -> None:
        services = Offered()
        verb = VERBS_HERE["executions.cancel"]
        asks = wire.frame(verb.request(verb.bind("odd")))
        with socket.socket(socket.AF_UNIX) as caller:
            async with OwnerServer(place, VERBS_HERE, services):
                caller.connect(str(place))
                caller.sendall(asks)
                for _ in range(turns):
                    await turn()
            services.executions.closed = True
            for _ in range(20):
                await turn()
            assert not services.executions.behind, "it was asked though what it stands on is gone"

    run(work())
