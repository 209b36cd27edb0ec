"""A command that follows an execution never owns the file: it waits for the next process that runs executions."""

from __future__ import annotations

import fcntl
import json
import os
import pathlib
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from rune.cli.main import COMMANDS, load_command
from tests.acceptance.cli.gated_run import GATED, gated_run, owner_pid, waits_for_signal
from tests.support.cli_process import TIMEOUT_S, Rune, until
from tests.support.documents import document, node
from tests.support.up_process import UpProcess

pytestmark = pytest.mark.long

SEND = node("send", "noop", {"effectful": True})
DEADLY = document(
    [node("start", "input"), SEND, node("gate", "wait", {"resume": "signal", "name": "go"})],
    "start>send",
    "send>gate",
    id="deadly",
)


class Follower:
    """A command that is left running, and the lines that it has printed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.out: list[str] = []
        self.err: list[str] = []
        streams = ((process.stdout, self.out), (process.stderr, self.err))
        self._readers = [
            threading.Thread(target=lines.extend, args=(stream,), daemon=True) for stream, lines in streams
        ]
        for each in self._readers:
            each.start()

    def said(self, text: str) -> bool | None:
        return any(text in line for line in self.err) or None

    def result(self) -> int:
        code = self.process.wait(TIMEOUT_S)
        for each in self._readers:
            each.join(TIMEOUT_S)
        return code


@contextmanager
def followed(rune: Rune, *arguments: str) -> Iterator[Follower]:
    with rune.begin(*arguments) as process:
        try:
            yield Follower(process)
        finally:
            process.kill()


@pytest.fixture
def rune(tmp_path: pathlib.Path) -> Rune:
    for raw in (GATED, DEADLY):
        (tmp_path / f"{raw['id']}.json").write_text(json.dumps(raw))
    rune = Rune(tmp_path / "home")
    rune.json("deploy", str(tmp_path / "gated.json"))
    return rune


@pytest.fixture
def up(rune: Rune) -> Iterator[UpProcess]:
    process = UpProcess(rune.home)
    yield process
    if process.port:
        process.stop(signal.SIGKILL)


def ended(rune: Rune, *by: str) -> str:
    with gated_run(rune, "before") as process:
        rune.json(*by)
        process.wait(TIMEOUT_S)
    return "before"


def dead(rune: Rune) -> str:
    deadly = Rune(rune.home, RUNE_FAILPOINT="ran")
    while deadly("run", str(rune.home.parent / "deadly.json"), "--key", "k").returncode == 137:
        pass
    (letter,) = rune.json("dlq")["dead_letters"]
    return str(letter["id"])


def arguments_of(rune: Rune, command: str) -> list[str]:
    """A call of the command that follows an execution that waits for the signal `go`."""
    match command:
        case "start":
            return ["gated", "--input", '{"n": 7}', "--wait"]
        case "retry":
            return [ended(rune, "cancel", "before"), "--wait"]
        case "rerun":
            return [ended(rune, "signal", "before", "go"), "--from", "gate", "--wait"]
        case "dlq requeue":
            return [dead(rune), "--wait"]
        case "watch":
            return [rune("start", "gated", "--input", '{"n": 7}').stdout.strip()]
    raise AssertionError(f"`rune {command}` has --wait: add a call of it here")


def waiting_commands() -> list[str]:
    """Every command with --wait, and `watch`."""
    found = ["watch"]
    for name in COMMANDS:
        command = load_command(name)
        below = getattr(command, "commands", {})
        for path, each in {name: command, **{f"{name} {sub}": each for sub, each in below.items()}}.items():
            if any("--wait" in parameter.opts for parameter in each.params):
                found.append(path)
    return found


def newest(rune: Rune) -> str | None:
    found: list[dict[str, Any]] = rune.json("list", "--status", "running")["executions"]
    return str(found[0]["execution_id"]) if found else None


@pytest.mark.parametrize("command", waiting_commands())
def test_follower_waits_for_every_next_owner(rune: Rune, up: UpProcess, command: str) -> None:
    arguments = arguments_of(rune, command)
    with followed(rune, *command.split(), *arguments) as follower:
        name = until(lambda: newest(rune), "the execution has started")
        until(lambda: follower.said("No process is running"), "the command says that it waits")
        assert owner_pid(rune) is None

        assert up.start("--no-examples").startswith("http"), "a server starts beside the command"
        until(lambda: waits_for_signal(rune, name), "the server runs the execution")
        up.stop(signal.SIGKILL)
        assert up.start("--no-examples").startswith("http"), "it starts again after it was killed"
        assert owner_pid(rune) == up.process.pid
        rune.json("signal", name, "go", "--value", '"went"')

        assert follower.result() == 0, follower.err
    assert rune.json("show", name)["status"] == "completed"
    assert rune.json("verify", "--all")["violations"] == 0


def test_follower_ends_with_execution_that_is_cancelled_while_no_process_runs_it(rune: Rune) -> None:
    with followed(rune, "start", "gated", "--input", '{"n": 7}', "--wait", "--json") as follower:
        name = until(lambda: newest(rune), "the execution has started")
        rune.json("cancel", name)
        assert follower.result() == 1

    assert json.loads("".join(follower.out))["status"] == "cancelled"


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_follower_that_waits_for_an_owner_stops_on_a_signal(
    rune: Rune, sent: signal.Signals, code: int
) -> None:
    with followed(rune, "start", "gated", "--input", '{"n": 7}', "--wait") as follower:
        until(lambda: follower.said("waits for the next `rune up` or `rune run`"), "it waits")
        follower.process.send_signal(sent)
        assert follower.result() == code

    assert follower.said("resumes with the next")


class TestServerBesideShortCommand:
    @pytest.fixture
    def held(self, rune: Rune) -> Iterator[int]:
        """The lock of the file, as a command has it that writes a change."""
        lock = os.open(rune.home / "rune.db.lock", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock
        os.close(lock)

    def test_server_starts_when_the_command_has_ended(self, rune: Rune, held: int) -> None:
        with followed(rune, "up", "--port", "0", "--json", "--no-examples") as up:
            until(lambda: up.said("waiting for it"), "the server waits")
            fcntl.flock(held, fcntl.LOCK_UN)
            until(lambda: up.out or None, "the server is up")
            up.process.terminate()
            assert up.result() == 0

    @pytest.mark.usefixtures("held")
    def test_server_that_waits_stops_on_a_signal(self, rune: Rune) -> None:
        with followed(rune, "up", "--port", "0", "--json") as up:
            until(lambda: up.said("waiting for it"), "the server waits")
            up.process.terminate()
            assert up.result() == 0

    @pytest.mark.usefixtures("held")
    def test_server_gives_up_after_the_start_timeout(self, rune: Rune) -> None:
        done = Rune(rune.home, RUNE_START_TIMEOUT="0")("up", "--port", "0")

        assert done.returncode == 3
        assert "in use by another process" in done.stderr

    def test_server_does_not_wait_for_a_process_that_runs_executions(self, rune: Rune) -> None:
        with gated_run(rune, "first") as process:
            done = rune("up", "--port", "0")

        assert done.returncode == 3
        assert f"in use by another process ({process.pid})" in done.stderr
        assert "waiting" not in done.stderr
