"""Several `rune run` processes share one file; one owns it, and another takes over when it ends."""

from __future__ import annotations

import fcntl
import json
import os
import pathlib
import signal
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.acceptance.cli.gated_run import GATED, gated_run, owner_pid, result_of, send_go, waits_for_signal
from tests.support.cli_process import TIMEOUT_S, Rune, until
from tests.support.documents import document, node

pytestmark = pytest.mark.long

ADD = document(
    [node("a", "input"), node("b", "output", parameters={"value": "{{ $trigger.n + 1 }}"})], "a>b", id="add"
)


@pytest.fixture
def rune(tmp_path: pathlib.Path) -> Rune:
    for raw in (ADD, GATED):
        (tmp_path / f"{raw['id']}.json").write_text(json.dumps(raw))
    return Rune(tmp_path / "home")


def check_audit(rune: Rune, executions: int) -> None:
    report = rune.json("verify", "--all")
    assert (report["executions"], report["violations"], report["totals"]["repeated"]) == (executions, 0, 0)


@pytest.mark.parametrize("number", [2, 5])
def test_concurrent_runs_all_succeed(rune: Rune, tmp_path: pathlib.Path, number: int) -> None:
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                rune.begin("run", str(tmp_path / "add.json"), "--json", "--input", json.dumps({"n": n}))
            )
            for n in range(number)
        ]
        outputs = [result_of(each)["output"] for each in processes]

    assert outputs == [n + 1 for n in range(number)]
    assert len(rune.json("list")["executions"]) == number
    check_audit(rune, number)


def test_run_beside_owner_prints_same_output(rune: Rune, tmp_path: pathlib.Path) -> None:
    with gated_run(rune, "first") as process:
        result = rune.json(
            "run", str(tmp_path / "add.json"), "--input", '{"n": 1}', "--id", "add-1", "--label", "a=b"
        )
        shown = rune("run", str(tmp_path / "add.json"), "--input", '{"n": 41}')
        halted = rune("run", str(tmp_path / "add.json"), "--input", '{"n": "one"}')

        assert process.poll() is None
        assert owner_pid(rune) == process.pid

    assert (result["execution_id"], result["output"], result["completed_at"] is None) == ("add-1", 2, False)
    assert [each["node_id"] for each in result["nodes"]] == ["a", "b"]
    assert result == rune.json("show", "add-1")
    assert shown.stdout.splitlines()[-1] == "42"
    assert halted.returncode == 1
    listed = {each["execution_id"]: each["labels"] for each in rune.json("list")["executions"]}
    assert listed["add-1"] == {"a": "b"}


def test_keys_and_ids_are_unique_beside_owner(rune: Rune, tmp_path: pathlib.Path) -> None:
    add = ("run", str(tmp_path / "add.json"), "--input", '{"n": 1}')
    with gated_run(rune, "first"):
        first = rune.json(*add, "--key", "k", "--id", "one")
        again = rune.json(*add, "--key", "k")
        (conflict,) = rune.json(*add[:3], '{"n": 2}', "--key", "k", code=2)["problems"]
        (taken,) = rune.json(*add, "--id", "one", code=2)["problems"]

    assert first == again
    assert (conflict["code"], taken["code"]) == ("KEY_CONFLICT", "DUPLICATE_ID")


def test_other_process_takes_over_after_owner_is_killed(rune: Rune) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(gated_run(rune, "first"))
        others = {f"s-{n}": stack.enter_context(gated_run(rune, f"s-{n}", "--json")) for n in range(3)}
        assert owner_pid(rune) == first.pid
        first.kill()
        first.wait(TIMEOUT_S)
        pids = {each.pid for each in others.values()}
        until(lambda: owner_pid(rune) in pids or None, "one of them owns the file")
        for name in others:
            send_go(rune, name)
        result = [result_of(each) for each in others.values()]

    assert [(each["execution_id"], each["output"]) for each in result] == [
        (name, [7, "went"]) for name in others
    ]
    assert waits_for_signal(rune, "first")
    check_audit(rune, 4)


def test_other_process_takes_over_after_owner_exits(rune: Rune) -> None:
    with gated_run(rune, "first", "--json") as first, gated_run(rune, "second", "--json") as second:
        assert owner_pid(rune) == first.pid
        send_go(rune, "first")
        result_of(first)
        until(lambda: owner_pid(rune) == second.pid or None, "the other process owns the file")
        send_go(rune, "second")
        result_of(second)

    assert not (rune.home / "rune.sock").exists()
    check_audit(rune, 2)


def test_other_process_takes_over_after_owner_is_interrupted(rune: Rune) -> None:
    with gated_run(rune, "first") as first, gated_run(rune, "second", "--json") as second:
        first.send_signal(signal.SIGINT)
        _, err = first.communicate(timeout=TIMEOUT_S)
        until(lambda: owner_pid(rune) == second.pid or None, "the other process owns the file")
        send_go(rune, "second")
        result_of(second)

    assert first.returncode == 130
    assert "first resumes with the next" in err
    assert waits_for_signal(rune, "first")


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupt_of_client_leaves_owner_running(rune: Rune, sent: signal.Signals, code: int) -> None:
    with gated_run(rune, "first") as first, gated_run(rune, "second", "--json") as second:
        second.send_signal(sent)
        out, err = second.communicate(timeout=TIMEOUT_S)

        assert first.poll() is None

    assert second.returncode == code
    assert f"second runs in process {first.pid}" in err
    assert "Traceback" not in err
    assert json.loads(out)["status"] == "running"


def test_node_type_missing_in_owner_is_reported(rune: Rune, tmp_path: pathlib.Path) -> None:
    (tmp_path / "acme_nodes.py").write_text(
        "from rune.nodes.custom import node\n\n\n"
        "@node('acme.twice')\n"
        "def twice(n: int) -> dict:\n"
        "    return {'n': 2 * n}\n"
    )
    raw = document([node("a", "input"), node("b", "acme.twice", parameters={"n": 4})], "a>b", id="acme")
    (tmp_path / "acme.json").write_text(json.dumps(raw))
    with_nodes = Rune(rune.home, PYTHONPATH=f"{os.environ.get('PYTHONPATH', '')}:{tmp_path}:src")
    run = ("run", str(tmp_path / "acme.json"), "--nodes", "acme_nodes")
    with gated_run(rune, "first"):
        (problem,) = with_nodes.json(*run, code=2)["problems"]

    assert problem["code"] == "OWNER_LACKS_TYPE"
    assert with_nodes.json(*run)["output"] == {"b": {"n": 8}}


class TestStartingOwner:
    """The test holds the lock of the file, like an owner that is still starting."""

    @pytest.fixture
    def held(self, rune: Rune) -> Iterator[int]:
        lock = os.open(rune.home / "rune.db.lock", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock
        os.close(lock)

    def test_run_survives_owner_that_exits_without_reply(
        self, rune: Rune, tmp_path: pathlib.Path, held: int
    ) -> None:
        with rune.begin("run", str(tmp_path / "add.json"), "--json", "--input", '{"n": 1}') as process:
            # The file is in use and no socket accepts connections, so that the run keeps trying to connect.
            with socket.socket(socket.AF_UNIX) as listener:
                listener.settimeout(TIMEOUT_S)
                listener.bind(str(rune.home / "rune.sock"))
                listener.listen()
                for _ in range(2):
                    connection, _ = listener.accept()
                    connection.close()
            fcntl.flock(held, fcntl.LOCK_UN)
            assert result_of(process)["output"] == 2

        assert not (rune.home / "rune.sock").exists()


def test_owner_socket_works_in_long_path(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / ("n" * 120) / ("m" * 120)
    folder.mkdir(parents=True)
    rune = Rune(folder / "home")
    for raw in (ADD, GATED):
        (folder / f"{raw['id']}.json").write_text(json.dumps(raw))

    with gated_run(rune, "first"):
        assert rune.json("run", str(folder / "add.json"), "--input", '{"n": 1}')["output"] == 2


def test_stale_socket_is_replaced(rune: Rune, tmp_path: pathlib.Path) -> None:
    with gated_run(rune, "first") as first:
        first.kill()
        first.wait(TIMEOUT_S)
    assert (rune.home / "rune.sock").is_socket()

    with gated_run(rune, "second"):
        assert rune.json("run", str(tmp_path / "add.json"), "--input", '{"n": 1}')["output"] == 2
        assert (rune.home / "rune.sock").stat().st_mode & 0o777 == 0o600


def test_malformed_input_does_not_crash_owner(rune: Rune, tmp_path: pathlib.Path) -> None:
    with gated_run(rune, "first") as process, ExitStack() as stack:
        for data in (
            b"GET / HTTP/1.1\r\n\r\n",
            struct.pack(">BI", 1, 2**32 - 1),
            struct.pack(">BI", 1, 1000) + b"half",
            struct.pack(">BI", 1, 3) + b"\xc1\xc1\xc1",
            b"\xff" * 1_000_000,
        ):
            client = stack.enter_context(socket.socket(socket.AF_UNIX))
            client.connect(str(rune.home / "rune.sock"))
            try:
                client.sendall(data)  # the connection stays open
            except (BrokenPipeError, ConnectionResetError):
                continue  # the owner closed the connection before all data was sent
        assert rune.json("run", str(tmp_path / "add.json"), "--input", '{"n": 1}')["output"] == 2
        assert process.poll() is None
        process.terminate()
        _, err = process.communicate(timeout=TIMEOUT_S)

    assert "Traceback" not in err
