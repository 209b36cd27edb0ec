"""A full disk: a clear answer, nothing damaged, and work goes on when there is room again."""

from __future__ import annotations

import json
import os
import pathlib
import sqlite3
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.integration.embedded.forks import PATHS
from tests.integration.embedded.ledger_nodes import fill_disk
from tests.support.paths import ROOT

DOCUMENT = {
    "id": "filling",
    "nodes": [
        {"id": "in", "type": "input"},
        {
            "id": "f",
            "type": "ledger.fill",
            "parameters": {"filler": "$trigger.filler", "once": "$trigger.once"},
        },
        {"id": "out", "type": "output", "parameters": {"value": "$f"}},
    ],
    "edges": [{"src": "in", "dst": "f"}, {"src": "f", "dst": "out"}],
}


@pytest.fixture
def disk(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A file system of two megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def _start(disk: pathlib.Path, key: str, once: pathlib.Path) -> subprocess.Popen[str]:
    document = disk.parent / "workflow.json"
    document.write_text(json.dumps(DOCUMENT))
    payload = json.dumps({"filler": str(disk / "filler"), "once": str(once)})
    command = [sys.executable, "-m", "rune.cli.main", "run", str(document), "--json", "--key", key]
    command += ["--nodes", "tests.integration.embedded.ledger_nodes", "--input", payload]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "RUNE_HOME": str(disk), "PYTHONPATH": PATHS},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def _code(run: subprocess.Popen[str]) -> int:
    run.communicate(timeout=120)
    return run.returncode


def _is_sound(disk: pathlib.Path) -> bool:
    connection = sqlite3.connect(disk / "rune.db")
    try:
        return bool(connection.execute("PRAGMA integrity_check").fetchone() == ("ok",))
    finally:
        connection.close()


def test_a_full_disk_at_the_start_is_told_and_harms_nothing(
    disk: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    never = tmp_path / "never"
    never.touch()
    assert _code(_start(disk, "a", never)) == 0
    fill_disk(disk / "filler")

    refused = _start(disk, "b", never)
    out, err = refused.communicate(timeout=120)

    assert refused.returncode == 3, out + err
    assert json.loads(out)["problems"][0]["code"] == "STORE_AWAY"
    (disk / "filler").unlink()
    assert _is_sound(disk)
    assert _code(_start(disk, "b", never)) == 0


def test_a_disk_that_fills_up_under_way_is_waited_for(disk: pathlib.Path, tmp_path: pathlib.Path) -> None:
    run = _start(disk, "a", tmp_path / "once")
    assert run.stderr is not None
    assert any("store unavailable" in line for line in run.stderr), "the outage is logged"
    (disk / "filler").unlink()

    out, _ = run.communicate(timeout=60)

    assert run.returncode == 0
    assert json.loads(out)["output"] == "filled"
    assert _is_sound(disk)
