"""TLS options in URLs: only servers with a certificate of the given authority are accepted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from rune.adapters.postgres.database import Database
from rune.adapters.postgres.schema import migrate
from rune.adapters.rabbitmq.amqp.client import connect
from rune.adapters.rabbitmq.amqp.errors import ConnectionRefusedByBrokerError
from rune.adapters.redis.client import Client, InvalidAddressError
from rune.bootstrap import running_engine
from rune.ports.journal import StoreUnavailableError
from rune.settings import Settings
from rune.testing.harness import Harness
from tests.acceptance.deploy import tls_servers
from tests.acceptance.deploy.tls_servers import HOST, Certificates
from tests.support.documents import document, node

pytestmark = pytest.mark.long

TIMEOUT_S = 120.0
DATABASE = "secured"


@pytest.fixture(scope="module")
def certificates() -> Iterator[Certificates]:
    with tls_servers.certificates() as made:
        yield made


@pytest.fixture(scope="module")
def redis(certificates: Certificates) -> Iterator[str]:
    with tls_servers.redis(certificates) as url:
        yield url


@pytest.fixture(scope="module")
def postgres(certificates: Certificates) -> Iterator[str]:
    with tls_servers.postgres(certificates) as server:
        server.create(DATABASE)
        yield f"postgresql://rune@{HOST}:{server.port}/{DATABASE}?sslmode=verify-full"


@pytest.fixture(scope="module")
def rabbitmq(certificates: Certificates) -> Iterator[str]:
    with tls_servers.rabbitmq(certificates) as (_, port):
        yield f"amqps://guest:guest@{HOST}:{port}/"


async def ping(url: str) -> object:
    client = Client(url)
    try:
        return await client.call("PING")
    finally:
        await client.close()


class TestRedis:
    def test_trusted_certificate_is_accepted(self, redis: str, certificates: Certificates) -> None:
        assert asyncio.run(ping(f"{redis}?ssl_ca_certs={certificates.authority}")) == b"PONG"
        assert asyncio.run(ping(f"{redis}/0?ssl_cert_reqs=none")) == b"PONG"

    @pytest.mark.parametrize("trusts", ["other_authority", "system"])
    def test_untrusted_certificate_is_rejected(
        self, redis: str, certificates: Certificates, trusts: str
    ) -> None:
        option = f"?ssl_ca_certs={certificates.other_authority}" if trusts == "other_authority" else ""
        with pytest.raises(
            StoreUnavailableError, match=r"certificate of Redis is not trusted: .*; name its authority"
        ):
            asyncio.run(ping(redis.replace("//", "//user:hush@") + option))

    def test_wrong_host_name_is_rejected(self, redis: str, certificates: Certificates) -> None:
        by_address = redis.replace(HOST, "127.0.0.1")
        with pytest.raises(StoreUnavailableError, match=r"not valid for '127.0.0.1'"):
            asyncio.run(ping(f"{by_address}?ssl_ca_certs={certificates.authority}"))
        unchecked = f"{by_address}?ssl_ca_certs={certificates.authority}&ssl_check_hostname=false"
        assert asyncio.run(ping(unchecked)) == b"PONG"

    def test_client_certificate_is_sent(self, certificates: Certificates) -> None:
        with tls_servers.redis(certificates, clients="yes") as url:
            trusted = f"{url}?ssl_ca_certs={certificates.authority}"
            with pytest.raises(StoreUnavailableError):
                asyncio.run(ping(trusted))
            shown = f"{trusted}&ssl_certfile={certificates.client}&ssl_keyfile={certificates.client_key}"
            assert asyncio.run(ping(shown)) == b"PONG"

    @pytest.mark.parametrize(
        ("option", "message"),
        [
            ("ssl_ca_certs=/nowhere/ca.pem", "certificates cannot be read"),
            ("ssl_cert_reqs=maybe", "required or none"),
            ("sslmode=verify-full", "`sslmode` is no option"),
        ],
    )
    def test_invalid_url_option_is_rejected(self, option: str, message: str) -> None:
        with pytest.raises(InvalidAddressError, match=message) as refused:
            asyncio.run(ping(f"rediss://user:hush@{HOST}/?{option}"))
        assert "hush" not in refused.value.message


class TestPostgres:
    def test_trusted_certificate_is_accepted(self, postgres: str, certificates: Certificates) -> None:
        async def go() -> bool:
            url = f"{postgres}&sslrootcert={certificates.authority}"
            await migrate(url)
            database = Database(url)
            await database.open()
            try:
                ((secure,),) = await database.fetch(
                    "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
                )
            finally:
                await database.close()
            return bool(secure)

        assert asyncio.run(go())

    def test_untrusted_certificate_is_rejected(self, postgres: str, certificates: Certificates) -> None:
        url = f"{postgres}&sslrootcert={certificates.other_authority}"
        for attempt in (migrate(url), Database(url).open()):
            with pytest.raises(
                StoreUnavailableError, match=r"certificate of PostgreSQL is not trusted: .*sslrootcert=FILE"
            ):
                asyncio.run(attempt)

    def test_wrong_host_name_is_rejected(self, postgres: str, certificates: Certificates) -> None:
        by_address = postgres.replace(HOST, "127.0.0.1")
        with pytest.raises(StoreUnavailableError, match=r"not valid for '127.0.0.1'"):
            asyncio.run(migrate(f"{by_address}&sslrootcert={certificates.authority}"))


def test_untrusted_broker_certificate_is_rejected(rabbitmq: str, certificates: Certificates) -> None:
    for options in (f"?cacertfile={certificates.other_authority}", ""):
        with pytest.raises(
            ConnectionRefusedByBrokerError, match=r"certificate .* not trusted.*cacertfile=FILE"
        ) as refused:
            asyncio.run(connect(f"{rabbitmq}{options}"))
        assert refused.value.code == "TLS"
        assert ":guest" not in refused.value.message


def test_execution_completes_over_tls(
    redis: str, postgres: str, rabbitmq: str, certificates: Certificates, tmp_path: Path
) -> None:
    settings = Settings(
        home=str(tmp_path),
        journal=f"{postgres}&sslrootcert={certificates.authority}",
        state=f"{redis}?ssl_ca_certs={certificates.authority}",
        queue=f"{rabbitmq}?cacertfile={certificates.authority}",
        in_place=False,
    )
    raw = document(
        [node("start", "input"), node("out", "output", {"value": "$trigger.n"})], "start>out", id="encrypted"
    )

    async def go() -> object:
        async with running_engine(settings) as engine:
            run = await Harness(engine, None).start(raw, {"n": 7})
            await run.end(TIMEOUT_S)
            return (await run.document())["output"]

    assert asyncio.run(go()) == 7
