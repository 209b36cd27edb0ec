"""AMQP client when the connection or the broker fails."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme

from rune.adapters.rabbitmq.amqp.client import (
    BrokerUnavailableError,
    ConnectionRefusedByBrokerError,
    MessageProperties,
    connect,
)
from tests.integration.rabbitmq.amqp_helpers import fake_broker, open_connection
from tests.support.async_test import async_test
from tests.support.services.proxy import Proxy
from tests.support.services.rabbitmq import broker, mortal_broker
from tests.support.waiting import until

pytestmark = pytest.mark.long


@async_test
async def test_cut_connection_fails_pending_requests() -> None:
    with broker().vhost() as vhost:
        async with Proxy(broker().port).running() as proxy:
            url = broker().url(vhost).replace(str(broker().port), str(proxy.port))
            connection = await connect(url)
            channel = await connection.channel()
            await channel.confirm()
            await channel.declare_queue("q")
            proxy.cut()
            waiting: list[asyncio.Future[Any]] = [
                channel.publish("", "q", b"x"),
                asyncio.ensure_future(channel.purge("q")),
            ]
            found = await asyncio.gather(*waiting, return_exceptions=True)
            assert [type(each) for each in found] == [BrokerUnavailableError, BrokerUnavailableError]
            assert (await connection.ended) is connection.error


@async_test
async def test_publish_over_stalled_connection_times_out() -> None:
    with broker().vhost() as vhost:
        async with Proxy(broker().port).running() as proxy:
            url = broker().url(vhost).replace(str(broker().port), str(proxy.port))
            connection = await connect(url, deadline=0.5)
            channel = await connection.channel()
            await channel.confirm()
            await channel.declare_queue("q")
            proxy.stall()
            with pytest.raises(BrokerUnavailableError) as caught:
                await channel.publish("", "q", b"x")
            assert caught.value.code == "PUBLISH_DEADLINE"
            assert (await connection.ended).code == "PUBLISH_DEADLINE", "a stuck connection is closed"
            with pytest.raises(BrokerUnavailableError):
                await channel.purge("q")


@async_test
async def test_large_message_may_take_longer_than_a_small_one() -> None:
    with broker().vhost() as vhost:
        async with Proxy(broker().port).running() as proxy:
            url = broker().url(vhost).replace(str(broker().port), str(proxy.port))
            one, other = await connect(url, deadline=0.5), await connect(url, deadline=0.5)
            large, small = await one.channel(), await other.channel()
            for each in (large, small):
                await each.confirm()
            await large.declare_queue("q")
            proxy.hold()
            waiting = large.publish("", "q", b"x" * 16 * 1024 * 1024)
            with pytest.raises(BrokerUnavailableError):
                await small.publish("", "q", b"x")
            proxy.release()
            await waiting
            assert one.error is None
            await one.close()


@async_test
async def test_unanswered_request_times_out() -> None:
    with broker().vhost() as vhost:
        async with Proxy(broker().port).running() as proxy:
            url = broker().url(vhost).replace(str(broker().port), str(proxy.port))
            connection = await connect(url, deadline=0.3)
            channel = await connection.channel()
            proxy.stall()
            with pytest.raises(BrokerUnavailableError) as caught:
                await channel.declare_queue("q")
            assert caught.value.code == "NO_ANSWER"
            await connection.ended


class TestOwnBroker:
    """Faults that need a broker used by these tests only."""

    @pytest.fixture(autouse=True)
    def _own_broker(self) -> None:
        mortal_broker().start()

    @async_test
    async def test_alarm_blocks_only_publishers(self) -> None:
        async with open_connection(on=mortal_broker(), deadline=20.0) as connection:
            other = await connect(connection._address)
            reading, channel = await other.channel(), await connection.channel()
            await channel.confirm()
            await channel.declare_queue("q")
            await channel.publish("", "q", b"before")
            await asyncio.to_thread(mortal_broker().alarm, memory_low=True)
            late = channel.publish("", "q", b"meanwhile")
            await until(lambda: connection.blocked is not None)
            assert not channel.is_clear
            clear = asyncio.ensure_future(channel.clear())
            message = await reading.get("q")
            assert message is not None
            reading.ack(message.tag)
            assert not clear.done()
            await asyncio.to_thread(mortal_broker().alarm, memory_low=False)
            await clear
            await late
            await channel.publish("", "q", b"after")
            await other.close()

    @async_test
    async def test_publish_during_alarm_times_out_and_connection_survives(self) -> None:
        async with open_connection(on=mortal_broker(), deadline=1.0) as connection:
            channel = await connection.channel()
            await channel.confirm()
            await channel.declare_queue("q")
            await asyncio.to_thread(mortal_broker().alarm, memory_low=True)
            try:
                with pytest.raises(BrokerUnavailableError) as caught:
                    await channel.publish("", "q", b"x")
                assert caught.value.code == "PUBLISH_DEADLINE"
                assert connection.error is None
            finally:
                await asyncio.to_thread(mortal_broker().alarm, memory_low=False)
            await channel.clear()
            await channel.publish("", "q", b"y")

    @async_test
    async def test_frozen_broker_misses_heartbeat(self) -> None:
        async with open_connection("?heartbeat=1", on=mortal_broker(), deadline=0.5) as connection:
            mortal_broker().freeze()
            try:
                error = await connection.ended
            finally:
                mortal_broker().thaw()
            assert error.code == "HEARTBEAT_MISSED"

    @async_test
    async def test_forced_close_contains_reason(self) -> None:
        async with open_connection(on=mortal_broker()) as connection:
            await asyncio.to_thread(mortal_broker().hang_up)
            error = await connection.ended
            assert error.code == "CONNECTION_FORCED"
            assert "closed by a test" in error.message

    @async_test
    async def test_confirmed_messages_survive_kill(self) -> None:
        with mortal_broker().vhost() as vhost:
            connection = await connect(mortal_broker().url(vhost))
            channel = await connection.channel()
            await channel.confirm()
            await channel.declare_queue("q")
            await channel.publish_all(("", "q", b"%d" % each, MessageProperties()) for each in range(500))
            await asyncio.to_thread(mortal_broker().settle)
            await asyncio.to_thread(mortal_broker().kill)
            assert isinstance(await connection.ended, BrokerUnavailableError)
            await asyncio.to_thread(mortal_broker().start)
            again = await connect(mortal_broker().url(vhost))
            found = await (await again.channel()).declare_queue("q", passive=True)
            assert found.message_count == 500
            await again.close()


class TestTls:
    """A TLS server in front of the broker."""

    @pytest.fixture
    def authority(self) -> trustme.CA:
        return trustme.CA()

    @pytest.fixture
    def context(self, authority: trustme.CA) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("localhost").configure_cert(context)
        return context

    @staticmethod
    async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner, outer = await asyncio.open_connection("127.0.0.1", broker().port)

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            while data := await source.read(65536):
                target.write(data)
                await target.drain()
            target.close()

        await asyncio.gather(copy(reader, outer), copy(inner, writer))

    def test_trusted_server_is_accepted(
        self, authority: trustme.CA, context: ssl.SSLContext, tmp_path: Path
    ) -> None:
        authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))

        @async_test
        async def run() -> None:
            with broker().vhost() as vhost:
                async with fake_broker(self._forward, context) as address:
                    port = address.rpartition(":")[2]
                    url = f"amqps://guest:guest@localhost:{port}/{vhost}?cacertfile={tmp_path / 'ca.pem'}"
                    connection = await connect(url)
                    channel = await connection.channel()
                    await channel.confirm()
                    await channel.declare_queue("q")
                    await channel.publish("", "q", b"x" * 300_000)
                    message = await channel.get("q")
                    assert message is not None
                    assert len(message.body) == 300_000
                    await connection.close()

        run()

    @async_test
    async def test_untrusted_server_gets_no_password(self, context: ssl.SSLContext) -> None:
        received: list[bytes] = []

        async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            received.append(await reader.read(100))

        async with fake_broker(listen, context) as address:
            port = address.rpartition(":")[2]
            with pytest.raises(ConnectionRefusedByBrokerError) as caught:
                await connect(f"amqps://guest:guest@localhost:{port}/")
        assert caught.value.code == "TLS"
        assert received in ([], [b""])

    def test_server_name_and_client_certificate_from_url(self, authority: trustme.CA, tmp_path: Path) -> None:
        """The certificate has another name than the host, and the server requires a client certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("broker.internal").configure_cert(context)
        authority.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
        authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
        mine = authority.issue_cert("worker@example.com")
        mine.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
        mine.cert_chain_pems[0].write_to_path(str(tmp_path / "mine.pem"))
        server_name = "&server_name_indication=broker.internal"
        client_certificate = f"&certfile={tmp_path / 'mine.pem'}&keyfile={tmp_path / 'key.pem'}"

        @async_test
        async def run() -> None:
            async with fake_broker(self._forward, context) as address:
                url = f"amqps://guest:guest@{address}/?cacertfile={tmp_path / 'ca.pem'}"
                connection = await connect(url + server_name + client_certificate)
                assert connection.version >= (3, 10)
                await connection.close()
                connection = await connect(url + "&verify=verify_none" + client_certificate)
                await connection.close()
                with pytest.raises(ConnectionRefusedByBrokerError) as caught:
                    await connect(url + client_certificate)
                assert caught.value.code == "TLS"
                with pytest.raises((ConnectionRefusedByBrokerError, BrokerUnavailableError)):
                    await connect(url + server_name)

        run()
