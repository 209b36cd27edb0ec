"""`rune backup` and `rune restore` of the embedded file, also under load."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from pathlib import Path

from tests.chaos.embedded import spawn
from tests.chaos.load import NODES, Keys
from tests.support.cluster_cli import GATED, with_id
from tests.support.in_process_cli import InProcessCli

ENDED = 15
TIMEOUT_S = 180.0


def rune(home: Path) -> InProcessCli:
    return InProcessCli(home, RUNE_NODES=",".join(NODES))


def start_gated(home: Path) -> str:
    """Start an execution while no process runs executions."""
    cli = rune(home)
    path = home.parent / "gated.json"
    path.write_text(json.dumps(with_id(GATED, "gated")))
    cli.json("deploy", str(path))
    return str(cli.json("start", "gated", "--input", '{"n": 1}')["execution_id"])


def test_backup_under_load_restores_and_resumes(tmp_path: Path) -> None:
    home, other, copy = tmp_path / "home", tmp_path / "other", tmp_path / "copy.db"
    home.mkdir()
    with spawn(home) as loaded:
        assert loaded.stdout is not None
        try:
            for _ in range(ENDED):
                assert loaded.stdout.readline()
            acked = set(Keys(home).acked.values())
            backup = rune(home).json("backup", str(copy))
            refused = rune(home).json("restore", str(copy), "--replace", code=3)["problems"][0]
            assert "in use by another process" in refused["message"]
            assert loaded.stdout.readline()  # it continues during the backup
        finally:
            loaded.kill()
    assert backup["executions"] >= len(acked) > ENDED
    assert backup["running"] > 0

    restored = rune(other)
    assert restored.json("restore", str(copy))["executions"] == backup["executions"]
    ids = {each["execution_id"] for each in restored.json("list", "--limit", "100000")["executions"]}
    assert acked <= ids
    assert restored.json("verify", "--all")["violations"] == 0
    keys = Keys(other)  # every execution in the copy has to end
    for number, each in enumerate(sorted(ids)):
        keys.note(f"ack k{number} {each}")
    with spawn(other, "--drain") as resumed:
        assert resumed.wait(timeout=TIMEOUT_S) == 0
    report = restored.json("verify", "--all")
    assert (report["violations"], report["totals"]["open"]) == (0, 0)
    assert restored.json("list", "--status", "running")["executions"] == []


def test_backup_is_one_private_file(tmp_path: Path) -> None:
    start_gated(tmp_path / "home")
    copy = tmp_path / "kept" / "copy.db"
    copy.parent.mkdir()
    output = rune(tmp_path / "home").output("backup", str(copy))
    assert "backed up 1 execution (1 not ended) to" in output
    assert [each.name for each in copy.parent.iterdir()] == ["copy.db"]
    assert copy.stat().st_mode & 0o077 == 0
    assert rune(tmp_path / "home").json("backup", str(copy), code=2)["problems"][0]["code"] == "BAD_COPY"


def test_restore_replaces_only_with_option_and_keeps_old_file(tmp_path: Path) -> None:
    home, copy = tmp_path / "home", tmp_path / "copy.db"
    first = start_gated(home)
    rune(home).json("backup", str(copy))
    second = start_gated(home)
    assert rune(home).json("restore", str(copy), code=2)["problems"][0]["code"] == "BAD_COPY"
    restored = rune(home).json("restore", str(copy), "--replace")
    assert [each["execution_id"] for each in rune(home).json("list")["executions"]] == [first]

    aside = Path(restored["set_aside"])
    os.rename(home / "rune.db", tmp_path / "gone.db")
    os.rename(aside, home / "rune.db")
    ids = {each["execution_id"] for each in rune(home).json("list")["executions"]}
    assert ids == {first, second}


def test_restore_of_invalid_file_is_rejected(tmp_path: Path) -> None:
    home = tmp_path / "home"
    first = start_gated(home)
    text, other, cut = (tmp_path / name for name in ("text", "other", "cut"))
    text.write_text("a text" * 1000)
    with sqlite3.connect(other) as made:
        made.execute("CREATE TABLE something (n)")
    rune(home).json("backup", str(cut))
    os.truncate(cut, cut.stat().st_size // 2)
    for bad in (tmp_path / "missing", text, other, cut):
        assert rune(home)("restore", str(bad), "--replace", "--json").exit_code in (2, 3)
        assert [each["execution_id"] for each in rune(home).json("list")["executions"]] == [first]
    assert [each.name for each in home.iterdir() if each.name.startswith(".rune.db-")] == []


def test_concurrent_backups(tmp_path: Path) -> None:
    home = tmp_path / "home"
    start_gated(home)
    counts: list[int] = []

    def take(number: int) -> None:
        from rune.adapters.sqlite.backup import create_backup as copy

        counts.append(copy(home / "rune.db", tmp_path / f"{number}.db").executions)

    threads = [threading.Thread(target=take, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(TIMEOUT_S)
    assert counts == [1, 1, 1, 1]


def test_backup_of_cluster_points_to_pg_dump(tmp_path: Path) -> None:
    cli = InProcessCli(tmp_path, RUNE_JOURNAL="postgresql://nowhere/rune", RUNE_STATE="redis://nowhere",
                RUNE_QUEUE="redis://nowhere")  # fmt: skip
    assert "pg_dump" in cli.json("backup", "x.db", code=2)["problems"][0]["message"]


def test_backup_into_missing_folder_is_reported(tmp_path: Path) -> None:
    home, target = tmp_path / "home", tmp_path / "gone" / "copy.db"
    home.mkdir()
    start_gated(home)
    done = rune(home)("backup", str(target))

    assert (done.exit_code, done.stderr) == (3, f"rune: {target}: no such file or directory\n")
