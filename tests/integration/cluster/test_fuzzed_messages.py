"""Thousands of malformed messages on a cluster: the same worker completes executions afterwards, and `rune dlq` finds
every dead letter, also one that is not among the oldest."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random

import aio_pika
import pytest

from rune.adapters.rabbitmq.dead_letters import DeadLetters
from rune.adapters.rabbitmq.topology import Topology
from rune.adapters.redis.cluster import open_client
from rune.adapters.redis.dead_letters import RedisDeadLetters
from rune.adapters.redis.encoding import KeySpace, encode_token
from rune.codec.messages import NO_CONTEXT, encode_hint
from rune.core.execution.token import Token
from rune.ports.queue import LANES, DeadLetterQueue
from rune.settings import Settings
from tests.contract.suites.malformed_messages import mutated
from tests.support.cli_process import until
from tests.support.cluster_cli import command_line
from tests.support.clusters import Cluster, open_cluster
from tests.support.documents import document, edit, node
from tests.support.in_process_cli import InProcessCli
from tests.support.services.redis_cluster import redis_cluster_servers
from tests.support.whole import WHOLE

pytestmark = pytest.mark.long

MESSAGES = 20_000 if WHOLE else 2_000
BATCH = 500
LISTED = 1_000
LAST = b'{"execution_id":"x\xff1"}'
"""The body of the message that is sent after all others."""

TOKENS = (Token(3), Token(1, (0, 7)), Token(2, attempt=3, resumed=True, at=17))
FOREIGN = (
    b'{"workflow_id":"w","execution_id":"x1","current_node":"a","workflow_definition":{"nodes":[]},'
    b'"accumulated_context":{"$trigger":{"a":1}}}'
)


@pytest.fixture(scope="module", params=["redis", "redis-cluster", "rabbitmq"])
def single_worker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """A cluster with one worker, for the tests of this module."""
    backend, _, kind = request.param.partition("-")
    folder = tmp_path_factory.mktemp("cluster")
    redis_url = redis_cluster_servers().url if kind else ""
    with open_cluster(folder, backend, workers=1, redis_url=redis_url, in_place=False) as made:
        yield made


async def publish(settings: Settings) -> tuple[str, bytes]:
    """Publish mutated messages, and then the last; return the queue and the content of its dead letter."""
    random = Random(35)
    valid = [encode_hint(f"x{number}", each, NO_CONTEXT, 5) for number, each in enumerate(TOKENS)] + [FOREIGN]
    async with await aio_pika.connect(settings.queue) as connection:
        channel = await connection.channel(publisher_confirms=False)
        for _ in range(MESSAGES):
            body = mutated(random, random.choice(valid))
            await channel.default_exchange.publish(aio_pika.Message(body), "workflow.execution")
        await channel.default_exchange.publish(aio_pika.Message(LAST), "workflow.execution")
    return "workflow.execution", LAST


async def add(settings: Settings) -> tuple[str, bytes]:
    """Add mutated entries to the streams of all partitions, and then the last; return the same as `publish`."""
    random = Random(35)
    keys = KeySpace(settings.prefix)
    client = open_client(settings.state)

    def entry(number: int) -> tuple[str | bytes, ...]:
        body = mutated(random, encode_token(random.choice(TOKENS)))
        name = (b"x", b"x", b"x", b"\xff", body[:20])[number % 5]
        fields = (b"x", name, b"t", body) if number % 7 else (b"t", body)
        part, lane = number % keys.partitions, random.choice(LANES)
        return "XADD", keys.stream(part, "default", lane), "*", *fields

    for start in range(0, MESSAGES, BATCH):
        await asyncio.gather(*(client.call(*entry(start + each)) for each in range(BATCH)))
    last = keys.stream(0, "default", "normal")
    await client.call("XADD", last, "*", "x", "any", "t", LAST)
    await client.close()
    return last, b"x=any t=" + LAST


def completes(rune: InProcessCli, name: str) -> bool:
    path = Path(rune.home) / f"{name}.json"
    path.write_text(
        json.dumps(document([node("start", "manual"), edit("one", 1)], "start>one") | {"id": name})
    )
    return bool(rune.json("run", str(path), "--no-worker")["status"] == "completed")


async def letter_of(settings: Settings, queue: str, body: bytes) -> str | None:
    """Return the id of the dead letter that a message became."""
    letters: DeadLetterQueue
    client = open_client(settings.state)
    try:
        if settings.brokered:
            letters = DeadLetters(settings.queue, Topology())
        else:
            letters = RedisDeadLetters(client, KeySpace(settings.prefix))
        found = await letters.list(100_000)
    finally:
        await client.close()
    return next((each.id for each in found if (each.queue, each.body) == (queue, body)), None)


def _shown(rune: InProcessCli, letter: str) -> str | None:
    """Return what is shown of a dead letter; None while another process holds it."""
    done = rune("dlq", "show", letter)
    return done.output if done.exit_code == 0 else None


def test_worker_serves_after_fuzzed_messages_and_dlq_finds_them(single_worker: Cluster) -> None:
    settings = single_worker.settings
    rune = command_line(single_worker.fleet)
    (worker,) = single_worker.fleet.of("worker")
    assert completes(rune, "before-fuzzed")
    queue, body = asyncio.run(publish(settings) if settings.brokered else add(settings))
    assert completes(rune, "after-fuzzed")
    assert worker.alive, worker.output()[-2_000:]

    last = until(lambda: asyncio.run(letter_of(settings, queue, body)), "the last message is a dead letter")
    assert "BAD_MESSAGE" in until(lambda: _shown(rune, last), "no other process holds the letter")
    listed = rune.json("dlq", "list", "--limit", str(LISTED))["dead_letters"]
    assert len(listed) == LISTED
    assert all(each["code"] and each["message"] and each["at"] for each in listed)
    assert last not in {each["id"] for each in listed}, "it is not among the oldest"

    api = single_worker.fleet.api()
    remote = InProcessCli(single_worker.fleet.folder / "remote", RUNE_URL=api.url)
    try:
        until(lambda: _shown(remote, last), "no other process holds the letter")
        assert "\ufffd1" in remote.json("dlq", "show", last)["body"]
        assert remote.json("dlq", "drop", last)["dropped"] is True
        assert remote("dlq", "show", last).exit_code != 0
    finally:
        api.stop()
    assert completes(rune, "after-dropped")
    assert single_worker.fleet.of("worker") == [worker]
