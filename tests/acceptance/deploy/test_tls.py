"""TLS by URL: whoever shows a certificate of our authority is talked to, and nobody else hears anything."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from rune.adapters.postgres.database import Database
from rune.adapters.postgres.migrations import migrate
from rune.adapters.rabbitmq.amqp.client import connect
from rune.adapters.rabbitmq.amqp.errors import ConnectionRefusedByBrokerError
from rune.adapters.redis.client import Client, InvalidAddressError
from rune.bootstrap import running_engine
from rune.ports.journal import StoreUnavailableError
from rune.settings import Settings
from rune.testing.harness import Harness
from tests.acceptance.deploy import secured
from tests.acceptance.deploy.secured import HOST, Papers
from tests.unit.core.documents import document, node

PATIENCE = 120.0
DATABASE = "secured"


@pytest.fixture(scope="module")
def papers() -> Iterator[Papers]:
    with secured.papers() as made:
        yield made


@pytest.fixture(scope="module")
def redis(papers: Papers) -> Iterator[str]:
    with secured.redis(papers) as url:
        yield url


@pytest.fixture(scope="module")
def postgres(papers: Papers) -> Iterator[str]:
    with secured.postgres(papers) as server:
        server.create(DATABASE)
        yield f"postgresql://rune@{HOST}:{server.port}/{DATABASE}?sslmode=verify-full"


@pytest.fixture(scope="module")
def rabbitmq(papers: Papers) -> Iterator[str]:
    with secured.rabbitmq(papers) as (_, port):
        yield f"amqps://guest:guest@{HOST}:{port}/"


async def ping(url: str) -> object:
    client = Client(url)
    try:
        return await client.call("PING")
    finally:
        await client.close()


class TestRedis:
    def test_a_server_of_our_authority_is_talked_to(self, redis: str, papers: Papers) -> None:
        assert asyncio.run(ping(f"{redis}?ssl_ca_certs={papers.authority}")) == b"PONG"
        assert asyncio.run(ping(f"{redis}/0?ssl_cert_reqs=none")) == b"PONG"

    @pytest.mark.parametrize("trusts", ["stranger", "system"])
    def test_a_server_of_another_authority_is_refused(self, redis: str, papers: Papers, trusts: str) -> None:
        option = f"?ssl_ca_certs={papers.stranger}" if trusts == "stranger" else ""
        with pytest.raises(
            StoreUnavailableError, match=r"certificate of Redis is not trusted: .*; name its authority"
        ):
            asyncio.run(ping(redis.replace("//", "//user:hush@") + option))

    def test_a_server_of_another_name_is_refused(self, redis: str, papers: Papers) -> None:
        elsewhere = redis.replace(HOST, "127.0.0.1")
        with pytest.raises(StoreUnavailableError, match=r"not valid for '127.0.0.1'"):
            asyncio.run(ping(f"{elsewhere}?ssl_ca_certs={papers.authority}"))
        unchecked = f"{elsewhere}?ssl_ca_certs={papers.authority}&ssl_check_hostname=false"
        assert asyncio.run(ping(unchecked)) == b"PONG"

    def test_a_server_that_wants_to_know_its_clients_gets_a_certificate(self, papers: Papers) -> None:
        with secured.redis(papers, clients="yes") as url:
            trusted = f"{url}?ssl_ca_certs={papers.authority}"
            with pytest.raises(StoreUnavailableError):
                asyncio.run(ping(trusted))
            shown = f"{trusted}&ssl_certfile={papers.client}&ssl_keyfile={papers.client_key}"
            assert asyncio.run(ping(shown)) == b"PONG"

    @pytest.mark.parametrize(
        ("option", "said"),
        [
            ("ssl_ca_certs=/nowhere/ca.pem", "certificates cannot be read"),
            ("ssl_cert_reqs=maybe", "required or none"),
            ("sslmode=verify-full", "`sslmode` is no option"),
        ],
    )
    def test_an_address_that_does_not_fit_is_refused(self, option: str, said: str) -> None:
        with pytest.raises(InvalidAddressError, match=said) as refused:
            asyncio.run(ping(f"rediss://user:hush@{HOST}/?{option}"))
        assert "hush" not in refused.value.message


class TestPostgres:
    def test_a_server_of_our_authority_is_talked_to(self, postgres: str, papers: Papers) -> None:
        async def go() -> bool:
            url = f"{postgres}&sslrootcert={papers.authority}"
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

    def test_a_server_of_another_authority_is_refused(self, postgres: str, papers: Papers) -> None:
        url = f"{postgres}&sslrootcert={papers.stranger}"
        for attempt in (migrate(url), Database(url).open()):
            with pytest.raises(
                StoreUnavailableError, match=r"certificate of PostgreSQL is not trusted: .*sslrootcert=FILE"
            ):
                asyncio.run(attempt)

    def test_a_server_of_another_name_is_refused(self, postgres: str, papers: Papers) -> None:
        elsewhere = postgres.replace(HOST, "127.0.0.1")
        with pytest.raises(StoreUnavailableError, match=r"not valid for '127.0.0.1'"):
            asyncio.run(migrate(f"{elsewhere}&sslrootcert={papers.authority}"))


def test_a_broker_of_another_authority_is_refused(rabbitmq: str, papers: Papers) -> None:
    for options in (f"?cacertfile={papers.stranger}", ""):
        with pytest.raises(
            ConnectionRefusedByBrokerError, match=r"certificate .* not trusted.*cacertfile=FILE"
        ) as refused:
            asyncio.run(connect(f"{rabbitmq}{options}"))
        assert refused.value.code == "TLS"
        assert ":guest" not in refused.value.message


def test_an_execution_runs_where_everything_is_encrypted(
    redis: str, postgres: str, rabbitmq: str, papers: Papers, tmp_path: Path
) -> None:
    settings = Settings(
        home=str(tmp_path),
        journal=f"{postgres}&sslrootcert={papers.authority}",
        state=f"{redis}?ssl_ca_certs={papers.authority}",
        queue=f"{rabbitmq}?cacertfile={papers.authority}",
        in_place=False,
    )
    raw = document(
        [node("start", "input"), node("out", "output", {"value": "$trigger.n"})], "start>out", id="encrypted"
    )

    async def go() -> object:
        async with running_engine(settings) as engine:
            run = await Harness(engine, None).start(raw, {"n": 7})
            await run.end(PATIENCE)
            return (await run.document())["output"]

    assert asyncio.run(go()) == 7
