"""Messages with malformed bytes on a cluster: the workers go on, and `rune dlq` handles the dead letters."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime
from typing import Any

import aio_pika
import pytest

from rune.adapters.redis.encoding import KeySpace
from rune.cli.output import moment
from rune.client import ApiError, Client
from rune.server.health import MetricsEndpoint
from tests.support.backends import redis_command
from tests.support.cli_process import until
from tests.support.cluster_cli import command_line
from tests.support.clusters import Cluster, clusters
from tests.support.documents import document, edit, node
from tests.support.in_process_cli import InProcessCli

pytestmark = [pytest.mark.long, clusters("redis-in_place", "rabbitmq-travelling")]

MALFORMED = b'{"execution_id":"x\xff1"}'


@pytest.fixture
def rune(cluster: Cluster) -> InProcessCli:
    return command_line(cluster.fleet)


def put(cluster: Cluster, body: bytes) -> None:
    """Put a message into the work queue as another program would."""
    settings = cluster.settings

    async def publish() -> None:
        async with await aio_pika.connect(settings.queue) as connection:
            channel = await connection.channel()
            await channel.default_exchange.publish(aio_pika.Message(body), "workflow.execution")

    async def add() -> None:
        stream = KeySpace(settings.prefix).stream(3, "default", "normal")
        await redis_command("XADD", stream, "*", "x", "any", "t", body)  # type: ignore[arg-type]

    asyncio.run(publish() if settings.brokered else add())


def wait_for_letters(rune: InProcessCli, code: str, count: int) -> list[dict[str, Any]]:
    def listed() -> list[dict[str, Any]] | None:
        letters = rune.json("dlq", "list", "--limit", "1000")["dead_letters"]
        found = [each for each in letters if each["code"] == code and "queue" in each]
        return found if len(found) == count else None

    return until(listed, f"{count} dead letters with the code {code}")


def counted_letters(cluster: Cluster) -> float:
    """Return the number of dead letters that a process exports as a metric."""

    async def scrape() -> str:
        async with cluster.connect() as (engine, _):
            return (await MetricsEndpoint(engine).text())[0].decode()

    (line,) = [each for each in asyncio.run(scrape()).splitlines() if each.startswith("rune_dead_messages")]
    return float(line.split()[-1])


def test_malformed_message_ends_no_worker_and_is_a_dead_letter(cluster: Cluster, rune: InProcessCli) -> None:
    before = counted_letters(cluster)
    put(cluster, MALFORMED)
    (letter,) = wait_for_letters(rune, "BAD_MESSAGE", 1)
    assert letter["at"] is not None
    assert counted_letters(cluster) == before + 1
    path = rune.home / "after-malformed.json"
    made = document([node("start", "manual"), edit("one", 1)], "start>one") | {"id": "after-malformed"}
    path.write_text(json.dumps(made))
    assert rune.json("run", str(path), "--no-worker")["status"] == "completed"
    assert len(cluster.fleet.of("worker")) >= 2, "a worker has ended"

    at = moment(round(datetime.fromisoformat(letter["at"]).timestamp() * 1_000))
    (row,) = [each for each in rune.output("dlq", "list").splitlines() if letter["id"] in each]
    assert at in row, "the list shows when it became a dead letter"
    shown = rune.output("dlq", "show", letter["id"])
    assert "BAD_MESSAGE" in shown
    assert f"dead since {at}" in shown
    assert "\ufffd1" in rune.json("dlq", "show", letter["id"])["body"]

    assert rune.json("dlq", "requeue", letter["id"])["requeued"] is True
    (again,) = wait_for_letters(rune, "BAD_MESSAGE", 1)
    assert rune.json("dlq", "drop", again["id"])["dropped"] is True
    wait_for_letters(rune, "BAD_MESSAGE", 0)
    gone = rune("dlq", "drop", again["id"])
    assert gone.exit_code == 2
    assert f"no dead message has the id `{again['id']}`" in gone.stderr


def test_dead_messages_are_handled_over_url(cluster: Cluster) -> None:
    api = cluster.fleet.api()
    remote = InProcessCli(cluster.fleet.folder / "remote", RUNE_URL=api.url)
    try:
        put(cluster, MALFORMED)
        (letter,) = wait_for_letters(remote, "BAD_MESSAGE", 1)
        assert letter["at"] is not None
        assert "\ufffd1" in remote.json("dlq", "show", letter["id"][:8])["body"]
        with Client(api.url) as client:
            (listed,) = client.dead_messages()
            assert (listed.id, listed.queue, listed.at) == (letter["id"], letter["queue"], letter["at"])
            with pytest.raises(ApiError) as missing:
                client.drop_message("m" + "0" * 16)
            assert (missing.value.status, missing.value.code) == (404, "UNKNOWN_DEAD_LETTER")

        assert remote.json("dlq", "requeue", letter["id"])["requeued"] is True
        (again,) = wait_for_letters(remote, "BAD_MESSAGE", 1)
        assert remote.json("dlq", "drop", again["id"])["dropped"] is True
        wait_for_letters(remote, "BAD_MESSAGE", 0)
        actions = [each["action"] for each in remote.json("audit-log")["entries"][:2]]
        assert actions == ["dead_message.drop", "dead_message.requeue"]
    finally:
        api.stop()
