"""A copy of the embedded file, taken while it is written to, holds everything that was acknowledged and goes on."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from pathlib import Path

from tests.acceptance.cli.here import Here
from tests.chaos.embedded import spawn
from tests.chaos.load import NODES, Keys
from tests.integration.cluster.commands import GATED, named

ENDED = 15
PATIENCE = 180.0


def rune(home: Path) -> Here:
    return Here(home, RUNE_NODES=",".join(NODES))


def started(home: Path) -> str:
    """An execution that nobody runs."""
    here = rune(home)
    path = home.parent / "gated.json"
    path.write_text(json.dumps(named(GATED, "gated")))
    here.json("deploy", str(path))
    return str(here.json("start", "gated", "--input", '{"n": 1}')["execution_id"])


def test_a_copy_that_is_taken_under_load_goes_on(tmp_path: Path) -> None:
    home, other, copy = tmp_path / "home", tmp_path / "other", tmp_path / "copy.db"
    home.mkdir()
    with spawn(home) as loaded:
        assert loaded.stdout is not None
        try:
            for _ in range(ENDED):
                assert loaded.stdout.readline()
            acked = set(Keys(home).acked.values())
            told = rune(home).json("backup", str(copy))
            refused = rune(home).json("restore", str(copy), "--replace", code=3)["problems"][0]
            assert "in use by another process" in refused["message"]
            assert loaded.stdout.readline()  # it went on meanwhile
        finally:
            loaded.kill()
    assert told["executions"] >= len(acked) > ENDED
    assert told["running"] > 0

    restored = rune(other)
    assert restored.json("restore", str(copy))["executions"] == told["executions"]
    ids = {each["execution_id"] for each in restored.json("list", "--limit", "100000")["executions"]}
    assert acked <= ids
    assert restored.json("audit", "--all")["violations"] == 0
    keys = Keys(other)  # of everything that is in the copy: that is what has to end
    for number, each in enumerate(sorted(ids)):
        keys.note(f"ack k{number} {each}")
    with spawn(other, "--drain") as going_on:
        assert going_on.wait(timeout=PATIENCE) == 0
    report = restored.json("audit", "--all")
    assert (report["violations"], report["totals"]["open"]) == (0, 0)
    assert restored.json("list", "--status", "running")["executions"] == []


def test_a_copy_is_one_file_that_only_its_owner_reads(tmp_path: Path) -> None:
    started(tmp_path / "home")
    copy = tmp_path / "kept" / "copy.db"
    copy.parent.mkdir()
    said = rune(tmp_path / "home").said("backup", str(copy))
    assert "backed up 1 execution (1 not ended) to" in said
    assert [each.name for each in copy.parent.iterdir()] == ["copy.db"]
    assert copy.stat().st_mode & 0o077 == 0
    assert rune(tmp_path / "home").json("backup", str(copy), code=2)["problems"][0]["code"] == "BAD_COPY"


def test_what_is_there_is_replaced_only_when_told_to_and_then_set_aside(tmp_path: Path) -> None:
    home, copy = tmp_path / "home", tmp_path / "copy.db"
    first = started(home)
    rune(home).json("backup", str(copy))
    second = started(home)
    assert rune(home).json("restore", str(copy), code=2)["problems"][0]["code"] == "BAD_COPY"
    told = rune(home).json("restore", str(copy), "--replace")
    assert [each["execution_id"] for each in rune(home).json("list")["executions"]] == [first]

    aside = Path(told["set_aside"])
    os.rename(home / "rune.db", tmp_path / "gone.db")
    os.rename(aside, home / "rune.db")
    ids = {each["execution_id"] for each in rune(home).json("list")["executions"]}
    assert ids == {first, second}


def test_what_is_no_copy_is_not_put_back(tmp_path: Path) -> None:
    home = tmp_path / "home"
    first = started(home)
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


def test_several_copies_at_once(tmp_path: Path) -> None:
    home = tmp_path / "home"
    started(home)
    told: list[int] = []

    def take(number: int) -> None:
        from rune.adapters.sqlite.backup import create_backup as copy

        told.append(copy(home / "rune.db", tmp_path / f"{number}.db").executions)

    threads = [threading.Thread(target=take, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(PATIENCE)
    assert told == [1, 1, 1, 1]


def test_a_cluster_is_copied_by_other_means(tmp_path: Path) -> None:
    here = Here(tmp_path, RUNE_JOURNAL="postgresql://nowhere/rune", RUNE_STATE="redis://nowhere",
                RUNE_QUEUE="redis://nowhere")  # fmt: skip
    assert "pg_dump" in here.json("backup", "x.db", code=2)["problems"][0]["message"]


def test_a_copy_into_a_folder_that_is_not_there_is_refused_by_its_name(tmp_path: Path) -> None:
    home, target = tmp_path / "home", tmp_path / "gone" / "copy.db"
    home.mkdir()
    started(home)
    done = rune(home)("backup", str(target))

    assert (done.exit_code, done.stderr) == (3, f"rune: {target}: no such file or directory\n")
