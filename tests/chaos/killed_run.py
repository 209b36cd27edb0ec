"""A test that starts what test runs start, reports it and never ends. Run only by `test_killed_run.py`."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from tests.support.cli_process import Rune
from tests.support.forked_rune import ForkedRune, fork_server
from tests.support.services.keeper import RUN, memory_folder
from tests.support.services.postgres import database_of, server
from tests.support.services.redis_server import RedisServer
from tests.support.up_process import UpProcess


def test_that_never_ends(tmp_path: Path) -> None:
    postgres = server()
    postgres.create(database_of(tmp_path))
    redis = RedisServer()
    up = UpProcess(tmp_path)
    up.start()
    assert Rune(tmp_path)("--version").returncode == 0
    report = {
        "folders": [os.environ[RUN], str(memory_folder() or tmp_path), str(postgres.folder), str(tmp_path)],
        "processes": [
            os.getpid(),
            int((postgres.data / "postmaster.pid").read_text().split()[0]),
            redis.process_id,
            up.process.pid,
            fork_server(ForkedRune.module).process_id,
        ],
    }
    written = Path(os.environ["KILLED_RUN_REPORT"]) / f"{os.getpid()}.new"
    written.write_text(json.dumps(report))
    written.rename(written.with_suffix(".json"))
    signal.pause()
