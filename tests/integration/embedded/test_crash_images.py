"""Copies of the database at random instants under load, as a power cut leaves it, can be opened and resumed."""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import subprocess
import threading
from random import Random

from tests.chaos.embedded import audit, spawn

IMAGES = int(os.environ.get("RUNE_IMAGES", "8"))
DEADLINE = 60


def _copy(process: subprocess.Popen[bytes], home: pathlib.Path, image: pathlib.Path) -> None:
    """Copy all files at one instant, while the process is stopped."""
    image.mkdir()
    process.send_signal(signal.SIGSTOP)
    try:
        for name in ("rune.db", "rune.db-wal", "ledger"):
            if (home / name).exists():
                shutil.copyfile(home / name, image / name)
        # Keys last: every start that was acknowledged by now is in the files above.
        shutil.copyfile(home / "keys", image / "keys")
    finally:
        process.send_signal(signal.SIGCONT)


def test_every_crash_image_runs_to_completion(tmp_path: pathlib.Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    rng = Random(IMAGES)
    with spawn(home) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline()
            for number in range(IMAGES):
                threading.Event().wait(rng.uniform(0.0, 0.1))
                _copy(process, home, tmp_path / f"image{number}")
        finally:
            process.kill()
    for number in range(IMAGES):
        image = tmp_path / f"image{number}"
        with spawn(image, "--drain") as again:
            assert again.wait(timeout=DEADLINE) == 0, f"image {number} does not run to its end"
        report = audit(image)
        assert (report["violations"], report["open"]) == (0, 0), report
        assert report["executions"] > 0
        shutil.rmtree(image)
