"""Error messages for unreachable stores and invalid settings; they contain no passwords."""

from __future__ import annotations

import pathlib
import socket

import pytest

from tests.support.backends import stores
from tests.support.cli_process import Rune
from tests.support.in_process_cli import InProcessCli
from tests.support.services.redis_server import RedisServer

NOWHERE = "postgresql://rune:hush-hush@127.0.0.1:1/rune"
NO_REDIS = "redis://:hush-hush@127.0.0.1:1/0"
SERVE = (("serve", "worker"), ("serve", "scheduler"))
OTHERS = (("list",), ("workers",), ("migrate",), ("start", "orders"), ("prune", "--keep", "1"))


@pytest.mark.parametrize("command", [*SERVE, *OTHERS], ids=" ".join)
def test_unreachable_stores_are_named_without_passwords(
    command: tuple[str, ...], tmp_path: pathlib.Path
) -> None:
    rune = InProcessCli(
        tmp_path, RUNE_JOURNAL=NOWHERE, RUNE_STATE=NO_REDIS, RUNE_QUEUE=NO_REDIS, RUNE_START_TIMEOUT="0"
    )
    done = rune(*command)
    assert done.exit_code == 3, done.output
    assert "127.0.0.1" in done.output
    assert "hush-hush" not in done.output
    assert "Traceback" not in done.output


@pytest.mark.parametrize("role", ["worker", "scheduler"])
def test_unreachable_redis_is_named(role: str, tmp_path: pathlib.Path) -> None:
    journal = stores(tmp_path).journal
    at_once = {"RUNE_START_TIMEOUT": "0"}
    done = Rune(tmp_path, RUNE_JOURNAL=journal, RUNE_STATE=NO_REDIS, RUNE_QUEUE=NO_REDIS, **at_once)(
        "serve", role
    )
    assert done.returncode == 3, done.stdout + done.stderr
    assert "Redis cannot be reached" in done.stderr
    assert "hush-hush" not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_rejected_redis_password_is_not_shown(tmp_path: pathlib.Path) -> None:
    protected = RedisServer()
    try:
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(protected.socket)
            line.sendall(b"CONFIG SET requirepass open-sesame\r\n")
            assert line.recv(3) == b"+OK"
        url = f"unix://:hush-hush@{protected.socket}"
        rune = InProcessCli(
            tmp_path,
            RUNE_JOURNAL=stores(tmp_path).journal,
            RUNE_STATE=url,
            RUNE_QUEUE=url,
            RUNE_START_TIMEOUT="0",
        )
        done = rune("serve", "worker")
        checks = {each["check"]: each for each in rune.json("doctor", code=1)["checks"]}
    finally:
        protected.stop()
    assert done.exit_code == 3, done.output
    assert "WRONGPASS" in done.output
    assert (checks["postgresql"]["verdict"], checks["redis"]["verdict"]) == ("ok", "bad")
    assert "hush-hush" not in done.output + str(checks)


def test_doctor_reports_unreachable_stores(tmp_path: pathlib.Path) -> None:
    rune = InProcessCli(tmp_path, RUNE_JOURNAL=NOWHERE, RUNE_STATE=NO_REDIS, RUNE_QUEUE=NO_REDIS)
    checks = {each["check"]: each for each in rune.json("doctor", code=1)["checks"]}
    assert {name for name, each in checks.items() if each["verdict"] == "bad"} == {"postgresql", "redis"}
    assert "hush-hush" not in str(checks)


def test_doctor_warns_without_workers_and_schedulers(tmp_path: pathlib.Path) -> None:
    made = stores(tmp_path)
    rune = InProcessCli(
        tmp_path, RUNE_JOURNAL=made.journal, RUNE_STATE=made.state, RUNE_QUEUE=made.queue, RUNE_PREFIX="alone"
    )
    checks = {each["check"]: each for each in rune.json("doctor")["checks"]}
    assert (checks["workers"]["verdict"], checks["schedulers"]["verdict"]) == ("warn", "warn")
    assert "rune serve worker" in checks["workers"]["advice"]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({}, "rune serve"),
        ({"RUNE_JOURNAL": NOWHERE}, "RUNE_STATE"),
        ({"RUNE_JOURNAL": NOWHERE, "RUNE_STATE": NO_REDIS}, "RUNE_QUEUE"),
        ({"RUNE_JOURNAL": "mysql://rune:hush-hush@localhost/rune"}, "RUNE_JOURNAL"),
        ({"RUNE_STATE": NO_REDIS}, "RUNE_STATE"),
        (
            {"RUNE_JOURNAL": NOWHERE, "RUNE_STATE": NO_REDIS, "RUNE_QUEUE": "redis://other:6379"},
            "RUNE_QUEUE",
        ),
        (
            {"RUNE_JOURNAL": NOWHERE, "RUNE_STATE": NO_REDIS, "RUNE_QUEUE": NO_REDIS, "RUNE_SLOTS": "many"},
            "slots",
        ),
        (
            {"RUNE_JOURNAL": NOWHERE, "RUNE_STATE": NO_REDIS, "RUNE_QUEUE": NO_REDIS, "RUNE_BLOB": "ftp://x"},
            "RUNE_BLOB",
        ),
    ],
    ids=str,
)
def test_invalid_settings_exit_with_2_and_are_named(
    settings: dict[str, str], text: str, tmp_path: pathlib.Path
) -> None:
    done = InProcessCli(tmp_path, **settings)("serve", "worker")
    assert done.exit_code == 2, done.output
    assert text in done.output
    assert "hush-hush" not in done.output
    assert "Traceback" not in done.output
