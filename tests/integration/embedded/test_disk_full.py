"""A full disk causes a clear error and no corruption; work resumes when space is free."""

from __future__ import annotations

import json
import os
import pathlib
import sqlite3
import subprocess
import sys
from collections.abc import Iterator

import pytest

from rune.server import health
from tests.support.api_server import RunningServer, run
from tests.support.forked_rune import PATHS
from tests.support.ledger_nodes import fill_disk
from tests.support.paths import ROOT
from tests.support.waiting import until

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
    mount = tmp_path / "disk"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(mount)], check=True)
    try:
        yield mount
    finally:
        subprocess.run(["umount", "--lazy", str(mount)], check=True)


def test_readiness_names_full_disk_until_space_is_free(
    disk: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "PROBE_PERIOD_S", 0.05)

    async def work(server: RunningServer) -> None:
        async def status() -> tuple[int, str]:
            answer = await server.http.get("/readyz")
            return answer.status_code, answer.text

        async def ready() -> bool:
            return (await status())[0] == 200

        async def full() -> bool:
            code, text = await status()
            return code == 503 and "the disk is full" in text

        await until(ready)
        fill_disk(disk / "filler")
        await until(full)
        (disk / "filler").unlink()
        await until(ready)

    run(disk, work)


def _start(disk: pathlib.Path, key: str, once: pathlib.Path) -> subprocess.Popen[str]:
    document = disk.parent / "workflow.json"
    document.write_text(json.dumps(DOCUMENT))
    payload = json.dumps({"filler": str(disk / "filler"), "once": str(once)})
    command = [sys.executable, "-m", "rune.cli.main", "run", str(document), "--json", "--key", key]
    command += ["--nodes", "tests.support.ledger_nodes", "--input", payload]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "RUNE_HOME": str(disk), "PYTHONPATH": PATHS},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def _exit_code(run: subprocess.Popen[str]) -> int:
    run.communicate(timeout=120)
    return run.returncode


def _is_intact(disk: pathlib.Path) -> bool:
    connection = sqlite3.connect(disk / "rune.db")
    try:
        return bool(connection.execute("PRAGMA integrity_check").fetchone() == ("ok",))
    finally:
        connection.close()


def test_start_on_full_disk_fails_without_corruption(disk: pathlib.Path, tmp_path: pathlib.Path) -> None:
    never = tmp_path / "never"
    never.touch()
    assert _exit_code(_start(disk, "a", never)) == 0
    fill_disk(disk / "filler")

    refused = _start(disk, "b", never)
    out, err = refused.communicate(timeout=120)

    assert refused.returncode == 3, out + err
    assert json.loads(out)["problems"][0]["code"] == "STORE_AWAY"
    (disk / "filler").unlink()
    assert _is_intact(disk)
    assert _exit_code(_start(disk, "b", never)) == 0


def test_run_waits_while_disk_is_full(disk: pathlib.Path, tmp_path: pathlib.Path) -> None:
    run = _start(disk, "a", tmp_path / "once")
    assert run.stderr is not None
    assert any("store unavailable" in line for line in run.stderr), "the outage is logged"
    (disk / "filler").unlink()

    out, _ = run.communicate(timeout=60)

    assert run.returncode == 0
    assert json.loads(out)["output"] == "filled"
    assert _is_intact(disk)
