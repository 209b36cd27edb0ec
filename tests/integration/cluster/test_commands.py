"""Every command over a cluster."""

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
from tests.acceptance.cli.here import Here
from tests.integration.cluster.commands import GATED, HALTS, ended, here, named, waits
from tests.integration.cluster.standing import Standing


@pytest.fixture
def rune(in_place: Standing) -> Here:
    return here(in_place.fleet)


def _file(folder: pathlib.Path, raw: dict[str, Any]) -> str:
    path = folder / f"{raw['id']}.json"
    path.write_text(json.dumps(raw))
    return str(path)


@pytest.mark.parametrize("part", ["--worker", "--no-worker"])
def test_run_sees_an_execution_to_its_end(part: str, rune: Here, tmp_path: pathlib.Path) -> None:
    good = named({**GATED, "nodes": GATED["nodes"][:2], "edges": GATED["edges"][:1]}, f"good{part}")
    told = rune.json("run", _file(tmp_path, good), part, "--input", '{"n": 3}')
    assert (told["status"], told["context"]["$first"]) == ("completed", {"k": 1})
    assert "completed" in rune.said("run", _file(tmp_path, good), part)
    assert rune.json("run", _file(tmp_path, named(HALTS, f"bad{part}")), part, code=1)["status"] == "halted"


def test_an_execution_is_followed_from_deploy_to_audit(rune: Here, tmp_path: pathlib.Path) -> None:
    path = _file(tmp_path, named(GATED, "story"))
    assert rune.json("deploy", path, "--alias", "stable")["version"] == 1
    assert "story" in [each["workflow_id"] for each in rune.json("workflows")["workflows"]]
    assert rune.json("workflows", "show", "story@stable")["version"] == 1
    it = rune.json("start", "story@stable", "--input", '{"n": 7}', "--key", "story-1")["execution_id"]
    assert rune.json("start", "story@stable", "--input", '{"n": 7}', "--key", "story-1")["execution_id"] == it
    waits(rune, it)
    assert it in [each["execution_id"] for each in rune.json("list", "--workflow", "story")["executions"]]

    assert rune.json("pause", it)["changed"] is True
    assert rune.json("show", it)["status"] == "paused"
    assert rune.json("signal", it, "go", "--value", '"went"')["resumed"] is False  # not before the resume
    assert rune.json("show", it)["status"] == "paused"
    assert rune.json("resume", it)["changed"] is True

    assert "completed" in rune.said("watch", it)
    assert ended(rune, it)["output"] == [7, "went"]
    assert rune.json("audit", it)["violations"] == 0
    for command in (("cancel", it), ("pause", it), ("signal", it, "go")):
        assert rune.json(*command, code=1)["problems"][0]["code"] == "ENDED"


def test_what_waits_can_be_cancelled_and_done_again(rune: Here, tmp_path: pathlib.Path) -> None:
    rune.json("deploy", _file(tmp_path, named(GATED, "again")))
    it = rune.json("start", "again", "--input", '{"n": 1}')["execution_id"]
    waits(rune, it)
    assert rune.json("cancel", it, "--reason", "enough")["status"] == "cancelled"
    other = rune.json("retry", it)["execution_id"]
    waits(rune, other)
    assert rune.json("signal", other, "go", "--value", "2")["resumed"] is True
    assert ended(rune, other)["output"] == [1, 2]
    assert rune.json("retry", other, code=1)["problems"][0]["code"] == "NOTHING_TO_RUN"
    third = rune.json("rerun", other, "--from", "out", "--wait")
    assert (third["status"], third["retry_of"], third["output"]) == ("completed", other, [1, 2])


def test_a_dead_letter_is_shown_dropped_and_tried_again(
    in_place: Standing, rune: Here, tmp_path: pathlib.Path
) -> None:
    async def give_up() -> list[str]:
        """Executions that the engine could not go on with."""
        async with in_place.asked() as (engine, _):
            plan = compiled(named(GATED, "letters"), engine.registry)
            found = []
            for _ in range(2):
                accepted, _ = await engine.start(plan, b'{"n": 1}')
                failure = Error("DEAD_LETTERED", "the engine could not handle gate@/", engine=True)
                end = ExecutionEnded(time.time_ns() // 1_000_000, "failed", failure)
                await engine.backend.journal.record(accepted.id, [end])
                found.append(accepted.id)
            return found

    dropped, tried = asyncio.run(give_up())
    assert {dropped, tried} <= {each["id"] for each in rune.json("dlq")["dead_letters"]}
    assert rune.json("dlq", "show", dropped)["code"] == "DEAD_LETTERED"
    assert rune.json("dlq", "drop", dropped) == {"id": dropped, "dropped": True}
    again = rune.json("dlq", "requeue", tried)["execution_id"]
    waits(rune, again)
    assert not {dropped, tried} & {each["id"] for each in rune.json("dlq", "list")["dead_letters"]}
    rune.json("cancel", again)


def test_credentials_are_kept_for_all(rune: Here) -> None:
    done = rune("credentials", "add", "shop", "--type", "bearer", "--json", stdin="a-token")
    assert done.exit_code == 0, done.output
    assert "a-token" not in done.output
    assert "shop" in [each["name"] for each in rune.json("credentials", "list")["credentials"]]
    assert rune("credentials", "rotate", "shop", "--json", stdin="another").exit_code == 0
    assert rune.json("credentials", "show", "shop")["version"] == 2
    assert rune.json("credentials", "remove", "shop")["name"] == "shop"


def test_gc_removes_what_has_ended(rune: Here, tmp_path: pathlib.Path) -> None:
    path = _file(tmp_path, named(HALTS, "litter"))
    found = [rune.json("run", path, "--no-worker", code=1)["execution_id"] for _ in range(3)]
    options = ("--workflow", "litter", "--keep", "1")
    assert rune.json("gc", *options, "--dry-run")["executions"] == 2
    assert rune.json("gc", *options)["executions"] == 2
    left = [each["execution_id"] for each in rune.json("list", "--workflow", "litter")["executions"]]
    assert left == found[2:]
    assert rune("show", found[0]).exit_code == 2


def test_whoever_takes_part_is_listed(in_place: Standing, rune: Here) -> None:
    listed = rune.json("workers")["workers"]
    ours = {each.process.pid: [each.role] for each in in_place.fleet.processes if each.alive}
    assert {each["pid"]: each["roles"] for each in listed if each["pid"] in ours} == ours
    assert "default" in rune.said("workers")
    assert rune.json("migrate") == {"status": "ok", "steps": []}


def test_doctor_looks_at_both_stores(rune: Here) -> None:
    told = rune.json("doctor")
    checks = {each["check"]: each for each in told["checks"]}
    assert told["status"] == "ok"
    assert {name for name, each in checks.items() if each["verdict"] == "warn"} == {"redis persistence"}
    assert checks["workers"]["found"] == "2, of default"
    assert checks["schedulers"]["found"] == "1"
    assert "responds in" in checks["postgresql"]["found"]
    assert "noeviction" in checks["redis memory"]["found"]
    assert "schema" in rune.said("doctor")


def test_everything_that_was_run_here_is_sound(rune: Here) -> None:
    report = rune.json("audit", "--all")
    assert report["violations"] == 0, report
