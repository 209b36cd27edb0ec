"""`rune prune` and the retention rules of the configuration."""

from __future__ import annotations

import json
import pathlib
import sqlite3
import time

import pytest

from rune.cli.bench.workloads import fill
from rune.ports.retention import Rule, parse_duration
from rune.settings import Settings, SettingsError, load_settings
from tests.support.cli_process import Rune, until
from tests.support.documents import document, node

HALTS = document([node("a", "input"), node("b", "fail")], "a>b", id="halts")
NAPS = document([node("a", "input"), node("b", "wait", parameters={"amount": 1, "unit": "hours"})], "a>b")
HOUR = 3_600_000


@pytest.fixture
def rune(tmp_path: pathlib.Path) -> Rune:
    """A home with 40 executions of `full` that ended one to two hours ago, and one of `halts` that ended now."""
    home = tmp_path / "home"
    now = time.time_ns() // 1_000_000
    fill(home / "rune.db", 40, ended_by=now - HOUR)
    fill(home / "rune.db", 1, ended_by=now, workflow="halts", status="halted")
    return Rune(home)


def count_executions(rune: Rune) -> int:
    with sqlite3.connect(rune.home / "rune.db") as db:
        (count,) = db.execute("SELECT count(*) FROM execution").fetchone()
    db.close()
    return int(count)


def test_gc_without_rules_deletes_nothing(rune: Rune) -> None:
    done = rune("prune")

    assert done.returncode == 0, done.stderr
    assert "No retention rule is configured" in done.stdout
    assert count_executions(rune) == 41


def test_gc_prints_deleted_counts_and_file_size(rune: Rune) -> None:
    done = rune("prune", "--keep", "10")

    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first == "deleted 30 executions, 120 facts, 0 blobs, 0 definitions, 0 keys"  # four facts each
    assert second.startswith("database size ")
    assert count_executions(rune) == 11


def test_dry_run_deletes_nothing(rune: Rune) -> None:
    assert rune("prune", "--older-than", "30m", "--dry-run").stdout.startswith("would delete 40 executions; ")
    result = rune.json("prune", "--keep", "39", "--dry-run")
    assert (result["executions"], result["dry_run"], result["rules"]) == (1, True, 1)
    assert count_executions(rune) == 41


def test_workflow_and_status_filter_executions(rune: Rune) -> None:
    assert rune.json("prune", "--keep", "0", "--workflow", "other")["executions"] == 0
    assert rune.json("prune", "--keep", "0", "--status", "failed", "--status", "halted")["executions"] == 1
    assert rune.json("prune", "--older-than", "2h", "--workflow", "full")["executions"] == 0
    assert rune.json("prune", "--older-than", "1h", "--workflow", "full")["executions"] == 40
    assert count_executions(rune) == 0


def test_json_contains_all_counts(rune: Rune) -> None:
    result = rune.json("prune", "--keep", "0")

    assert result["executions"] == 41
    assert result["bytes_after"] < result["bytes_before"]
    assert result.keys() == {
        *("executions", "facts", "blobs", "definitions", "keys", "bytes_before", "bytes_after"),
        *("duration_ms", "longest_ms", "shrinks", "rules", "dry_run"),
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--older-than", "30"), "--older-than: `30` is not a duration"),
        (("--older-than", "5 moons"), "not a duration"),
        (("--status", "failed"), "--keep 0"),
        (("--workflow", "full"), "--older-than 30d"),
        (("--keep", "1", "--status", "running"), "running"),
        (("--keep", "-1"), "--keep"),
    ],
)
def test_invalid_options_are_rejected(rune: Rune, options: tuple[str, ...], message: str) -> None:
    done = rune("prune", *options)

    assert done.returncode == 2
    assert message in done.stderr
    assert count_executions(rune) == 41


def test_configured_rules_are_applied(rune: Rune) -> None:
    rules = [{"keep": 5, "workflow": "full"}, {"older_than": "1d"}]
    configured = Rune(rune.home, RUNE_RETENTION=json.dumps(rules))

    result = configured.json("prune")
    assert (result["executions"], result["rules"]) == (35, 2)
    assert count_executions(rune) == 6


def test_gc_without_database_creates_nothing(tmp_path: pathlib.Path) -> None:
    rune = Rune(tmp_path)

    assert rune.json("prune", "--keep", "0")["executions"] == 0
    assert rune.json("prune", "--keep", "0", "--dry-run", "--vacuum")["executions"] == 0
    assert list(tmp_path.iterdir()) == []


def test_vacuum_rewrites_file_without_auto_vacuum(rune: Rune) -> None:
    file = rune.home / "rune.db"
    with sqlite3.connect(file, isolation_level=None) as db:
        db.execute("PRAGMA journal_mode = DELETE")
        db.execute("PRAGMA auto_vacuum = NONE")
        db.execute("VACUUM")
    db.close()

    assert "rune prune --vacuum" in rune("prune", "--keep", "30").stdout
    result = rune.json("prune", "--keep", "20", "--vacuum")
    assert (result["executions"], result["shrinks"]) == (10, True)
    assert "--vacuum" not in rune("prune", "--keep", "10").stdout
    assert count_executions(rune) == 11


def test_deleted_execution_is_unknown_and_its_key_expired(rune: Rune, tmp_path: pathlib.Path) -> None:
    (tmp_path / "halts.json").write_text(json.dumps(HALTS))
    command = ("run", str(tmp_path / "halts.json"), "--key", "once")
    execution = rune.json(*command, code=1)["execution_id"]
    rune("prune", "--keep", "0")

    assert rune("show", execution).returncode == 2
    refused = rune.json(*command, code=2)["problems"][0]
    assert refused["code"] == "KEY_SPENT"
    assert execution in refused["message"]


def test_gc_is_forwarded_to_file_owner(rune: Rune, tmp_path: pathlib.Path) -> None:
    (tmp_path / "naps.json").write_text(json.dumps(NAPS))
    with rune.begin("run", str(tmp_path / "naps.json"), "--id", "nap") as process:
        until(lambda: rune("explain", "nap").returncode == 0 or None, "it runs")
        result = rune.json("prune", "--keep", "0")
        refused = rune("prune", "--keep", "0", "--vacuum")
        process.terminate()
        process.communicate()

    assert result["executions"] == 41
    assert count_executions(rune) == 1
    assert (refused.returncode, "in use" in refused.stderr) == (3, True)


def test_retention_rules_from_file_and_environment(tmp_path: pathlib.Path) -> None:
    (tmp_path / "rune.toml").write_text(
        '[[retention]]\nworkflow = "x"\nstatus = ["completed"]\nolder_than = "30d"\nkeep = 1000\n'
        '[[retention]]\nstatus = "failed"\nolder_than = "12h"\n'
    )

    assert load_settings({}, tmp_path).retention == (
        Rule(workflow="x", status=("completed",), older_than=720 * HOUR, keep=1000),
        Rule(status=("failed",), older_than=12 * HOUR),
    )
    assert load_settings({"RUNE_RETENTION": '[{"keep": 7}]'}, tmp_path).retention == (Rule(keep=7),)
    assert load_settings({"RUNE_RETENTION": ""}, tmp_path).retention == ()
    assert Settings().retention == ()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("30d", "is not JSON"),
        ("{}", "must be a list"),
        ("[5]", "rule 1: not a table"),
        ('[{"keep": 1}, {}]', "rule 2: a rule needs `older_than`, `keep` or both"),
        ('[{"older_than": 30}]', "rule 1: older_than: `30` is not a duration"),
        ('[{"keep": 1.5}]', "keep"),
        ('[{"keep": -5}]', "must not be negative"),
        ('[{"keep": 1, "status": "running"}]', "status `running`"),
        ('[{"keep": 1, "workflow": ""}]', "the name is empty"),
        ('[{"max": 1}]', "`max` is unknown; a rule has workflow, status, older_than and keep"),
    ],
)
def test_invalid_retention_rules_are_rejected(given: str, message: str) -> None:
    with pytest.raises(SettingsError) as error:
        load_settings({"RUNE_RETENTION": given})
    assert message in error.value.message
    assert error.value.message.startswith("retention: ")


def test_parse_duration() -> None:
    written = ("250ms", "90s", "15m", "15 min", "1.5h", "30d", "2w", "0s")
    assert [parse_duration(each) for each in written] == [
        *(250, 90_000, 900_000, 900_000, 5_400_000, 720 * HOUR, 336 * HOUR, 0)
    ]
