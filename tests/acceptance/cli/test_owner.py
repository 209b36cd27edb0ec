"""One owner, many processes: all of them run what they were asked to run, whoever is killed meanwhile."""

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

from tests.acceptance.cli.gated import GATED, begun, finished, go, owner, waits
from tests.acceptance.cli.process import PATIENCE, Rune, until
from tests.unit.core.documents import document, node

ADD = document(
    [node("a", "input"), node("b", "output", parameters={"value": "{{ $trigger.n + 1 }}"})], "a>b", id="add"
)


@pytest.fixture
def rune(tmp_path: pathlib.Path) -> Rune:
    for raw in (ADD, GATED):
        (tmp_path / f"{raw['id']}.json").write_text(json.dumps(raw))
    return Rune(tmp_path / "home")


def sound(rune: Rune, executions: int) -> None:
    report = rune.json("audit", "--all")
    assert (report["executions"], report["violations"], report["totals"]["repeated"]) == (executions, 0, 0)


@pytest.mark.parametrize("number", [2, 5])
def test_many_runs_at_once_all_succeed(rune: Rune, tmp_path: pathlib.Path, number: int) -> None:
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                rune.begin("run", str(tmp_path / "add.json"), "--json", "--input", json.dumps({"n": n}))
            )
            for n in range(number)
        ]
        outputs = [finished(each)["output"] for each in processes]

    assert outputs == [n + 1 for n in range(number)]
    assert len(rune.json("list")["executions"]) == number
    sound(rune, number)


def test_a_run_beside_an_owner_prints_what_it_would_print_alone(rune: Rune, tmp_path: pathlib.Path) -> None:
    with begun(rune, "first") as process:
        told = rune.json(
            "run", str(tmp_path / "add.json"), "--input", '{"n": 1}', "--id", "add-1", "--label", "a=b"
        )
        shown = rune("run", str(tmp_path / "add.json"), "--input", '{"n": 41}')
        halted = rune("run", str(tmp_path / "add.json"), "--input", '{"n": "one"}')

        assert process.poll() is None
        assert owner(rune) == process.pid

    assert (told["execution_id"], told["output"], told["completed_at"] is None) == ("add-1", 2, False)
    assert [each["node_id"] for each in told["nodes"]] == ["a", "b"]
    assert told == rune.json("show", "add-1")
    assert shown.stdout.splitlines()[-1] == "42"
    assert halted.returncode == 1
    listed = {each["execution_id"]: each["labels"] for each in rune.json("list")["executions"]}
    assert listed["add-1"] == {"a": "b"}


def test_keys_and_ids_count_beside_an_owner_too(rune: Rune, tmp_path: pathlib.Path) -> None:
    add = ("run", str(tmp_path / "add.json"), "--input", '{"n": 1}')
    with begun(rune, "first"):
        first = rune.json(*add, "--key", "k", "--id", "one")
        again = rune.json(*add, "--key", "k")
        (conflict,) = rune.json(*add[:3], '{"n": 2}', "--key", "k", code=2)["problems"]
        (taken,) = rune.json(*add, "--id", "one", code=2)["problems"]

    assert first == again
    assert (conflict["code"], taken["code"]) == ("KEY_CONFLICT", "DUPLICATE_ID")


def test_after_kill_9_of_the_owner_one_of_the_others_takes_over(rune: Rune) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(begun(rune, "first"))
        others = {f"s-{n}": stack.enter_context(begun(rune, f"s-{n}", "--json")) for n in range(3)}
        assert owner(rune) == first.pid
        first.kill()
        first.wait(PATIENCE)
        pids = {each.pid for each in others.values()}
        until(lambda: owner(rune) in pids or None, "one of them owns the file")
        for name in others:
            go(rune, name)
        told = [finished(each) for each in others.values()]

    assert [(each["execution_id"], each["output"]) for each in told] == [
        (name, [7, "went"]) for name in others
    ]
    assert waits(rune, "first")
    sound(rune, 4)


def test_after_a_graceful_end_of_the_owner_another_takes_over(rune: Rune) -> None:
    with begun(rune, "first", "--json") as first, begun(rune, "second", "--json") as second:
        assert owner(rune) == first.pid
        go(rune, "first")
        finished(first)
        until(lambda: owner(rune) == second.pid or None, "the other is the owner")
        go(rune, "second")
        finished(second)

    assert not (rune.home / "rune.sock").exists()
    sound(rune, 2)


def test_a_stop_of_the_owner_hands_over(rune: Rune) -> None:
    with begun(rune, "first") as first, begun(rune, "second", "--json") as second:
        first.send_signal(signal.SIGINT)
        _, err = first.communicate(timeout=PATIENCE)
        until(lambda: owner(rune) == second.pid or None, "the other is the owner")
        go(rune, "second")
        finished(second)

    assert first.returncode == 130
    assert "first resumes with the next" in err
    assert waits(rune, "first")


@pytest.mark.parametrize(("asked", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stop_beside_the_owner_stops_nothing_else(rune: Rune, asked: signal.Signals, code: int) -> None:
    with begun(rune, "first") as first, begun(rune, "second", "--json") as second:
        second.send_signal(asked)
        out, err = second.communicate(timeout=PATIENCE)

        assert first.poll() is None

    assert second.returncode == code
    assert f"second runs in process {first.pid}" in err
    assert "Traceback" not in err
    assert json.loads(out)["status"] == "running"


def test_a_node_type_that_the_owner_lacks_is_named(rune: Rune, tmp_path: pathlib.Path) -> None:
    (tmp_path / "acme_nodes.py").write_text(
        "from rune.nodes.custom import node\n\n\n"
        "@node('acme.twice')\n"
        "def twice(n: int) -> dict:\n"
        "    return {'n': 2 * n}\n"
    )
    raw = document([node("a", "input"), node("b", "acme.twice", parameters={"n": 4})], "a>b", id="acme")
    (tmp_path / "acme.json").write_text(json.dumps(raw))
    knowing = Rune(rune.home, PYTHONPATH=f"{os.environ.get('PYTHONPATH', '')}:{tmp_path}:src")
    run = ("run", str(tmp_path / "acme.json"), "--nodes", "acme_nodes")
    with begun(rune, "first"):
        (problem,) = knowing.json(*run, code=2)["problems"]

    assert problem["code"] == "OWNER_LACKS_TYPE"
    assert knowing.json(*run)["output"] == {"b": {"n": 8}}


class TestBefore:
    """The test itself holds the lock, as an owner does that has not come far."""

    @pytest.fixture
    def held(self, rune: Rune) -> Iterator[int]:
        rune.home.mkdir()
        lock = os.open(rune.home / "rune.db.lock", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock
        os.close(lock)

    def test_an_owner_that_goes_before_it_answers(
        self, rune: Rune, tmp_path: pathlib.Path, held: int
    ) -> None:
        with rune.begin("run", str(tmp_path / "add.json"), "--json", "--input", '{"n": 1}') as process:
            # It has found the file in use and nobody listening, and tries again until somebody does.
            with socket.socket(socket.AF_UNIX) as listener:
                listener.settimeout(PATIENCE)
                listener.bind(str(rune.home / "rune.sock"))
                listener.listen()
                for _ in range(2):
                    connection, _ = listener.accept()
                    connection.close()
            fcntl.flock(held, fcntl.LOCK_UN)
            assert finished(process)["output"] == 2

        assert not (rune.home / "rune.sock").exists()


def test_a_home_with_a_long_name(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / ("n" * 120) / ("m" * 120)
    folder.mkdir(parents=True)
    rune = Rune(folder / "home")
    for raw in (ADD, GATED):
        (folder / f"{raw['id']}.json").write_text(json.dumps(raw))

    with begun(rune, "first"):
        assert rune.json("run", str(folder / "add.json"), "--input", '{"n": 1}')["output"] == 2


def test_the_socket_of_a_killed_owner_is_replaced(rune: Rune, tmp_path: pathlib.Path) -> None:
    with begun(rune, "first") as first:
        first.kill()
        first.wait(PATIENCE)
    assert (rune.home / "rune.sock").is_socket()

    with begun(rune, "second"):
        assert rune.json("run", str(tmp_path / "add.json"), "--input", '{"n": 1}')["output"] == 2
        assert (rune.home / "rune.sock").stat().st_mode & 0o777 == 0o600


def test_hostile_bytes_do_not_harm_the_owner(rune: Rune, tmp_path: pathlib.Path) -> None:
    with begun(rune, "first") as process, ExitStack() as stack:
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
                client.sendall(data)  # and stays connected
            except (BrokenPipeError, ConnectionResetError):
                continue  # it was shown the door before it had said all
        assert rune.json("run", str(tmp_path / "add.json"), "--input", '{"n": 1}')["output"] == 2
        assert process.poll() is None
        process.terminate()
        _, err = process.communicate(timeout=PATIENCE)

    assert "Traceback" not in err
