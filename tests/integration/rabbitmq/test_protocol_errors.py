"""Servers that violate the protocol: pending requests fail, nothing hangs."""

from __future__ import annotations

import asyncio
import itertools
import struct
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pamqp import commands

from rune.adapters.rabbitmq.amqp.client import (
    BrokerUnavailableError,
    Channel,
    Connection,
    ConnectionRefusedByBrokerError,
    connect,
    parse_address,
)
from tests.integration.rabbitmq.amqp_helpers import (
    RecordingConsumer,
    content_header,
    fake_broker,
    handshake,
    method,
    raw_frame,
    read_frame,
)
from tests.support.async_test import async_test
from tests.support.waiting import until

DELIVER = method(commands.Basic.Deliver("c", 1, False, "", "q"), 1)

VIOLATIONS = {
    "noise": b"\xff" * 64,
    "another protocol": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "another version": b"AMQP\x01\x01\x00\x0a" + b"\0" * 8,
    "a frame longer than agreed": raw_frame(3, 1, b"x" * 200_000),
    "a frame that claims four gigabytes": struct.pack(">BHI", 1, 1, 0xFFFFFFFF) + b"x",
    "a frame with another end": raw_frame(1, 1, b"\0\x3c\0\x3c", b"\0"),
    "an unknown kind of frame": raw_frame(7, 1, b"abc"),
    "an empty method": raw_frame(1, 1, b""),
    "an unknown method": raw_frame(1, 1, struct.pack(">HH", 60, 999)),
    "a method that is cut": raw_frame(1, 1, struct.pack(">HH", 50, 11) + b"\xff"),
    "a delivery that is cut": raw_frame(1, 1, struct.pack(">HH", 60, 60) + b"\x05ab"),
    "a delivery whose key runs over its frame": raw_frame(
        1, 1, struct.pack(">HH", 60, 60) + b"\x01c" + struct.pack(">QB", 1, 0) + b"\x00\xff"
    ),
    "a name that is no text": raw_frame(
        1, 1, struct.pack(">HH", 60, 60) + b"\x01c" + struct.pack(">QB", 1, 0) + b"\x01\xff\x00"
    ),
    "content without a method": content_header(3),
    "a body without a method": raw_frame(3, 1, b"abc"),
    "a body before its header": DELIVER + raw_frame(3, 1, b"abc"),
    "two deliveries at once": DELIVER + DELIVER,
    "two headers": DELIVER + content_header(3) + content_header(3),
    "a method within content": DELIVER + content_header(3) + method(commands.Basic.Cancel("c"), 1),
    "more content than announced": DELIVER + content_header(3) + raw_frame(3, 1, b"abcdef"),
    "content of another class": DELIVER + raw_frame(2, 1, struct.pack(">HHQH", 10, 0, 3, 0)),
    "a header that is cut": DELIVER + raw_frame(2, 1, b"\0\x3c"),
    "a message of a terabyte": DELIVER + content_header(1 << 40),
    "a confirm of nothing": method(commands.Basic.Ack(99, False), 1),
    "a confirm that is cut": raw_frame(1, 1, struct.pack(">HH", 60, 80) + b"\0"),
    "an unexpected answer": method(commands.Queue.PurgeOk(1), 1),
    "content on channel 0": raw_frame(3, 0, b"abc"),
    "a method on a channel beyond the limit": method(commands.Basic.Ack(1, False), 60_000),
    "a second greeting": method(commands.Connection.Tune(1, 4096, 1)),
    "a returned message that cannot be read": method(commands.Basic.Return(312, "no", "", "k"), 1)
    + raw_frame(2, 1, struct.pack(">HHQH", 60, 0, 0, 0x2000) + b"\0\0\xff\xff"),
}


async def _connect_and_receive(
    data: bytes, *, hang_up: bool = True
) -> tuple[Connection, Channel, RecordingConsumer, list[Any]]:
    """Receive the data while a consumer, a request and a publish are active."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await handshake(reader, writer)
        await read_frame(reader)
        writer.write(method(commands.Channel.OpenOk(), 1))
        await read_frame(reader)
        writer.write(method(commands.Confirm.SelectOk(), 1))
        await read_frame(reader)
        writer.write(method(commands.Basic.ConsumeOk("c"), 1))
        await read_frame(reader)
        writer.write(data)
        if hang_up:
            await writer.drain()
            writer.write_eof()
        while await reader.read(65536):
            pass

    async with fake_broker(script) as address:
        connection = await connect(f"amqp://{address}/", deadline=5.0)
        channel = await connection.channel()
        await channel.confirm()
        consumer = RecordingConsumer()
        await channel.consume("q", consumer.on_message, "c", consumer.on_cancel)
        waiting: list[asyncio.Future[Any]] = [
            channel.publish("", "q", b"x"),
            asyncio.ensure_future(channel.declare_queue("other")),
        ]
        found = await asyncio.gather(*waiting, return_exceptions=True)
        connection.abort(BrokerUnavailableError("done", code="CLOSED"))
        await connection.ended
        return connection, channel, consumer, found


@pytest.mark.parametrize("name", VIOLATIONS)
@async_test
async def test_protocol_violation_ends_connection(name: str) -> None:
    connection, channel, consumer, found = await _connect_and_receive(VIOLATIONS[name], hang_up=False)

    assert [type(each) for each in found] == [BrokerUnavailableError, BrokerUnavailableError]
    assert connection.error is not None
    assert connection.error.code in (
        "FRAME_ERROR", "SYNTAX_ERROR", "COMMAND_INVALID", "UNEXPECTED_FRAME", "CHANNEL_ERROR",
    )  # fmt: skip
    assert consumer.messages == []
    assert channel.error is not None


@given(
    st.lists(
        st.one_of(st.binary(max_size=40), st.sampled_from(sorted(VIOLATIONS.values(), key=len)[:20])),
        max_size=4,
    )
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_random_bytes_end_connection(parts: list[bytes]) -> None:
    async def run() -> None:
        async with asyncio.timeout(60):
            connection, _, _, found = await _connect_and_receive(b"".join(parts))
            assert all(isinstance(each, BrokerUnavailableError) for each in found)
            assert connection.error is not None

    asyncio.run(run())


@given(st.lists(st.integers(1, 30), min_size=1, max_size=12))
@settings(max_examples=25, deadline=None)
def test_frames_may_arrive_in_pieces(sizes: list[int]) -> None:
    """Deliveries are complete when their bytes arrive in pieces of any size."""
    good = b"".join(
        method(commands.Basic.Deliver("c", each, False, "x", "q"), 1)
        + content_header(6)
        + raw_frame(3, 1, b"abc")
        + raw_frame(3, 1, b"def")
        for each in range(1, 6)
    )

    async def run() -> None:
        class Never(asyncio.Transport):
            def write(self, data: Any) -> None: ...
            def abort(self) -> None: ...
            def is_closing(self) -> bool:
                return False

        connection = Connection(parse_address("amqp://h"), "test", 5.0)
        connection.connection_made(Never())
        channel, consumer = Channel(connection, 1), RecordingConsumer()
        connection._channels[1] = channel
        channel._consumers[b"c"] = (consumer.on_message, None)
        at = 0
        for size in itertools.cycle(sizes):
            connection.data_received(good[at : at + size])
            at += size
            if at >= len(good):
                break
        assert [each.body for each in consumer.messages] == [b"abcdef"] * 5

    asyncio.run(run())


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"", BrokerUnavailableError),
        (b"AMQP\x00\x00\x09\x01", BrokerUnavailableError),
        (method(commands.Connection.OpenOk()), BrokerUnavailableError),
        (method(commands.Connection.Start(mechanisms="EXTERNAL")), BrokerUnavailableError),
        (method(commands.Connection.Close(403, "ACCESS_REFUSED", 0, 0)), ConnectionRefusedByBrokerError),
    ],
)
@async_test
async def test_failed_handshake_is_reported(answer: bytes, error: type[Exception]) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(8)
        writer.write(answer)
        await writer.drain()

    async with fake_broker(script) as address:
        with pytest.raises(error):
            await connect(f"amqp://{address}/")


@async_test
async def test_silent_handshake_times_out() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with fake_broker(script) as address:
        with pytest.raises(BrokerUnavailableError) as caught:
            await connect(f"amqp://{address}/?connection_timeout=200")
    assert caught.value.code == "UNREACHABLE"


@async_test
async def test_silent_server_misses_heartbeat() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await handshake(reader, writer, heartbeat=1)
        count = 0
        while data := await reader.read(4096):
            count += data.count(b"\x08\x00\x00\x00\x00\x00\x00\xce")
            beats.append(count)

    beats: list[int] = []
    async with fake_broker(script) as address:
        connection = await connect(f"amqp://{address}/?heartbeat=1")
        error = await connection.ended
    assert error.code == "HEARTBEAT_MISSED"
    assert beats[-1] >= 2, "the client must send heartbeats itself"


@async_test
async def test_channel_flow_stops_and_resumes_publishing() -> None:
    go_on = asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await handshake(reader, writer)
        await read_frame(reader)
        writer.write(method(commands.Channel.OpenOk(), 1))
        writer.write(method(commands.Channel.Flow(False), 1))
        answers.append((await read_frame(reader)).active)
        await go_on.wait()
        writer.write(method(commands.Channel.Flow(True), 1))
        answers.append((await read_frame(reader)).active)
        await reader.read()

    answers: list[bool] = []
    async with fake_broker(script) as address:
        connection = await connect(f"amqp://{address}/")
        channel = await connection.channel()
        await until(lambda: not channel.is_clear)
        waiting = asyncio.ensure_future(channel.clear())
        go_on.set()
        await waiting
        await until(lambda: len(answers) == 2)
        assert answers == [False, True]
        connection.abort(BrokerUnavailableError("done"))
        await connection.ended


@pytest.mark.parametrize("size", [0, 1, 4087, 4088, 4089, 2 * 4088, 2 * 4088 + 1])
@async_test
async def test_frames_respect_negotiated_size(size: int) -> None:
    """Brokers differ in how strictly they check, so the frames themselves are measured."""
    lengths: list[int] = []
    seen = asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await handshake(reader, writer, frame_max=4096)
        await read_frame(reader)
        writer.write(method(commands.Channel.OpenOk(), 1))
        await read_frame(reader)
        writer.write(method(commands.Confirm.SelectOk(), 1))
        await read_frame(reader)
        await read_frame(reader)
        while sum(lengths) < size:
            _, _, length = struct.unpack(">BHI", await reader.readexactly(7))
            await reader.readexactly(length + 1)
            lengths.append(length)
        seen.set()
        while await reader.read(65536):
            pass

    async with fake_broker(script) as address:
        connection = await connect(f"amqp://{address}/")
        channel = await connection.channel()
        await channel.confirm()
        publishing = channel.publish("", "q", b"x" * size)
        await seen.wait()
        connection.abort(BrokerUnavailableError("done", code="CLOSED"))
        await asyncio.gather(publishing, return_exceptions=True)
        await connection.ended
    assert sum(lengths) == size
    assert all(each + 8 <= 4096 for each in lengths)
    assert len(lengths) == -(-size // 4088), "no more frames than needed"


@async_test
async def test_close_by_server_is_answered() -> None:
    answers: list[str] = []

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await handshake(reader, writer)
        writer.write(method(commands.Connection.Close(320, "maintenance", 0, 0)))
        answers.append((await read_frame(reader)).name)
        answers.append(str(await reader.read(1)))

    async with fake_broker(script) as address:
        connection = await connect(f"amqp://{address}/")
        error = await connection.ended
        await until(lambda: len(answers) == 2)
    assert (error.code, "maintenance" in error.message) == ("CONNECTION_FORCED", True)
    assert answers == ["Connection.CloseOk", "b''"], "nothing follows the CloseOk"
