"""Commands on a cluster over RabbitMQ: dead letters, topology, starts for the legacy engine."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from rune.adapters.rabbitmq.amqp.client import connect
from rune.client import ApiError
from tests.support.amqp_client import open_client
from tests.support.api_server import running_server
from tests.support.cli_process import Rune, until
from tests.support.cluster_cli import command_line, until_ended
from tests.support.clusters import Cluster, clusters
from tests.support.documents import document, edit, node
from tests.support.in_process_cli import InProcessCli

pytestmark = clusters("rabbitmq-travelling")


@pytest.fixture
def rune(cluster: Cluster) -> InProcessCli:
    return command_line(cluster.fleet)


def deploy(rune: InProcessCli, made: dict[str, Any]) -> None:
    path = rune.home / f"{made['id']}.json"
    path.write_text(json.dumps(made))
    rune.output("deploy", str(path))


def wait_for_dead_letter(rune: InProcessCli, execution: str) -> dict[str, Any]:
    def listed() -> dict[str, Any] | None:
        found = rune.json("dlq", "list", "--limit", "1000")["dead_letters"]
        return next((each for each in found if each["execution_id"] == execution), None)

    return until(listed, f"{execution} is a dead letter")


def publish(url: str, execution: str, current: str = "missing", **outputs: Any) -> None:
    made = document([node("start", "manual"), edit("one", 1), edit("two", 2)], "start>one", "one>two")
    message = {
        "workflow_id": "w",
        "execution_id": execution,
        "current_node": current,
        "workflow_definition": made,
        "accumulated_context": {"$trigger": {}} | {f"${name}": value for name, value in outputs.items()},
    }

    async def send() -> None:
        async with open_client(url) as client:
            await client.publish(message)

    asyncio.run(send())


def test_dead_letter_is_listed_and_shown(rune: InProcessCli, amqp: str) -> None:
    publish(amqp, "exec_listed")
    listed = wait_for_dead_letter(rune, "exec_listed")
    assert (listed["code"], listed["queue"], listed["node_id"]) == (
        "UNKNOWN_NODE",
        "workflow.execution",
        "missing",
    )
    shown = rune.json("dlq", "show", listed["id"])
    assert json.loads(shown["body"])["execution_id"] == "exec_listed"
    assert "UNKNOWN_NODE" in rune("dlq", "show", listed["id"]).output


def test_requeued_dead_letter_is_dead_lettered_again(rune: InProcessCli, amqp: str) -> None:
    publish(amqp, "exec_again")
    first = wait_for_dead_letter(rune, "exec_again")
    assert rune.json("dlq", "requeue", first["id"])["requeued"] is True
    assert wait_for_dead_letter(rune, "exec_again")["id"] == first["id"]


def test_list_of_dead_letters_says_that_it_is_cut(rune: InProcessCli, amqp: str) -> None:
    for number in range(3):
        publish(amqp, f"exec_many_{number}")
        wait_for_dead_letter(rune, f"exec_many_{number}")
    assert "the oldest 2 messages; there are more" in rune("dlq", "--limit", "2").output
    assert rune.json("dlq", "--limit", "2")["more"] is True
    assert "there are more" not in rune("dlq", "--limit", "1000").output
    assert rune.json("dlq", "--limit", "1000")["more"] is False


def test_dropped_dead_letter_is_removed(rune: InProcessCli, amqp: str) -> None:
    publish(amqp, "exec_dropped")
    found = wait_for_dead_letter(rune, "exec_dropped")
    assert rune.json("dlq", "drop", found["id"])["dropped"] is True
    left = rune.json("dlq", "list", "--limit", "1000")["dead_letters"]
    assert "exec_dropped" not in [each["execution_id"] for each in left]


def test_start_at_inner_node_passes_audit(rune: InProcessCli, amqp: str) -> None:
    """Given outputs count as kept results, however large, and not as unclaimed effects."""
    large = "x" * 100_000
    publish(amqp, "exec_middle", "two", one={"k": large})
    until(lambda: rune("show", "exec_middle").exit_code == 0 or None, "the execution exists")
    shown = until_ended(rune, "exec_middle")
    assert shown["status"] == "completed"
    written = len(json.dumps({"k": large}))  # outputs are kept as they were sent
    assert shown["context"]["$one"] == {"$ref": "exec_middle/one@/", "bytes": written}
    assert rune.json("verify", "exec_middle")["violations"] == 0


def test_topology_shows_importable_definitions(rune: InProcessCli) -> None:
    shown = rune.json("topology")
    assert "workflow.execution.dead" in [each["name"] for each in shown["queues"]]
    assert "workflow.node.status" in rune("topology").output
    made = json.loads(rune("topology", "--definitions").stdout)
    assert {each["name"] for each in made["users"]} == {"rune-worker", "rune-master"}
    assert {each["name"] for each in made["queues"]} == {each["name"] for each in shown["queues"]}


async def _take_legacy_start(url: str) -> dict[str, Any]:
    """Take the message for the legacy engine from its queue."""
    connection = await connect(url)
    try:
        channel = await connection.channel()
        message = await channel.get("workflow.started")
        assert message is not None
        channel.ack(message.tag)
        found: dict[str, Any] = json.loads(message.body)
        return found
    finally:
        await connection.close()


def test_start_for_legacy_engine_is_published(rune: InProcessCli, amqp: str) -> None:
    made = document([node("start", "manual"), edit("one", 1)], "start>one")
    made |= {"id": "elsewhere", "settings": {"executor": "legacy"}}
    deploy(rune, made)
    started = rune.json("start", "elsewhere", "--input", '{"n": 7}')
    message = asyncio.run(_take_legacy_start(amqp))
    assert message["execution_id"] == started["execution_id"]
    assert message["accumulated_context"] == {"$trigger": {"n": 7}}
    assert message["current_node"] == "one"

    async def publish_to_workers() -> dict[str, Any]:
        """The workers run what is published to them, whatever the definition's executor is."""
        async with open_client(amqp) as client:
            await client.publish(message)
            return await client.wait_for_completion(message["execution_id"])

    assert asyncio.run(publish_to_workers())["status"] == "completed"


def test_start_that_waits_for_another_engine_is_refused_and_publishes_nothing(
    rune: InProcessCli, cluster: Cluster, tmp_path: Path
) -> None:
    """Nothing is started, so that repeating the request starts nothing twice."""
    made = document([node("start", "manual"), edit("one", 1)], "start>one")
    made |= {"id": "waited-elsewhere", "settings": {"executor": "legacy"}}
    file = tmp_path / "elsewhere.json"
    file.write_text(json.dumps(made))
    deploy(rune, made)
    given = {name: value for name, value in cluster.fleet.environment.items() if name.startswith("RUNE_")}
    process = Rune(Path(given.pop("RUNE_HOME")), **given)
    for command in (
        ["start", "waited-elsewhere", "--wait"],
        ["run", str(file)],
        ["run", str(file), "--no-worker"],
    ):
        ended = process(*command, "--json")
        assert ended.returncode == 2
        assert json.loads(ended.stdout)["problems"][0]["code"] == "RUNS_ELSEWHERE", command

    async def request() -> None:
        async with running_server(tmp_path, on=cluster.settings, working=False) as server:
            for starting in (
                server.client.start("waited-elsewhere", wait=5.0),
                server.client.start_definition(made, wait=5.0),
                server.client.run(made),
            ):
                with pytest.raises(ApiError) as refused:
                    await starting
                assert (refused.value.status, refused.value.code) == (409, "RUNS_ELSEWHERE")

    asyncio.run(request())
    started = rune("start", "waited-elsewhere")
    assert asyncio.run(_take_legacy_start(cluster.settings.queue))["execution_id"] == started.stdout.strip()
    assert "Another engine runs it" in started.stderr


def test_worker_can_consume_starts_for_legacy_engine(rune: InProcessCli, amqp: str, cluster: Cluster) -> None:
    made = document([node("start", "manual"), edit("one", 1)], "start>one")
    deploy(rune, made | {"id": "taken-over", "settings": {"executor": "legacy"}})

    async def start_twice() -> dict[str, Any]:
        async with open_client(amqp) as client:
            started = await asyncio.to_thread(rune.json, "start", "taken-over", "--key", "once")
            again = await asyncio.to_thread(rune.json, "start", "taken-over", "--key", "once")
            assert started["execution_id"] == again["execution_id"]
            return await client.wait_for_completion(started["execution_id"])

    worker = cluster.start_worker(RUNE_LEGACY_CONSUME="true")
    try:
        assert asyncio.run(start_twice())["status"] == "completed"
    finally:
        worker.kill()


def test_cancel_publishes_one_completion(rune: InProcessCli, amqp: str) -> None:
    gate = node("gate", "wait", parameters={"resume": "signal"})
    made = document([node("start", "manual"), gate], "start>gate")
    deploy(rune, made | {"id": "gated-ended"})

    async def cancelled() -> tuple[str, list[bytes]]:
        async with open_client(amqp) as client:
            execution = (await asyncio.to_thread(rune.json, "start", "gated-ended"))["execution_id"]
            await asyncio.to_thread(rune.json, "cancel", execution)
            completion = await client.wait_for_completion(execution)
            return completion["status"], client.completions(execution)

    status, bodies = asyncio.run(cancelled())
    assert status == "cancelled"
    assert len(bodies) == 1
