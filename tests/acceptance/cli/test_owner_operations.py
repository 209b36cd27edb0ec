"""Operations on executions from another process: beside an owner, after it was killed, and without one."""

from __future__ import annotations

import asyncio
import json
import pathlib
import signal
import sqlite3
from typing import Any

import pytest

from rune.bootstrap import open_reader
from rune.ports.queries import Summary
from tests.acceptance.cli.gated_run import (
    GATED,
    gated_run,
    owner_pid,
    result_of,
    send_go,
    settings_of,
    waits_for_signal,
)
from tests.support.cli_process import TIMEOUT_S, Rune, until
from tests.support.documents import document, node

ITEMS = document(
    [
        node("start", "input"),
        node("users", "split", parameters={"input_array": "$trigger.users"}),
        node("ask", "wait", parameters={"resume": "signal", "name": "approve"}),
        node("all", "aggregator"),
        node("out", "output", parameters={"value": "$all"}),
    ],
    "start>users",
    "users>ask",
    "ask>all",
    "all>out",
    id="items",
)
HALTS = document(
    [
        node("start", "input"),
        node("first", "noop"),
        node("bad", "fail", parameters={"code": "NOPE"}),
    ],
    "start>first",
    "first>bad",
    id="halts",
)
PARTLY = document(
    [
        node("start", "input"),
        node("parts", "split", parameters={"input_array": "$trigger.list"}),
        node(
            "half",
            "edit",
            parameters={"mode": "keep_only", "assignments": [{"name": "x", "value": "{{ 6 / $item }}"}]},
        ),
        node("all", "aggregator"),
    ],
    "start>parts",
    "parts>half",
    "half>all",
    id="partly",
)
DOCUMENTS = (GATED, ITEMS, HALTS, PARTLY)


@pytest.fixture
def rune(tmp_path: pathlib.Path) -> Rune:
    for raw in DOCUMENTS:
        (tmp_path / f"{raw['id']}.json").write_text(json.dumps(raw))
    return Rune(tmp_path / "home")


def file(rune: Rune, workflow: str) -> str:
    return str(rune.home.parent / f"{workflow}.json")


def code_of(rune: Rune, *arguments: str, code: int) -> str:
    """The code of the problem that a command reports."""
    (problem,) = rune.json(*arguments, code=code)["problems"]
    found: str = problem["code"]
    return found


def status(rune: Rune, name: str) -> str:
    return {each.id: each.status for each in listed(rune)}[name]


def listed(rune: Rune) -> list[Summary]:
    async def read() -> list[Summary]:
        async with open_reader(settings_of(rune)) as opened:
            return await opened.executions()

    return asyncio.run(read())


def test_signal_from_other_process_resumes_execution(rune: Rune) -> None:
    with gated_run(rune, "order-7", "--json") as process:
        text = rune("signal", "order", "go", "--value", '{"by": "Ada"}')
        result = result_of(process)

    assert text.stdout == "signal `go` delivered; order-7 resumed\n"
    assert text.stderr == ""
    assert result["output"] == [7, {"by": "Ada"}]
    assert code_of(rune, "signal", "order", "go", code=1) == "ENDED"
    assert "ended as completed" in rune("signal", "order", "go").stderr


def test_signal_without_owner_is_stored_for_next_owner(rune: Rune) -> None:
    with gated_run(rune, "order-7") as process:
        process.kill()
        process.wait(TIMEOUT_S)
    sent = rune("signal", "order-7", "go", "--value", "5", "--key", "k")
    again = rune.json("signal", "order-7", "go", "--value", "5", "--key", "k")

    assert (sent.returncode, "No process is running executions now" in sent.stderr) == (0, True)
    assert again["signal_id"] == "k"
    assert status(rune, "order-7") == "running"
    # Any run that owns the file also resumes the open executions.
    with gated_run(rune, "other"):
        until(lambda: status(rune, "order-7") == "completed" or None, "it has completed")
    assert rune.json("show", "order-7")["output"] == [7, 5]


def test_early_signal_is_reported_as_stored(rune: Rune) -> None:
    later = node("later", "wait", parameters={"resume": "signal"})
    two_waits = {
        **GATED,
        "nodes": [*GATED["nodes"], later],
        "edges": [*GATED["edges"], {"src": "gate", "dst": "later"}],
    }
    (rune.home.parent / "gated.json").write_text(json.dumps(two_waits))
    with gated_run(rune, "order-7", "--json") as process:
        early = rune("signal", "order-7", "later")
        send_go(rune, "order-7")
        result_of(process)

    assert early.stdout == "signal `later` stored until a node of order-7 waits for it\n"


def test_signal_with_unknown_name_is_refused_with_known_names(rune: Rune) -> None:
    with gated_run(rune, "order-7", "--json") as process:
        (problem,) = rune.json("signal", "order-7", "aproved", code=2)["problems"]
        refused = rune("signal", "order-7", "aproved")
        send_go(rune, "order-7")
        result_of(process)

    assert problem["code"] == "UNKNOWN_SIGNAL"
    assert refused.returncode == 2
    assert "no node of `gated` can wait for a signal `aproved`; it takes `go`" in refused.stderr


def test_signal_for_one_item(rune: Rune) -> None:
    arguments = ("run", file(rune, "items"), "--id", "many", "--json", "--input", '{"users": [1, 2]}')
    with rune.begin(*arguments) as process:
        until(lambda: waits_for_signal(rune, "many", 2), "both items wait")
        assert code_of(rune, "signal", "many", "approve", code=2) == "AMBIGUOUS_SIGNAL"
        assert code_of(rune, "signal", "many", "approve", "--item", "nobody:1", code=2) == "BAD_ITEM"
        for item in (1, 0):
            value = json.dumps({"item": item})
            assert rune.json("signal", "many", "approve", "--item", f"users:{item}", "--value", value)[
                "resumed"
            ]
        result = result_of(process)

    assert result["output"] == [{"item": 0}, {"item": 1}]


def test_pause_resume_and_cancel_beside_owner(rune: Rune) -> None:
    with gated_run(rune, "order-7", "--json") as process:
        assert rune.json("pause", "order") == {"execution_id": "order-7", "status": "paused", "changed": True}
        assert rune("pause", "order").stdout == "order-7 was already paused\n"
        assert rune.json("list", "--status", "paused")["executions"][0]["status"] == "paused"
        rune.json("signal", "order", "go", "--value", "1")
        assert rune.json("resume", "order")["changed"]
        assert result_of(process)["output"] == [7, 1]
    for verb in ("pause", "resume", "cancel"):
        assert code_of(rune, verb, "order-7", code=1) == "ENDED"

    with gated_run(rune, "order-8", "--json") as process:
        assert rune("cancel", "order-8", "--reason", "ordered twice").stdout == "cancelled order-8\n"
        out, _ = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 1
    assert json.loads(out)["error"] == {"code": "CANCELLED", "message": "ordered twice", "details": {}}


def test_pause_resume_and_cancel_without_owner(rune: Rune) -> None:
    with gated_run(rune, "order-7") as process:
        process.send_signal(signal.SIGTERM)
        process.wait(TIMEOUT_S)

    assert rune.json("pause", "order-7")["changed"]
    assert rune("resume", "order-7").stdout == "running order-7\n"
    assert not rune.json("resume", "order-7")["changed"]
    assert rune.json("cancel", "order-7") == {"execution_id": "order-7", "status": "cancelled"}
    assert status(rune, "order-7") == "cancelled"
    assert rune.json("verify", "--all")["violations"] == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("signal", "nobody", "go"),
        ("cancel", "nobody"),
        ("pause", "nobody"),
        ("resume", "nobody"),
        ("retry", "nobody"),
        ("rerun", "nobody", "--from", "a"),
        ("dlq", "show", "nobody"),
    ],
)
def test_unknown_execution_exits_2_and_creates_no_file(rune: Rune, arguments: tuple[str, ...]) -> None:
    assert code_of(rune, *arguments, code=2) == "UNKNOWN_EXECUTION"
    assert "`rune list`" in rune(*arguments).stderr
    assert not list(rune.home.iterdir())


class TestStart:
    @pytest.fixture(autouse=True)
    def deployed(self, rune: Rune) -> None:
        for raw in (GATED, PARTLY):
            rune.json("deploy", file(rune, raw["id"]))

    def test_start_without_owner_is_stored(self, rune: Rune) -> None:
        done = rune("start", "partly", "--input", '{"list": [1]}', "--key", "k", "--label", "a=b")
        name = done.stdout.strip()
        again = rune.json("start", "partly", "--input", '{"list": [1]}', "--key", "k", "--label", "a=b")

        assert done.returncode == 0, done.stderr
        assert "No process is running executions now" in done.stderr
        assert (again["execution_id"], again["owner"], again["workflow_id"]) == (name, None, "partly")
        assert status(rune, name) == "running"

        with gated_run(rune, "other"):
            result = rune.json("start", "partly@1", "--input", '{"list": [1]}', "--key", "k", "--wait")
        assert (result["execution_id"], result["status"]) == (name, "completed")
        assert [each.labels for each in listed(rune)] == [{}, {"a": "b"}]

    def test_start_beside_owner_runs_in_owner(self, rune: Rune) -> None:
        with gated_run(rune, "first") as process:
            result = rune.json("start", "partly", "--input", '{"list": [2, 3]}', "--priority", "9", "--wait")
            assert result["output"] == {"all": [{"x": 3.0}, {"x": 2.0}]}
            started = rune.json("start", "gated", "--input", '{"n": 8}')
            assert started["owner"] == process.pid == owner_pid(rune)
            name = started["execution_id"]
            until(lambda: waits_for_signal(rune, name), "it waits")
            send_go(rune, name)
            until(lambda: status(rune, name) == "completed" or None, "it has ended")

    def test_invalid_start_is_rejected(self, rune: Rune, tmp_path: pathlib.Path) -> None:
        for arguments, code in {
            ("nothing",): "UNKNOWN_WORKFLOW",
            ("partly@9",): "UNKNOWN_WORKFLOW",
            ("partly", "--input", "{"): "NOT_JSON",
            ("partly", "--label", "a"): "BAD_LABEL",
        }.items():
            assert code_of(rune, "start", *arguments, code=2) == code
        nowhere = Rune(tmp_path / "nowhere")
        assert code_of(nowhere, "start", "partly", code=2) == "UNKNOWN_WORKFLOW"
        assert not list(nowhere.home.iterdir())


def test_retry_and_rerun_keep_successful_results(rune: Rune) -> None:
    with gated_run(rune, "owner"):
        rune("run", file(rune, "halts"), "--id", "halts-1")
        started = rune("retry", "halts-1")
        again = rune.json("retry", "halts-1", "--wait", code=1)

        assert started.returncode == 0, started.stderr
        assert started.stdout.strip() != "halts-1"
        assert (again["status"], again["error"]["code"]) == ("halted", "NOPE")
        assert [each["node_id"] for each in again["nodes"]] == ["start", "first", "bad"]

        rune("run", file(rune, "partly"), "--id", "partly-1", "--input", '{"list": [1, 0, 3]}')
        assert items(rune.json("retry", "partly-1", "--failed-items", "--wait", code=4)) == [6.0, None, 2.0]
        rerun = rune.json("rerun", "partly-1", "--from", "half", "--item", "parts:1", "--key", "k")
        assert rerun["retry_of"] == "partly-1"
        same = rune.json(
            "rerun", "partly-1", "--from", "half", "--item", "parts:1", "--key", "k", "--wait", code=4
        )
        assert (same["execution_id"], items(same)) == (rerun["execution_id"], [6.0, None, 2.0])
        assert "\nretry or rerun of partly-1\n" in rune("show", rerun["execution_id"]).stdout
        assert code_of(rune, "rerun", "partly-1", "--from", "nobody", code=2) == "UNKNOWN_NODE"
        rune("run", file(rune, "partly"), "--id", "wholly-1", "--input", '{"list": [1, 3]}')
        assert code_of(rune, "retry", "wholly-1", code=1) == "NOTHING_TO_RUN"
        assert rune.json("verify", "--all")["violations"] == 0


def test_rerun_of_edited_file_and_start_with_pins(rune: Rune) -> None:
    with gated_run(rune, "owner"):
        rune("run", file(rune, "halts"), "--id", "halts-1")
        edited = {**HALTS, "nodes": [*HALTS["nodes"][:2], node("bad", "noop"), node("more", "noop")]}
        edited["edges"] = [*HALTS["edges"], {"src": "bad", "dst": "more"}]
        path = rune.home.parent / "edited.json"
        path.write_text(json.dumps(edited))

        fixed = rune.json("rerun", "halts-1", "--from", "bad", "--file", str(path), "--wait")
        pinned = rune.json("rerun", "halts-1", "--from", "first", "--pin", "bad=1", "--wait")
        rune.json("deploy", file(rune, "halts"))
        started = rune.json("start", "halts", "--pin", 'bad={"x": 1}', "--wait")

        assert (fixed["status"], list(fixed["output"])) == ("completed", ["more"])
        assert fixed["retry_of"] == "halts-1"
        assert (pinned["status"], pinned["output"]) == ("completed", {"bad": 1})
        assert (started["status"], started["output"]) == ("completed", {"bad": {"x": 1}})
        assert "version" not in started
        path.write_text("{}")
        assert code_of(rune, "rerun", "halts-1", "--from", "bad", "--file", str(path), code=2) == "NO_NODES"


def items(result: dict[str, Any]) -> list[float | None]:
    return [each.get("x") for each in result["output"]["all"]]


def test_retry_of_running_execution_is_rejected(rune: Rune) -> None:
    with gated_run(rune, "first"):
        assert code_of(rune, "retry", "first", code=1) == "NOT_ENDED"


@pytest.fixture
def dead(rune: Rune, tmp_path: pathlib.Path) -> str:
    """An execution that killed its process on every attempt until it became a dead letter."""
    raw = document(
        [node("start", "input"), node("send", "noop", parameters={"effectful": True})], "start>send"
    )
    (tmp_path / "deadly.json").write_text(json.dumps(raw))
    deadly = Rune(rune.home, RUNE_FAILPOINT="ran")
    for _ in range(10):
        if deadly("run", str(tmp_path / "deadly.json"), "--key", "k").returncode != 137:
            break
    (letter,) = rune.json("dlq")["dead_letters"]
    assert (letter["code"], letter["execution_id"]) == ("WORKER_CRASH", letter["id"])
    found: str = letter["id"]
    return found


def test_dead_letter_is_listed_shown_and_requeued(rune: Rune, dead: str) -> None:
    assert dead in rune("dlq", "list").stdout
    assert "WORKER_CRASH: send@/" in rune("dlq", "show", dead[:20]).stdout
    with gated_run(rune, "owner"):
        again = rune.json("dlq", "requeue", dead, "--wait")
    assert again["status"] == "completed"
    assert again["execution_id"] != dead
    assert rune("dlq").stdout == "no dead letters\n"
    assert code_of(rune, "dlq", "show", dead, code=2) == "UNKNOWN_DEAD_LETTER"


def test_dropped_dead_letter_is_removed(rune: Rune) -> None:
    rune("run", file(rune, "halts"), "--id", "halts-1")
    with sqlite3.connect(rune.home / "rune.db") as db:
        db.execute("INSERT INTO dead_letter (execution, code, at) VALUES ('halts-1', 'DEAD_LETTERED', 1)")
    db.close()

    assert rune.json("dlq", "drop", "halts") == {"id": "halts-1", "dropped": True}
    assert rune.json("dlq", "list") == {"dead_letters": [], "more": False}
    assert status(rune, "halts-1") == "halted"
