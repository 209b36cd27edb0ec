"""Executions whose node type no worker has: they end as dead letters, which commands list and requeue."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rune.nodes.registry import full_registry, standard_registry
from tests.support.backends import Backend, backends, end_status
from tests.support.cli_process import Rune
from tests.support.cluster_cli import command_line_for, store_environment
from tests.support.in_process_cli import InProcessCli
from tests.support.waiting import until
from tests.support.workflows import of_type, workflow

pytestmark = pytest.mark.long

NODES = "tests.support.process_nodes"
MISSING = workflow("start>a", a=of_type("place.process"))


@pytest.fixture
def rune(backend: Backend) -> InProcessCli:
    return command_line_for(backend.settings, RUNE_NODES=NODES)


@pytest.fixture(autouse=True)
def _short_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rune.runtime.worker.worker.MISSING_TYPE_TIMEOUT_S", 0.5)


async def accept(backend: Backend) -> str:
    """Start an execution in a process that runs no nodes."""
    async with backend.open(registry=full_registry([NODES]), roles=frozenset({"scheduler"})) as engine:
        return (await engine.start(MISSING)).id


def give_up(backend: Backend) -> str:
    """Start an execution, and let a worker without its node type give it up; return its id."""

    async def go() -> str:
        execution = await accept(backend)
        async with backend.open(registry=standard_registry()) as engine:
            assert await end_status(engine, execution) == "failed"
            messages = engine.engine.services.dead_messages

            async def listed() -> bool:
                return bool(await messages.list())

            await until(listed, "the message is dead")
        return execution

    return asyncio.run(go())


@backends("redis", "rabbitmq")
def test_execution_that_failed_for_a_missing_type_is_a_dead_letter(
    backend: Backend, rune: InProcessCli
) -> None:
    execution = give_up(backend)

    assert rune.json("dlq", "show", execution)["code"] == "UNKNOWN_TYPE"
    again = rune.json("dlq", "requeue", execution)["execution_id"]

    async def run_again() -> str:
        async with backend.open(registry=full_registry([NODES])) as engine:
            return await end_status(engine, again)

    assert asyncio.run(run_again()) == "completed"
    assert execution not in [each["id"] for each in rune.json("dlq")["dead_letters"]]


@backends("redis", "rabbitmq")
def test_requeue_of_message_whose_execution_has_ended_names_the_command_for_the_execution(
    backend: Backend, rune: InProcessCli
) -> None:
    execution = give_up(backend)
    (message,) = [each for each in rune.json("dlq")["dead_letters"] if each["id"] != execution]

    refused = rune("dlq", "requeue", message["id"])

    assert refused.exit_code != 0
    assert f"`rune dlq requeue {execution}`" in refused.output
    assert f"`rune dlq drop {message['id']}`" in refused.output
    assert message["id"] in [each["id"] for each in rune.json("dlq")["dead_letters"]]


@backends("redis", "rabbitmq")
def test_commands_without_the_node_type_name_the_setting(backend: Backend) -> None:
    execution = asyncio.run(accept(backend))
    rune = command_line_for(backend.settings)

    refused = rune("signal", execution, "go")
    assert refused.exit_code == 2
    assert "this command was started without the node type `place.process`" in refused.output
    assert "set RUNE_NODES=MODULE as the workers have" in refused.output

    assert rune("cancel", execution).exit_code == 0
    (problem,) = rune.json("retry", execution, code=2)["problems"]
    assert "set RUNE_NODES=MODULE as the workers have" in problem["message"]


@backends("redis")
def test_preview_of_a_bulk_job_counts_what_the_job_changes(backend: Backend, rune: InProcessCli) -> None:
    execution = give_up(backend)
    lacking = command_line_for(backend.settings)

    assert rune.json("bulk", "start", "requeue", execution, "--dry-run")["eligible"] == 1
    for action in ("requeue", "retry"):
        preview = lacking.json("bulk", "start", action, execution, "--dry-run")
        assert (preview["total"], preview["eligible"]) == (1, 0)
    assert lacking.json("bulk", "start", "requeue", execution, code=1)["refused"] == 1


@backends("redis")
def test_cancel_without_the_node_type_logs_one_line(backend: Backend) -> None:
    execution = asyncio.run(accept(backend))

    rune = Rune(Path(backend.settings.home), **store_environment(backend.settings))
    done = rune("cancel", execution)

    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert len([each for each in done.stderr.splitlines() if "RUNE_NODES" in each]) == 1


@backends("redis", "rabbitmq")
def test_message_of_a_cancelled_execution_is_no_dead_letter(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rune.runtime.worker.worker.MISSING_TYPE_TIMEOUT_S", 0.0)
    ordered: dict[str, Any] = {"partitions": 1, "slots": 1}  # one message is handled after the other

    async def go() -> tuple[str, list[str | None]]:
        types = full_registry([NODES])
        async with backend.open(registry=types, roles=frozenset({"scheduler"}), **ordered) as engine:
            cancelled, failing = [(await engine.start(MISSING)).id for _ in range(2)]
            await engine.engine.services.executions.cancel(cancelled)
        async with backend.open(registry=standard_registry(), **ordered) as engine:
            messages = engine.engine.services.dead_messages

            async def listed() -> bool:
                return failing in [each.execution for each in await messages.list()]

            await until(listed, "the other message is dead")
            return failing, [each.execution for each in await messages.list()]

    failing, dead = asyncio.run(go())
    assert dead == [failing]
