"""The read-only commands: list, show, watch, explain, audit, nodes and doctor."""

from __future__ import annotations

import json
import pathlib
import sqlite3
from typing import Any

import pytest

from tests.support.cli_process import Rune
from tests.support.documents import document, node
from tests.support.in_process_cli import InProcessCli

FAN = document(
    [
        node("start", "input"),
        node("parts", "split", parameters={"input_array": "$trigger.list"}),
        node(
            "half",
            "edit",
            parameters={"mode": "keep_only", "assignments": [{"name": "x", "value": "{{ 6 / $item }}"}]},
        ),
        node("send", "noop", parameters={"effectful": True}),
        node("all", "aggregator"),
    ],
    "start>parts",
    "parts>half",
    "half>send",
    "send>all",
    id="fan",
)


@pytest.fixture(scope="module")
def rune(tmp_path_factory: pytest.TempPathFactory) -> Rune:
    """A home with one completed and one halted execution."""
    folder = tmp_path_factory.mktemp("reading")
    rune = Rune(folder / "home")
    (folder / "fan.json").write_text(json.dumps(FAN))
    (folder / "halt.json").write_text(
        json.dumps(
            document([node("a", "input"), node("b", "fail", parameters={"code": "NOPE"})], "a>b", id="halt")
        )
    )
    done = rune(
        "run", str(folder / "fan.json"), "--id", "fan-1", "--input", '{"list": [1, 0, 3]}', "--label", "a=b"
    )
    assert done.returncode == 4, done.stderr
    assert rune("run", str(folder / "halt.json"), "--id", "halt-1").returncode == 1
    return rune


def test_list_filters_and_sorts_newest_first(rune: Rune) -> None:
    def ids(*options: str) -> list[str]:
        return [each["execution_id"] for each in rune.json("list", *options)["executions"]]

    assert ids() == ["halt-1", "fan-1"]
    assert ids("--status", "completed") == ["fan-1"]
    assert ids("--workflow", "halt") == ["halt-1"]
    assert ids("--limit", "1") == ["halt-1"]
    assert ids("--status", "running") == []


def test_list_prints_table(rune: Rune) -> None:
    header, halted, completed = rune("list").stdout.splitlines()

    assert header.split() == ["id", "workflow", "version", "status", "started", "took", "labels", "error"]
    assert halted.split()[:3] == ["halt-1", "halt", "halted"]
    assert "NOPE" in halted
    assert completed.split()[:3] == ["fan-1", "fan", "completed"]
    assert "a=b" in completed


def test_show_prints_document_of_run(rune: Rune) -> None:
    result = rune.json("show", "fan-1")

    assert (result["status"], result["execution_id"]) == ("completed", "fan-1")
    assert result["output"]["all"][0] == {"x": 6.0}
    assert result["output"]["all"][1]["error"]["code"] == "EXPRESSION_ERROR"
    assert len(rune.json("show", "fan", "--nodes", "2")["nodes"]) == 2


def test_show_prints_summary(rune: Rune) -> None:
    text = rune("show", "fan", "--nodes", "3").stdout

    assert "… and 6 more node runs" in text
    assert "completed fan-1 (fan)" in text
    assert rune("show", "halt").stdout.splitlines()[-1].startswith("NOPE: ")


def test_list_takes_several_statuses_and_failed_means_failed_or_halted(rune: Rune) -> None:
    def ids(*options: str) -> list[str]:
        return [each["execution_id"] for each in rune.json("list", *options)["executions"]]

    assert ids("--status", "completed", "--status", "halted") == ["halt-1", "fan-1"]
    assert ids("--failed") == ids("--status", "failed") == ids("--status", "halted") == ["halt-1"]
    assert rune("stats").stdout.count("1 (1 halted)") == 1
    (row,) = [line for line in rune("stats").stdout.splitlines() if "failed" in line]
    assert row.split()[:2] == ["failed", "1"]


def test_failed_items_are_shown_and_listed(rune: Rune) -> None:
    (found,) = rune.json("list", "--failed-items")["executions"]
    assert (found["execution_id"], found["failed_items"]) == ("fan-1", 1)
    assert rune.json("show", "fan-1")["failed_items"] == 1
    assert "completed, 1 item failed" in rune("show", "fan-1").stdout


@pytest.mark.parametrize(
    ("settings", "waiting", "ended"), [({}, False, "halted"), ({"timeout": 1}, True, "failed")]
)
def test_show_lists_nodes_that_were_not_reached_and_run_does_not(
    tmp_path: pathlib.Path, settings: dict[str, Any], waiting: bool, ended: str
) -> None:
    rune = InProcessCli(tmp_path / "home")
    middle = node("b", "wait", {"resume": "signal"}) if waiting else node("b", "fail", {"code": "NOPE"})
    made = document([node("a", "input"), middle, node("c", "noop")], "a>b", "b>c", id="w", settings=settings)
    (tmp_path / "w.json").write_text(json.dumps(made))

    printed = rune.json("run", str(tmp_path / "w.json"), "--id", "x1", code=1)
    shown = rune.json("show", "x1")

    assert (printed["status"], shown["status"]) == (ended, ended)
    assert [each["node_id"] for each in printed["nodes"]] == ["a", "b"]
    statuses = {each["node_id"]: each["status"] for each in shown["nodes"]}
    assert statuses == {"a": "success", "b": "cancelled" if waiting else "failed", "c": "not_reached"}
    assert "not reached" in rune.output("show", "x1").replace("_", " ")


def test_list_and_show_name_the_node_of_an_error(rune: Rune) -> None:
    assert "b: NOPE: " in rune("list").stdout
    assert "(node b of type fail)" in rune("show", "halt-1").stdout
    assert "(node b of type fail)" in rune("explain", "halt-1").stdout
    (found,) = rune.json("list", "--workflow", "halt")["executions"]
    assert (found["error"]["node_id"], found["error"]["node_type"]) == ("b", "fail")


def test_watch_prints_all_events_and_exits_like_run(rune: Rune) -> None:
    done = rune("watch", "fan", "--json")
    events = [json.loads(line) for line in done.stdout.splitlines()]

    assert done.returncode == 0
    assert [each["number"] for each in events] == list(range(1, len(events) + 1))
    assert (events[0]["kind"], events[-1]["kind"]) == ("execution.accepted", "execution.completed")
    inner = next(each for each in events if each["node_id"] == "send")
    assert inner["lineage"][0]["total_items"] == 3
    later = [json.loads(line) for line in rune("watch", "fan", "--json", "--after", "3").stdout.splitlines()]
    assert later == events[3:]
    assert rune("watch", "halt").returncode == 1


def test_watch_prints_one_line_per_event(rune: Rune) -> None:
    lines = rune("watch", "halt").stdout.splitlines()

    assert [line.split()[3] for line in lines] == ["execution.accepted", "node.failed", "execution.halted"]
    assert "NOPE" in lines[1]


def test_explain_of_ended_execution_shows_end(rune: Rune) -> None:
    result = rune.json("explain", "halt")
    assert result["expected_by"] is None

    assert (result["status"], result["error"]["code"], result["waiting"]) == ("halted", "NOPE", [])
    assert rune("explain", "fan").stdout.startswith("completed fan-1 (fan) after ")


def test_audit_of_intact_file_finds_no_violations(rune: Rune) -> None:
    report = rune.json("verify", "--all")
    (fan,) = rune.json("verify", "fan")["audits"]

    assert (report["status"], report["executions"], report["violations"]) == ("sound", 2, 0)
    assert (fan["results"], fan["effects"], fan["claims"], fan["repeated"]) == (7, 2, 2, 0)
    assert (fan["joins"], fan["skipped"], fan["open"], fan["late"]) == (1, 1, 0, 0)
    assert rune("verify", "--all").stdout.splitlines()[-1] == "no violations"


@pytest.mark.parametrize(
    ("rule", "statement"),
    [
        ("claimed", "DELETE FROM claim"),
        ("ended", "UPDATE execution SET status = 'failed' WHERE n = 1"),
        ("ended", "UPDATE fact SET seq = seq + 9999 WHERE execution = 1 AND kind = 1 AND node = 4"),
        ("ended", "UPDATE fact SET late = 1 WHERE execution = 1 AND kind = 1 AND node = 4"),
        ("ended", "DELETE FROM fact WHERE execution = 1 AND kind = 1 AND node = 4"),
        ("ended", "DELETE FROM fact WHERE execution = 1 AND kind = 6"),
        ("placed", "DELETE FROM fact WHERE execution = 1 AND kind = 1 AND node = 1"),
        ("placed", "DELETE FROM fact WHERE execution = 1 AND kind = 1 AND node = 2"),
    ],
)
def test_audit_detects_damage(rune: Rune, tmp_path: pathlib.Path, rule: str, statement: str) -> None:
    with sqlite3.connect(tmp_path / "rune.db") as copy, sqlite3.connect(rune.home / "rune.db") as original:
        original.backup(copy)
        copy.execute(statement)
    copy.close()
    original.close()

    report = Rune(tmp_path).json("verify", "fan-1", code=1)

    assert report["status"] == "violated"
    assert rule in {each["rule"] for each in report["audits"][0]["violations"]}
    assert "violation" in Rune(tmp_path)("verify", "--all").stdout


@pytest.mark.parametrize("command", ["show", "watch", "explain", "verify"])
def test_unknown_id_exits_2_with_hint(rune: Rune, command: str) -> None:
    done = rune(command, "nobody")

    assert done.returncode == 2
    assert "`rune list`" in done.stderr
    (problem,) = rune.json(command, "nobody", code=2)["problems"]
    assert problem["code"] == "UNKNOWN_EXECUTION"


def test_ambiguous_prefix_lists_candidates(rune: Rune, tmp_path: pathlib.Path) -> None:
    other = Rune(tmp_path / "two")
    path = tmp_path / "one.json"
    path.write_text(json.dumps(document([node("a", "input")])))
    for name in ("job-1", "job-2", "job"):
        assert other("run", str(path), "--id", name).returncode == 0

    assert "job-1, job-2" in other("show", "job-").stderr
    assert other.json("show", "job")["execution_id"] == "job"


def test_reading_without_database_creates_nothing(tmp_path: pathlib.Path) -> None:
    rune = Rune(tmp_path / "nothing")

    assert rune.json("list") == {"executions": []}
    assert rune("list").stdout == "no executions\n"
    assert "no executions yet" in rune("show", "x").stderr
    assert rune("show", "x").returncode == 2
    assert rune.json("verify", "--all")["executions"] == 0
    assert not list((tmp_path / "nothing").iterdir())


def test_newer_database_version_is_rejected(tmp_path: pathlib.Path) -> None:
    with sqlite3.connect(tmp_path / "rune.db") as file:
        file.execute("PRAGMA user_version = 99")
    file.close()

    assert Rune(tmp_path)("list").returncode == 3
    assert Rune(tmp_path)("doctor").returncode == 1


def test_invalid_database_file_is_rejected(tmp_path: pathlib.Path) -> None:
    (tmp_path / "rune.db").write_bytes(b"not a database, " * 300)

    assert Rune(tmp_path)("list").returncode == 3
    assert Rune(tmp_path)("doctor").returncode == 1


def test_nodes_lists_every_type(rune: Rune) -> None:
    result = rune.json("nodes")["nodes"]

    assert {"input", "split", "aggregator", "merge", "output"} <= {each["type"] for each in result}
    assert "call_external_service" in rune("nodes").stdout


def test_nodes_shows_type_by_alias(rune: Rune) -> None:
    result: dict[str, Any] = rune.json("nodes", "if")

    assert (result["type"], result["outlets"]) == ("conditional", ["true", "false"])
    assert "expression" in result["parameters"]["properties"]
    text = rune("nodes", "merge").stdout
    assert "wait_mode" in text
    assert "UNREACHABLE" in text


def test_nodes_shows_class_of_error_codes_and_retry_defaults(rune: Rune) -> None:
    lines = [line.split() for line in rune("nodes", "http").stdout.splitlines() if line]

    classes = {words[0]: words[1] for words in lines if words[0].startswith(("HTTP_", "CREDENTIAL_", "EXPR"))}
    assert (classes["HTTP_BLOCKED"], classes["HTTP_TIMEOUT"]) == ("permanent", "transient")
    assert (classes["HTTP_STATUS"], classes["EXPRESSION_ERROR"]) == ("by", "permanent")
    assert lines[-1][:3] == ["retry:", "max_attempts", "1,"]


def test_unknown_node_type_suggests_similar_one(rune: Rune) -> None:
    (problem,) = rune.json("nodes", "mrge", code=2)["problems"]

    assert "`merge`" in problem["hint"]


def test_doctor_passes_on_intact_home(rune: Rune) -> None:
    result = rune.json("doctor")
    checks = {each["check"]: each for each in result["checks"]}

    assert result["status"] == "ok"
    assert checks["owner"]["found"] == "none"
    assert "schema version " in checks["file"]["found"]
    assert {each["verdict"] for each in result["checks"]} <= {"ok", "warn"}
    assert "durability" in rune("doctor").stdout


def test_doctor_reports_unloadable_module(tmp_path: pathlib.Path) -> None:
    done = Rune(tmp_path, RUNE_NODES="no_such_module", RUNE_DURABILITY="relaxed")("doctor", "--json")
    verdicts = {each["check"]: each["verdict"] for each in json.loads(done.stdout)["checks"]}

    assert done.returncode == 1
    assert verdicts["nodes of no_such_module"] == "bad"
    assert verdicts["durability"] == "warn"


def test_doctor_names_invalid_setting(tmp_path: pathlib.Path) -> None:
    done = Rune(tmp_path, RUNE_SLOTS="many")("doctor")

    assert done.returncode == 1
    assert "slots" in done.stdout


@pytest.mark.parametrize(
    ("given", "verdict", "found"),
    [
        ({}, "ok", "public_only: public addresses"),
        (
            {"RUNE_HTTP_ALLOW": "10.0.0.0/8"},
            "ok",
            "public_only: public addresses; always allowed: 10.0.0.0/8",
        ),
        ({"RUNE_HTTP_POLICY": "allow"}, "ok", "allow: no address; RUNE_HTTP_ALLOW is empty"),
        ({"RUNE_HTTP_POLICY": "open"}, "warn", "open: every address, including private ones"),
    ],
)
def test_doctor_shows_http_policy(
    given: dict[str, str], verdict: str, found: str, tmp_path: pathlib.Path
) -> None:
    checks = {each["check"]: each for each in Rune(tmp_path, **given).json("doctor")["checks"]}
    assert (checks["http policy"]["verdict"], checks["http policy"]["found"]) == (verdict, found)


def test_home_that_is_a_file_is_reported(tmp_path: pathlib.Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("")
    path = tmp_path / "one.json"
    path.write_text(json.dumps(document([node("a", "input")])))

    for command in (("run", str(path)), ("deploy", str(path)), ("up", "--port", "0")):
        done = Rune(taken)(*command)
        assert done.returncode == 3, done.stderr
        assert done.stderr == f"rune: cannot open {taken / 'rune.db'}: {taken} is not a folder\n"


@pytest.mark.parametrize(
    ("given", "check"),
    [
        ({"RUNE_HTTP_ALLOW": "10.0.0.0/99"}, "http policy"),
        ({"RUNE_SMTP_URL": "mail.example.com"}, "mail server"),
        ({"RUNE_SECRET_KEY": "short"}, "secret keys"),
    ],
)
def test_doctor_reports_unusable_settings(given: dict[str, str], check: str, tmp_path: pathlib.Path) -> None:
    done = Rune(tmp_path, **given)("doctor", "--json")
    checks = {each["check"]: each for each in json.loads(done.stdout)["checks"]}

    assert done.returncode == 1
    assert next(iter(given)) in checks[check]["found"]
    assert checks[check]["verdict"] == "bad"


def test_doctor_reports_home_that_is_a_file(tmp_path: pathlib.Path) -> None:
    (tmp_path / "taken").write_text("")
    done = Rune(tmp_path / "taken")("doctor", "--json")

    assert done.returncode == 1
    verdicts = {each["check"]: each["verdict"] for each in json.loads(done.stdout)["checks"]}
    assert verdicts["file system"] == "bad"


def test_list_filters_by_label_age_and_version(tmp_path: pathlib.Path) -> None:
    rune = InProcessCli(tmp_path / "home")
    for number in (1, 2):
        file = tmp_path / "w.json"
        file.write_text(
            json.dumps({"id": "w", "name": f"v{number}", "nodes": [{"id": "a", "type": "input"}]})
        )
        rune.json("deploy", str(file))
        rune.json("run", str(file), "--id", f"x{number}", "--label", f"n={number}", "--label", "all=yes")

    def listed(*options: str) -> list[str]:
        return sorted(each["execution_id"] for each in rune.json("list", *options)["executions"])

    assert listed("--label", "all=yes") == ["x1", "x2"]
    assert listed("--label", "all=yes", "--label", "n=1") == ["x1"]
    assert listed("--workflow", "w", "--version", "2") == ["x2"]
    assert listed("--since", "2h") == ["x1", "x2"]
    assert listed("--since", "1ms") == []
    assert rune("list", "--since", "soon").exit_code == 2
    assert rune("list", "--version", "2").exit_code == 2
