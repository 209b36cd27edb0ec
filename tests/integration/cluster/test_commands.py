"""Commands on a cluster over Redis."""

from __future__ import annotations

import asyncio
import json
import pathlib
import time
from typing import Any

import pytest

from rune.core.execution.fact import ExecutionEnded
from rune.core.execution.outcome import Error
from rune.testing.harness import compiled
from tests.support.cli_process import until
from tests.support.cluster_cli import GATED, HALTS, command_line, until_ended, until_waiting, with_id
from tests.support.clusters import Cluster, clusters
from tests.support.in_process_cli import InProcessCli

pytestmark = clusters("redis-in_place")


@pytest.fixture
def rune(cluster: Cluster) -> InProcessCli:
    return command_line(cluster.fleet)


def _file(folder: pathlib.Path, raw: dict[str, Any]) -> str:
    path = folder / f"{raw['id']}.json"
    path.write_text(json.dumps(raw))
    return str(path)


@pytest.mark.parametrize("part", ["--worker", "--no-worker"])
def test_run_waits_for_end(part: str, rune: InProcessCli, tmp_path: pathlib.Path) -> None:
    good = with_id({**GATED, "nodes": GATED["nodes"][:2], "edges": GATED["edges"][:1]}, f"good{part}")
    result = rune.json("run", _file(tmp_path, good), part, "--input", '{"n": 3}')
    assert (result["status"], result["context"]["$first"]) == ("completed", {"k": 1})
    assert "completed" in rune.output("run", _file(tmp_path, good), part)
    assert rune.json("run", _file(tmp_path, with_id(HALTS, f"bad{part}")), part, code=1)["status"] == "halted"


def test_commands_from_deploy_to_audit(rune: InProcessCli, tmp_path: pathlib.Path) -> None:
    path = _file(tmp_path, with_id(GATED, "story"))
    assert rune.json("deploy", path, "--alias", "stable")["version"] == 1
    assert "story" in [each["workflow_id"] for each in rune.json("workflows")["workflows"]]
    assert rune.json("workflows", "show", "story@stable")["version"] == 1
    execution = rune.json("start", "story@stable", "--input", '{"n": 7}', "--key", "story-1")["execution_id"]
    assert (
        rune.json("start", "story@stable", "--input", '{"n": 7}', "--key", "story-1")["execution_id"]
        == execution
    )
    until_waiting(rune, execution)
    assert execution in [
        each["execution_id"] for each in rune.json("list", "--workflow", "story")["executions"]
    ]

    assert rune.json("pause", execution)["changed"] is True
    assert rune.json("show", execution)["status"] == "paused"
    assert rune.json("signal", execution, "go", "--value", '"went"')["resumed"] is False  # still paused
    assert rune.json("show", execution)["status"] == "paused"
    assert rune.json("resume", execution)["changed"] is True

    assert "completed" in rune.output("watch", execution)
    assert until_ended(rune, execution)["output"] == [7, "went"]
    assert rune.json("verify", execution)["violations"] == 0
    for command in (("cancel", execution), ("pause", execution), ("signal", execution, "go")):
        assert rune.json(*command, code=1)["problems"][0]["code"] == "ENDED"


def test_cancelled_execution_can_be_retried_and_rerun(rune: InProcessCli, tmp_path: pathlib.Path) -> None:
    rune.json("deploy", _file(tmp_path, with_id(GATED, "again")))
    execution = rune.json("start", "again", "--input", '{"n": 1}')["execution_id"]
    until_waiting(rune, execution)
    assert rune.json("cancel", execution, "--reason", "enough")["status"] == "cancelled"
    other = rune.json("retry", execution)["execution_id"]
    until_waiting(rune, other)
    assert rune.json("signal", other, "go", "--value", "2")["resumed"] is True
    assert until_ended(rune, other)["output"] == [1, 2]
    assert rune.json("retry", other, code=1)["problems"][0]["code"] == "NOTHING_TO_RUN"
    rerun = rune.json("rerun", other, "--from", "out", "--wait")
    assert (rerun["status"], rerun["retry_of"], rerun["output"]) == ("completed", other, [1, 2])


def test_dead_letters_are_shown_dropped_and_requeued(
    cluster: Cluster, rune: InProcessCli, tmp_path: pathlib.Path
) -> None:
    async def dead_letter() -> list[str]:
        """Start executions and end them as dead letters."""
        async with cluster.connect() as (engine, _):
            plan = compiled(with_id(GATED, "letters"), engine.registry)
            found = []
            for _ in range(2):
                accepted, _ = await engine.start(plan, b'{"n": 1}')
                failure = Error("DEAD_LETTERED", "the engine could not handle gate@/", engine=True)
                end = ExecutionEnded(time.time_ns() // 1_000_000, "failed", failure)
                await engine.backend.journal.record(accepted.id, [end])
                found.append(accepted.id)
            return found

    dropped, requeued = asyncio.run(dead_letter())
    assert {dropped, requeued} <= {each["id"] for each in rune.json("dlq")["dead_letters"]}
    assert rune.json("dlq", "show", dropped)["code"] == "DEAD_LETTERED"
    assert rune.json("dlq", "drop", dropped) == {"id": dropped, "dropped": True}
    again = rune.json("dlq", "requeue", requeued)["execution_id"]
    until_waiting(rune, again)
    assert not {dropped, requeued} & {each["id"] for each in rune.json("dlq", "list")["dead_letters"]}
    rune.json("cancel", again)


def test_credentials_are_added_rotated_and_removed(rune: InProcessCli) -> None:
    done = rune("credentials", "add", "shop", "--type", "bearer", "--host", "*", "--json", stdin="a-token")
    assert done.exit_code == 0, done.output
    assert "a-token" not in done.output
    assert "shop" in [each["name"] for each in rune.json("credentials", "list")["credentials"]]
    assert rune("credentials", "rotate", "shop", "--json", stdin="another").exit_code == 0
    assert rune.json("credentials", "show", "shop")["version"] == 2
    assert rune.json("credentials", "remove", "shop")["name"] == "shop"


def test_gc_removes_ended_executions(rune: InProcessCli, tmp_path: pathlib.Path) -> None:
    path = _file(tmp_path, with_id(HALTS, "litter"))
    found = [rune.json("run", path, "--no-worker", code=1)["execution_id"] for _ in range(3)]
    options = ("--workflow", "litter", "--keep", "1")
    assert rune.json("prune", *options, "--dry-run")["executions"] == 2
    assert rune.json("prune", *options)["executions"] == 2
    left = [each["execution_id"] for each in rune.json("list", "--workflow", "litter")["executions"]]
    assert left == found[2:]
    assert rune("show", found[0]).exit_code == 2


def test_prune_does_not_speak_of_a_file(rune: InProcessCli, tmp_path: pathlib.Path) -> None:
    rune.json("run", _file(tmp_path, with_id(HALTS, "pruned")), "--no-worker", code=1)
    for options in ((), ("--dry-run",), ("--vacuum",)):
        printed = rune("prune", "--workflow", "pruned", "--keep", "0", *options)
        assert printed.exit_code == 0
        assert "database size" in printed.stdout
        assert "file" not in printed.stdout


def test_workers_lists_live_processes(cluster: Cluster, rune: InProcessCli) -> None:
    listed = rune.json("workers")["workers"]
    ours = {each.process.pid: [each.role] for each in cluster.fleet.processes if each.alive}
    assert {each["pid"]: each["roles"] for each in listed if each["pid"] in ours} == ours
    assert "default" in rune.output("workers")
    builds = {each["build"] for each in listed}
    assert len(builds) == 1, "all processes run the same build"
    assert builds.pop() in rune.output("workers")
    assert rune.json("migrate") == {"status": "ok", "steps": []}


def test_drained_worker_is_shown_until_resumed(cluster: Cluster, rune: InProcessCli) -> None:
    worker = next(each for each in rune.json("workers")["workers"] if each["roles"] == ["worker"])

    def draining() -> bool:
        found = {each["name"]: each for each in rune.json("workers", "list")["workers"]}
        return bool(found[worker["name"]]["draining"])

    assert rune.json("workers", "drain", worker["name"]) == {"id": worker["name"], "draining": True}
    until(lambda: draining() or None, "the worker drains")
    assert "worker, drained" in rune.output("workers")
    assert "asked" in rune.output("workers", "resume", worker["name"])
    until(lambda: not draining() or None, "the worker is ready")
    assert rune.json("workers", "drain", "nobody", code=2)["problems"][0]["code"] == "UNKNOWN_WORKER"


def test_doctor_checks_both_stores(rune: InProcessCli) -> None:
    report = rune.json("doctor")
    checks = {each["check"]: each for each in report["checks"]}
    assert report["status"] == "ok"
    warnings = {name for name, each in checks.items() if each["verdict"] == "warn"}
    # A store of a busy machine may respond slowly.
    assert {"redis persistence"} <= warnings <= {"redis persistence", "postgresql", "redis"}
    assert checks["workers"]["found"] == "2, of default"
    assert checks["schedulers"]["found"] == "1"
    assert "responds in" in checks["postgresql"]["found"]
    assert "noeviction" in checks["redis memory"]["found"]
    assert "schema" in rune.output("doctor")


def test_audit_of_all_executions_finds_no_violation(rune: InProcessCli) -> None:
    report = rune.json("verify", "--all")
    assert report["violations"] == 0, report
