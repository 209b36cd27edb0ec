"""The client when the wire or the broker fails."""

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
from tests.integration.rabbitmq.helping import connected, fake_broker, scenario
from tests.support.services.proxy import Proxy
from tests.support.services.rabbitmq import broker, mortal_broker
from tests.support.waiting import until


@scenario
async def test_a_cut_wire_fails_everything_that_was_under_way() -> None:
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


@scenario
async def test_a_wire_that_falls_silent_meets_the_deadline_of_a_publish() -> None:
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
            assert (await connection.ended).code == "PUBLISH_DEADLINE", "a connection that is stuck is left"
            with pytest.raises(BrokerUnavailableError):
                await channel.purge("q")


@scenario
async def test_a_request_that_is_not_answered_meets_its_deadline() -> None:
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


class TestMortal:
    """What a broker of one's own can be made to do."""

    @pytest.fixture(autouse=True)
    def mortal(self) -> None:
        mortal_broker()

    @scenario
    async def test_an_alarm_stops_who_publishes_and_nobody_else(self) -> None:
        async with connected(on=mortal_broker(), deadline=20.0) as connection:
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

    @scenario
    async def test_a_publish_during_an_alarm_meets_its_deadline_and_the_connection_goes_on(self) -> None:
        async with connected(on=mortal_broker(), deadline=1.0) as connection:
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

    @scenario
    async def test_a_frozen_broker_is_noticed_by_its_silence(self) -> None:
        async with connected("?heartbeat=1", on=mortal_broker(), deadline=0.5) as connection:
            mortal_broker().freeze()
            try:
                error = await connection.ended
            finally:
                mortal_broker().thaw()
            assert error.code == "HEARTBEAT_MISSED"

    @scenario
    async def test_an_operator_who_closes_connections_is_heard(self) -> None:
        async with connected(on=mortal_broker()) as connection:
            await asyncio.to_thread(mortal_broker().hang_up)
            error = await connection.ended
            assert error.code == "CONNECTION_FORCED"
            assert "closed by a test" in error.message

    @scenario
    async def test_what_was_confirmed_survives_a_kill(self) -> None:
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


class TestSecure:
    """TLS: a server with a certificate in front of the broker."""

    @pytest.fixture
    def authority(self) -> trustme.CA:
        return trustme.CA()

    @pytest.fixture
    def context(self, authority: trustme.CA) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("localhost").configure_cert(context)
        return context

    @staticmethod
    async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner, outer = await asyncio.open_connection("127.0.0.1", broker().port)

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            while data := await source.read(65536):
                target.write(data)
                await target.drain()
            target.close()

        await asyncio.gather(copy(reader, outer), copy(inner, writer))

    def test_whom_we_trust_is_let_talk(
        self, authority: trustme.CA, context: ssl.SSLContext, tmp_path: Path
    ) -> None:
        authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))

        @scenario
        async def run() -> None:
            with broker().vhost() as vhost:
                async with fake_broker(self._pass_on, context) as place:
                    port = place.rpartition(":")[2]
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

    @scenario
    async def test_whom_we_do_not_trust_hears_no_password(self, context: ssl.SSLContext) -> None:
        heard: list[bytes] = []

        async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heard.append(await reader.read(100))

        async with fake_broker(listen, context) as place:
            port = place.rpartition(":")[2]
            with pytest.raises(ConnectionRefusedByBrokerError) as caught:
                await connect(f"amqps://guest:guest@localhost:{port}/")
        assert caught.value.code == "TLS"
        assert heard in ([], [b""])

    def test_names_and_papers_are_as_the_url_says(self, authority: trustme.CA, tmp_path: Path) -> None:
        """A broker under another name than its host's, which asks for a certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("broker.internal").configure_cert(context)
        authority.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
        authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
        mine = authority.issue_cert("worker@example.com")
        mine.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
        mine.cert_chain_pems[0].write_to_path(str(tmp_path / "mine.pem"))
        named = "&server_name_indication=broker.internal"
        shown = f"&certfile={tmp_path / 'mine.pem'}&keyfile={tmp_path / 'key.pem'}"

        @scenario
        async def run() -> None:
            async with fake_broker(self._pass_on, context) as place:
                url = f"amqps://guest:guest@{place}/?cacertfile={tmp_path / 'ca.pem'}"
                connection = await connect(url + named + shown)
                assert connection.version >= (3, 10)
                await connection.close()
                connection = await connect(url + "&verify=verify_none" + shown)
                await connection.close()
                with pytest.raises(ConnectionRefusedByBrokerError) as caught:
                    await connect(url + shown)
                assert caught.value.code == "TLS"
                with pytest.raises((ConnectionRefusedByBrokerError, BrokerUnavailableError)):
                    await connect(url + named)

        run()
